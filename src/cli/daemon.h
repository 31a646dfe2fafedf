/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_DAEMON_H
#define VIA_CLI_DAEMON_H

#include <stdio.h>

#include "cli/fabric.h"

/* The daemons of a fabric: starting them, and ending them however they are. */

/* Set by signals: a wait ends with -EINTR. */
extern volatile int via_daemon_interrupted;

/*
 * Starts one viaductd for each host and waits until all listen; writes their numbers into the
 * fabric. On failure those started are still there: the caller ends all. deadline: of
 * via_process_now_ns(). The text names the host and how its daemon ended; *ret_host is the host
 * whose log tells more, 0 for none.
 */
int via_daemon_start_all(struct via_fabric *fabric, const char *program, uint64_t deadline_ns,
                         unsigned *ret_host, struct via_error *err) VIA_MUST_CHECK;

/* Waits until all links are up and each host has a way to all hosts it is connected with. */
int via_daemon_wait_links(const struct via_fabric *fabric, uint64_t deadline_ns, unsigned *ret_host,
                          struct via_error *err) VIA_MUST_CHECK;

/* The last lines of a host's log, each with its name in front. */
void via_daemon_print_log(const struct via_fabric *fabric, unsigned host, FILE *out);

struct via_daemon_ended {
    unsigned asked;  /* ended when asked through their control socket */
    unsigned forced; /* needed a signal */
    unsigned dead;   /* were not running */
    unsigned strays; /* of the above, not in the fabric's state */
};

/*
 * Ends all daemons of the fabric, strays too: asks through the control socket; SIGTERM to those
 * that do not answer, and after 2 s to those that did; SIGKILL 2 s after SIGTERM. -EPERM (daemons
 * of another user), -EBUSY (one that even SIGKILL does not end, in the text).
 */
int via_daemon_end_all(const struct via_fabric *fabric, struct via_daemon_ended *ret_ended,
                       struct via_error *err) VIA_MUST_CHECK;

#endif
