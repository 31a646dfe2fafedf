/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_RELOAD_H
#define VIA_DAEMON_RELOAD_H

#include "daemon/key.h"
#include "daemon/options.h"

/*
 * Reading the configuration file again, for SIGHUP and for the control request "reload". The file
 * is read and checked by a thread of its own: neither a disk that hangs nor a name service that
 * does not answer holds up the control thread and its heartbeats. The result is applied in
 * the control thread. A file with an error changes nothing.
 *
 * One per process. All but via_reload_ask() belongs to the control thread.
 */
struct via_reload_calls {
    /* Around each reload. */
    void (*begins)(void);
    void (*has_ended)(bool failed);
};

/* Before the host runs. options are those it was opened with; they and the key stay. key: the
 * fabric key that the host uses, NULL = none. */
VIA_MUST_CHECK int via_reload_open(struct via_host *host, const struct via_daemon_options *options,
                                   struct via_daemon_key *key, const struct via_reload_calls *calls,
                                   struct via_error *err);
/* After the host's control thread has ended, before via_host_close(). */
void via_reload_close(void);

/* From a signal handler. Nothing before via_reload_open(). */
void via_reload_ask(void);

#endif
