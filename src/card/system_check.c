/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Checks a system. Sources of limits: PCI Express CEM 5.1, 2.9.2; lengths: the published cards;
 * optics: typical values of similar standards, because those of the module are not public. */
#include <stdarg.h>
#include <stdio.h>

#include "card/system.h"

#define PERST_MS_MIN 100u       /* power good to PERST# high (CEM) */
#define PERST_CLOCK_US_MIN 100u /* clock stable to PERST# high (CEM) */
#define PERST_LOW_US_MIN 100u   /* (CEM) */
#define PASSIVE_METRES 3u

/* In 0.01 dB: transmitter OMA -4.8 dBm, receiver -10.5 dBm, 3.5 dB/km, 0.5 dB per connector. */
#define OPTICAL_BUDGET 570u
#define OPTICAL_LOSS_OF_100_M 35u
#define OPTICAL_LOSS_OF_CONNECTORS 100u /* one at each end */

struct check {
    const struct via_card_system *system;
    via_card_system_take *take;
    void *ctx;
    unsigned errors_count;
};

static void find(struct check *check, enum via_card_severity severity, unsigned line,
                 const char *format, ...) VIA_PRINTF(4, 5);

static void find(struct check *check, enum via_card_severity severity, unsigned line,
                 const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    check->take(check->ctx, severity, line, text);
    check->errors_count += severity == VIA_CARD_ERROR;
}

/* --- machines --- */

static void check_time(struct check *check, const struct via_card_machine *machine,
                       const char *what, uint32_t value, uint32_t min)
{
    if (value != VIA_CARD_NOT_GIVEN && value < min) {
        find(check, VIA_CARD_ERROR, machine->line, "%s: %s is %u, and must be %u or more (CEM)",
             machine->name, what, value, min);
    }
}

static void check_machine(struct check *check, const struct via_card_machine *machine)
{
    check_time(check, machine, "power good to PERST# high (perst-ms)", machine->perst_ms,
               PERST_MS_MIN);
    check_time(check, machine, "clock stable to PERST# high (perst-clock-us)",
               machine->perst_clock_us, PERST_CLOCK_US_MIN);
    check_time(check, machine, "PERST# low (perst-low-us)", machine->perst_low_us,
               PERST_LOW_US_MIN);
    if (machine->perst_ms == VIA_CARD_NOT_GIVEN || machine->perst_clock_us == VIA_CARD_NOT_GIVEN ||
        machine->perst_low_us == VIA_CARD_NOT_GIVEN) {
        find(check, VIA_CARD_UNDECIDED, machine->line,
             "%s: PERST# timing was not checked: perst-ms, perst-clock-us or perst-low-us is "
             "missing",
             machine->name);
    }
}

/* All slots of a box must get RESET and CLOCK from one card. */
static void check_box(struct check *check, unsigned machine)
{
    const struct via_card_system *system = check->system;
    const struct via_card_machine *box = &system->machines[machine];
    int first = -1;
    for (unsigned i = 0; box->is_box && i < system->cards_count; i++) {
        const struct via_card_placed *card = &system->cards[i];
        if (via_card_system_machine(system, i) != box || card->setup == NULL ||
            (card->setup->reset.to & VIA_CARD_TO_SLOT) == 0) {
            continue;
        }
        if (first >= 0) {
            find(check, VIA_CARD_ERROR, card->line,
                 "%s drives RESET and CLOCK of %s's slots, and %s (line %u) does, too: two sources",
                 card->name, box->name, system->cards[first].name, system->cards[first].line);
        }
        first = (int)i;
    }
    if (box->is_box && first < 0) {
        find(check, VIA_CARD_ERROR, box->line,
             "%s: no card with the role box: its slots have no source of RESET and CLOCK",
             box->name);
    }
}

/* --- cards --- */

static void check_role(struct check *check, unsigned index)
{
    const struct via_card_placed *card = &check->system->cards[index];
    const struct via_card_machine *machine = via_card_system_machine(check->system, index);
    bool by_eeprom = (card->dip & VIA_CARD_DIP_EEPROM) != 0;
    if (by_eeprom && card->by_image == NULL) {
        find(check, VIA_CARD_UNDECIDED, card->line,
             "%s: DIP position 4 is on, and the file does not say which image it has: its role is "
             "not known",
             card->name);
        return;
    }
    if (card->setup == NULL) {
        find(check, VIA_CARD_ERROR, card->line,
             "%s: DIP positions 1 and 2 are on: a box with an NT port is no role", card->name);
        return;
    }
    if (!by_eeprom && card->by_image != NULL && card->by_image != card->setup) {
        find(check, VIA_CARD_ERROR, card->line,
             "%s: its image has another role than its DIP switches, which count while position 4 "
             "is off",
             card->name);
    }
    if ((card->setup->role == VIA_CARD_BOX) == machine->is_box) {
        return;
    }
    if (machine->is_box) {
        find(check, VIA_CARD_ERROR, card->line,
             "%s: role host in the box %s: it waits for RESET and CLOCK of a slot that has none",
             card->name, machine->name);
    } else {
        find(check, VIA_CARD_ERROR, card->line,
             "%s: role box in the host %s: RESET and CLOCK of the slot have two sources, the host "
             "and the card",
             card->name, machine->name);
    }
}

static void check_slot(struct check *check, unsigned index)
{
    const struct via_card_placed *card = &check->system->cards[index];
    const struct via_card_slot *slot = &check->system->slots[card->slot];
    if (slot->lanes < card->card->lanes) {
        find(check, VIA_CARD_WARNING, card->line,
             "%s: x%u in a slot of x%u: the link is no wider than the slot", card->name,
             card->card->lanes, slot->lanes);
    }
    if (slot->generation < VIA_CARD_GENERATION) {
        find(check, VIA_CARD_WARNING, card->line, "%s: Gen%u in a slot of Gen%u: no faster than it",
             card->name, VIA_CARD_GENERATION, slot->generation);
    }
    if (card->card->unsure != NULL) {
        find(check, VIA_CARD_UNDECIDED, card->line, "%s: %s", card->name, card->card->unsure);
    }
}

/* --- links --- */

struct link {
    unsigned line; /* of the first cable */
    unsigned ends[2];
    unsigned cables[3]; /* by kind */
};

static bool is_of(const struct via_card_cable *cable, const struct link *link)
{
    return cable->ends[0] == link->ends[0] && cable->ends[1] == link->ends[1];
}

static bool gather(const struct via_card_system *system, unsigned a, unsigned b, struct link *link)
{
    *link = (struct link){.ends = {a, b}};
    for (unsigned i = 0; i < system->cables_count; i++) {
        const struct via_card_cable *cable = &system->cables[i];
        if (is_of(cable, link)) {
            link->line = link->line != 0 ? link->line : cable->line;
            link->cables[cable->kind] += cable->count;
        }
    }
    return link->line != 0;
}

static void check_budget(struct check *check, unsigned line, uint32_t metres)
{
    uint64_t loss = (uint64_t)metres * OPTICAL_LOSS_OF_100_M / 100 + OPTICAL_LOSS_OF_CONNECTORS;
    if (loss > OPTICAL_BUDGET) {
        find(check, VIA_CARD_ERROR, line,
             "optical budget: %u.%02u dB are lost, and there are %u.%02u", (unsigned)(loss / 100),
             (unsigned)(loss % 100), OPTICAL_BUDGET / 100, OPTICAL_BUDGET % 100);
        return;
    }
    uint64_t margin = OPTICAL_BUDGET - loss;
    find(check, VIA_CARD_UNDECIDED, line,
         "optical budget: a margin of %u.%02u dB by typical values; the module's are not public",
         (unsigned)(margin / 100), (unsigned)(margin % 100));
}

static void check_length(struct check *check, const struct via_card_cable *cable)
{
    bool is_optical = cable->kind == VIA_CARD_CABLE_OPTICAL;
    uint32_t max = is_optical ? VIA_CARD_OPTICAL_METRES_MAX : VIA_CARD_COPPER_METRES_MAX;
    const char *what = is_optical                               ? "optical"
                       : cable->kind == VIA_CARD_CABLE_SIDEBAND ? "sideband cable"
                                                                : "copper";
    if (cable->metres == VIA_CARD_NOT_GIVEN) {
        if (cable->kind != VIA_CARD_CABLE_SIDEBAND) {
            find(check, VIA_CARD_UNDECIDED, cable->line,
                 "the length was not checked: it is not given");
        }
        return;
    }
    if (cable->metres > max) {
        find(check, VIA_CARD_ERROR, cable->line, "%u m of %s: it reaches %u m", cable->metres, what,
             max);
    } else if (cable->kind == VIA_CARD_CABLE_COPPER && cable->metres > PASSIVE_METRES) {
        find(check, VIA_CARD_WARNING, cable->line,
             "%u m of copper: passive cables reach 2 to 3 m at Gen3 (typical)", cable->metres);
    }
    if (is_optical) {
        check_budget(check, cable->line, cable->metres);
    }
}

static void check_lengths(struct check *check, const struct link *link)
{
    for (unsigned i = 0; i < check->system->cables_count; i++) {
        if (is_of(&check->system->cables[i], link)) {
            check_length(check, &check->system->cables[i]);
        }
    }
}

static void check_cables(struct check *check, const struct link *link, enum via_card_medium medium)
{
    const struct via_card *cards[2];
    unsigned wanted = 0;
    for (unsigned end = 0; end < 2; end++) {
        cards[end] = check->system->cards[link->ends[end]].card;
        unsigned count = via_card_cables(cards[end], medium);
        wanted = end == 0 ? count : via_min(wanted, count);
    }
    bool is_copper = medium == VIA_CARD_COPPER;
    unsigned there = link->cables[is_copper ? VIA_CARD_CABLE_COPPER : VIA_CARD_CABLE_OPTICAL];
    if (link->cables[is_copper ? VIA_CARD_CABLE_OPTICAL : VIA_CARD_CABLE_COPPER] != 0) {
        find(check, VIA_CARD_ERROR, link->line,
             "the cards' medium is %s, and a cable between them is not",
             via_card_medium_name(medium));
    }
    if (there != wanted) {
        find(check, VIA_CARD_ERROR, link->line, "%u %s cable%s, x%u needs %u", there,
             via_card_medium_name(medium), there == 1 ? "" : "s",
             via_min(cards[0]->lanes, cards[1]->lanes), wanted);
    }
    if (cards[0]->lanes != cards[1]->lanes) {
        find(check, VIA_CARD_WARNING, link->line, "x%u meets x%u: the link is the narrower",
             cards[0]->lanes, cards[1]->lanes);
    }
    if (is_copper && link->cables[VIA_CARD_CABLE_SIDEBAND] > 1) {
        find(check, VIA_CARD_ERROR, link->line,
             "%u sideband cables: RESET and CLOCK would come by each of them; use 1",
             link->cables[VIA_CARD_CABLE_SIDEBAND]);
    }
    if (!is_copper && link->cables[VIA_CARD_CABLE_SIDEBAND] != 0) {
        find(check, VIA_CARD_WARNING, link->line, "a sideband cable serves no optical link");
    }
}

/* Checks the source of a signal that an end takes from the other end. */
static void check_signal(struct check *check, const struct link *link, const char *signal,
                         bool is_clock)
{
    const struct via_card_system *system = check->system;
    const struct via_card_signal *signals[2];
    for (unsigned end = 0; end < 2; end++) {
        const struct via_card_setup *setup = system->cards[link->ends[end]].setup;
        signals[end] = is_clock ? &setup->clock : &setup->reset;
    }
    bool waits[2] = {signals[0]->from == VIA_CARD_FROM_REMOTE,
                     signals[1]->from == VIA_CARD_FROM_REMOTE};
    if (waits[0] && waits[1]) {
        find(check, VIA_CARD_ERROR, link->line, "%s: a loop: each end waits for the other's",
             signal);
        return;
    }
    for (unsigned end = 0; end < 2; end++) {
        const char *name = system->cards[link->ends[end]].name;
        const char *other = system->cards[link->ends[1 - end]].name;
        if (!waits[end]) {
            continue;
        }
        if ((signals[1 - end]->to & VIA_CARD_TO_REMOTE) == 0) {
            find(check, VIA_CARD_ERROR, link->line, "%s: no source: %s waits for it, %s sends none",
                 signal, name, other);
        } else if (link->cables[VIA_CARD_CABLE_COPPER] != 0 &&
                   link->cables[VIA_CARD_CABLE_SIDEBAND] == 0) {
            find(check, VIA_CARD_ERROR, link->line,
                 "%s: %s waits for it, and mini-SAS does not carry it: the sideband cable is "
                 "missing",
                 signal, name);
        }
    }
}

/* Two clocks on a link may differ by 600 ppm; spread spectrum alone is 5000 ppm. */
static void check_clocks(struct check *check, const struct link *link)
{
    const struct via_card_system *system = check->system;
    for (unsigned end = 0; end < 2; end++) {
        const struct via_card_placed *card = &system->cards[link->ends[end]];
        const struct via_card_machine *machine = via_card_system_machine(system, link->ends[end]);
        if (card->setup->clock.from == VIA_CARD_FROM_REMOTE) {
            return; /* a common clock */
        }
        if (card->setup->clock.from != VIA_CARD_FROM_SLOT) {
            continue; /* the card's own clock has no spread spectrum */
        }
        if (machine->spread == VIA_CARD_SPREAD_ON) {
            find(check, VIA_CARD_ERROR, link->line,
                 "two clocks on this link, and %s spreads its spectrum (ssc on): they must be "
                 "within 600 ppm",
                 machine->name);
        } else if (machine->spread == VIA_CARD_SPREAD_UNKNOWN) {
            find(check, VIA_CARD_UNDECIDED, link->line,
                 "two clocks on this link, and the file does not say that %s has ssc off",
                 machine->name);
        }
    }
}

static void check_roles(struct check *check, const struct link *link)
{
    const struct via_card_setup *setups[2] = {check->system->cards[link->ends[0]].setup,
                                              check->system->cards[link->ends[1]].setup};
    unsigned boxes = 0, nts = 0;
    for (unsigned end = 0; end < 2; end++) {
        boxes += setups[end]->role == VIA_CARD_BOX;
        nts += setups[end]->has_nt;
    }
    if (boxes == 2) {
        find(check, VIA_CARD_ERROR, link->line, "two boxes: neither end has a host");
    } else if (boxes == 0 && nts == 0) {
        find(check, VIA_CARD_ERROR, link->line,
             "two transparent hosts: two downstream ports face each other; one card must be ntb");
    } else if (boxes == 1 && nts == 1) {
        find(check, VIA_CARD_ERROR, link->line,
             "a box and an NT port: the box's upstream port needs a transparent host");
    } else if (nts == 2) {
        find(check, VIA_CARD_WARNING, link->line,
             "two NT ports back to back: give the pex links at its ends b2b=0 and b2b=1, or make "
             "one card transparent");
    }
}

static void check_link(struct check *check, const struct link *link)
{
    const struct via_card_placed *ends[2] = {&check->system->cards[link->ends[0]],
                                             &check->system->cards[link->ends[1]]};
    if (via_card_system_machine(check->system, link->ends[0]) ==
        via_card_system_machine(check->system, link->ends[1])) {
        find(check, VIA_CARD_ERROR, link->line, "both ends are in the same machine");
    }
    if (ends[0]->setup == NULL || ends[1]->setup == NULL) {
        return; /* reported already */
    }
    if (ends[0]->setup->medium != ends[1]->setup->medium) {
        find(check, VIA_CARD_ERROR, link->line, "%s is set to %s, %s to %s", ends[0]->name,
             via_card_medium_name(ends[0]->setup->medium), ends[1]->name,
             via_card_medium_name(ends[1]->setup->medium));
        return;
    }
    check_roles(check, link);
    check_cables(check, link, ends[0]->setup->medium);
    check_lengths(check, link);
    check_signal(check, link, "RESET", false);
    check_signal(check, link, "CLOCK", true);
    check_clocks(check, link);
}

/* A card has one far port, so all its cables must lead to the same card. */
static void check_ends(struct check *check, unsigned index)
{
    const struct via_card_system *system = check->system;
    int peer = via_card_system_peer(system, index);
    if (peer < 0) {
        find(check, VIA_CARD_WARNING, system->cards[index].line, "%s: no cable leads to it",
             system->cards[index].name);
    }
    for (unsigned i = 0; peer >= 0 && i < system->cables_count; i++) {
        const struct via_card_cable *cable = &system->cables[i];
        bool is_first = cable->ends[0] == index, is_second = cable->ends[1] == index;
        unsigned other = is_first ? cable->ends[1] : cable->ends[0];
        if ((is_first || is_second) && other != (unsigned)peer) {
            find(check, VIA_CARD_ERROR, cable->line,
                 "%s: it has one far port, and a cable to %s already", system->cards[index].name,
                 system->cards[peer].name);
        }
    }
}

/* --- devices --- */

static void check_device(struct check *check, const struct via_card_device *device)
{
    const struct via_card_slot *slot = &check->system->slots[device->slot];
    if (slot->lanes < device->lanes || slot->generation < device->generation) {
        find(check, VIA_CARD_WARNING, device->line, "%s: x%u Gen%u in a slot of x%u Gen%u",
             device->name, device->lanes, device->generation, slot->lanes, slot->generation);
    }
}

unsigned via_card_system_check(const struct via_card_system *system, via_card_system_take *take,
                               void *ctx)
{
    struct check check = {.system = system, .take = take, .ctx = ctx};
    for (unsigned i = 0; i < system->machines_count; i++) {
        check_machine(&check, &system->machines[i]);
        check_box(&check, i);
    }
    for (unsigned i = 0; i < system->cards_count; i++) {
        check_role(&check, i);
        check_slot(&check, i);
        check_ends(&check, i);
    }
    for (unsigned a = 0; a < system->cards_count; a++) {
        for (unsigned b = a + 1; b < system->cards_count; b++) {
            struct link link;
            if (gather(system, a, b, &link)) {
                check_link(&check, &link);
            }
        }
    }
    for (unsigned i = 0; i < system->devices_count; i++) {
        check_device(&check, &system->devices[i]);
    }
    return check.errors_count;
}
