/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_URING_H
#define VIA_SOCKETS_URING_H

#include <stdbool.h>

/*
 * What a program is about to give to a ring of liburing's. One that is used for files, as that of a
 * database is, concerns no connection: what names one has it go back to the kernel, and what is
 * about sockets, or not known here, all of them.
 */

/* The ring has just been made, with these flags (IORING_SETUP_*): can what is queued in it be seen?
 */
bool via_uring_is_clear(const void *ring, unsigned flags);

/* Before what is queued is given to the kernel. false: it is about more than files. */
bool via_uring_check_submissions(const void *ring);

/* The ring is about to know these by a number of its own. false: all connections are concerned. */
bool via_uring_check_files(const int *files, unsigned count);

#endif
