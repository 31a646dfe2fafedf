/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_DAEMON_H
#define VIA_CLI_DAEMON_H

#include <stdio.h>

#include "cli/fabric.h"

/* The daemons of a fabric: starting them, and ending them in whatever state they are. */

/* Signal handlers set it: a wait then ends with -EINTR. */
extern volatile int via_daemon_interrupted;

/*
 * Starts one viaductd for each host, waits until all of them listen, and stores their process ids
 * in the fabric. On failure the started ones continue to run, and the caller ends them.
 * deadline_ns: of via_process_now_ns(). The text names the host and how its daemon ended.
 * *ret_host: the host whose log tells more; 0: none.
 */
int via_daemon_start_all(struct via_fabric *fabric, const char *program, uint64_t deadline_ns,
                         unsigned *ret_host, struct via_error *err) VIA_MUST_CHECK;

/* Waits until all links are up and each host has a route to all hosts that links connect it
 * with. */
int via_daemon_wait_links(const struct via_fabric *fabric, uint64_t deadline_ns, unsigned *ret_host,
                          struct via_error *err) VIA_MUST_CHECK;

/* Prints the last lines of a host's log, each with the host's name in front. */
void via_daemon_print_log(const struct via_fabric *fabric, unsigned host, FILE *out);

struct via_daemon_ended {
    unsigned stopped; /* ended after a request on their control socket */
    unsigned forced;  /* needed a signal */
    unsigned dead;    /* had ended already */
    unsigned strays;  /* those of the above that are not in the fabric's state file */
};

/*
 * Ends all daemons of the fabric, including strays. Sends a request over the control socket;
 * SIGTERM to daemons that do not answer, and after 2 s to those that did; SIGKILL 2 s after
 * SIGTERM. -EPERM: daemons of another user. -EBUSY: the text names one that SIGKILL does not
 * end.
 */
int via_daemon_end_all(const struct via_fabric *fabric, struct via_daemon_ended *ret_ended,
                       struct via_error *err) VIA_MUST_CHECK;

#endif
