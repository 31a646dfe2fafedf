/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/queue.h"

#include "base/types.h"

void sim_queue_init(struct sim_queue *queue, size_t event_bytes)
{
    *queue = (struct sim_queue){.events = {.bytes = event_bytes}};
}

void sim_queue_fini(struct sim_queue *queue)
{
    sim_objects_fini(&queue->events);
}

/* Appends an event to the list of its time. */
static void list(struct sim_queue *queue, struct sim_queued *event)
{
    uint64_t differs = event->time ^ queue->time;
    unsigned digit = (63 - (unsigned)__builtin_clzll(differs | 1)) / SIM_QUEUE_BITS;
    unsigned value = event->time >> digit * SIM_QUEUE_BITS & ((1u << SIM_QUEUE_BITS) - 1);
    struct sim_queue_list *its = &queue->lists[digit][value];
    if ((queue->used[digit] >> value & 1) == 0) {
        queue->used[digit] |= UINT64_C(1) << value;
        its->first = event;
        its->earliest = event->time;
    } else {
        its->last->next = event;
        its->earliest = via_min(its->earliest, event->time);
    }
    its->last = event;
    event->next = NULL;
}

void *sim_queue_add(struct sim_queue *queue, uint64_t time)
{
    struct sim_queued *event = sim_objects_new(&queue->events);
    event->time = via_max(time, queue->time);
    list(queue, event);
    return event;
}

/* Large runs wait for memory. What an event is about, and where its first pointer leads, is
 * prefetched each time that the event moves. */
static void prefetch(void *const *object)
{
    if (object != NULL) {
        __builtin_prefetch((const char *)object + VIA_CACHELINE);
        __builtin_prefetch(*object);
    }
}

/* The lowest digit with events, SIM_QUEUE_DIGITS if there are none; and the first of its lists. */
static unsigned lowest(const struct sim_queue *queue, unsigned *ret_value)
{
    for (unsigned digit = 0; digit < SIM_QUEUE_DIGITS; digit++) {
        if (queue->used[digit] != 0) {
            *ret_value = (unsigned)__builtin_ctzll(queue->used[digit]);
            return digit;
        }
    }
    return SIM_QUEUE_DIGITS;
}

uint64_t sim_queue_next(const struct sim_queue *queue)
{
    unsigned value, digit = lowest(queue, &value);
    return digit == SIM_QUEUE_DIGITS ? UINT64_MAX : queue->lists[digit][value].earliest;
}

void *sim_queue_take(struct sim_queue *queue)
{
    unsigned value, digit;
    while ((digit = lowest(queue, &value)) < SIM_QUEUE_DIGITS) {
        struct sim_queue_list *its = &queue->lists[digit][value];
        struct sim_queued *event = its->first, *next = event->next;
        queue->time = its->earliest;
        if (digit == 0 && next != NULL) {
            its->first = next;
            return event;
        }
        queue->used[digit] &= ~(UINT64_C(1) << value);
        if (next == NULL) {
            return event;
        }
        for (; event != NULL; event = next) {
            next = event->next;
            prefetch(event->object);
            list(queue, event);
        }
    }
    return NULL;
}
