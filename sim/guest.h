/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A guest: a program on the hosts of a world besides the operations that work.c draws, as processes
 * run beside viaductd. Its calls come from the one thread of the simulator.
 */
#ifndef SIM_GUEST_H
#define SIM_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/clock.h"

struct sim_guest;
struct sim_host;
struct sim_thread;
struct sim_world;

/* Set in the cookies of a guest's operations. */
#define SIM_GUEST_COOKIE (UINT64_C(1) << 63)

struct sim_guest_ops {
    /* Called when the hosts have started; and after the last event, before they end. */
    void (*begin)(struct sim_guest *guest, struct sim_world *world);
    void (*end)(struct sim_guest *guest);
    /* Handles an event of the kind SIM_EVENT_GUEST. */
    void (*event)(struct sim_guest *guest, const struct sim_event *event);
    /* Called in a turn of a transfer thread, before and after its poll; return how much was
     * done. */
    unsigned (*turn)(struct sim_guest *guest, struct sim_thread *thread);
    unsigned (*turn_over)(struct sim_guest *guest, struct sim_thread *thread);
    /* Called before the thread sleeps: true if there is work. */
    bool (*arm)(struct sim_guest *guest, struct sim_thread *thread);
    void (*complete)(struct sim_guest *guest, struct sim_host *host, unsigned channel,
                     uint64_t cookie, int status, uint64_t value);
    void (*crashed)(struct sim_guest *guest, struct sim_host *host);
    bool (*is_done)(const struct sim_guest *guest);
    /* Time is up: reports unfinished work. */
    void (*overdue)(struct sim_guest *guest);
};

struct sim_guest {
    const struct sim_guest_ops *ops;
    uint64_t patience_ns; /* extra time after the faults, beyond that of single operations */
};

#endif
