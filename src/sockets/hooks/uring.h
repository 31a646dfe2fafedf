/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_URING_H
#define VIA_SOCKETS_URING_H

#include <stdbool.h>

/*
 * Entries that a program is about to submit to a ring of liburing's. A ring for files, such as a
 * database's, affects no connection; an entry that names a connection returns that one to the
 * kernel; an entry about sockets in general, or of an unknown kind, returns all of them.
 */

/* The ring has just been made, with these flags (IORING_SETUP_*): can its queued entries be
 * read? */
bool via_uring_is_clear(const void *ring, unsigned flags);

/* Called before queued entries are submitted. False: some of them are not about files. */
bool via_uring_check_submissions(const void *ring);

#endif
