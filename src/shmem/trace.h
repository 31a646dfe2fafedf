/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_TRACE_H
#define VIA_SHMEM_TRACE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"
#include "shmem/wait.h"

/*
 * Information that a PE publishes about itself: for users in the job block (via_board), and for the
 * checks of other PEs in symmetric memory (via_check_board). Only the PE writes its boards, and
 * only when a wait has lasted for milliseconds (or VIADUCT_SHMEM_CHECK is set), so transfers have
 * no extra cost.
 */
#define VIA_TRACE_THREADS 4u
#define VIA_TRACE_CALL_BYTES 64u
#define VIA_TRACE_CALLER_BYTES 96u
#define VIA_TRACE_WHAT_BYTES 160u

/* A call that waits. A reader copies it, and accepts the copy if version is even and did not change
 * meanwhile; the reader terminates the texts and makes them printable. */
struct via_trace_wait {
    _Atomic uint32_t version;
    uint32_t waiting;
    uint64_t since_ns; /* CLOCK_MONOTONIC */
    uint64_t seen_ns;  /* time of its last sign of life */
    uint64_t lock;     /* the holder's note of the lock that it waits for; 0 = none */
    char call[VIA_TRACE_CALL_BYTES];
    char caller[VIA_TRACE_CALLER_BYTES];
    char what[VIA_TRACE_WHAT_BYTES];
};

/* A collective call, as a PE has made it. */
struct via_trace_collective {
    _Atomic uint32_t version;
    uint32_t reserved;
    uint64_t group;  /* hash of the team or active set */
    uint64_t number; /* number of this collective in the group, from 1 on */
    uint64_t digest; /* digest of all arguments that must be equal at every PE */
    char text[VIA_TRACE_WHAT_BYTES];
};

#define VIA_TRACE_COLLECTIVES 32u
#define VIA_TRACE_WORDS 64u
#define VIA_TRACE_LOCKS 16u

struct via_board {
    _Atomic int32_t pid;
    uint32_t reserved[15];
    struct via_trace_wait waits[VIA_TRACE_THREADS];
    /* Locks that this PE holds, via_trace_lock_note. If several locks share an element, the newest
     * is stored. 0 = none. */
    _Atomic uint64_t locks[VIA_TRACE_LOCKS];
} __attribute__((aligned(128)));

/* In symmetric memory, so PEs of all hosts can read it. */
struct via_check_board {
    struct via_trace_collective collectives[VIA_TRACE_COLLECTIVES];
    /* Words that this PE has waited on: 1 + region + VIA_REGIONS * offset; 0 = free. */
    _Atomic uint64_t words[VIA_TRACE_WORDS];
};

/* If the last sign of life of a wait is older, the wait has ended without clearing its entry. Long,
 * because the machine may be busy. */
#define VIA_TRACE_FRESH_NS (10 * VIA_SEC_NS)

/* --- for the PE: trace.c ---------------------------------------------------------------------- */

/* Called after via_world_find_job(). */
void via_trace_init(void);
/*
 * Parameters of via_trace_note(), which a wait calls: the wait compares `word` with `value` by cmp;
 * bytes is negative for a signed word. VIA_TRACE_SOME: it waits for one of `value` words.
 * VIA_TRACE_LOCK: it waits for a lock whose holder has the note `value`. The note stays until the
 * end of the wait.
 */
#define VIA_TRACE_SOME (-1)
#define VIA_TRACE_LOCK (-2)
/* A PE's note of a lock that it holds: the lock's number in the upper half, the PE's ticket in the
 * lower one. */
static inline uint64_t via_trace_lock_note(uint32_t number, uint32_t ticket)
{
    return (uint64_t)number << 32 | ticket;
}

/* Place of the lock in a board. */
static inline unsigned via_trace_lock_index(uint32_t number)
{
    return number / 2 % VIA_TRACE_LOCKS;
}

static inline _Atomic uint64_t *via_trace_lock_place(struct via_board *board, uint32_t number)
{
    return &board->locks[via_trace_lock_index(number)];
}

/* The PE's own board, NULL before via_trace_init. */
extern struct via_board *via_trace_board;

static inline void via_trace_lock_taken(uint32_t number, uint32_t ticket)
{
    if (via_likely(via_trace_board))
        atomic_store_explicit(via_trace_lock_place(via_trace_board, number),
                              via_trace_lock_note(number, ticket), memory_order_relaxed);
}

/* Clears the note of a lock. The ticket alone does not identify it: a lock that is allocated again
 * in the same place begins with the same tickets. */
static inline void via_trace_lock_left(uint32_t number)
{
    if (via_unlikely(!via_trace_board))
        return;
    _Atomic uint64_t *place = via_trace_lock_place(via_trace_board, number);
    if (via_likely(atomic_load_explicit(place, memory_order_relaxed) >> 32 == number))
        atomic_store_explicit(place, 0, memory_order_relaxed);
}

void via_trace_note(const volatile void *word, int bytes, int cmp, uint64_t value);

/* via_wait_step for waits that can describe themselves. */
static inline void via_trace_step(struct via_wait *wait, const volatile void *word, int bytes,
                                  int cmp, uint64_t value)
{
    if (via_likely(via_wait_try(wait)))
        return;
    via_trace_note(word, bytes, cmp, value);
    via_wait_sleep(wait);
}

#endif
