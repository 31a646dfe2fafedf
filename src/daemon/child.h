/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_CHILD_H
#define VIA_DAEMON_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "host/host_source.h"

/*
 * A program that the daemon runs beside itself: `viaduct` of the same folder, in a process group of
 * its own. The last bytes of its output are kept. Owned by the control thread.
 */
#define VIA_CHILD_SAID_BYTES 512u
#define VIA_CHILD_WORDS_MAX 16u

struct via_child {
    pid_t pid; /* 0 = it does not run */
    struct via_host *host;
    struct via_host_source output; /* pipe */
    struct via_host_source end;    /* pidfd */
    char said[VIA_CHILD_SAID_BYTES];
    size_t bytes;
    /* It has ended, with this status of waitpid(2); what it printed is in `said`. */
    void (*ended)(struct via_child *child, int status);
};

#define VIA_CHILD_NONE                           \
    (struct via_child)                           \
    {                                            \
        .output = {.fd = -1}, .end = {.fd = -1}, \
    }

/* words: what follows "viaduct", NULL behind the last. VIADUCT_RUNDIR and VIADUCT_HOST are set for
 * it, and no other variable of that kind. */
VIA_MUST_CHECK int via_child_start(struct via_child *child, struct via_host *host,
                                   const char *rundir, unsigned id, const char *const *words,
                                   struct via_error *err);
/* With all of its group; `ended` follows. */
void via_child_kill(struct via_child *child);
/* Kills it and waits; `ended` is not called. */
void via_child_close(struct via_child *child);
/* The last line that it has printed, fit for a log. */
const char *via_child_last_line(struct via_child *child);

#endif
