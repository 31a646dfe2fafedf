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

void sim_clock_at(struct sim_clock *clock, uint64_t time_ns, enum sim_event_kind kind, uint32_t a,
                  uint32_t b, uint32_t c)
{
    if (clock->count == clock->capacity) {
        clock->capacity *= 2;
        clock->heap = sim_realloc(clock->heap, clock->capacity * sizeof(*clock->heap));
    }
    const struct sim_event event = {
        .when = {.time = via_max(time_ns, clock->now_ns), .order = clock->next_order++},
        .kind = kind,
        .a = a,
        .b = b,
        .c = c,
    };
    sim_heap_push(clock->heap, clock->count++, &event, sizeof(event));
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
    sim_heap_pop(clock->heap, clock->count--, sizeof(*clock->heap));
    clock->now_ns = ret_event->when.time;
    clock->taken_count++;
    return true;
}
