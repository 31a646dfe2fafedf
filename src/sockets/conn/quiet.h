/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_QUIET_H
#define VIA_SOCKETS_QUIET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

struct via_conn;

/*
 * Returns memory of quiet connections within one machine to the system.
 *
 * Only the writer of a pipe writes into its slots and bodies, and its reader polls one word of a
 * slot. So a writer that holds the token, and has got credit for everything that it wrote, may
 * remove the pages: the reader then finds zeros there, and zeros are not a record. The page with
 * the words stays.
 *
 * Every second, while pipes are in use, the process checks its connections; a timer wakes a thread
 * that handles calls (bell.h). On a connection that has moved nothing for two seconds the reader
 * returns all credits, and the writer removes the pages. When there is nothing left to do the timer
 * stops.
 */

/* State of one connection, used by the thread that checks; used_bytes counts until it is freed. */
struct via_quiet {
    uint64_t since_ns;   /* no byte has moved since then */
    uint32_t tx, rx;     /* sequences of the pipes at the last check */
    uint32_t emptied;    /* the written pipe's sequence when its pages were removed last */
    uint32_t tries;      /* number of checks at which the peer had not returned all credits */
    uint64_t pipe_bytes; /* pipe bytes written when the pages were removed last */
    uint32_t used_bytes; /* estimated memory: included in the sum of share.h */
};

/* False: no check is due, so the next byte that moves must start the timer. */
extern _Atomic bool via_quiet_due;
void via_quiet_begin(void);

/* Called after bytes have moved by a pipe. */
static inline void via_quiet_note(void)
{
    if (via_unlikely(!atomic_load_explicit(&via_quiet_due, memory_order_relaxed))) {
        via_quiet_begin();
    }
}

/* Called when the timer has expired. No token and no lock is held. Keeps errno. */
void via_quiet_check(void);

/* Called in a child of fork(). */
void via_quiet_forked(void);

#endif
