/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The table of adapter cards. Card, role, mode and medium determine DIP setting, switch
 * configuration, source and destinations of RESET and CLOCK, and cables. Images, checks, drawings
 * and documentation are derived from this table. This project defines the DIP positions, because no
 * public source has those of the published cards.
 */
#ifndef VIA_CARD_TABLE_H
#define VIA_CARD_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum via_card_role { VIA_CARD_HOST, VIA_CARD_BOX, VIA_CARD_ROLES };
enum via_card_mode { VIA_CARD_TRANSPARENT, VIA_CARD_NTB, VIA_CARD_MODES };
enum via_card_medium { VIA_CARD_OPTICAL, VIA_CARD_COPPER, VIA_CARD_MEDIA };

/* The source of RESET or CLOCK, and its destinations (a bit each). */
enum via_card_source { VIA_CARD_FROM_SLOT, VIA_CARD_FROM_REMOTE, VIA_CARD_FROM_CARD };
enum via_card_destination { VIA_CARD_TO_SWITCH = 1, VIA_CARD_TO_REMOTE = 2, VIA_CARD_TO_SLOT = 4 };

struct via_card_signal {
    enum via_card_source from;
    uint8_t to; /* of enum via_card_destination */
};

#define VIA_CARD_STATIONS 3u
#define VIA_CARD_PORTS_OF_STATION 8u /* port numbers; not each has a port */
#define VIA_CARD_GENERATION 3u

struct via_card {
    const char *name;
    uint16_t chip;         /* device id, as in 10b5:8749 */
    uint8_t lanes;         /* width of the slot and of the far port */
    uint8_t chip_lanes;    /* of the switch */
    uint8_t chip_stations; /* of 16 lanes */
    uint8_t slot_port;     /* number of the switch port at the slot */
    uint8_t far_port;      /* ... at the optics or cable */
    uint8_t station_code;  /* code in 0x300, for each station of the card */
    uint8_t optical_cables;
    uint8_t copper_cables; /* mini-SAS, plus a sideband cable */
    const char *unsure;    /* facts that public sources leave open; NULL: none */
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
    const char *refused; /* why the role is invalid; NULL: valid */
};

#define VIA_CARD_DIP_POSITIONS 4u
/* Position 4: the EEPROM configures the card, not positions 1 to 3. */
#define VIA_CARD_DIP_EEPROM 8u

#define VIA_CARD_OPTICAL_METRES_MAX 100u
#define VIA_CARD_COPPER_METRES_MAX 10u

/* NULL: index is beyond the last one. */
const struct via_card *via_card_at(unsigned index);
const struct via_card_setup *via_card_setup_at(unsigned index);

/* NULL: unknown card. */
const struct via_card *via_card_find(const char *name);
/* The setup of a combination. The table has all combinations; some are `refused`. */
const struct via_card_setup *via_card_setup_find(enum via_card_role role, enum via_card_mode mode,
                                                 enum via_card_medium medium);
/* The setup that the DIP switches (positions 1 to 3) select. NULL: none. */
const struct via_card_setup *via_card_setup_by_dip(unsigned dip);

const char *via_card_role_name(enum via_card_role role);
const char *via_card_mode_name(enum via_card_mode mode);
const char *via_card_medium_name(enum via_card_medium medium);
const char *via_card_source_name(enum via_card_source source);

/* 0 or -EINVAL. */
VIA_MUST_CHECK int via_card_role_parse(const char *text, enum via_card_role *ret_role);
VIA_MUST_CHECK int via_card_mode_parse(const char *text, enum via_card_mode *ret_mode);
VIA_MUST_CHECK int via_card_medium_parse(const char *text, enum via_card_medium *ret_medium);

/* Writes "switch, slot" to text, and returns text. */
#define VIA_CARD_DESTINATIONS_BYTES 32u
const char *via_card_destinations(uint8_t to, char text[VIA_CARD_DESTINATIONS_BYTES]);
/* Writes the setting, "1 on, 2 off, 3 off, 4 off", to text, and returns text. */
#define VIA_CARD_DIP_BYTES 40u
const char *via_card_dip(unsigned dip, char text[VIA_CARD_DIP_BYTES]);

/* Number of cables for a card and a medium, without the sideband cable. */
unsigned via_card_cables(const struct via_card *card, enum via_card_medium medium);

/* True if the chip has a port with this number. Family Draco 2: ports 0-5, 8-13, 16-21 (SDK). */
bool via_card_has_port(const struct via_card *card, unsigned port);

#endif
