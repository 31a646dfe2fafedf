/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/decision.h"

#include "base/types.h"

static uint32_t after(uint32_t last, bool cut)
{
    uint32_t next = (last & ~VIA_OFI_DECISION_CUT) + VIA_OFI_DECISION_STEP;
    /* Peers accept no higher numbers: via_ofi_decision_make() begins again at the lowest. */
    next = next < VIA_OFI_DECISION_MAX ? next : VIA_OFI_DECISION_STEP;
    return next | (cut ? VIA_OFI_DECISION_CUT : 0);
}

/* Returns the later decision; of two with the same number, made at both ends independently, the
 * mend, because its operator has found the link down. */
static uint32_t later_of(uint32_t a, uint32_t b)
{
    bool is_as_late = (a & ~VIA_OFI_DECISION_CUT) == (b & ~VIA_OFI_DECISION_CUT);
    return is_as_late ? via_min(a, b) : via_max(a, b);
}

void via_ofi_decision_make(struct via_ofi_decision *decision, bool cut)
{
    if (!cut && decision->has_mended) {
        return;
    }
    uint32_t next = after(decision->last, cut);
    decision->has_mended = !cut;
    decision->is_informed = decision->is_informed && next > decision->last;
    decision->last = next;
}

uint32_t via_ofi_decision_flags(const struct via_ofi_decision *decision)
{
    return decision->last != 0 && !decision->is_informed ? VIA_OFI_FLAG_UNINFORMED : 0;
}

/* A restarted end does not know the peer's decision, so its own uninformed decision counts as the
 * later one; but only once, because a connector that receives no grant sends its proof again. */
void via_ofi_decision_agree(struct via_ofi_decision *decision, const struct via_ofi_proof *peer)
{
    uint32_t peers = peer->decision < VIA_OFI_DECISION_MAX ? peer->decision : 0;
    uint32_t last = later_of(decision->last, peers);
    bool is_mine_new = via_ofi_decision_flags(decision) != 0;
    bool is_peers_new = (peer->flags & VIA_OFI_FLAG_UNINFORMED) != 0 &&
                        (peer->instance != decision->counted_instance || peers > decision->counted);
    if (is_mine_new != is_peers_new) {
        uint32_t newest = is_mine_new ? decision->last : peers;
        last = after(last, (newest & VIA_OFI_DECISION_CUT) != 0);
    }
    *decision = (struct via_ofi_decision){
        .last = last,
        .is_informed = true,
        .counted_instance = peer->instance,
        .counted = peers,
    };
}

bool via_ofi_decision_granted(struct via_ofi_decision *decision, const struct via_ofi_proof *mine,
                              const struct via_ofi_proof *peer)
{
    /* If the link is not cut, the listener's end is up and ignores a MEND. */
    bool is_mended =
        decision->last != mine->decision && (peer->decision & VIA_OFI_DECISION_CUT) != 0;
    if (peer->decision < VIA_OFI_DECISION_MAX) {
        decision->last = is_mended ? after(peer->decision, false) : peer->decision;
    }
    decision->is_informed = true;
    decision->has_mended = false;
    return is_mended;
}

void via_ofi_decision_mended(struct via_ofi_decision *decision, uint32_t peers)
{
    uint32_t least = after(decision->last, false);
    decision->has_mended = false;
    bool is_later = peers > least && peers < VIA_OFI_DECISION_MAX;
    decision->last = (is_later ? peers : least) & ~VIA_OFI_DECISION_CUT;
}
