/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages and writes on their way between two hosts. A message arrives after the messages before
 * it, and after the writes before it where the provider keeps that order. A write arrives in parts,
 * in any order, some of them twice, all of it before it is delivered.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/ofi/fabric.h"

#define PARTS_MAX 4u

uint64_t sim_ofi_latency(struct sim_ofi *ofi)
{
    const struct sim_config_port *port = &ofi->world->config.port;
    return via_rng_between(&ofi->rng, port->put_ns_min, port->put_ns_max);
}

static bool is_local(enum sim_ofi_packet_kind kind)
{
    return kind == SIM_OFI_COMPLETE || kind == SIM_OFI_ESTABLISHED;
}

/* --- leaving ---------------------------------------------------------------------------------- */

static void request_event(struct sim_ofi_link *wire)
{
    struct sim_world *world = wire->ofi->world;
    via_list_foreach(it, &wire->packets) {
        const struct sim_ofi_packet *packet = via_list_entry(it, struct sim_ofi_packet, link);
        if (!wire->is_wire_up && !is_local(packet->kind)) {
            continue;
        }
        uint64_t at_ns = via_max(packet->due_ns, world->clock.now_ns);
        if (wire->due_ns == 0 || at_ns < wire->due_ns) {
            wire->due_ns = at_ns;
            sim_clock_at(&world->clock, at_ns, SIM_EVENT_CHIP, wire->link->index, 0, SIM_OFI_WIRE);
        }
        return;
    }
}

struct sim_ofi_packet *sim_ofi_send(struct sim_ofi_link *wire, enum sim_ofi_packet_kind kind,
                                    struct sim_ofi_endpoint *from, struct sim_ofi_endpoint *to,
                                    uint64_t due_ns)
{
    struct sim_ofi_packet *packet = sim_alloc(sizeof(*packet));
    *packet = (struct sim_ofi_packet){.kind = kind, .from = from, .to = to, .due_ns = due_ns};
    struct via_list *place = wire->packets.prev;
    while (place != &wire->packets &&
           via_list_entry(place, struct sim_ofi_packet, link)->due_ns > due_ns) {
        place = place->prev;
    }
    via_list_insert_after(place, &packet->link);
    request_event(wire);
    return packet;
}

static struct sim_ofi_packet *send_for(struct sim_ofi_op *op, enum sim_ofi_packet_kind kind,
                                       uint64_t due_ns)
{
    struct sim_ofi_endpoint *from = op->endpoint;
    struct sim_ofi_packet *packet = sim_ofi_send(from->wire, kind, from, from->peer, due_ns);
    packet->op = op;
    op->packets_count++;
    return packet;
}

static void complete_at(struct sim_ofi_op *op, uint64_t time_ns)
{
    struct sim_ofi *ofi = op->endpoint->node->ofi;
    send_for(op, SIM_OFI_COMPLETE, time_ns + via_rng_below(&ofi->rng, ofi->complete_ns_max + 1u));
}

static void send_part(struct sim_ofi_op *op, size_t at, size_t bytes, uint64_t due_ns)
{
    struct sim_ofi_packet *packet = send_for(op, SIM_OFI_PART, due_ns);
    packet->at = at;
    packet->bytes = bytes;
    op->parts_count++;
}

static void send_parts(struct sim_ofi_op *op, uint64_t now_ns)
{
    struct sim_ofi_endpoint *from = op->endpoint;
    struct sim_ofi *ofi = from->node->ofi;
    size_t parts = via_rng_between(&ofi->rng, 1, PARTS_MAX);
    size_t each = via_align_up(op->bytes / parts + 1, 8);
    for (size_t at = 0; at < op->bytes; at += each) {
        size_t bytes = via_min(each, op->bytes - at);
        uint64_t due_ns = now_ns + sim_ofi_latency(ofi);
        send_part(op, at, bytes, due_ns);
        from->write_ns = via_max(from->write_ns, due_ns);
        if (sim_ofi_chance(ofi, ofi->again_chance)) {
            due_ns += sim_ofi_latency(ofi);
            send_part(op, at, bytes, due_ns);
            from->write_ns = via_max(from->write_ns, due_ns);
            sim_ofi_count(ofi, SIM_OFI_TWICE);
        }
    }
}

void sim_ofi_send_op(struct sim_ofi_op *op)
{
    struct sim_ofi_endpoint *from = op->endpoint;
    struct sim_ofi *ofi = from->node->ofi;
    uint64_t now_ns = ofi->world->clock.now_ns;
    sim_ofi_count(ofi, op->is_write ? SIM_OFI_WRITES : SIM_OFI_MESSAGES);
    if (op->is_write) {
        uint64_t before_ns = via_max(from->message_ns, from->write_ns);
        send_parts(op, now_ns);
        if (from->write_ns == before_ns || from->message_ns > from->write_ns) {
            sim_ofi_count(ofi, SIM_OFI_PASSES);
        }
    } else {
        uint64_t due_ns = via_max(now_ns + sim_ofi_latency(ofi), from->message_ns);
        due_ns = ofi->keeps_order ? via_max(due_ns, from->write_ns) : due_ns;
        if (due_ns < from->write_ns) {
            sim_ofi_count(ofi, SIM_OFI_PASSES);
        }
        from->message_ns = due_ns;
        send_for(op, SIM_OFI_MESSAGE, due_ns);
    }
    /* Half of the operations are completed as soon as the memory can be used again. */
    if (!op->on_delivery && via_rng_chance(&ofi->rng, 1, 2)) {
        complete_at(op, now_ns);
    } else {
        op->on_delivery = true;
    }
}

/* --- arriving --------------------------------------------------------------------------------- */

static const unsigned char *data_of(const struct sim_ofi_op *op)
{
    return op->data != NULL ? op->data : op->source;
}

static void keep_data(struct sim_ofi_op *op)
{
    if (op->data == NULL) {
        op->data = sim_alloc(op->bytes);
        memcpy(op->data, op->source, op->bytes);
    }
}

static void complete(struct sim_ofi_op *op)
{
    struct sim_ofi_endpoint *endpoint = op->endpoint;
    if (endpoint == NULL || !op->is_linked) {
        return;
    }
    keep_data(op);
    op->is_completed = true;
    via_list_remove(&op->link);
    op->is_linked = false;
    endpoint->ops_count--;
    if (op->wants_completion) {
        sim_ofi_complete(endpoint, op->context, op->serial, 0, 0, false);
    }
}

static void shut_down(struct sim_ofi_endpoint *endpoint)
{
    if (endpoint != NULL && endpoint->is_connected) {
        if (!endpoint->is_broken && via_rng_chance(&endpoint->node->ofi->rng, 1, 2)) {
            sim_ofi_break(endpoint, FI_ECONNRESET);
        }
        endpoint->is_broken = true;
        sim_ofi_report(endpoint->node, FI_SHUTDOWN, &endpoint->ep.fid, NULL, NULL, 0, 0);
    }
}

/* An operation fails, and its connection with it: no gap, nothing arrives any more. This is a cut
 * of the link, and happens only in runs that keep some of their faults. */
static bool fails(struct sim_ofi_op *op)
{
    struct sim_ofi_endpoint *from = op->endpoint;
    struct sim_ofi *ofi = from != NULL ? from->node->ofi : NULL;
    if (ofi == NULL || ofi->world->healed || ofi->error_chance == 0 || ofi->errors_left == 0 ||
        ofi->world->faults_kept == 0 || from->is_broken ||
        !via_rng_chance(&ofi->rng, ofi->error_chance, 100000)) {
        return false;
    }
    sim_trace(ofi->world, "host %u: an operation fails, and its connection",
              from->node->host->index);
    sim_ofi_count(ofi, SIM_OFI_RESETS);
    ofi->world->counts.cuts++;
    ofi->errors_left--;
    if (from->peer != NULL) {
        from->peer->is_deaf = true;
    }
    sim_ofi_send(from->wire, SIM_OFI_SHUTDOWN, from, from->peer,
                 ofi->world->clock.now_ns + sim_ofi_latency(ofi));
    sim_ofi_break(from, FI_EIO);
    return true;
}

static void arrived(struct sim_ofi_op *op)
{
    op->is_arrived = true;
    if (op->endpoint != NULL && op->on_delivery && !op->is_completed) {
        complete_at(op, op->endpoint->node->ofi->world->clock.now_ns +
                            sim_ofi_latency(op->endpoint->node->ofi));
    }
}

static void take_part(struct sim_ofi_packet *packet)
{
    struct sim_ofi_op *op = packet->op;
    struct sim_ofi_endpoint *to = packet->to;
    op->parts_count--;
    if (to == NULL || to->is_broken || to->is_deaf || fails(op)) {
        return;
    }
    const struct sim_ofi_memory *memory = sim_ofi_memory_by_key(to->node, op->key);
    uint64_t base = (to->node->ofi->mr_mode & FI_MR_VIRT_ADDR) != 0 && memory != NULL
                        ? (uint64_t)(uintptr_t)memory->at
                        : 0;
    uint64_t off = op->remote - base;
    if (memory == NULL || (memory->access & FI_REMOTE_WRITE) == 0 || off > memory->bytes ||
        op->bytes > memory->bytes - off) {
        sim_fail(to->node->ofi->world, "host %u: a write of %zu bytes that no registration allows",
                 to->node->host->index, op->bytes);
        return;
    }
    memcpy((unsigned char *)(uintptr_t)memory->at + off + packet->at, data_of(op) + packet->at,
           packet->bytes);
    if (op->parts_count == 0) {
        arrived(op);
    }
}

static void take_message(struct sim_ofi_packet *packet)
{
    struct sim_ofi_op *op = packet->op;
    struct sim_ofi_endpoint *to = packet->to;
    if (to == NULL || to->is_broken || to->is_deaf || fails(op)) {
        return;
    }
    keep_data(op);
    if (op->is_linked && op->endpoint != NULL) {
        /* One list at a time: the endpoint's until completed. */
        struct sim_ofi_op *copy = sim_alloc(sizeof(*copy));
        *copy = (struct sim_ofi_op){.bytes = op->bytes, .data = sim_alloc(op->bytes)};
        memcpy(copy->data, op->data, op->bytes);
        arrived(op);
        op = copy;
    }
    op->is_waiting = true;
    via_list_push_back(&to->unread, &op->link);
    if (via_list_is_empty(&to->receives)) {
        sim_ofi_count(to->node->ofi, SIM_OFI_UNREADY);
    }
    sim_ofi_deliver(to);
}

static void take_call(struct sim_ofi_link *wire, struct sim_ofi_packet *packet)
{
    struct sim_ofi_node *to = packet->node;
    struct sim_ofi *ofi = wire->ofi;
    if (packet->from == NULL || (to->is_dead && to->is_silent)) {
        return;
    }
    if (!to->is_listening || to->hub == NULL) {
        sim_ofi_send(wire, SIM_OFI_REJECT, NULL, packet->from,
                     ofi->world->clock.now_ns + sim_ofi_latency(ofi))
            ->error = FI_ECONNREFUSED;
        return;
    }
    struct sim_ofi_request *request = sim_alloc(sizeof(*request));
    *request = (struct sim_ofi_request){.caller = packet->from, .wire = wire};
    via_list_push_back(&to->requests, &request->link);
    struct fi_info *info = sim_ofi_info(ofi, &to->address, &packet->from->node->address);
    info->handle = &request->fid;
    info->rx_attr->comp_order = to->receive_order;
    sim_ofi_report(to, FI_CONNREQ, &to->pep.fid, info, packet->data, packet->data_bytes, 0);
}

static void take(struct sim_ofi_link *wire, struct sim_ofi_packet *packet)
{
    struct sim_ofi_endpoint *to = packet->to;
    switch (packet->kind) {
    case SIM_OFI_CONNECT:
        take_call(wire, packet);
        break;
    case SIM_OFI_ACCEPT:
        if (to != NULL) {
            to->is_connected = true;
            sim_ofi_count(wire->ofi, SIM_OFI_CONNECTS);
            sim_ofi_report(to->node, FI_CONNECTED, &to->ep.fid, NULL, packet->data,
                           packet->data_bytes, 0);
        }
        break;
    case SIM_OFI_REJECT:
        if (to != NULL) {
            sim_ofi_report(to->node, 0, &to->ep.fid, NULL, packet->data, packet->data_bytes,
                           packet->error);
        }
        break;
    case SIM_OFI_ESTABLISHED:
        if (to != NULL && !to->is_broken) {
            sim_ofi_report(to->node, FI_CONNECTED, &to->ep.fid, NULL, NULL, 0, 0);
        }
        break;
    case SIM_OFI_SHUTDOWN:
        shut_down(to);
        break;
    case SIM_OFI_MESSAGE:
        take_message(packet);
        break;
    case SIM_OFI_PART:
        take_part(packet);
        break;
    case SIM_OFI_COMPLETE:
        complete(packet->op);
        break;
    }
}

static void free_packet(struct sim_ofi_packet *packet)
{
    if (packet->op != NULL) {
        packet->op->packets_count--;
        sim_ofi_op_release(packet->op);
    }
    free(packet);
}

static struct sim_ofi_packet *next_due(const struct sim_ofi_link *wire, uint64_t until_ns)
{
    via_list_foreach(it, &wire->packets) {
        struct sim_ofi_packet *packet = via_list_entry(it, struct sim_ofi_packet, link);
        if (packet->due_ns > until_ns) {
            return NULL;
        }
        if (wire->is_wire_up || is_local(packet->kind)) {
            return packet;
        }
    }
    return NULL;
}

void sim_ofi_run(struct sim_ofi_link *wire, uint64_t until_ns)
{
    for (struct sim_ofi_packet *packet; (packet = next_due(wire, until_ns)) != NULL;) {
        via_list_remove(&packet->link);
        take(wire, packet);
        free_packet(packet);
    }
    request_event(wire);
}

void sim_ofi_drop(struct sim_ofi_link *wire)
{
    for (struct via_list *it; (it = via_list_pop_front(&wire->packets)) != NULL;) {
        free_packet(via_list_entry(it, struct sim_ofi_packet, link));
    }
}

/* --- endings ---------------------------------------------------------------------------------- */

/* Its memory is the port's again. The wire loses what it has sent behind a drawn point. */
static void cut_off(struct sim_ofi_link *wire, struct sim_ofi_endpoint *endpoint)
{
    bool is_lost = false;
    via_list_foreach_safe(it, &wire->packets) {
        struct sim_ofi_packet *packet = via_list_entry(it, struct sim_ofi_packet, link);
        bool is_sent = packet->from == endpoint &&
                       (packet->kind == SIM_OFI_MESSAGE || packet->kind == SIM_OFI_PART);
        if (packet->op != NULL && packet->op->endpoint == endpoint) {
            keep_data(packet->op);
            packet->op->endpoint = NULL;
        }
        is_lost = is_lost || (is_sent && via_rng_chance(&wire->ofi->rng, 1, 8));
        packet->from = packet->from == endpoint ? NULL : packet->from;
        packet->to = packet->to == endpoint ? NULL : packet->to;
        if (is_sent && is_lost) {
            packet->to = NULL;
        }
    }
}

void sim_ofi_close(struct sim_ofi_endpoint *endpoint)
{
    struct sim_ofi_node *node = endpoint->node;
    struct sim_ofi *ofi = node->ofi;
    for (unsigned host = 0; host < ofi->world->hosts_count; host++) {
        for (unsigned i = 0; i < SIM_OFI_NODES_MAX && ofi->nodes[host][i] != NULL; i++) {
            via_list_foreach(it, &ofi->nodes[host][i]->requests) {
                struct sim_ofi_request *request = via_list_entry(it, struct sim_ofi_request, link);
                request->caller = request->caller == endpoint ? NULL : request->caller;
            }
        }
    }
    if (endpoint->wire == NULL) {
        return;
    }
    cut_off(endpoint->wire, endpoint);
    struct sim_ofi_endpoint *peer = endpoint->peer;
    if (peer != NULL) {
        peer->peer = NULL;
        if (!node->is_silent) {
            uint64_t due_ns = ofi->world->clock.now_ns + sim_ofi_latency(ofi);
            due_ns = via_max(due_ns, via_max(endpoint->message_ns, endpoint->write_ns));
            sim_ofi_send(endpoint->wire, SIM_OFI_SHUTDOWN, NULL, peer, due_ns);
        }
    }
}
