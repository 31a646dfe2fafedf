/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_CHILD_H
#define VIA_DAEMON_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "host/host_source.h"

/*
 * A program that the daemon runs as a child: `viaduct` of the same folder, in its own process
 * group. The last bytes of its output are kept. Owned by the control thread.
 */
#define VIA_CHILD_PRINTED_BYTES 512u
#define VIA_CHILD_WORDS_MAX 16u

struct via_child {
    pid_t pid; /* 0: no child runs */
    struct via_host *host;
    struct via_host_source output; /* pipe */
    struct via_host_source end;    /* pidfd */
    char printed[VIA_CHILD_PRINTED_BYTES];
    size_t bytes;
    /* The child has ended with this status of waitpid(2). `printed`: its output. */
    void (*ended)(struct via_child *child, int status);
};

#define VIA_CHILD_NONE                           \
    (struct via_child)                           \
    {                                            \
        .output = {.fd = -1}, .end = {.fd = -1}, \
    }

/* words: the arguments after "viaduct", terminated by NULL. The child's environment has
 * VIADUCT_RUNDIR, VIADUCT_HOST and VIADUCT_TUNE_PARENT, and no other variable whose name begins
 * with VIADUCT_. */
VIA_MUST_CHECK int via_child_start(struct via_child *child, struct via_host *host,
                                   const char *rundir, unsigned id, const char *const *words,
                                   struct via_error *err);
/* Kills the child and its process group; the call of `ended` follows. */
void via_child_kill(struct via_child *child);
/* Kills the child and waits for its end. `ended` is not called. */
void via_child_close(struct via_child *child);
/* The last line that the child has printed, without characters that a log must not contain. */
const char *via_child_last_line(struct via_child *child);

#endif
