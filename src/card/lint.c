/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/lint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "card/make.h"
#include "card/registers.h"

#define NT_ALUT_BITS (3u << 30)

struct lint {
    const struct via_card_image *image;
    const struct via_card_lint_options *options;
    struct via_card_mark mark;
    const struct via_card *card; /* NULL: not known */
    via_card_finding_take *take;
    void *ctx;
    unsigned errors_count;
};

const char *via_card_severity_name(enum via_card_severity severity)
{
    static const char *const names[] = {"error", "warning", "not decidable from public facts"};
    return names[severity];
}

static void find(struct lint *lint, enum via_card_severity severity, enum via_card_place place,
                 unsigned entry, const char *format, ...) VIA_PRINTF(5, 6);

static void find(struct lint *lint, enum via_card_severity severity, enum via_card_place place,
                 unsigned entry, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    struct via_card_finding finding = {severity, place, entry, text};
    lint->take(lint->ctx, &finding);
    lint->errors_count += severity == VIA_CARD_ERROR;
}

#define AT(entry) VIA_CARD_AT_ENTRY, (entry)

/* --- the image as a whole --- */

static void lint_crc(struct lint *lint)
{
    const struct via_card_image *image = lint->image;
    bool is_checked = (image->flags & VIA_CARD_IMAGE_HAS_CRC) != 0;
    uint32_t crc = via_card_image_crc(image);
    if (!is_checked) {
        find(lint, VIA_CARD_WARNING, VIA_CARD_AT_HEAD, 0,
             "flags 0x%02x: the chip does not check the CRC (bit 7), and takes a damaged image",
             image->flags);
    }
    if (image->crc_is_there && image->crc != crc) {
        find(lint, is_checked ? VIA_CARD_ERROR : VIA_CARD_WARNING, VIA_CARD_AT_CRC, 0,
             "CRC 0x%08x is wrong: it should be 0x%08x", image->crc, crc);
    }
    if ((image->flags & ~VIA_CARD_IMAGE_HAS_CRC) != 0) {
        find(lint, VIA_CARD_UNDECIDED, VIA_CARD_AT_HEAD, 0, "flags 0x%02x: only bit 7 is public",
             image->flags);
    }
    if (image->entries_count == 0) {
        find(lint, VIA_CARD_WARNING, VIA_CARD_AT_HEAD, 0, "no register is set");
    }
}

/* --- entry by entry --- */

static void lint_known(struct lint *lint, unsigned index)
{
    const struct via_card_entry *entry = &lint->image->entries[index];
    unsigned code = via_card_address_code(entry->address);
    unsigned off = via_card_address_off(entry->address);
    char space[VIA_CARD_SPACE_BYTES];
    via_card_space_name(code, space);
    if (lint->card != NULL && via_card_space_of(code) == VIA_CARD_SPACE_PORT &&
        !via_card_has_port(lint->card, code)) {
        find(lint, VIA_CARD_ERROR, AT(index), "%s, 0x%03x: the PEX %04x has no such port", space,
             off, lint->card->chip);
        return;
    }
    const struct via_card_register *one = via_card_register_find(entry->address);
    if (one == NULL) {
        find(lint, VIA_CARD_WARNING, AT(index),
             "%s, 0x%03x: unknown register: no public source names it", space, off);
    } else if ((entry->value & one->reserved) != 0) {
        find(lint, VIA_CARD_WARNING, AT(index),
             "%s, 0x%03x (%s): no public source names bits 0x%08x", space, off, one->name,
             entry->value & one->reserved);
    }
}

static void lint_doubled(struct lint *lint, unsigned index, const unsigned *first)
{
    const struct via_card_entry *entries = lint->image->entries;
    uint16_t address = entries[index].address;
    unsigned before = first[address] - 1;
    char space[VIA_CARD_SPACE_BYTES];
    find(lint, entries[before].value == entries[index].value ? VIA_CARD_WARNING : VIA_CARD_ERROR,
         AT(index), "%s, 0x%03x: written before, as register %u of the image, with 0x%08x",
         via_card_space_name(via_card_address_code(address), space), via_card_address_off(address),
         before + 1, entries[before].value);
}

static void lint_entries(struct lint *lint)
{
    unsigned first[1u << 16] = {0}; /* index + 1 of the first entry, by address */
    for (unsigned i = 0; i < lint->image->entries_count; i++) {
        lint_known(lint, i);
        unsigned *at = &first[lint->image->entries[i].address];
        if (*at != 0) {
            lint_doubled(lint, i, first);
        } else {
            *at = i + 1;
        }
    }
}

/* --- consistency between registers --- */

/* The last entry of a register; -1: none. */
static int find_entry(const struct lint *lint, unsigned code, unsigned off)
{
    uint16_t address = via_card_address(code, off);
    for (unsigned i = lint->image->entries_count; i > 0; i--) {
        if (lint->image->entries[i - 1].address == address) {
            return (int)(i - 1);
        }
    }
    return -1;
}

static uint32_t value_at(const struct lint *lint, int entry)
{
    return entry >= 0 ? lint->image->entries[entry].value : 0;
}

static void lint_port_number(struct lint *lint, int entry, const char *what, unsigned port)
{
    if (port == VIA_CARD_PORT_NONE) {
        return;
    }
    if (lint->card != NULL && !via_card_has_port(lint->card, port)) {
        find(lint, VIA_CARD_ERROR, AT((unsigned)entry), "0x360: %s port %u: the PEX %04x has none",
             what, port, lint->card->chip);
    }
}

static uint64_t setup_bytes(uint64_t setup)
{
    uint64_t mask = setup & ~UINT64_C(0xf);
    uint64_t bytes = ~mask + 1;
    return mask != 0 && (bytes & (bytes - 1)) == 0 && bytes >= 4096 ? bytes : 0;
}

/* Checks the set-up of one side's BAR 2/3. Returns its size; 0: missing or invalid. */
static uint64_t lint_setup(struct lint *lint, int ports, unsigned code, unsigned off)
{
    char space[VIA_CARD_SPACE_BYTES];
    int low = find_entry(lint, code, off);
    int high = find_entry(lint, code, off + 4);
    via_card_space_name(code, space);
    if (low < 0 && high < 0) {
        find(lint, VIA_CARD_ERROR, AT((unsigned)ports),
             "0x360 enables an NT port, and nothing sets up BAR 2/3 of %s (0x%03x): it has no "
             "window",
             space, off);
        return 0;
    }
    uint64_t setup = value_at(lint, low) | (uint64_t)value_at(lint, high) << 32;
    uint64_t bytes = setup_bytes(setup);
    if (bytes == 0) {
        find(lint, VIA_CARD_ERROR, AT((unsigned)(low >= 0 ? low : high)),
             "%s, 0x%03x: 0x%016llx is the mask of no size", space, off, (unsigned long long)setup);
    }
    return bytes;
}

static void lint_nt(struct lint *lint, int ports, unsigned nt)
{
    uint64_t virtual_bytes =
        lint_setup(lint, ports, VIA_CARD_CODE_NT_VIRTUAL + 2 * nt, VIA_CARD_REG_VIRTUAL_SETUP);
    uint64_t link_bytes =
        lint_setup(lint, ports, VIA_CARD_CODE_NT_LINK + 2 * nt, VIA_CARD_REG_LINK_SETUP);
    if (virtual_bytes != 0 && link_bytes != 0 && virtual_bytes != link_bytes) {
        find(lint, VIA_CARD_WARNING, AT((unsigned)ports),
             "NT%u: BAR 2/3 has %llu bytes at the virtual side and %llu at the link side", nt,
             (unsigned long long)virtual_bytes, (unsigned long long)link_bytes);
    }
}

static void lint_ports(struct lint *lint)
{
    int ports = find_entry(lint, 0, VIA_CARD_REG_PORTS);
    if (ports < 0) {
        find(lint, VIA_CARD_WARNING, VIA_CARD_AT_HEAD, 0,
             "nothing sets the upstream port (0x360): the straps decide, and their pins are not "
             "public");
        return;
    }
    uint32_t value = value_at(lint, ports);
    unsigned upstream = value & 0x1f, nt[2] = {value >> 8 & 0x1f, value >> 16 & 0x1f};
    bool is_on[2] = {(value >> 13 & 1) != 0, (value >> 21 & 1) != 0};
    lint_port_number(lint, ports, "upstream", upstream);
    for (unsigned i = 0; i < 2; i++) {
        if (!is_on[i]) {
            continue;
        }
        lint_port_number(lint, ports, i == 0 ? "NT0" : "NT1", nt[i]);
        if (nt[i] == upstream) {
            find(lint, VIA_CARD_ERROR, AT((unsigned)ports),
                 "0x360: port %u is upstream and NT%u: the chip would have no upstream port",
                 upstream, i);
        }
        if (nt[i] == VIA_CARD_PORT_NONE) {
            find(lint, VIA_CARD_ERROR, AT((unsigned)ports), "0x360: NT%u is on and has no port", i);
        }
        lint_nt(lint, ports, i);
    }
    if (is_on[0] && is_on[1] && nt[0] == nt[1]) {
        find(lint, VIA_CARD_ERROR, AT((unsigned)ports), "0x360: port %u is NT0 and NT1", nt[0]);
    }
}

/* In standard mode the chip is one switch, and only 0x360 may name an upstream port. */
static void lint_upstreams(struct lint *lint)
{
    int standard = find_entry(lint, 0, VIA_CARD_REG_STANDARD);
    bool is_standard = standard < 0 || (value_at(lint, standard) & 0xff) == 1;
    for (unsigned i = 1; i < 8; i++) {
        int other = find_entry(lint, 0, VIA_CARD_REG_PORTS + 4 * i);
        if (other >= 0 && is_standard && value_at(lint, other) != VIA_CARD_PORT_NONE) {
            find(lint, VIA_CARD_ERROR, AT((unsigned)other),
                 "0x%03x: a second upstream port (%u), although 0x358 declares one switch",
                 VIA_CARD_REG_PORTS + 4 * i, value_at(lint, other) & 0x1f);
        }
    }
}

static void lint_stations(struct lint *lint)
{
    int entry = find_entry(lint, 0, VIA_CARD_REG_STATIONS);
    if (entry < 0 || lint->card == NULL) {
        return;
    }
    uint32_t value = value_at(lint, entry);
    unsigned lanes = 0;
    for (unsigned i = 0; i < VIA_CARD_STATIONS; i++) {
        unsigned code = value >> 3 * i & 7;
        lanes += code != 0 ? 16 : 0;
        if (code > 4) {
            find(lint, VIA_CARD_ERROR, AT((unsigned)entry), "0x300: station %u: %u is no split", i,
                 code);
        }
    }
    if (lanes > lint->card->chip_lanes) {
        find(lint, VIA_CARD_ERROR, AT((unsigned)entry), "0x300: %u lanes, and the PEX %04x has %u",
             lanes, lint->card->chip, lint->card->chip_lanes);
    }
    find(lint, VIA_CARD_UNDECIDED, AT((unsigned)entry),
         "0x300: its codes are known of a PEX 8734, and assumed for the PEX %04x",
         lint->card->chip);
    if (lint->card->unsure != NULL) {
        find(lint, VIA_CARD_UNDECIDED, AT((unsigned)entry), "0x300: %s", lint->card->unsure);
    }
}

static void lint_ids(struct lint *lint)
{
    for (unsigned i = 0; i < lint->image->entries_count; i++) {
        const struct via_card_entry *entry = &lint->image->entries[i];
        enum via_card_space space = via_card_space_of(via_card_address_code(entry->address));
        bool has_ids = space == VIA_CARD_SPACE_PORT || space == VIA_CARD_SPACE_NT_LINK ||
                       space == VIA_CARD_SPACE_NT_VIRTUAL;
        if (!has_ids || via_card_address_off(entry->address) != VIA_CARD_REG_IDS) {
            continue;
        }
        uint32_t vendor = entry->value & 0xffff, device = entry->value >> 16;
        bool is_none = vendor == 0 || vendor == 0xffff || device == 0 || device == 0xffff;
        find(lint, is_none ? VIA_CARD_ERROR : VIA_CARD_WARNING, AT(i),
             is_none ? "ids %04x:%04x: no function answers with these"
                     : "ids %04x:%04x: drivers find the function by 10b5 and the chip's own ids",
             vendor, device);
    }
}

/* The order of entries: stations, ports, registers of the NT ports. Derived: see make.c. */
static void lint_order(struct lint *lint)
{
    int stations = find_entry(lint, 0, VIA_CARD_REG_STATIONS);
    int ports = find_entry(lint, 0, VIA_CARD_REG_PORTS);
    if (stations > ports && ports >= 0) {
        find(lint, VIA_CARD_WARNING, AT((unsigned)stations),
             "order: 0x300 makes the ports, and 0x360 comes before it");
    }
    for (int i = 0; i < ports; i++) {
        unsigned code = via_card_address_code(lint->image->entries[i].address);
        enum via_card_space space = via_card_space_of(code);
        if (space == VIA_CARD_SPACE_NT_LINK || space == VIA_CARD_SPACE_NT_VIRTUAL) {
            find(lint, VIA_CARD_WARNING, AT((unsigned)i),
                 "order: a register of an NT port before 0x360 makes it one");
            return;
        }
    }
}

/* --- consistency with the card --- */

static void lint_role(struct lint *lint)
{
    int ports = find_entry(lint, 0, VIA_CARD_REG_PORTS);
    uint32_t value = value_at(lint, ports) & ~NT_ALUT_BITS;
    if (lint->mark.card == NULL || ports < 0) {
        return;
    }
    uint32_t expected = via_card_ports_value(lint->mark.card, lint->mark.setup, false);
    if (value != expected) {
        find(lint, VIA_CARD_WARNING, AT((unsigned)ports),
             "0x360 is 0x%08x; the image is declared for %s, %s, %s, which has 0x%08x", value,
             lint->mark.card->name, via_card_role_name(lint->mark.setup->role),
             via_card_mode_name(lint->mark.setup->mode), expected);
    }
}

static void lint_card(struct lint *lint)
{
    const struct via_card *named = lint->options->card;
    if (named != NULL && lint->mark.card != NULL && named->chip != lint->mark.card->chip) {
        find(lint, VIA_CARD_ERROR, VIA_CARD_AT_TAIL, 0,
             "the image is for %s, a PEX %04x, and not for %s", lint->mark.card->name,
             lint->mark.card->chip, named->name);
    }
    if (lint->card == NULL) {
        find(lint, VIA_CARD_UNDECIDED, VIA_CARD_AT_HEAD, 0,
             "the image names no card: its ports and lanes were not checked (--card)");
    }
    int dip = lint->options->dip;
    if (dip < 0 || lint->mark.card == NULL) {
        return;
    }
    if (((unsigned)dip & VIA_CARD_DIP_EEPROM) == 0) {
        find(lint, VIA_CARD_ERROR, VIA_CARD_AT_TAIL, 0,
             "DIP position 4 is off: the card does not read its EEPROM");
    }
    const struct via_card_setup *by_dip = via_card_setup_by_dip((unsigned)dip);
    if (by_dip != lint->mark.setup) {
        char text[VIA_CARD_DIP_BYTES];
        find(lint, VIA_CARD_ERROR, VIA_CARD_AT_TAIL, 0,
             "the DIP switches select %s, %s, %s; the image's role needs %s",
             by_dip != NULL ? via_card_role_name(by_dip->role) : "no role",
             by_dip != NULL ? via_card_mode_name(by_dip->mode) : "-",
             by_dip != NULL ? via_card_medium_name(by_dip->medium) : "-",
             via_card_dip(lint->mark.setup->dip | VIA_CARD_DIP_EEPROM, text));
    }
}

unsigned via_card_lint(const struct via_card_image *image,
                       const struct via_card_lint_options *options, via_card_finding_take *take,
                       void *ctx)
{
    struct lint lint = {.image = image, .options = options, .take = take, .ctx = ctx};
    lint.mark = via_card_mark_find(image->tail, image->tail_bytes);
    lint.card = options->card != NULL ? options->card : lint.mark.card;
    lint_crc(&lint);
    lint_card(&lint);
    lint_entries(&lint);
    lint_ports(&lint);
    lint_upstreams(&lint);
    lint_stations(&lint);
    lint_ids(&lint);
    lint_order(&lint);
    lint_role(&lint);
    return lint.errors_count;
}
