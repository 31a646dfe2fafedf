/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_WAIT_H
#define VIA_HOST_HOST_WAIT_H

#include "base/types.h"
#include "core/node.h"
#include "host/host_spin.h"

/*
 * The choice of a transfer thread between two turns: begin the next turn, poll, arm, wait for
 * fences, or sleep. via_host_wait_turn() is the body of its loop. host_transfer.c uses the
 * machine's clock and bells, the simulator uses simulated ones.
 *
 * Pure: time and the state of the machine are arguments. Belongs to its thread.
 */
struct via_host_wait {
    struct via_host_spin spin;
    struct via_host_spin spin_rang; /* waits after a process was rung: its answer takes less time
                                       than answers over other hosts */
    bool rang;                      /* the caller sets it: a process was rung since the last wait */
    bool idle;                      /* the last turn found nothing */
    bool after_ring;                /* this wait began after a process was rung */
    uint64_t idle_since_ns;
    uint64_t poll_until_ns; /* after VIA_HOST_WAIT_POLL: a simulator may skip idle turns up to this
                               time */
    unsigned empty_polls;   /* consecutive polls that found nothing */
    /* True if other threads wait for a CPU. Called once a millisecond. */
    bool (*is_crowded)(void *ctx);
    void *ctx;
    bool crowded;
    uint64_t crowded_at_ns;
};

enum via_host_wait_step {
    VIA_HOST_WAIT_TURN,  /* the next turn at once */
    VIA_HOST_WAIT_POLL,  /* a pause, then the next turn */
    VIA_HOST_WAIT_ARM,   /* if no bell has rung: arm everything, via_host_wait_armed(); act() does
                            not get this step */
    VIA_HOST_WAIT_FENCE, /* other threads wait for a CPU: sleep until fences end, if their end
                            wakes this thread */
    VIA_HOST_WAIT_WAKE_CONTROL, /* first wake the control thread, then as VIA_HOST_WAIT_SLEEP */
    VIA_HOST_WAIT_SLEEP,        /* until the deadline or the bell, then via_host_wait_slept() */
};

void via_host_wait_init(struct via_host_wait *wait, uint64_t spin_ns_max,
                        bool (*is_crowded)(void *ctx), void *ctx);

/* A turn that began at now_ns has found `work` things to do; the next one is due at
 * deadline_ns. */
enum via_host_wait_step via_host_wait_turned(struct via_host_wait *wait, uint64_t now_ns,
                                             unsigned work, uint64_t deadline_ns);
/* The result of arming everything. The deadline may become earlier. */
enum via_host_wait_step via_host_wait_armed(struct via_host_wait *wait, uint64_t now_ns,
                                            enum via_arm armed, uint64_t *deadline_ns);
void via_host_wait_slept(struct via_host_wait *wait, uint64_t now_ns);

/* A transfer thread, of any clock. */
struct via_host_wait_ops {
    /* A turn: returns the number of things done; *deadline_ns: when the next turn is due. */
    unsigned (*turn)(void *ctx, uint64_t now_ns, uint64_t *deadline_ns);
    /* Arms everything; false: a bell has rung since the turn began, and there is work. */
    bool (*arm)(void *ctx, enum via_arm *ret_armed);
    /* Takes the step; now_ns is the begin of the turn. */
    void (*act)(void *ctx, enum via_host_wait_step step, uint64_t now_ns, uint64_t deadline_ns);
};

/* A turn that begins at now_ns, and the step after it. Inlined: the compiler knows the loop's ops,
 * and calls them directly. */
static inline __attribute__((always_inline)) void
via_host_wait_turn(struct via_host_wait *wait, uint64_t now_ns, const struct via_host_wait_ops *ops,
                   void *ctx)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    enum via_arm armed;
    unsigned work = ops->turn(ctx, now_ns, &deadline_ns);
    enum via_host_wait_step step = via_host_wait_turned(wait, now_ns, work, deadline_ns);
    if (step == VIA_HOST_WAIT_ARM) {
        step = ops->arm(ctx, &armed) ? via_host_wait_armed(wait, now_ns, armed, &deadline_ns)
                                     : VIA_HOST_WAIT_TURN;
    }
    ops->act(ctx, step, now_ns, deadline_ns);
}

#endif
