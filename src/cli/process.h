/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_PROCESS_H
#define VIA_CLI_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/types.h"

/* A process, identified by more than its id, because the kernel reuses ids. pid 0: none. */
struct via_process {
    pid_t pid;
    uint64_t start_ticks; /* since boot: field 22 of /proc/PID/stat */
};

/* 0; -ESRCH: there is no such process, or it is a zombie. */
int via_process_identify(pid_t pid, struct via_process *ret_process) VIA_MUST_CHECK;

bool via_process_is_alive(const struct via_process *process);

/* Opens a pidfd, which the caller closes, and which refers to this process even if its id is
 * reused. -ESRCH. */
int via_process_open(const struct via_process *process) VIA_MUST_CHECK;

/* CLOCK_MONOTONIC, for deadlines. */
uint64_t via_process_now_ns(void);

#endif
