/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Codes of 0x300 (eeprom_gen.py, for a PEX 8734). */
#define STATION_X16 1u
#define STATION_X8X8 2u

/*
 * Sources: chips: Broadcom's SDK 8 (PEX 8749: 48 lanes, PEX 8733: 32 lanes); widths and cables: the
 * published cards; ports at the slot and at the optics: derived, the first ports of stations 0 and
 * 1.
 */
static const struct via_card cards[] = {
    {
        .name = "pex8749-x8",
        .chip = 0x8749,
        .lanes = 8,
        .chip_lanes = 48,
        .chip_stations = 3,
        .slot_port = 0,
        .far_port = 8,
        .station_code = STATION_X8X8,
        .optical_cables = 1,
        .copper_cables = 2,
    },
    {
        .name = "pex8733-x16",
        .chip = 0x8733,
        .lanes = 16,
        .chip_lanes = 32,
        .chip_stations = 3,
        .slot_port = 0,
        .far_port = 8,
        .station_code = STATION_X16,
        .optical_cables = 2,
        .copper_cables = 4,
        .unsure = "a port of 16 lanes: the published card has one, plxtools says that the widest "
                  "port of a PEX 8733 has 8; and the SDK has three stations for its family, where "
                  "32 lanes fill two",
    },
};

#define SWITCH VIA_CARD_TO_SWITCH
#define REMOTE VIA_CARD_TO_REMOTE
#define SLOT VIA_CARD_TO_SLOT

#define NO_BOX_NTB "an NT port joins two hosts, and a box has none: mode transparent"

/*
 * Derived, because no public source shows the cards' selection logic: a box takes RESET from the
 * host; an NTB host never takes RESET from its peer; optics carry RESET but not CLOCK; with copper,
 * the sideband cable carries both (SFF-8644 has no pins for them).
 */
static const struct via_card_setup setups[] = {
    {VIA_CARD_HOST, VIA_CARD_TRANSPARENT, VIA_CARD_OPTICAL, 0x0, true, false,
     .reset = {VIA_CARD_FROM_SLOT, SWITCH | REMOTE}, .clock = {VIA_CARD_FROM_SLOT, SWITCH}},
    {VIA_CARD_BOX, VIA_CARD_TRANSPARENT, VIA_CARD_OPTICAL, 0x1, false, false,
     .reset = {VIA_CARD_FROM_REMOTE, SWITCH | SLOT}, .clock = {VIA_CARD_FROM_CARD, SWITCH | SLOT}},
    {VIA_CARD_HOST, VIA_CARD_NTB, VIA_CARD_OPTICAL, 0x2, true, true,
     .reset = {VIA_CARD_FROM_SLOT, SWITCH}, .clock = {VIA_CARD_FROM_SLOT, SWITCH}},
    {VIA_CARD_BOX, VIA_CARD_NTB, VIA_CARD_OPTICAL, 0x3, false, true, .refused = NO_BOX_NTB},
    {VIA_CARD_HOST, VIA_CARD_TRANSPARENT, VIA_CARD_COPPER, 0x4, true, false,
     .reset = {VIA_CARD_FROM_SLOT, SWITCH | REMOTE},
     .clock = {VIA_CARD_FROM_SLOT, SWITCH | REMOTE}},
    {VIA_CARD_BOX, VIA_CARD_TRANSPARENT, VIA_CARD_COPPER, 0x5, false, false,
     .reset = {VIA_CARD_FROM_REMOTE, SWITCH | SLOT},
     .clock = {VIA_CARD_FROM_REMOTE, SWITCH | SLOT}},
    {VIA_CARD_HOST, VIA_CARD_NTB, VIA_CARD_COPPER, 0x6, true, true,
     .reset = {VIA_CARD_FROM_SLOT, SWITCH}, .clock = {VIA_CARD_FROM_SLOT, SWITCH}},
    {VIA_CARD_BOX, VIA_CARD_NTB, VIA_CARD_COPPER, 0x7, false, true, .refused = NO_BOX_NTB},
};

_Static_assert(VIA_ARRAY_COUNT(setups) == VIA_CARD_ROLES * VIA_CARD_MODES * VIA_CARD_MEDIA,
               "all combinations");

static const char *const role_names[] = {"host", "box"};
static const char *const mode_names[] = {"transparent", "ntb"};
static const char *const medium_names[] = {"optical", "copper"};
static const char *const source_names[] = {"slot", "remote", "card"};

const struct via_card *via_card_at(unsigned index)
{
    return index < VIA_ARRAY_COUNT(cards) ? &cards[index] : NULL;
}

const struct via_card_setup *via_card_setup_at(unsigned index)
{
    return index < VIA_ARRAY_COUNT(setups) ? &setups[index] : NULL;
}

const struct via_card *via_card_find(const char *name)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(cards); i++) {
        if (strcmp(cards[i].name, name) == 0) {
            return &cards[i];
        }
    }
    return NULL;
}

const struct via_card_setup *via_card_setup_find(enum via_card_role role, enum via_card_mode mode,
                                                 enum via_card_medium medium)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(setups); i++) {
        const struct via_card_setup *setup = &setups[i];
        if (setup->role == role && setup->mode == mode && setup->medium == medium) {
            return setup;
        }
    }
    return NULL;
}

const struct via_card_setup *via_card_setup_by_dip(unsigned dip)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(setups); i++) {
        if (setups[i].dip == (dip & (VIA_CARD_DIP_EEPROM - 1)) && setups[i].refused == NULL) {
            return &setups[i];
        }
    }
    return NULL;
}

const char *via_card_role_name(enum via_card_role role)
{
    return role_names[role];
}

const char *via_card_mode_name(enum via_card_mode mode)
{
    return mode_names[mode];
}

const char *via_card_medium_name(enum via_card_medium medium)
{
    return medium_names[medium];
}

const char *via_card_source_name(enum via_card_source source)
{
    return source_names[source];
}

static int parse_name(const char *text, const char *const *names, unsigned count,
                      unsigned *ret_index)
{
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(names[i], text) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return -EINVAL;
}

int via_card_role_parse(const char *text, enum via_card_role *ret_role)
{
    unsigned index;
    int rc = parse_name(text, role_names, VIA_CARD_ROLES, &index);
    *ret_role = rc == 0 ? (enum via_card_role)index : *ret_role;
    return rc;
}

int via_card_mode_parse(const char *text, enum via_card_mode *ret_mode)
{
    unsigned index;
    int rc = parse_name(text, mode_names, VIA_CARD_MODES, &index);
    *ret_mode = rc == 0 ? (enum via_card_mode)index : *ret_mode;
    return rc;
}

int via_card_medium_parse(const char *text, enum via_card_medium *ret_medium)
{
    unsigned index;
    int rc = parse_name(text, medium_names, VIA_CARD_MEDIA, &index);
    *ret_medium = rc == 0 ? (enum via_card_medium)index : *ret_medium;
    return rc;
}

const char *via_card_destinations(uint8_t to, char text[VIA_CARD_DESTINATIONS_BYTES])
{
    snprintf(text, VIA_CARD_DESTINATIONS_BYTES, "%s%s%s", (to & SWITCH) != 0 ? "switch" : "",
             (to & REMOTE) != 0 ? ", remote" : "", (to & SLOT) != 0 ? ", slot" : "");
    return text;
}

const char *via_card_dip(unsigned dip, char text[VIA_CARD_DIP_BYTES])
{
    snprintf(text, VIA_CARD_DIP_BYTES, "1 %s, 2 %s, 3 %s, 4 %s", (dip & 1) != 0 ? "on" : "off",
             (dip & 2) != 0 ? "on" : "off", (dip & 4) != 0 ? "on" : "off",
             (dip & VIA_CARD_DIP_EEPROM) != 0 ? "on" : "off");
    return text;
}

unsigned via_card_cables(const struct via_card *card, enum via_card_medium medium)
{
    return medium == VIA_CARD_OPTICAL ? card->optical_cables : card->copper_cables;
}

bool via_card_has_port(const struct via_card *card, unsigned port)
{
    return port / VIA_CARD_PORTS_OF_STATION < card->chip_stations &&
           port % VIA_CARD_PORTS_OF_STATION < 6;
}
