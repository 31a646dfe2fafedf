/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Makes images from the table of cards. */
#ifndef VIA_CARD_MAKE_H
#define VIA_CARD_MAKE_H

#include "card/image.h"

struct via_card_make_options {
    const struct via_card *card;
    const struct via_card_setup *setup;
    uint64_t bar_bytes; /* of NT BAR 2/3, both sides: a power of two from 1 MiB on */
    bool with_alut;     /* 256 entries for NT0 */
    bool with_assumed; /* include facts that public sources state only for other chips of the family
                        */
};

#define VIA_CARD_BAR_BYTES_MIN (UINT64_C(1) << 20)
#define VIA_CARD_BAR_BYTES_MAX (UINT64_C(1) << 36)

/* -EINVAL: invalid role, or invalid size of the BAR. */
VIA_MUST_CHECK int via_card_image_make(const struct via_card_make_options *options,
                                       struct via_card_image *ret_image, struct via_error *err);

/* The value of register 0x360 for a card in a role. */
uint32_t via_card_ports_value(const struct via_card *card, const struct via_card_setup *setup,
                              bool with_alut);

#endif
