/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The description of a system before power-on: machines, slots, cards, cables and devices; and its
 * checks. Lines:
 *
 *     host NAME [ssc on|off] [perst-ms N] [perst-clock-us N] [perst-low-us N]
 *     box NAME [the same]
 *     slot MACHINE NAME xN genN
 *     card NAME CARD in MACHINE SLOT dip DIGITS [image ROLE MODE MEDIUM]
 *     cable optical|copper|sideband CARD CARD [count N] [metres N]
 *     device NAME in MACHINE SLOT xN genN
 */
#ifndef VIA_CARD_SYSTEM_H
#define VIA_CARD_SYSTEM_H

#include <stdio.h>

#include "card/lint.h"
#include "card/table.h"

#define VIA_CARD_NAME_BYTES 32u
#define VIA_CARD_MACHINES_MAX 32u
#define VIA_CARD_SLOTS_MAX 128u
#define VIA_CARD_CARDS_MAX 64u
#define VIA_CARD_CABLES_MAX 128u
#define VIA_CARD_DEVICES_MAX 128u
#define VIA_CARD_SYSTEM_BYTES_MAX (256u << 10)
#define VIA_CARD_NOT_GIVEN UINT32_MAX

enum via_card_spread { VIA_CARD_SPREAD_UNKNOWN, VIA_CARD_SPREAD_OFF, VIA_CARD_SPREAD_ON };

struct via_card_machine {
    char name[VIA_CARD_NAME_BYTES];
    unsigned line;
    bool is_box;
    enum via_card_spread spread; /* spread spectrum of its clock */
    uint32_t perst_ms;           /* power good to PERST# high; or NOT_GIVEN */
    uint32_t perst_clock_us;     /* clock stable to PERST# high */
    uint32_t perst_low_us;       /* time of PERST# low */
};

struct via_card_slot {
    char name[VIA_CARD_NAME_BYTES];
    unsigned line, machine;
    unsigned lanes, generation;
    bool is_used;
};

struct via_card_placed {
    char name[VIA_CARD_NAME_BYTES];
    unsigned line, slot;
    const struct via_card *card;
    unsigned dip;
    const struct via_card_setup *by_image; /* NULL: no image is given */
    const struct via_card_setup *setup;    /* effective; NULL: not known */
};

enum via_card_cable_kind { VIA_CARD_CABLE_OPTICAL, VIA_CARD_CABLE_COPPER, VIA_CARD_CABLE_SIDEBAND };

struct via_card_cable {
    unsigned line;
    enum via_card_cable_kind kind;
    unsigned ends[2];       /* cards, the lower index first */
    uint32_t count, metres; /* metres: may be NOT_GIVEN */
};

struct via_card_device {
    char name[VIA_CARD_NAME_BYTES];
    unsigned line, slot;
    unsigned lanes, generation;
};

struct via_card_system {
    unsigned machines_count, slots_count, cards_count, cables_count, devices_count;
    struct via_card_machine machines[VIA_CARD_MACHINES_MAX];
    struct via_card_slot slots[VIA_CARD_SLOTS_MAX];
    struct via_card_placed cards[VIA_CARD_CARDS_MAX];
    struct via_card_cable cables[VIA_CARD_CABLES_MAX];
    struct via_card_device devices[VIA_CARD_DEVICES_MAX];
};

/* Errors begin with "name:line: ". 0 or -EINVAL. */
VIA_MUST_CHECK int via_card_system_parse(const char *name, const char *text, size_t bytes,
                                         struct via_card_system *ret_system, struct via_error *err);

typedef void via_card_system_take(void *ctx, enum via_card_severity severity, unsigned line,
                                  const char *text);
/* Passes each finding to take(). Returns the number of errors. */
unsigned via_card_system_check(const struct via_card_system *system, via_card_system_take *take,
                               void *ctx);

/* The card at the other end of a card's first cable; -1: none. */
int via_card_system_peer(const struct via_card_system *system, unsigned card);
static inline const struct via_card_machine *
via_card_system_machine(const struct via_card_system *system, unsigned card)
{
    return &system->machines[system->slots[system->cards[card].slot].machine];
}

/* For a system without errors: prints the power-on order, and the expected output of lspci -tv. */
void via_card_system_print_order(const struct via_card_system *system, FILE *out);
void via_card_system_print_tree(const struct via_card_system *system, FILE *out);
void via_card_system_draw(const struct via_card_system *system, FILE *out); /* SVG */

#endif
