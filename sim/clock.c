/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/clock.h"

#include <stdlib.h>

#include "base/types.h"
#include "sim/memory.h"

void sim_clock_init(struct sim_clock *clock)
{
    *clock = (struct sim_clock){.capacity = 1024};
    clock->heap = sim_alloc(clock->capacity * sizeof(*clock->heap));
}

void sim_clock_fini(struct sim_clock *clock)
{
    free(clock->heap);
    clock->heap = NULL;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->order < b->order);
}

static void sift_up(struct sim_event *heap, size_t i)
{
    struct sim_event event = heap[i];
    while (i > 0 && before(&event, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = event;
}

static void sift_down(struct sim_event *heap, size_t count)
{
    struct sim_event event = heap[0];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= count) {
            break;
        }
        if (child + 1 < count && before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!before(&heap[child], &event)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = event;
}

void sim_clock_at(struct sim_clock *clock, uint64_t time_ns, enum sim_event_kind kind, uint32_t a,
                  uint32_t b, uint32_t c)
{
    if (clock->count == clock->capacity) {
        clock->capacity *= 2;
        clock->heap = sim_realloc(clock->heap, clock->capacity * sizeof(*clock->heap));
    }
    clock->heap[clock->count] = (struct sim_event){
        .time_ns = via_max(time_ns, clock->now_ns),
        .order = clock->next_order++,
        .kind = kind,
        .a = a,
        .b = b,
        .c = c,
    };
    sift_up(clock->heap, clock->count++);
}

void sim_clock_after(struct sim_clock *clock, uint64_t delay_ns, enum sim_event_kind kind,
                     uint32_t a, uint32_t b, uint32_t c)
{
    sim_clock_at(clock, clock->now_ns + delay_ns, kind, a, b, c);
}

bool sim_clock_take(struct sim_clock *clock, struct sim_event *ret_event)
{
    if (clock->count == 0) {
        return false;
    }
    *ret_event = clock->heap[0];
    clock->heap[0] = clock->heap[--clock->count];
    if (clock->count > 1) {
        sift_down(clock->heap, clock->count);
    }
    clock->now_ns = ret_event->time_ns;
    clock->taken_count++;
    return true;
}
