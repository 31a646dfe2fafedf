/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/make.h"

#include <errno.h>
#include <string.h>

#include "card/registers.h"

#define NT0_ENABLED (1u << 13)
#define NT0_ALUT (1u << 30)
#define BAR_64BIT_PREFETCHABLE 0xCu /* FreeBSD */
#define BAR0_32BIT 2u               /* FreeBSD */
#define SLOT_SURPRISE (1u << 5)
#define SLOT_HOT_PLUG (1u << 6)
#define SLOT_NUMBER_SHIFT 19u

uint32_t via_card_ports_value(const struct via_card *card, const struct via_card_setup *setup,
                              bool with_alut)
{
    uint32_t value = setup->upstream_is_slot ? card->slot_port : card->far_port;
    value |= VIA_CARD_PORT_NONE << 16; /* NT1 */
    if (!setup->has_nt) {
        return value | VIA_CARD_PORT_NONE << 8;
    }
    return value | (uint32_t)card->far_port << 8 | NT0_ENABLED | (with_alut ? NT0_ALUT : 0);
}

static int check(const struct via_card_make_options *options, struct via_error *err)
{
    if (options->setup->refused != NULL) {
        return via_error_set(err, -EINVAL, "role %s, mode %s: %s",
                             via_card_role_name(options->setup->role),
                             via_card_mode_name(options->setup->mode), options->setup->refused);
    }
    uint64_t bytes = options->bar_bytes;
    if (bytes < VIA_CARD_BAR_BYTES_MIN || bytes > VIA_CARD_BAR_BYTES_MAX ||
        (bytes & (bytes - 1)) != 0) {
        return via_error_set(err, -EINVAL,
                             "a BAR of %llu bytes: no power of two from 1 MiB to 64 GiB",
                             (unsigned long long)bytes);
    }
    return 0;
}

static int add_nt(struct via_card_image *image, uint64_t bar_bytes)
{
    uint64_t setup = ~(bar_bytes - 1) | BAR_64BIT_PREFETCHABLE;
    const struct via_card_entry entries[] = {
        {via_card_address(VIA_CARD_CODE_NT_LINK, VIA_CARD_REG_LINK_SETUP0), BAR0_32BIT},
        {via_card_address(VIA_CARD_CODE_NT_VIRTUAL, VIA_CARD_REG_VIRTUAL_SETUP), (uint32_t)setup},
        {via_card_address(VIA_CARD_CODE_NT_VIRTUAL, VIA_CARD_REG_VIRTUAL_SETUP + 4),
         (uint32_t)(setup >> 32)},
        {via_card_address(VIA_CARD_CODE_NT_LINK, VIA_CARD_REG_LINK_SETUP), (uint32_t)setup},
        {via_card_address(VIA_CARD_CODE_NT_LINK, VIA_CARD_REG_LINK_SETUP + 4),
         (uint32_t)(setup >> 32)},
    };
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < VIA_ARRAY_COUNT(entries); i++) {
        rc = via_card_image_add(image, entries[i].address, entries[i].value);
    }
    return rc;
}

/* Entries in the order: ports, upstream port and NT port, set-up of the NT port. The order is
 * derived, not from a source. */
static int add_entries(const struct via_card_make_options *options, struct via_card_image *image)
{
    const struct via_card *card = options->card;
    const struct via_card_setup *setup = options->setup;
    int rc = 0;
    if (options->with_assumed) {
        uint32_t stations = card->station_code | (uint32_t)card->station_code << 3;
        rc = via_card_image_add(image, via_card_address(0, VIA_CARD_REG_STATIONS), stations);
    }
    rc = rc == 0 ? via_card_image_add(image, via_card_address(0, VIA_CARD_REG_PORTS),
                                      via_card_ports_value(card, setup, options->with_alut))
                 : rc;
    if (rc == 0 && setup->has_nt) {
        rc = add_nt(image, options->bar_bytes);
    }
    /* A cable may be pulled without notice, so the host's downstream port announces surprise
     * removal. */
    if (rc == 0 && options->with_assumed && setup->upstream_is_slot && !setup->has_nt) {
        uint32_t slot =
            (uint32_t)card->far_port << SLOT_NUMBER_SHIFT | SLOT_HOT_PLUG | SLOT_SURPRISE;
        rc = via_card_image_add(
            image, via_card_address(card->far_port, VIA_CARD_REG_SLOT_CAPABILITIES), slot);
    }
    return rc;
}

int via_card_image_make(const struct via_card_make_options *options,
                        struct via_card_image *ret_image, struct via_error *err)
{
    char mark[VIA_CARD_MARK_BYTES];
    int rc = check(options, err);
    if (rc != 0) {
        return rc;
    }
    ret_image->flags = VIA_CARD_IMAGE_HAS_CRC;
    ret_image->entries_count = 0;
    rc = add_entries(options, ret_image);
    if (rc != 0) {
        return via_error_set(err, rc, "image: %s", strerror(-rc));
    }
    ret_image->crc_is_there = true;
    ret_image->crc = via_card_image_crc(ret_image);
    ret_image->tail_bytes = via_card_mark_make(options->card, options->setup, mark);
    memcpy(ret_image->tail, mark, ret_image->tail_bytes);
    return 0;
}
