/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The history in words: host, time, event. Posted writes are described by their meaning for a node
 * (a frame, a credit, a heartbeat), not as bytes at offsets; faults stand at the left margin,
 * events of hosts and links are indented.
 */
#include <inttypes.h>
#include <string.h>

#include "core/link.h"
#include "sim/memory.h"
#include "sim/world.h"

struct text {
    char at[320];
};

static uint64_t word_at(const void *memory, size_t off)
{
    uint64_t word;
    memcpy(&word, (const unsigned char *)memory + off, sizeof(word));
    return word;
}

/* --- frames ---------------------------------------------------------------------------------- */

static const char *frame_name(unsigned kind)
{
    static const char *const names[] = {
        "frame?",   "MESSAGE", "PUT",           "PUT_SIGNAL",     "GET",
        "GET_DATA", "ATOMIC",  "ATOMIC_RESULT", "BARRIER_ARRIVE", "BARRIER_RELEASE",
        "SKIP",     "ACK",     "PUT_STRIDED"};
    return names[kind < VIA_ARRAY_COUNT(names) ? kind : 0];
}

static const char *ack_name(unsigned state)
{
    static const char *const names[] = {"ok", "gap", "not ready", "resume", "refused", "no state"};
    return state < VIA_ARRAY_COUNT(names) ? names[state] : "state?";
}

/* The fields of a frame as text; begins with a blank or is empty. */
static void describe_args(const struct via_frame_header *header, char *text, size_t bytes)
{
    text[0] = '\0';
    if (header->kind == VIA_FRAME_ACK) {
        struct via_frame_ack args;
        memcpy(&args, header->args, sizeof(args));
        snprintf(text, bytes, " next %u (%s%s)", args.next, ack_name(args.state),
                 args.status != 0 ? ", with an error" : "");
    } else if (header->kind == VIA_FRAME_PUT || header->kind == VIA_FRAME_PUT_SIGNAL ||
               header->kind == VIA_FRAME_PUT_STRIDED || header->kind == VIA_FRAME_GET ||
               header->kind == VIA_FRAME_ATOMIC) {
        snprintf(text, bytes, " at %#" PRIx64, word_at(header->args, 8));
    } else if (header->kind == VIA_FRAME_BARRIER_ARRIVE ||
               header->kind == VIA_FRAME_BARRIER_RELEASE) {
        struct via_frame_barrier args;
        memcpy(&args, header->args, sizeof(args));
        snprintf(text, bytes, " group %" PRIu64 " round %u%s", args.group, args.round,
                 args.action == VIA_BARRIER_WITHDRAW ? " withdrawn" : "");
    }
}

static void describe_frame(const struct sim_world *world, const unsigned char *line,
                           struct text *text)
{
    struct via_frame_header header;
    char args[80];
    uint64_t word = word_at(line, offsetof(struct via_record_line, word));
    memcpy(&header, line, sizeof(header));
    describe_args(&header, args, sizeof(args));
    snprintf(text->at, sizeof(text->at),
             "record %u: %s %u of flow %u, host %u to host %u, %u bytes%s%s%s%s, %u hops left",
             via_record_word_sequence(word), frame_name(header.kind), header.sequence, header.flow,
             sim_host_of_id(world, header.source), sim_host_of_id(world, header.destination),
             via_record_word_length(word) + header.inline_bytes, args,
             header.flags & VIA_FRAME_FLAG_START ? " START" : "",
             header.flags & VIA_FRAME_FLAG_LAST ? " LAST" : "",
             header.flags & VIA_FRAME_FLAG_ACK_NOW ? " ACK_NOW" : "", header.hops_left);
}

static void describe_announcement(const struct sim_world *world, const unsigned char *line,
                                  struct text *text)
{
    struct via_announcement head;
    memcpy(&head, line, sizeof(head));
    snprintf(text->at, sizeof(text->at),
             "record %u: link state of host %u, session %#x, number %" PRIu64 ", %u neighbours",
             via_record_word_sequence(word_at(line, offsetof(struct via_record_line, word))),
             sim_host_of_id(world, head.host), head.session, head.sequence, head.neighbours_count);
}

/* --- posted writes --------------------------------------------------------------------------- */

/* The meaning of a write at this offset of an inbox; false if it is the body of a record, or
 * unknown. */
static bool describe(const struct sim_world *world, uint64_t off, const void *src, size_t len,
                     struct text *text)
{
    const struct via_node *node = NULL;
    for (uint32_t i = 0; i < world->hosts_count && node == NULL; i++) {
        node = world->hosts[i].node; /* all have the same layout */
    }
    if (off == 0 && len == 8) {
        snprintf(text->at, sizeof(text->at), "heartbeat %" PRIu64,
                 word_at(src, 0) & UINT64_C(0xffffffffffff));
        return true;
    }
    for (unsigned pipe = 0; node != NULL && pipe <= world->config.node.channels_count; pipe++) {
        struct via_inbox_place place;
        uint32_t slots = pipe == 0 ? VIA_CONTROL_PIPE_SLOTS : world->config.node.pipe_slots;
        via_inbox_place(&node->geometry, pipe, &place);
        uint64_t first = place.memory_off + VIA_RECORD_LINE_BYTES;
        if (len == 8 && (off == place.credit_off || off == place.memory_off)) {
            uint64_t word = word_at(src, 0);
            bool credit = off == place.credit_off;
            snprintf(text->at, sizeof(text->at), "pipe %u: %s up to record %u, %s %u", pipe,
                     credit ? "credit" : "wants room, knows of credit",
                     via_credit_word_released(word), credit ? "armed" : "generation",
                     via_credit_word_arm(word));
            return true;
        }
        if (len == VIA_RECORD_LINE_BYTES && off >= first &&
            off < first + (uint64_t)slots * VIA_RECORD_LINE_BYTES) {
            if (pipe == 0) {
                describe_announcement(world, src, text);
            } else {
                describe_frame(world, src, text);
            }
            return true;
        }
    }
    return false;
}

void sim_trace_put(const struct sim_end *end, uint64_t off, const void *src, size_t len)
{
    struct sim_world *world = end->world;
    struct text text;
    if (world->trace == NULL) {
        return;
    }
    unsigned channel = world->current != NULL ? world->current->channel : 0;
    if (describe(world, off, src, len, &text)) {
        sim_trace(world, "  host %u > host %u (link %u, thread %u): %s", end->host, end->peer->host,
                  end->link->index, channel, text.at);
    } else {
        sim_trace(world, "  host %u > host %u (link %u, thread %u): body of %zu bytes", end->host,
                  end->peer->host, end->link->index, channel, len);
    }
}

void sim_trace_arrival(const struct sim_end *from, uint32_t lane, const struct sim_flight *flight)
{
    struct sim_world *world = from->world;
    struct text text;
    if (world->trace == NULL) {
        return;
    }
    if (!describe(world, flight->off, flight->data, flight->bytes, &text)) {
        snprintf(text.at, sizeof(text.at), "%u bytes at %#" PRIx64, flight->bytes, flight->off);
    }
    sim_trace(world, "  host %u < host %u (link %u, thread %u): arrives: %s", from->peer->host,
              from->host, from->link->index, lane, text.at);
}

/* --- direct links ---------------------------------------------------------------------------- */

static void trace_direct(struct sim_end *end)
{
    struct sim_world *world = end->world;
    struct sim_end *to = end->peer;
    const struct via_node *node = world->hosts[end->host].node;
    const struct via_pipe_geometry *geometry = &node->links[end->index].geometry;
    uint32_t slots = geometry->slots_count;
    if (to->shown == NULL) {
        to->shown =
            sim_alloc((size_t)world->config.node.pipe_slots * VIA_CHANNELS_MAX * sizeof(uint64_t));
    }
    for (unsigned k = 0; k < world->config.node.channels_count; k++) {
        struct via_inbox_place place;
        via_inbox_place(geometry, 1 + k, &place);
        for (uint32_t i = 0; i < slots; i++) {
            uint64_t off = place.memory_off + (uint64_t)(i + 1) * VIA_RECORD_LINE_BYTES;
            uint64_t word = word_at(to->inbox, off + offsetof(struct via_record_line, word));
            if (word != 0 && word != to->shown[k * slots + i]) {
                sim_trace_put(end, off, to->inbox + off, VIA_RECORD_LINE_BYTES);
            }
            to->shown[k * slots + i] = word;
        }
    }
}

void sim_trace_turn(struct sim_host *host)
{
    for (uint32_t i = 0; host->world->trace != NULL && i < host->ports_count; i++) {
        if (host->ports[i]->link->direct && host->node != NULL) {
            trace_direct(host->ports[i]);
        }
    }
}

/* --- the beginning --------------------------------------------------------------------------- */

void sim_trace_world(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->links_count && world->trace != NULL; i++) {
        const struct sim_link *link = &world->links[i];
        sim_trace(world, "link %u: host %u port %u - host %u port %u%s%s", i, link->end[0].host,
                  link->end[0].index, link->end[1].host, link->end[1].index,
                  link->direct ? ", direct" : "", link->combines ? ", write-combining" : "");
    }
}
