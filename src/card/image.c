/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/image.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mutant.h"

#define CRC_POLYNOMIAL 0xDB710641u /* SDK */

static uint32_t take16(const uint8_t *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t take32(const uint8_t *bytes)
{
    return take16(bytes) | take16(bytes + 2) << 16;
}

static void put16(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *bytes, uint32_t value)
{
    put16(bytes, value);
    put16(bytes + 2, value >> 16);
}

/* --- parsing --- */

static int complain(struct via_error *err, const char *name, size_t at, const char *text)
{
    return via_error_set(err, -EINVAL, "%s: byte %zu: %s", name, at, text);
}

static int check_head(const char *name, const uint8_t *bytes, size_t count, struct via_error *err)
{
    if (count > VIA_CARD_IMAGE_BYTES_MAX) {
        return complain(err, name, VIA_CARD_IMAGE_BYTES_MAX, "more than 64 KiB are no image");
    }
    if (count < VIA_CARD_IMAGE_HEADER_BYTES) {
        return complain(err, name, count, "ends within the header of 4 bytes");
    }
    if (take32(bytes) == UINT32_MAX) {
        return complain(err, name, 0, "all ones: a blank EEPROM");
    }
    if (bytes[0] != VIA_CARD_IMAGE_SIGNATURE) {
        return via_error_set(err, -EINVAL, "%s: byte 0: 0x%02x is not the signature 0x5a", name,
                             bytes[0]);
    }
    uint32_t length = take16(bytes + 2);
    if (length % VIA_CARD_ENTRY_BYTES != 0) {
        return via_error_set(err, -EINVAL,
                             "%s: byte 2: a byte count of %u is no multiple of 6 (registers have "
                             "6 bytes each)",
                             name, length);
    }
    if (length > count - VIA_CARD_IMAGE_HEADER_BYTES && !VIA_MUTANT(CARD_COUNT)) {
        return via_error_set(err, -EINVAL,
                             "%s: byte 2: %u bytes of registers are promised, %zu are there", name,
                             length, count - VIA_CARD_IMAGE_HEADER_BYTES);
    }
    return 0;
}

int via_card_image_parse(const char *name, const uint8_t *bytes, size_t bytes_count,
                         struct via_card_image *ret_image, struct via_error *err)
{
    int rc = check_head(name, bytes, bytes_count, err);
    if (rc != 0) {
        return rc;
    }
    struct via_card_image *image = ret_image;
    image->flags = bytes[1];
    image->entries_count = take16(bytes + 2) / VIA_CARD_ENTRY_BYTES;
    if (image->entries_count > VIA_CARD_ENTRIES_MAX) {
        return complain(err, name, 2, "no room for the CRC within 64 KiB");
    }
    size_t at = VIA_CARD_IMAGE_HEADER_BYTES;
    for (unsigned i = 0; i < image->entries_count; i++, at += VIA_CARD_ENTRY_BYTES) {
        image->entries[i] = (struct via_card_entry){.address = (uint16_t)take16(bytes + at),
                                                    .value = take32(bytes + at + 2)};
    }
    size_t left = bytes_count - at;
    bool is_crc_optional = (image->flags & VIA_CARD_IMAGE_HAS_CRC) == 0 && left == 0;
    if (left < 4 && !is_crc_optional) {
        return complain(err, name, bytes_count, "ends before or within the CRC of 4 bytes");
    }
    image->crc_is_there = left >= 4;
    image->crc = left >= 4 ? take32(bytes + at) : 0;
    image->tail_bytes = left >= 4 ? (unsigned)(left - 4) : 0;
    if (image->tail_bytes != 0) {
        memcpy(image->tail, bytes + at + 4, image->tail_bytes);
    }
    return 0;
}

int via_card_image_write(const struct via_card_image *image,
                         uint8_t bytes[VIA_CARD_IMAGE_BYTES_MAX], size_t *ret_count)
{
    size_t at = via_card_entry_off(image->entries_count);
    if (at + 4 + image->tail_bytes > VIA_CARD_IMAGE_BYTES_MAX) {
        return -EFBIG;
    }
    bytes[0] = VIA_CARD_IMAGE_SIGNATURE;
    bytes[1] = image->flags;
    put16(bytes + 2, image->entries_count * VIA_CARD_ENTRY_BYTES);
    for (unsigned i = 0; i < image->entries_count; i++) {
        put16(bytes + via_card_entry_off(i), image->entries[i].address);
        put32(bytes + via_card_entry_off(i) + 2, image->entries[i].value);
    }
    if (image->crc_is_there) {
        put32(bytes + at, image->crc);
        memcpy(bytes + at + 4, image->tail, image->tail_bytes);
        at += 4 + image->tail_bytes;
    }
    *ret_count = at;
    return 0;
}

/* --- CRC --- */

/* The CRC covers dwords from byte 2 on, the last one padded with zeros, most significant bit first
 * (SDK). */
uint32_t via_card_image_crc(const struct via_card_image *image)
{
    uint32_t crc = UINT32_MAX;
    uint32_t dword = image->entries_count * VIA_CARD_ENTRY_BYTES; /* first half: the byte count */
    unsigned halves = 1;
    for (unsigned i = 0; i < image->entries_count * 3; i++) {
        const struct via_card_entry *entry = &image->entries[i / 3];
        uint32_t half = i % 3 == 0   ? entry->address
                        : i % 3 == 1 ? entry->value & 0xffff
                                     : entry->value >> 16;
        dword |= half << (halves % 2 == 1 ? 16 : 0);
        halves++;
        bool is_last = i + 1 == image->entries_count * 3;
        if (halves % 2 == 0 || is_last) {
            for (unsigned bit = 0; bit < 32; bit++) {
                bool high = ((crc ^ dword << bit) >> 31) != 0;
                crc = crc << 1 ^ (high ? CRC_POLYNOMIAL : 0);
            }
            dword = 0;
        }
    }
    if (image->entries_count == 0) {
        for (unsigned bit = 0; bit < 32; bit++) { /* only the byte count, which is zero */
            crc = crc << 1 ^ ((crc >> 31) != 0 ? CRC_POLYNOMIAL : 0);
        }
    }
    return crc;
}

/* --- entries --- */

int via_card_image_add(struct via_card_image *image, uint16_t address, uint32_t value)
{
    if (image->entries_count == VIA_CARD_ENTRIES_MAX) {
        return -ENOSPC;
    }
    image->entries[image->entries_count++] =
        (struct via_card_entry){.address = address, .value = value};
    return 0;
}

/* --- the mark --- */

unsigned via_card_mark_make(const struct via_card *card, const struct via_card_setup *setup,
                            char text[VIA_CARD_MARK_BYTES])
{
    return (unsigned)snprintf(text, VIA_CARD_MARK_BYTES, "viaduct card %s %s %s %s\n", card->name,
                              via_card_role_name(setup->role), via_card_mode_name(setup->mode),
                              via_card_medium_name(setup->medium));
}

/* Compares the tail with the mark of each card and setup; a tail that equals none has no mark. */
struct via_card_mark via_card_mark_find(const uint8_t *tail, unsigned tail_bytes)
{
    char text[VIA_CARD_MARK_BYTES];
    const struct via_card *card;
    const struct via_card_setup *setup;
    for (unsigned i = 0; (card = via_card_at(i)) != NULL; i++) {
        for (unsigned k = 0; (setup = via_card_setup_at(k)) != NULL; k++) {
            unsigned bytes = via_card_mark_make(card, setup, text);
            if (setup->refused == NULL && bytes <= tail_bytes && memcmp(text, tail, bytes) == 0) {
                return (struct via_card_mark){.card = card, .setup = setup, .bytes = bytes};
            }
        }
    }
    return (struct via_card_mark){0};
}
