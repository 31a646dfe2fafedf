/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_URING_H
#define VIA_SOCKETS_URING_H

#include <stdbool.h>

/*
 * Checks the entries that a program is about to submit to a ring of liburing. Rings for files, such
 * as a database's, do not affect connections. A connection that an entry names returns to the
 * kernel. An entry about sockets in general, or of an unknown kind, returns all connections.
 */

/* For a ring that has just been made with these flags (IORING_SETUP_*): true if its queued entries
 * can be read. */
bool via_uring_is_clear(const void *ring, unsigned flags);

/* Called before queued entries are submitted: demotes the connections that they name. False: all
 * connections must be demoted. */
bool via_uring_check_submissions(const void *ring);

#endif
