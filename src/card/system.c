/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/system.h"

#include <errno.h>
#include <string.h>

#include "card/words.h"

struct reader {
    struct via_card_lines lines;
    struct via_card_system *system;
};

/* --- words --- */

static int take_name(struct reader *reader, unsigned word, char name[VIA_CARD_NAME_BYTES])
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *text = reader->lines.words[word];
    size_t bytes = strlen(text);
    if (bytes >= VIA_CARD_NAME_BYTES || strspn(text, allowed) != bytes) {
        return via_card_lines_complain(&reader->lines,
                                       "'%s': a name has up to %u letters, digits, '.', '_', '-'",
                                       text, VIA_CARD_NAME_BYTES - 1);
    }
    memcpy(name, text, bytes + 1);
    return 0;
}

static int full(struct reader *reader, unsigned max)
{
    return via_card_lines_complain(&reader->lines, "more than %u lines '%s'", max,
                                   reader->lines.words[0]);
}

static int expected(struct reader *reader, const char *form)
{
    return via_card_lines_complain(&reader->lines, "'%s': expected '%s'", reader->lines.words[0],
                                   form);
}

static int find_machine(struct reader *reader, unsigned word, unsigned *ret_machine)
{
    const struct via_card_system *system = reader->system;
    for (unsigned i = 0; i < system->machines_count; i++) {
        if (strcmp(system->machines[i].name, reader->lines.words[word]) == 0) {
            *ret_machine = i;
            return 0;
        }
    }
    return via_card_lines_complain(&reader->lines, "'%s': no line before declares this host or box",
                                   reader->lines.words[word]);
}

/* Parses a slot, which must be free, and occupies it. */
static int take_slot_of(struct reader *reader, unsigned word, unsigned *ret_slot)
{
    struct via_card_system *system = reader->system;
    unsigned machine = 0;
    int rc = find_machine(reader, word, &machine);
    if (rc != 0) {
        return rc;
    }
    const char *name = reader->lines.words[word + 1];
    for (unsigned i = 0; i < system->slots_count; i++) {
        struct via_card_slot *slot = &system->slots[i];
        if (slot->machine != machine || strcmp(slot->name, name) != 0) {
            continue;
        }
        if (slot->is_used) {
            return via_card_lines_complain(&reader->lines, "'%s': this slot of %s is taken", name,
                                           system->machines[machine].name);
        }
        slot->is_used = true;
        *ret_slot = i;
        return 0;
    }
    return via_card_lines_complain(&reader->lines, "'%s': %s has no such slot", name,
                                   system->machines[machine].name);
}

static int find_card(struct reader *reader, unsigned word, unsigned *ret_card)
{
    for (unsigned i = 0; i < reader->system->cards_count; i++) {
        if (strcmp(reader->system->cards[i].name, reader->lines.words[word]) == 0) {
            *ret_card = i;
            return 0;
        }
    }
    return via_card_lines_complain(&reader->lines, "'%s': no line before declares this card",
                                   reader->lines.words[word]);
}

/* "x8 gen3" */
static int take_width(struct reader *reader, unsigned word, unsigned *ret_lanes,
                      unsigned *ret_generation)
{
    static const char *const widths[] = {"x1", "x2", "x4", "x8", "x16"};
    static const char *const generations[] = {"gen1", "gen2", "gen3", "gen4", "gen5"};
    unsigned lanes = 0, generation = 0;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(widths); i++) {
        lanes = strcmp(reader->lines.words[word], widths[i]) == 0 ? 1u << i : lanes;
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(generations); i++) {
        generation =
            strcmp(reader->lines.words[word + 1], generations[i]) == 0 ? i + 1 : generation;
    }
    if (lanes == 0 || generation == 0) {
        return via_card_lines_complain(&reader->lines, "'%s %s': expected x1 to x16, gen1 to gen5",
                                       reader->lines.words[word], reader->lines.words[word + 1]);
    }
    *ret_lanes = lanes;
    *ret_generation = generation;
    return 0;
}

/* --- lines --- */

static int take_machine_key(struct reader *reader, unsigned word, struct via_card_machine *machine)
{
    const char *key = reader->lines.words[word];
    const char *value = reader->lines.words[word + 1];
    if (strcmp(key, "ssc") == 0 && (strcmp(value, "on") == 0 || strcmp(value, "off") == 0)) {
        machine->spread = value[1] == 'n' ? VIA_CARD_SPREAD_ON : VIA_CARD_SPREAD_OFF;
        return 0;
    }
    uint32_t *number = strcmp(key, "perst-ms") == 0         ? &machine->perst_ms
                       : strcmp(key, "perst-clock-us") == 0 ? &machine->perst_clock_us
                       : strcmp(key, "perst-low-us") == 0   ? &machine->perst_low_us
                                                            : NULL;
    if (number == NULL) {
        return via_card_lines_complain(
            &reader->lines, "'%s %s': expected ssc on|off, perst-ms, perst-clock-us, perst-low-us",
            key, value);
    }
    return via_card_lines_number(&reader->lines, word + 1, "a time", 1000000000, number);
}

static int take_machine(struct reader *reader)
{
    struct via_card_system *system = reader->system;
    struct via_card_lines *lines = &reader->lines;
    if (lines->words_count < 2 || lines->words_count % 2 != 0) {
        return expected(reader, "host|box NAME [KEY VALUE]...");
    }
    if (system->machines_count == VIA_CARD_MACHINES_MAX) {
        return full(reader, VIA_CARD_MACHINES_MAX);
    }
    struct via_card_machine machine = {.line = lines->line,
                                       .is_box = strcmp(lines->words[0], "box") == 0,
                                       .perst_ms = VIA_CARD_NOT_GIVEN,
                                       .perst_clock_us = VIA_CARD_NOT_GIVEN,
                                       .perst_low_us = VIA_CARD_NOT_GIVEN};
    int rc = take_name(reader, 1, machine.name);
    for (unsigned i = 0; rc == 0 && i < system->machines_count; i++) {
        if (strcmp(system->machines[i].name, machine.name) == 0) {
            return via_card_lines_complain(lines, "'%s': given already, in line %u", machine.name,
                                           system->machines[i].line);
        }
    }
    for (unsigned word = 2; rc == 0 && word < lines->words_count; word += 2) {
        rc = take_machine_key(reader, word, &machine);
    }
    if (rc == 0) {
        system->machines[system->machines_count++] = machine;
    }
    return rc;
}

static int take_slot(struct reader *reader)
{
    struct via_card_system *system = reader->system;
    struct via_card_slot slot = {.line = reader->lines.line};
    if (reader->lines.words_count != 5) {
        return expected(reader, "slot MACHINE NAME xN genN");
    }
    if (system->slots_count == VIA_CARD_SLOTS_MAX) {
        return full(reader, VIA_CARD_SLOTS_MAX);
    }
    int rc = find_machine(reader, 1, &slot.machine);
    rc = rc == 0 ? take_name(reader, 2, slot.name) : rc;
    rc = rc == 0 ? take_width(reader, 3, &slot.lanes, &slot.generation) : rc;
    for (unsigned i = 0; rc == 0 && i < system->slots_count; i++) {
        if (system->slots[i].machine == slot.machine &&
            strcmp(system->slots[i].name, slot.name) == 0) {
            return via_card_lines_complain(&reader->lines, "'%s': given already, in line %u",
                                           slot.name, system->slots[i].line);
        }
    }
    if (rc == 0) {
        system->slots[system->slots_count++] = slot;
    }
    return rc;
}

static int take_dip(struct reader *reader, unsigned word, unsigned *ret_dip)
{
    const char *text = reader->lines.words[word];
    if (strlen(text) != VIA_CARD_DIP_POSITIONS || strspn(text, "01") != VIA_CARD_DIP_POSITIONS) {
        return via_card_lines_complain(&reader->lines, "'%s': DIP switches are four digits 0 or 1",
                                       text);
    }
    for (unsigned i = 0; i < VIA_CARD_DIP_POSITIONS; i++) {
        *ret_dip |= text[i] == '1' ? 1u << i : 0;
    }
    return 0;
}

static int take_image(struct reader *reader, unsigned word, const struct via_card_setup **ret_setup)
{
    struct via_card_lines *lines = &reader->lines;
    enum via_card_role role;
    enum via_card_mode mode;
    enum via_card_medium medium;
    if (strcmp(lines->words[word], "image") != 0 ||
        via_card_role_parse(lines->words[word + 1], &role) != 0 ||
        via_card_mode_parse(lines->words[word + 2], &mode) != 0 ||
        via_card_medium_parse(lines->words[word + 3], &medium) != 0) {
        return via_card_lines_complain(lines, "'%s': expected 'image ROLE MODE MEDIUM'",
                                       lines->words[word]);
    }
    *ret_setup = via_card_setup_find(role, mode, medium);
    return (*ret_setup)->refused == NULL
               ? 0
               : via_card_lines_complain(lines, "'image': %s", (*ret_setup)->refused);
}

static int take_card(struct reader *reader)
{
    struct via_card_system *system = reader->system;
    struct via_card_lines *lines = &reader->lines;
    struct via_card_placed card = {.line = lines->line};
    if ((lines->words_count != 8 && lines->words_count != 12) ||
        strcmp(lines->words[3], "in") != 0 || strcmp(lines->words[6], "dip") != 0) {
        return expected(reader,
                        "card NAME CARD in MACHINE SLOT dip DIGITS [image ROLE MODE MEDIUM]");
    }
    if (system->cards_count == VIA_CARD_CARDS_MAX) {
        return full(reader, VIA_CARD_CARDS_MAX);
    }
    card.card = via_card_find(lines->words[2]);
    if (card.card == NULL) {
        return via_card_lines_complain(lines, "'%s': unknown card ('viaduct card roles')",
                                       lines->words[2]);
    }
    int rc = take_name(reader, 1, card.name);
    for (unsigned i = 0; rc == 0 && i < system->cards_count; i++) {
        if (strcmp(system->cards[i].name, card.name) == 0) {
            return via_card_lines_complain(lines, "'%s': given already, in line %u", card.name,
                                           system->cards[i].line);
        }
    }
    rc = rc == 0 ? take_slot_of(reader, 4, &card.slot) : rc;
    rc = rc == 0 ? take_dip(reader, 7, &card.dip) : rc;
    if (rc == 0 && lines->words_count == 12) {
        rc = take_image(reader, 8, &card.by_image);
    }
    if (rc == 0) {
        bool by_image = (card.dip & VIA_CARD_DIP_EEPROM) != 0;
        card.setup = by_image ? card.by_image : via_card_setup_by_dip(card.dip);
        system->cards[system->cards_count++] = card;
    }
    return rc;
}

static int take_cable_key(struct reader *reader, unsigned word, struct via_card_cable *cable)
{
    const char *key = reader->lines.words[word];
    if (strcmp(key, "count") == 0) {
        return via_card_lines_number(&reader->lines, word + 1, "a count", 64, &cable->count);
    }
    if (strcmp(key, "metres") == 0) {
        return via_card_lines_number(&reader->lines, word + 1, "a length", 100000, &cable->metres);
    }
    return via_card_lines_complain(&reader->lines, "'%s': expected count or metres", key);
}

static int take_cable(struct reader *reader)
{
    static const char *const kinds[] = {"optical", "copper", "sideband"};
    struct via_card_system *system = reader->system;
    struct via_card_lines *lines = &reader->lines;
    struct via_card_cable cable = {.line = lines->line, .count = 1, .metres = VIA_CARD_NOT_GIVEN};
    unsigned kind = 0, ends[2] = {0, 0};
    if (lines->words_count < 4 || lines->words_count % 2 != 0) {
        return expected(reader, "cable optical|copper|sideband CARD CARD [count N] [metres N]");
    }
    if (system->cables_count == VIA_CARD_CABLES_MAX) {
        return full(reader, VIA_CARD_CABLES_MAX);
    }
    while (kind < VIA_ARRAY_COUNT(kinds) && strcmp(lines->words[1], kinds[kind]) != 0) {
        kind++;
    }
    if (kind == VIA_ARRAY_COUNT(kinds)) {
        return via_card_lines_complain(lines, "'%s': not optical, copper or sideband",
                                       lines->words[1]);
    }
    int rc = find_card(reader, 2, &ends[0]);
    rc = rc == 0 ? find_card(reader, 3, &ends[1]) : rc;
    for (unsigned word = 4; rc == 0 && word < lines->words_count; word += 2) {
        rc = take_cable_key(reader, word, &cable);
    }
    if (rc == 0 && ends[0] == ends[1]) {
        return via_card_lines_complain(lines, "'%s': a cable from a card to itself",
                                       lines->words[2]);
    }
    if (rc == 0) {
        cable.kind = (enum via_card_cable_kind)kind;
        cable.ends[0] = via_min(ends[0], ends[1]);
        cable.ends[1] = via_max(ends[0], ends[1]);
        system->cables[system->cables_count++] = cable;
    }
    return rc;
}

static int take_device(struct reader *reader)
{
    struct via_card_system *system = reader->system;
    struct via_card_device device = {.line = reader->lines.line};
    if (reader->lines.words_count != 7 || strcmp(reader->lines.words[2], "in") != 0) {
        return expected(reader, "device NAME in MACHINE SLOT xN genN");
    }
    if (system->devices_count == VIA_CARD_DEVICES_MAX) {
        return full(reader, VIA_CARD_DEVICES_MAX);
    }
    int rc = take_name(reader, 1, device.name);
    rc = rc == 0 ? take_slot_of(reader, 3, &device.slot) : rc;
    rc = rc == 0 ? take_width(reader, 5, &device.lanes, &device.generation) : rc;
    if (rc == 0) {
        system->devices[system->devices_count++] = device;
    }
    return rc;
}

static int take_line(struct reader *reader)
{
    static const struct {
        const char *word;
        int (*take)(struct reader *reader);
    } keywords[] = {{"host", take_machine}, {"box", take_machine}, {"slot", take_slot},
                    {"card", take_card},    {"cable", take_cable}, {"device", take_device}};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(keywords); i++) {
        if (strcmp(reader->lines.words[0], keywords[i].word) == 0) {
            return keywords[i].take(reader);
        }
    }
    return via_card_lines_complain(&reader->lines,
                                   "'%s': unknown keyword (host, box, slot, card, cable, device)",
                                   reader->lines.words[0]);
}

int via_card_system_parse(const char *name, const char *text, size_t bytes,
                          struct via_card_system *ret_system, struct via_error *err)
{
    struct reader reader = {.lines = {.name = name, .text = text, .bytes = bytes, .err = err},
                            .system = ret_system};
    memset(ret_system, 0, sizeof(*ret_system));
    int rc;
    while ((rc = via_card_lines_next(&reader.lines)) > 0) {
        rc = take_line(&reader);
        if (rc != 0) {
            return rc;
        }
    }
    if (rc == 0 && ret_system->cards_count == 0) {
        return via_card_lines_complain(&reader.lines, "no card in the whole file");
    }
    return rc;
}

int via_card_system_peer(const struct via_card_system *system, unsigned card)
{
    for (unsigned i = 0; i < system->cables_count; i++) {
        const struct via_card_cable *cable = &system->cables[i];
        for (unsigned end = 0; end < 2; end++) {
            if (cable->kind != VIA_CARD_CABLE_SIDEBAND && cable->ends[end] == card) {
                return (int)cable->ends[1 - end];
            }
        }
    }
    return -1;
}
