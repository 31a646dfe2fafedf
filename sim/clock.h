/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Virtual time, in nanoseconds: a queue of events (queue.h). */
#ifndef SIM_CLOCK_H
#define SIM_CLOCK_H

#include <stdbool.h>

#include "sim/queue.h"

enum sim_event_kind {
    SIM_EVENT_TURN = 1, /* a thread runs: a = host, b = channel, c = its ticket */
    SIM_EVENT_PUTS,     /* posted writes arrive: a = link, b = end they left, c = lane */
    SIM_EVENT_SHOW,     /* some words of the next posted write arrive early: a, b, c as above */
    SIM_EVENT_DRAIN,    /* a write-combining buffer drains by itself: a, b, c as above */
    SIM_EVENT_ROGUE,    /* a host writes garbage: a = host, b = its life, c = repetitions left */
    SIM_EVENT_BELL,     /* a doorbell arrives: a = link, b = end it reaches | bit << 8, c = era */
    SIM_EVENT_NOTICE,   /* a host learns of a link's change: a = link, b = end, c = up */
    SIM_EVENT_AUDIT,    /* may this thread really sleep? a = host, b = channel */
    SIM_EVENT_WORK,     /* operations are submitted: a = host, b = channel, c = how many */
    SIM_EVENT_RESUME,   /* a consumer has room: a = host, b = flow record, c = life */
    SIM_EVENT_CANCEL,   /* an owner cancels its operations: a = host, b = channel, c = owner */
    SIM_EVENT_REMOVE,   /* a segment is removed: a = host, c = life */
    SIM_EVENT_BARRIER,  /* a member may enter: a = group, b = member */
    SIM_EVENT_CUT,      /* a = link, b = nanoseconds */
    SIM_EVENT_MEND,     /* a = link, b = era it was cut in */
    SIM_EVENT_FREEZE,   /* a = host, b = microseconds */
    SIM_EVENT_CRASH,    /* a = host, b = kind (enum sim_crash), c = microseconds until it starts */
    SIM_EVENT_START,    /* a = host, b = how it crashed, c = its life then */
    SIM_EVENT_TRAP,     /* a fault waits for traffic: a = trap */
    SIM_EVENT_SPRING,   /* the fault happens, unless it has already: a = trap */
    SIM_EVENT_HEAL,     /* end of all faults */
    SIM_EVENT_OVERDUE,  /* deadline: everything must be done */
    SIM_EVENT_LIMIT,    /* deadline of an operation: a = its index */
    SIM_EVENT_SETTLED,  /* deadline: links and routes must be right */
    SIM_EVENT_STOP,
    SIM_EVENT_DMA,      /* a DMA ends: a = link, b = end whose engine it is, c = its number */
    SIM_EVENT_DMA_SHOW, /* some bytes of a DMA arrive early: a, b, c as above */
    SIM_EVENT_FENCE,    /* progress of a fence: a = link, b = end | queue << 8, c = its number */
    SIM_EVENT_CHIP,     /* of a model of hardware: a = link, b = end, c = private */
    SIM_EVENT_GUEST,    /* of the world's guest (guest.h); a, b, c are private */
};

struct sim_event {
    struct sim_queued queued; /* time: ns */
    uint32_t kind;
    uint32_t a, b, c;
};

struct sim_clock {
    uint64_t now_ns;
    uint64_t taken_count;
    struct sim_queue queue;
};

void sim_clock_init(struct sim_clock *clock);
void sim_clock_fini(struct sim_clock *clock);

/* A time in the past means now. */
void sim_clock_at(struct sim_clock *clock, uint64_t time_ns, enum sim_event_kind kind, uint32_t a,
                  uint32_t b, uint32_t c);
void sim_clock_after(struct sim_clock *clock, uint64_t delay_ns, enum sim_event_kind kind,
                     uint32_t a, uint32_t b, uint32_t c);

/* Takes the next event and moves the clock to it; false if there is none. */
bool sim_clock_take(struct sim_clock *clock, struct sim_event *ret_event);

#endif
