/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_MEETING_H
#define VIA_SOCKETS_MEETING_H

#include <stdbool.h>

/*
 * Descriptors of connections whose ends have not met yet (offer.c): each holds one until the other
 * end makes its next call, and that may be never. The program must not run out of descriptors
 * because of them, so they take at most a quarter of those that RLIMIT_NOFILE leaves the program.
 * Beyond that a connection that meets makes room by giving up one that has waited for longer; a
 * connection that gives up stays with the kernel.
 */

/* May a connection open one more descriptor? Makes room if it can. No token and no lock is held. */
bool via_meeting_is_open_allowed(void);

/* The kernel has just returned this number, the lowest that was free. */
void via_meeting_note_fd(int fd);

/* One of the program's calls has failed with EMFILE. True if the library has closed descriptors:
 * try again. Keeps errno. */
bool via_meeting_release_fds(void);

#endif
