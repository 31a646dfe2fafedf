/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The one table of adapter cards: card x role x mode x medium gives DIP setting, switch
 * configuration, source and destinations of RESET and CLOCK, and cables. Images, checks, drawings
 * and documentation are derived from it. DIP positions are this project's own definition: no public
 * source has those of the published cards.
 */
#ifndef VIA_CARD_TABLE_H
#define VIA_CARD_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum via_card_role { VIA_CARD_HOST, VIA_CARD_BOX, VIA_CARD_ROLES };
enum via_card_mode { VIA_CARD_TRANSPARENT, VIA_CARD_NTB, VIA_CARD_MODES };
enum via_card_medium { VIA_CARD_OPTICAL, VIA_CARD_COPPER, VIA_CARD_MEDIA };

/* Where RESET or CLOCK comes from, and (a bit each) where it goes to. */
enum via_card_source { VIA_CARD_FROM_SLOT, VIA_CARD_FROM_REMOTE, VIA_CARD_FROM_CARD };
enum via_card_destination { VIA_CARD_TO_SWITCH = 1, VIA_CARD_TO_REMOTE = 2, VIA_CARD_TO_SLOT = 4 };

struct via_card_signal {
    enum via_card_source from;
    uint8_t to; /* of enum via_card_destination */
};

#define VIA_CARD_STATIONS 3u
#define VIA_CARD_PORTS_OF_STATION 8u /* numbers; not all of them have a port */
#define VIA_CARD_GENERATION 3u

struct via_card {
    const char *name;
    uint16_t chip;         /* as in 10b5:8749 */
    uint8_t lanes;         /* of the slot and of the far port */
    uint8_t chip_lanes;    /* of the switch */
    uint8_t chip_stations; /* of 16 lanes */
    uint8_t slot_port;     /* number of the switch's port at the slot */
    uint8_t far_port;      /* ... at the optics or the cable */
    uint8_t station_code;  /* of 0x300, for each station of the card */
    uint8_t optical_cables;
    uint8_t copper_cables; /* mini-SAS; a sideband cable goes with them */
    const char *unsure;    /* what public sources leave open; NULL: nothing */
};

/* The settings of a role, the same for all cards. */
struct via_card_setup {
    enum via_card_role role;
    enum via_card_mode mode;
    enum via_card_medium medium;
    uint8_t dip; /* bit 0: position 1 is on */
    bool upstream_is_slot;
    bool has_nt; /* the far port is the NT port */
    struct via_card_signal reset, clock;
    const char *refused; /* why there is no such role; NULL: there is */
};

#define VIA_CARD_DIP_POSITIONS 4u
/* Position 4: configuration by the EEPROM, whatever positions 1 to 3 say. */
#define VIA_CARD_DIP_EEPROM 8u

#define VIA_CARD_OPTICAL_METRES_MAX 100u
#define VIA_CARD_COPPER_METRES_MAX 10u

/* NULL: there are no more. */
const struct via_card *via_card_at(unsigned index);
const struct via_card_setup *via_card_setup_at(unsigned index);

/* NULL: no such card. */
const struct via_card *via_card_find(const char *name);
/* Of a combination; all are in the table, some of them refused. */
const struct via_card_setup *via_card_setup_find(enum via_card_role role, enum via_card_mode mode,
                                                 enum via_card_medium medium);
/* Which the DIP switches (positions 1 to 3) select. NULL: no role. */
const struct via_card_setup *via_card_setup_by_dip(unsigned dip);

const char *via_card_role_name(enum via_card_role role);
const char *via_card_mode_name(enum via_card_mode mode);
const char *via_card_medium_name(enum via_card_medium medium);
const char *via_card_source_name(enum via_card_source source);

/* 0 or -EINVAL. */
VIA_MUST_CHECK int via_card_role_parse(const char *text, enum via_card_role *ret_role);
VIA_MUST_CHECK int via_card_mode_parse(const char *text, enum via_card_mode *ret_mode);
VIA_MUST_CHECK int via_card_medium_parse(const char *text, enum via_card_medium *ret_medium);

/* "switch, slot" into text, which it returns. */
#define VIA_CARD_DESTINATIONS_BYTES 32u
const char *via_card_destinations(uint8_t to, char text[VIA_CARD_DESTINATIONS_BYTES]);
/* "1 on, 2 off, 3 off, 4 off": what to set. */
#define VIA_CARD_DIP_BYTES 40u
const char *via_card_dip(unsigned dip, char text[VIA_CARD_DIP_BYTES]);

/* Cables of a card and a medium, the sideband cable not counted. */
unsigned via_card_cables(const struct via_card *card, enum via_card_medium medium);

/* Has the chip a port of this number? Family Draco 2: ports 0-5, 8-13, 16-21 (SDK). */
bool via_card_has_port(const struct via_card *card, unsigned port);

#endif
