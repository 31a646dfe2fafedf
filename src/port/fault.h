/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The fault port: wraps another port and injects faults of bad hardware into its traffic, by a
 * script or at random. The same seed and the same calls give the same faults. For tests only; its
 * calls take a lock.
 *
 * It never breaks the contract of core/port.h: held puts keep their order; a doorbell does not
 * overtake posts that were flushed before it; a fence proves arrival; a torn put takes the link
 * down; words and lines that the contract stores whole are stored whole or not at all; and a DMA
 * that hangs ends when it is aborted.
 */
#ifndef VIA_PORT_FAULT_H
#define VIA_PORT_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"
#include "core/port.h"

enum via_fault_action {
    VIA_FAULT_CUT,             /* the link goes down, until MEND */
    VIA_FAULT_MEND,            /* the link may come up again */
    VIA_FAULT_TEAR_NEXT,       /* the next put is cut at a random byte and takes the link down */
    VIA_FAULT_DROP_DOORBELL,   /* the next doorbell is lost */
    VIA_FAULT_DOUBLE_DOORBELL, /* the next doorbell arrives a second time, later */
    VIA_FAULT_HOLD, /* from now on puts wait for `value` ns before they arrive; needs plan.holds */
    VIA_FAULT_DMA_FAIL_NEXT, /* the next DMA writes some of its bytes and fails */
    VIA_FAULT_DMA_HANG_NEXT, /* the next DMA ends only by dma_abort */
};

struct via_fault_step {
    uint64_t at_ns; /* in the time of via_fault_port_pump() */
    enum via_fault_action action;
    uint64_t value;
};

/* Chances are per million. All zero: the port behaves as the wrapped one, but has no mapped
 * window. */
struct via_fault_plan {
    uint64_t seed;
    uint32_t delay_chance; /* of a put: held back for 1..delay_ns_max, with all later puts */
    uint32_t tear_chance;  /* of a put: cut at a random byte, the link goes down */
    uint32_t drop_chance;  /* of a doorbell */
    uint32_t double_chance;
    uint32_t cut_chance;                       /* of a put: the link goes down before it */
    uint32_t dma_fail_chance, dma_hang_chance; /* of a DMA */
    uint64_t delay_ns_max;                     /* 0 = 1 ms */
    uint64_t down_ns_max; /* a torn or cut link stays down for 1..down_ns_max. 0 = until MEND */
    size_t held_bytes;    /* room for held puts; when it is full they arrive. 0 = 256 KiB */
    bool holds; /* VIA_FAULT_HOLD may be used: the port reports that it is not coherent, as with a
                   delay_chance */

    const struct via_fault_step *steps; /* ascending at_ns; borrowed until close; may be NULL */
    size_t steps_count;

    /*
     * Takes the wrapped link down, and up again, for both ends (for an emulated port:
     * via_emu_port_cut). Called from pump and act; must not call the fault port. NULL: the link
     * goes down at this end only.
     */
    void (*cut)(void *ctx, struct via_port *inner, bool cut);
    void *ctx;
};

/* The fault port owns inner and closes it. Until then the caller uses inner only for service(). 0
 * or -ENOMEM. */
VIA_MUST_CHECK int via_fault_port_open(struct via_port *inner, const struct via_fault_plan *plan,
                                       struct via_port **ret_port);

/* [control] Executes the due steps of the script, delivers held puts, ends outages. */
void via_fault_port_pump(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);

/* [control] Executes an action at once; value as in a step. */
void via_fault_port_act(struct via_port *port, enum via_fault_action action, uint64_t value);

static inline void via_fault_port_cut(struct via_port *port, bool cut)
{
    via_fault_port_act(port, cut ? VIA_FAULT_CUT : VIA_FAULT_MEND, 0);
}

struct via_fault_stats {
    uint64_t puts, puts_held, puts_torn;
    uint64_t puts_lost; /* held when the link went down, or put after that */
    uint64_t doorbells, doorbells_dropped, doorbells_doubled, doorbells_held;
    uint64_t dmas, dmas_failed, dmas_hung;
    uint64_t cuts, mends; /* a torn put is a cut as well */
};
void via_fault_port_stats(struct via_port *port, struct via_fault_stats *ret_stats);

#endif
