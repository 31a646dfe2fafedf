/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Images of the serial EEPROM of a PEX 87xx: 0x5A, flags, a 16-bit count of bytes, entries of
 * {16-bit address, 32-bit value} with this total size, a 32-bit CRC; all little-endian (SDK
 * Eep_8000.c, eeprom_gen.py). The chip ignores bytes behind the CRC; images of this project name
 * their card there.
 */
#ifndef VIA_CARD_IMAGE_H
#define VIA_CARD_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "card/table.h"

/* The index of a dword has 14 bits (SDK). */
#define VIA_CARD_IMAGE_BYTES_MAX 65536u
#define VIA_CARD_ENTRY_BYTES 6u
#define VIA_CARD_ENTRIES_MAX ((VIA_CARD_IMAGE_BYTES_MAX - 8) / VIA_CARD_ENTRY_BYTES)
#define VIA_CARD_IMAGE_HEADER_BYTES 4u
#define VIA_CARD_IMAGE_SIGNATURE 0x5Au
#define VIA_CARD_IMAGE_HAS_CRC 0x80u /* flag: the chip checks the CRC */

struct via_card_entry {
    uint16_t address;
    uint32_t value;
};

/* Large: not for the stack. */
struct via_card_image {
    uint8_t flags;
    bool crc_is_there; /* the file has the bytes, checked or not */
    uint32_t crc;      /* as in the file */
    unsigned entries_count;
    struct via_card_entry entries[VIA_CARD_ENTRIES_MAX];
    unsigned tail_bytes; /* bytes behind the CRC */
    uint8_t tail[VIA_CARD_IMAGE_BYTES_MAX];
};

/* Errors begin with "name: byte N: ". 0 or -EINVAL; *ret_image is undefined then. */
VIA_MUST_CHECK int via_card_image_parse(const char *name, const uint8_t *bytes, size_t bytes_count,
                                        struct via_card_image *ret_image, struct via_error *err);
/* Writes the bytes of the image, at most VIA_CARD_IMAGE_BYTES_MAX, and their number. -EFBIG. */
VIA_MUST_CHECK int via_card_image_write(const struct via_card_image *image,
                                        uint8_t bytes[VIA_CARD_IMAGE_BYTES_MAX], size_t *ret_count);

/* Offset of an entry in the file; of the CRC with index == entries_count. */
static inline size_t via_card_entry_off(unsigned index)
{
    return VIA_CARD_IMAGE_HEADER_BYTES + (size_t)index * VIA_CARD_ENTRY_BYTES;
}

/* Computes the correct CRC. */
uint32_t via_card_image_crc(const struct via_card_image *image);
/* Appends an entry. -ENOSPC. */
VIA_MUST_CHECK int via_card_image_add(struct via_card_image *image, uint16_t address,
                                      uint32_t value);
/* The card and role of an image, written behind its CRC. */
#define VIA_CARD_MARK_BYTES 80u
struct via_card_mark {
    const struct via_card *card;
    const struct via_card_setup *setup;
    unsigned bytes; /* size of the mark; 0: no mark */
};
struct via_card_mark via_card_mark_find(const uint8_t *tail, unsigned tail_bytes);
/* Returns the size of the mark. */
unsigned via_card_mark_make(const struct via_card *card, const struct via_card_setup *setup,
                            char text[VIA_CARD_MARK_BYTES]);

#endif
