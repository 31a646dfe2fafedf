/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The decisions of operators about a link: to cut it, or to mend it, at either end. Both ends go
 * by the later decision, whatever becomes of connections meanwhile. Pure.
 *
 * A decision is a number: how many there were, in steps of VIA_OFI_DECISION_STEP, and in bit 0
 * whether it is a cut.
 */
#ifndef VIA_PORT_OFI_DECISION_H
#define VIA_PORT_OFI_DECISION_H

#include <stdbool.h>
#include <stdint.h>

#include "port/ofi/wire.h"

struct via_ofi_decision {
    uint32_t last;    /* what counts, as far as this end knows; 0: no operator has decided */
    bool is_informed; /* the peer's was known to this end once */
    bool has_mended;  /* at this end, since the two have agreed last: the next mend says no more */
    /* Of the peer, in the listener: the decision that it has made uninformed, and that counts. */
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
/* The listener has got the connector's proof. Its grant says what counts from here on. */
void via_ofi_decision_agree(struct via_ofi_decision *decision, const struct via_ofi_proof *peer);
/* The connector has got the grant for its proof, `mine`. Has this end decided to mend the link
 * meanwhile? (To cut it ends the connection.) Then that counts, and the caller sends a MEND. */
bool via_ofi_decision_granted(struct via_ofi_decision *decision, const struct via_ofi_proof *mine,
                              const struct via_ofi_proof *peer);
/* The peer has mended the link by this decision. */
void via_ofi_decision_mended(struct via_ofi_decision *decision, uint32_t peers);

#endif
