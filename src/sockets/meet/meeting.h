/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_MEETING_H
#define VIA_SOCKETS_MEETING_H

#include <stdbool.h>

/*
 * Limits the descriptors of connections whose ends have not met yet (offer.c). Each such connection
 * holds one until the other end makes its next call, which may be never. The program must not run
 * out of descriptors because of them, so they use at most a quarter of those that the program has
 * left below RLIMIT_NOFILE. Beyond that, a connection that begins to meet makes an older one stop;
 * one that has stopped may stay with the kernel.
 */

/* True if a connection may open one more descriptor; makes others stop meeting for that. No token
 * and no lock is held. */
bool via_meeting_is_open_allowed(void);

/* Called when the kernel has just returned this descriptor, the lowest free number. */
void via_meeting_note_fd(int fd);

/* Called when a call of the program has failed with EMFILE. True if the library has closed
 * descriptors, so that the call should be repeated. Keeps errno. */
bool via_meeting_release_fds(void);

#endif
