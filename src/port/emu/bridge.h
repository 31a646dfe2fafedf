/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The bridge: a page of registers that both ends map. Side 0 makes a new page for each connection.
 * So all registers are zero when a connection begins, and a peer of an earlier connection can not
 * change them.
 *
 * The link is up when both ends are trained and the cable is not cut. A cut by either side ends the
 * training of both; an end trains again only after it has seen the link down, unmapped its window
 * and zeroed its scratchpads. So even if a cut is mended at once, both ends see the link go down
 * and up, and no store from before the cut arrives after it.
 */
#ifndef VIA_PORT_EMU_BRIDGE_H
#define VIA_PORT_EMU_BRIDGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "core/port.h"

#define VIA_EMU_LINK_TRAINED(side) (1u << (side))
#define VIA_EMU_LINK_UP (VIA_EMU_LINK_TRAINED(0) | VIA_EMU_LINK_TRAINED(1))
#define VIA_EMU_LINK_CUT 4u
#define VIA_EMU_LINK_STATE 7u
/* Bits above the state count the cuts of the link. They distinguish messages that were sent before
 * a cut from later ones. */
#define VIA_EMU_LINK_ROUND_SHIFT 8
#define VIA_EMU_LINK_ROUND (1u << VIA_EMU_LINK_ROUND_SHIFT)

#define VIA_EMU_BRIDGE_BYTES 4096u

struct via_emu_bridge {
    _Atomic uint32_t link VIA_CACHELINE_ALIGNED; /* VIA_EMU_LINK_*: read by every put */
    struct {
        _Atomic uint32_t pending VIA_CACHELINE_ALIGNED; /* bits that were set and not yet read */
        /* With lanes: for each bit, the queues that have rung it since it was last read. */
        _Atomic uint32_t rung_by[VIA_PORT_DOORBELLS] VIA_CACHELINE_ALIGNED;
    } doorbell[2]; /* for side 0, for side 1 */
    _Atomic uint32_t scratchpad[VIA_PORT_SCRATCHPADS] VIA_CACHELINE_ALIGNED;
};
_Static_assert(sizeof(struct via_emu_bridge) <= VIA_EMU_BRIDGE_BYTES, "one page");

/* The acquire loads of the link word pair with the releases in cut(), mend() and train(): an end
 * that sees the link up also sees the window and the scratchpads that the peer prepared before it
 * trained. */
static inline uint32_t via_emu_bridge_link(const struct via_emu_bridge *bridge)
{
    return atomic_load_explicit(&bridge->link, memory_order_acquire);
}

static inline bool via_emu_bridge_is_up(uint32_t link)
{
    return (link & VIA_EMU_LINK_STATE) == VIA_EMU_LINK_UP;
}

static inline void via_emu_bridge_cut(struct via_emu_bridge *bridge)
{
    uint32_t link = via_emu_bridge_link(bridge);
    while (!atomic_compare_exchange_weak_explicit(
        &bridge->link, &link,
        ((link & ~VIA_EMU_LINK_STATE) + VIA_EMU_LINK_ROUND) | VIA_EMU_LINK_CUT,
        memory_order_acq_rel, memory_order_acquire)) {
    }
}

static inline void via_emu_bridge_mend(struct via_emu_bridge *bridge)
{
    atomic_fetch_and_explicit(&bridge->link, ~VIA_EMU_LINK_CUT, memory_order_acq_rel);
}

/* false when the cable is cut. */
static inline bool via_emu_bridge_train(struct via_emu_bridge *bridge, unsigned side)
{
    uint32_t link = via_emu_bridge_link(bridge);
    do {
        if ((link & VIA_EMU_LINK_CUT) != 0) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&bridge->link, &link,
                                                    link | VIA_EMU_LINK_TRAINED(side),
                                                    memory_order_acq_rel, memory_order_acquire));
    return true;
}

#endif
