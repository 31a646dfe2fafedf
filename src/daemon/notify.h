/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_NOTIFY_H
#define VIA_DAEMON_NOTIFY_H

#include "host/host.h"

/*
 * Tells the service manager how the daemon is: datagrams to $NOTIFY_SOCKET, as sd_notify(3) has
 * them, and one every half $WATCHDOG_USEC from the control thread, which a control thread that
 * hangs does not send. Without these variables nothing is sent. One per process; a manager that
 * does not read loses messages.
 */

/* Reads the variables and takes them out of the environment. 0, or -EINVAL and what is wrong. */
VIA_MUST_CHECK int via_notify_open(struct via_host *host, struct via_error *err);
/* Before via_host_close(). */
void via_notify_close(struct via_host *host);

/* Lines of VARIABLE=VALUE. */
void via_notify_send(const char *format, ...) VIA_PRINTF(1, 2);

/* For MONOTONIC_USEC. */
uint64_t via_notify_now_us(void);

#endif
