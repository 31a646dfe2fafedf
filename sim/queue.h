/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A queue of events, the earliest first; of two at the same time the one that was added first. This
 * order is total, so a run depends on nothing but its seed.
 *
 * A radix heap (Ahuja et al., J. ACM 37, 1990): no event comes before the last one that was taken,
 * and so lists by the highest digit in which the times of the two differ suffice. An event moves to
 * a list of a lower digit when the earlier lists are empty, so a queue needs no comparisons, and no
 * more time for many events than for few.
 */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

#include "sim/memory.h"

#define SIM_QUEUE_BITS 6u    /* of a digit */
#define SIM_QUEUE_DIGITS 11u /* of a time */

/* An event is any struct that begins with this. */
struct sim_queued {
    struct sim_queued *next;
    uint64_t time;
    void *object; /* what the event is about, or NULL: is prefetched, and what its first word leads
                     to */
};

struct sim_queue {
    struct sim_objects events;       /* all of one size */
    uint64_t time;                   /* of the last event that was taken */
    uint64_t used[SIM_QUEUE_DIGITS]; /* bit N: list N has events */
    struct sim_queue_list {
        struct sim_queued *first, *last;
        uint64_t earliest;
    } lists[SIM_QUEUE_DIGITS][1u << SIM_QUEUE_BITS];
};

void sim_queue_init(struct sim_queue *queue, size_t event_bytes);
void sim_queue_fini(struct sim_queue *queue);

/* Returns a new event, for the caller to fill. A time before the last one taken means that one. */
void *sim_queue_add(struct sim_queue *queue, uint64_t time);
/* The time of the next event; UINT64_MAX if there is none. */
uint64_t sim_queue_next(const struct sim_queue *queue);
/* Takes the next event, NULL if there is none. The caller gives it back by sim_objects_free(). */
void *sim_queue_take(struct sim_queue *queue);

#endif
