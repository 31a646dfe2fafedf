/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Prints the power-on order and the expected lspci tree of a system, and draws it. */
#include "card/system.h"

/* --- power-on --- */

static bool has_nt_card(const struct via_card_system *system, unsigned machine)
{
    for (unsigned i = 0; i < system->cards_count; i++) {
        const struct via_card_setup *setup = system->cards[i].setup;
        if (system->slots[system->cards[i].slot].machine == machine && setup != NULL &&
            setup->has_nt) {
            return true;
        }
    }
    return false;
}

/* A box must be powered before its host enumerates it, and an NT port before the other host
 * does. */
void via_card_system_print_order(const struct via_card_system *system, FILE *out)
{
    static const char *const why[] = {
        "box: powered, clocked and its EEPROM loaded before its host's PERST# rises",
        "host with an NT port: the other end finds it only if it is there", "host"};
    unsigned number = 1;
    fputs("power-on order (derived):\n", out);
    for (unsigned turn = 0; turn < VIA_ARRAY_COUNT(why); turn++) {
        for (unsigned i = 0; i < system->machines_count; i++) {
            const struct via_card_machine *machine = &system->machines[i];
            unsigned own = machine->is_box ? 0 : has_nt_card(system, i) ? 1 : 2;
            if (own == turn) {
                fprintf(out, "  %u. %s (%s)\n", number++, machine->name, why[turn]);
            }
        }
    }
}

/* --- lspci -tv --- */

static void print_bridge(FILE *out, unsigned depth, unsigned device, unsigned bus, const char *what,
                         uint16_t chip)
{
    fprintf(out, "  %*s+-%02x:%02x.0  %s [10b5:%04x]\n", (int)(2 * depth), "", bus, device, what,
            chip);
}

/* The slots of a box behind its card; bus numbers as a firmware assigns them if there are no other
 * devices. */
static void print_box(const struct via_card_system *system, unsigned card, unsigned bus, FILE *out)
{
    const struct via_card_placed *box = &system->cards[card];
    unsigned machine = system->slots[box->slot].machine;
    print_bridge(out, 3, 0, bus, "upstream port", box->card->chip);
    print_bridge(out, 4, box->card->slot_port, bus + 1, "downstream port", box->card->chip);
    for (unsigned i = 0; i < system->devices_count; i++) {
        if (system->slots[system->devices[i].slot].machine == machine) {
            fprintf(out, "  %*s+-%02x:00.0  %s\n", 10, "", bus + 2, system->devices[i].name);
        }
    }
}

static void print_card(const struct via_card_system *system, unsigned index, unsigned bus,
                       FILE *out)
{
    const struct via_card_placed *card = &system->cards[index];
    int peer = via_card_system_peer(system, index);
    const struct via_card_setup *other = peer >= 0 ? system->cards[peer].setup : NULL;
    fprintf(out, "  (root port of slot %s)\n", system->slots[card->slot].name);
    print_bridge(out, 1, 0, bus, "upstream port", card->card->chip);
    if (card->setup->has_nt) {
        fprintf(out, "      +-%02x:%02x.0  NT port, virtual side [10b5:87b0]\n", bus + 1,
                card->card->far_port);
        return;
    }
    print_bridge(out, 2, card->card->far_port, bus + 1, "downstream port", card->card->chip);
    if (other != NULL && other->role == VIA_CARD_BOX) {
        print_box(system, (unsigned)peer, bus + 2, out);
    } else if (other != NULL && other->has_nt) {
        fprintf(out, "        +-%02x:00.0  NT port, link side [10b5:87a0]\n", bus + 2);
    }
}

void via_card_system_print_tree(const struct via_card_system *system, FILE *out)
{
    for (unsigned machine = 0; machine < system->machines_count; machine++) {
        unsigned bus = 1;
        if (system->machines[machine].is_box) {
            continue;
        }
        fprintf(out, "lspci -tv of %s shows (derived; the firmware numbers buses):\n",
                system->machines[machine].name);
        for (unsigned i = 0; i < system->cards_count; i++) {
            if (system->slots[system->cards[i].slot].machine == machine &&
                system->cards[i].setup != NULL) {
                print_card(system, i, bus, out);
                bus += 5;
            }
        }
        for (unsigned i = 0; i < system->devices_count; i++) {
            if (system->slots[system->devices[i].slot].machine == machine) {
                fprintf(out, "  (root port)\n    +-%02x:00.0  %s\n", bus++,
                        system->devices[i].name);
            }
        }
    }
}

/* --- drawing --- */

#define MACHINE_WIDTH 280
#define MACHINE_GAP 200
#define ROW 92
#define TOP 60

static unsigned row_of(const struct via_card_system *system, unsigned slot)
{
    unsigned row = 0;
    for (unsigned i = 0; i < slot; i++) {
        row += system->slots[i].machine == system->slots[slot].machine;
    }
    return row;
}

static int left_of(const struct via_card_system *system, unsigned slot)
{
    return 20 + (int)system->slots[slot].machine * (MACHINE_WIDTH + MACHINE_GAP);
}

static int top_of(const struct via_card_system *system, unsigned slot)
{
    return TOP + (int)row_of(system, slot) * ROW;
}

static unsigned rows_of(const struct via_card_system *system, unsigned machine)
{
    unsigned rows = 0;
    for (unsigned i = 0; i < system->slots_count; i++) {
        rows += system->slots[i].machine == machine;
    }
    return rows;
}

static void draw_text(FILE *out, int x, int y, const char *text)
{
    fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", x, y, text);
}

static void draw_signal(FILE *out, int x, int y, const char *name,
                        const struct via_card_signal *signal)
{
    char text[96], to[VIA_CARD_DESTINATIONS_BYTES];
    snprintf(text, sizeof(text), "%s: %s &#8594; %s", name, via_card_source_name(signal->from),
             via_card_destinations(signal->to, to));
    draw_text(out, x, y, text);
}

static void draw_machines(const struct via_card_system *system, FILE *out)
{
    for (unsigned i = 0; i < system->machines_count; i++) {
        int x = 10 + (int)i * (MACHINE_WIDTH + MACHINE_GAP);
        fprintf(out,
                "<rect class=\"machine\" x=\"%d\" y=\"10\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n",
                x, MACHINE_WIDTH, TOP + (int)rows_of(system, i) * ROW - 10);
        fprintf(out, "<text class=\"title\" x=\"%d\" y=\"34\">%s %s</text>\n", x + 10,
                system->machines[i].is_box ? "box" : "host", system->machines[i].name);
    }
}

static void draw_slots(const struct via_card_system *system, FILE *out)
{
    for (unsigned i = 0; i < system->slots_count; i++) {
        const struct via_card_slot *slot = &system->slots[i];
        char text[96];
        fprintf(out, "<rect class=\"slot\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                left_of(system, i), top_of(system, i), MACHINE_WIDTH - 20, ROW - 12);
        snprintf(text, sizeof(text), "slot %s, x%u Gen%u", slot->name, slot->lanes,
                 slot->generation);
        draw_text(out, left_of(system, i) + 8, top_of(system, i) + 16, text);
    }
    for (unsigned i = 0; i < system->devices_count; i++) {
        draw_text(out, left_of(system, system->devices[i].slot) + 8,
                  top_of(system, system->devices[i].slot) + 36, system->devices[i].name);
    }
}

static void draw_card(const struct via_card_system *system, const struct via_card_placed *card,
                      FILE *out)
{
    int x = left_of(system, card->slot) + 8, y = top_of(system, card->slot);
    char text[128];
    const struct via_card_setup *setup = card->setup;
    snprintf(text, sizeof(text), "%s: %s, %s %s", card->name, card->card->name,
             setup != NULL ? via_card_role_name(setup->role) : "role not known",
             setup != NULL ? via_card_mode_name(setup->mode) : "");
    fprintf(out, "<text class=\"card\" x=\"%d\" y=\"%d\">%s</text>\n", x, y + 36, text);
    if (setup != NULL && setup->refused == NULL) {
        draw_signal(out, x, y + 54, "RESET", &setup->reset);
        draw_signal(out, x, y + 70, "CLOCK", &setup->clock);
    }
}

static void draw_cables(const struct via_card_system *system, FILE *out)
{
    static const char *const kinds[] = {"optical", "copper", "sideband"};
    for (unsigned i = 0; i < system->cables_count; i++) {
        const struct via_card_cable *cable = &system->cables[i];
        unsigned slots[2] = {system->cards[cable->ends[0]].slot,
                             system->cards[cable->ends[1]].slot};
        bool is_turned = left_of(system, slots[0]) > left_of(system, slots[1]);
        unsigned from = slots[is_turned ? 1 : 0], to = slots[is_turned ? 0 : 1];
        int shift = 14 + 18 * (int)cable->kind;
        int x[2] = {left_of(system, from) + MACHINE_WIDTH - 20, left_of(system, to)};
        int y[2] = {top_of(system, from) + shift, top_of(system, to) + shift};
        char text[64], length[32] = "";
        fprintf(out, "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n",
                kinds[cable->kind], x[0], y[0], x[1], y[1]);
        if (cable->metres != VIA_CARD_NOT_GIVEN) {
            snprintf(length, sizeof(length), ", %u m", cable->metres);
        }
        snprintf(text, sizeof(text), "%u x %s%s", cable->count, kinds[cable->kind], length);
        draw_text(out, x[0] + 30, y[0] - 4, text);
    }
}

void via_card_system_draw(const struct via_card_system *system, FILE *out)
{
    unsigned rows = 1;
    for (unsigned i = 0; i < system->machines_count; i++) {
        rows = via_max(rows, rows_of(system, i));
    }
    int width = (int)system->machines_count * (MACHINE_WIDTH + MACHINE_GAP) + 20;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n"
            "<style>text{font:12px sans-serif}.title,.card{font-weight:bold}"
            ".machine{fill:#f4f4f4;stroke:#333}.slot{fill:#fff;stroke:#999}"
            "line{stroke-width:3}.optical{stroke:#d9822b}.copper{stroke:#8a5a2b}"
            ".sideband{stroke:#4477aa;stroke-dasharray:6 3}</style>\n",
            width, TOP + (int)rows * ROW + 30);
    draw_machines(system, out);
    draw_slots(system, out);
    for (unsigned i = 0; i < system->cards_count; i++) {
        draw_card(system, &system->cards[i], out);
    }
    draw_cables(system, out);
    fputs("</svg>\n", out);
}
