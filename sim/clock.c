/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/clock.h"

#include "base/types.h"

void sim_clock_init(struct sim_clock *clock)
{
    *clock = (struct sim_clock){.now_ns = 0};
    sim_queue_init(&clock->queue, sizeof(struct sim_event));
}

void sim_clock_fini(struct sim_clock *clock)
{
    sim_queue_fini(&clock->queue);
}

void sim_clock_at(struct sim_clock *clock, uint64_t time_ns, enum sim_event_kind kind, uint32_t a,
                  uint32_t b, uint32_t c)
{
    struct sim_event *event = sim_queue_add(&clock->queue, via_max(time_ns, clock->now_ns));
    event->kind = kind;
    event->a = a;
    event->b = b;
    event->c = c;
}

void sim_clock_after(struct sim_clock *clock, uint64_t delay_ns, enum sim_event_kind kind,
                     uint32_t a, uint32_t b, uint32_t c)
{
    sim_clock_at(clock, clock->now_ns + via_min(delay_ns, UINT64_MAX - clock->now_ns), kind, a, b,
                 c);
}

bool sim_clock_take(struct sim_clock *clock, struct sim_event *ret_event)
{
    struct sim_event *event = sim_queue_take(&clock->queue);
    if (event == NULL) {
        return false;
    }
    *ret_event = *event;
    sim_objects_free(&clock->queue.events, event);
    clock->now_ns = ret_event->queued.time;
    clock->taken_count++;
    return true;
}
