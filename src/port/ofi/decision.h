/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The decisions of operators about a link: to cut it, or to mend it, at either end. Both ends obey
 * the later decision, even if connections end meanwhile. Pure.
 *
 * A decision is a number: a counter of decisions in steps of VIA_OFI_DECISION_STEP; bit 0 is set
 * for a cut.
 */
#ifndef VIA_PORT_OFI_DECISION_H
#define VIA_PORT_OFI_DECISION_H

#include <stdbool.h>
#include <stdint.h>

#include "port/ofi/wire.h"

struct via_ofi_decision {
    uint32_t last;    /* the latest decision that this end knows; 0: no operator has decided */
    bool is_informed; /* this end has known the peer's decision at some time */
    bool has_mended;  /* this end has mended since both ends last agreed, so another mend changes
                         nothing */
    /* In the listener: the peer's last uninformed decision that was counted. */
    uint64_t counted_instance;
    uint32_t counted;
};

static inline bool via_ofi_decision_is_cut(const struct via_ofi_decision *decision)
{
    return (decision->last & VIA_OFI_DECISION_CUT) != 0;
}

/* The operator decides at this end. */
void via_ofi_decision_make(struct via_ofi_decision *decision, bool cut);
/* VIA_OFI_FLAG_UNINFORMED for a proof: this end has decided, and does not know whether the peer
 * has decided before. */
uint32_t via_ofi_decision_flags(const struct via_ofi_decision *decision);
/* The listener has received the connector's proof. `last` becomes the decision that its grant
 * carries, which both ends obey from then on. */
void via_ofi_decision_agree(struct via_ofi_decision *decision, const struct via_ofi_proof *peer);
/* The connector has received the grant for its proof, `mine`. True if this end has mended the link
 * meanwhile (a cut would have ended the connection): that decision holds, and the caller sends a
 * MEND. */
bool via_ofi_decision_granted(struct via_ofi_decision *decision, const struct via_ofi_proof *mine,
                              const struct via_ofi_proof *peer);
/* The peer has mended the link by this decision. */
void via_ofi_decision_mended(struct via_ofi_decision *decision, uint32_t peers);

#endif
