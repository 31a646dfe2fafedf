/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Credits are conserved: checks posted writes as they leave. A record must not go into a slot that
 * the reader has not given back, and a reader must not give a credit for a record that has not
 * arrived. A writer may only use knowledge from its own inbox.
 */
#include <string.h>

#include "core/link.h"
#include "sim/world.h"

static uint64_t word_at(const unsigned char *memory, size_t off)
{
    uint64_t word;
    memcpy(&word, memory + off, sizeof(word));
    return word;
}

static size_t slot_off(const struct via_inbox_place *place, uint32_t slots, uint32_t sequence)
{
    return place->memory_off + VIA_RECORD_LINE_BYTES * (1u + (sequence & (slots - 1)));
}

static void check_record(struct sim_end *end, const struct via_inbox_place *place, uint32_t slots,
                         uint32_t first, uint64_t off, uint64_t word)
{
    uint64_t credit = word_at(end->inbox, place->credit_off);
    uint32_t sequence = via_record_word_sequence(word);
    bool any = via_credit_word_epoch(credit) == via_record_word_epoch(word);
    uint32_t released = any ? via_credit_word_released(credit) : first;
    if (off != slot_off(place, slots, sequence)) {
        sim_fail(end->world, "host %u port %u: record %u goes to %#llx, not its slot", end->host,
                 end->index, sequence, (unsigned long long)off);
    } else if (sequence - released >= slots) {
        sim_fail(end->world,
                 "host %u port %u: record %u is written with %u given back, of %u slots", end->host,
                 end->index, sequence, released, slots);
    }
}

static void check_credit(struct sim_end *end, const struct via_inbox_place *place, uint32_t slots,
                         uint32_t first, uint64_t word)
{
    uint32_t released = via_credit_word_released(word);
    uint64_t last = word_at(end->inbox, slot_off(place, slots, released - 1) +
                                            offsetof(struct via_record_line, word));
    uint32_t ahead = via_record_word_sequence(last) - (released - 1);
    bool has_arrived = via_record_word_epoch(last) == via_credit_word_epoch(word) &&
                       (ahead == 0 || ahead == slots);
    if (released != first && !has_arrived) {
        sim_fail(end->world,
                 "host %u port %u: %u records are given back, and the last has not arrived",
                 end->host, end->index, released);
    }
}

void sim_credit_put(struct sim_end *end, uint64_t off, const void *src, size_t len)
{
    const struct sim_world *world = end->world;
    const struct via_node *node = world->hosts[end->host].node;
    if (node == NULL) {
        return; /* the conformance suite drives the ports of a world that has no nodes */
    }
    if (world->hosts[end->host].rogue_life != 0 || world->hosts[end->peer->host].rogue_life != 0) {
        return; /* the inboxes may contain forged data */
    }
    const struct via_pipe_geometry *geometry = &node->links[end->index].geometry;
    for (unsigned pipe = 0; pipe <= world->config.node.channels_count; pipe++) {
        uint32_t slots = pipe == 0 ? VIA_CONTROL_PIPE_SLOTS : geometry->slots_count;
        uint32_t number = pipe == 0 ? VIA_CONTROL_PIPE_FIRST : world->config.node.pipe_first;
        struct via_inbox_place place;
        via_inbox_place(geometry, pipe, &place);
        size_t first = slot_off(&place, slots, 0);
        if (len == VIA_RECORD_LINE_BYTES && off >= first &&
            off < first + (size_t)slots * VIA_RECORD_LINE_BYTES) {
            check_record(end, &place, slots, number, off,
                         word_at(src, offsetof(struct via_record_line, word)));
        } else if (len == sizeof(uint64_t) && off == place.credit_off) {
            check_credit(end, &place, slots, number, word_at(src, 0));
        }
    }
}
