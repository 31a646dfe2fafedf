/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_NOTIFY_H
#define VIA_DAEMON_NOTIFY_H

#include "host/host.h"

/*
 * Reports the daemon's state to the service manager: sends datagrams to $NOTIFY_SOCKET in the
 * format of sd_notify(3), and one each half of $WATCHDOG_USEC from the control thread, so that the
 * manager notices a control thread that hangs. Sends nothing without these variables. One per
 * process. A manager that does not read loses messages.
 */

/* Reads the variables and removes them from the environment. 0; or -EINVAL, and the text says what
 * is wrong. */
VIA_MUST_CHECK int via_notify_open(struct via_host *host, struct via_error *err);
/* Called before via_host_close(). */
void via_notify_close(struct via_host *host);

/* Lines of VARIABLE=VALUE. */
void via_notify_send(const char *format, ...) VIA_PRINTF(1, 2);

/* For MONOTONIC_USEC. */
uint64_t via_notify_now_us(void);

#endif
