/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_RELOAD_H
#define VIA_DAEMON_RELOAD_H

#include "daemon/key.h"
#include "daemon/options.h"

/*
 * Reads the configuration file again, for SIGHUP and for the control request "reload". A separate
 * thread reads and checks the file, so that neither a disk that hangs nor a name service that does
 * not answer delays the control thread and its heartbeats. The control thread applies the result. A
 * file with an error changes nothing.
 *
 * One per process. All functions but via_reload_request() belong to the control thread.
 */
struct via_reload_calls {
    /* Called at the beginning and at the end of each reload. */
    void (*started)(void);
    void (*ended)(bool failed);
};

/* Called before the host runs. options: those with which the host was opened; they and the key must
 * stay. key: the fabric key that the host uses; NULL: none. */
VIA_MUST_CHECK int via_reload_open(struct via_host *host, const struct via_daemon_options *options,
                                   struct via_daemon_key *key, const struct via_reload_calls *calls,
                                   struct via_error *err);
/* Called after the host's control thread has ended, before via_host_close(). */
void via_reload_close(void);

/* [any thread, signal handler] Requests a reload. Does nothing before via_reload_open(). */
void via_reload_request(void);

#endif
