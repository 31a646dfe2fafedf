/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Images from the table. */
#ifndef VIA_CARD_MAKE_H
#define VIA_CARD_MAKE_H

#include "card/image.h"

struct via_card_make_options {
    const struct via_card *card;
    const struct via_card_setup *setup;
    uint64_t bar_bytes; /* of NT BAR 2/3, both sides: a power of two from 1 MiB on */
    bool with_alut;     /* 256 entries for NT0 */
    bool with_assumed;  /* also what public sources say of other chips of the family only */
};

#define VIA_CARD_BAR_BYTES_MIN (UINT64_C(1) << 20)
#define VIA_CARD_BAR_BYTES_MAX (UINT64_C(1) << 36)

/* -EINVAL: no such role; the BAR's size. */
VIA_MUST_CHECK int via_card_image_make(const struct via_card_make_options *options,
                                       struct via_card_image *ret_image, struct via_error *err);

/* 0x360 of a card in a role. */
uint32_t via_card_ports_value(const struct via_card *card, const struct via_card_setup *setup,
                              bool with_alut);

#endif
