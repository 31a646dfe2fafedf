/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The bridge: the registers between the two ends, a page that both map. Side 0 makes a new one for
 * each connection, so all is zero when a connection begins and an old peer has no hand in it.
 *
 * The link is up when both ends are trained and the cable is not cut. A cut by either side ends the
 * training of both; an end trains again only after it has seen the link down, taken its window away
 * and zeroed its scratchpads. So a cut mended at once is still a link down and up at both ends, and
 * nothing stored before it can arrive after.
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
/* Above the state: how often the link has been cut, so that messages sent before a cut are
 * distinguished from later ones. */
#define VIA_EMU_LINK_ROUND_SHIFT 8
#define VIA_EMU_LINK_ROUND (1u << VIA_EMU_LINK_ROUND_SHIFT)

#define VIA_EMU_BRIDGE_BYTES 4096u

struct via_emu_bridge {
    _Atomic uint32_t link VIA_CACHELINE_ALIGNED; /* VIA_EMU_LINK_*: read by every put */
    struct {
        _Atomic uint32_t pending VIA_CACHELINE_ALIGNED; /* bits rung and not yet read */
        /* With lanes: the queues that rang each bit since it was read last. */
        _Atomic uint32_t rung_by[VIA_PORT_DOORBELLS] VIA_CACHELINE_ALIGNED;
    } doorbell[2]; /* for side 0, for side 1 */
    _Atomic uint32_t scratchpad[VIA_PORT_SCRATCHPADS] VIA_CACHELINE_ALIGNED;
};
_Static_assert(sizeof(struct via_emu_bridge) <= VIA_EMU_BRIDGE_BYTES, "one page");

/* The link word is one atomic variable; acquire and release order what an end did before it trained
 * (window, scratchpads) before what the other does when it sees the link up. */
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
