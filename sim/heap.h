/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A queue of events, the earliest first; of two at the same time the one that was pushed first.
 * This order is total, so a run depends on nothing but its seed.
 *
 * An event is any struct that begins with a struct sim_when. All events of a heap have one size,
 * which callers give as a constant so that the copies are inlined. The caller keeps the memory:
 * there has to be room for one more before a push.
 */
#ifndef SIM_HEAP_H
#define SIM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sim_when {
    uint64_t time;
    uint64_t order;
};

static inline bool sim_heap_is_before(const void *a, const void *b)
{
    const struct sim_when *one = a;
    const struct sim_when *other = b;
    return one->time < other->time || (one->time == other->time && one->order < other->order);
}

/* heap: `count` events of `bytes` each. */
static inline void sim_heap_push(void *heap, size_t count, const void *event, size_t bytes)
{
    unsigned char *events = heap;
    size_t i = count;
    while (i > 0 && sim_heap_is_before(event, events + (i - 1) / 2 * bytes)) {
        memcpy(events + i * bytes, events + (i - 1) / 2 * bytes, bytes);
        i = (i - 1) / 2;
    }
    memcpy(events + i * bytes, event, bytes);
}

/* Takes the first of `count` > 0 events: the last one takes its place, and sinks. */
static inline void sim_heap_pop(void *heap, size_t count, size_t bytes)
{
    unsigned char *events = heap;
    const unsigned char *last = events + (count - 1) * bytes;
    size_t i = 0;
    for (size_t child = 1; child < count - 1; child = 2 * i + 1) {
        if (child + 1 < count - 1 &&
            sim_heap_is_before(events + (child + 1) * bytes, events + child * bytes)) {
            child++;
        }
        if (!sim_heap_is_before(events + child * bytes, last)) {
            break;
        }
        memcpy(events + i * bytes, events + child * bytes, bytes);
        i = child;
    }
    memmove(events + i * bytes, last, bytes);
}

#endif
