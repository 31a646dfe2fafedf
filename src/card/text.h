/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Converts images to text and back. Lines:
 *
 *     flags 0x80               # bit 7: the chip checks the CRC
 *     reg 0x00 0x360 0x2800    # port code, offset, value
 *     crc right                # or 0x12345678 (as it is), or none
 *     card pex8749-x8 host ntb optical   # behind the CRC, in this order:
 *     fill 0xff 100
 *     bytes 0x01 0x02
 */
#ifndef VIA_CARD_TEXT_H
#define VIA_CARD_TEXT_H

#include <stdio.h>

#include "card/image.h"

/* Larger texts are refused. */
#define VIA_CARD_TEXT_BYTES_MAX (4u << 20)

void via_card_text_print(const struct via_card_image *image, FILE *out);

/* Errors begin with "name:line: ". lines, if not NULL, gets the line number of each entry. 0 or
 * -EINVAL. */
VIA_MUST_CHECK int via_card_text_parse(const char *name, const char *text, size_t bytes,
                                       struct via_card_image *ret_image,
                                       unsigned lines[VIA_CARD_ENTRIES_MAX], struct via_error *err);

#endif
