/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The greeting of a link. After the registers have agreed on epochs, the two hosts exchange their
 * parameters over the control pipe, compute a geometry that fits both, and prove the fabric key.
 * Only then do channels use the link.
 *
 * A host sends READY after it has cleared its inbox for the geometry of both HELLOs. It is up when
 * it has taken the peer's READY. So no host writes to a channel pipe before the reader of that pipe
 * has cleared it.
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/link.h"

/* A greeting takes a few round trips. It starts again if the peer sends nothing for GREETING_NS. */
#define GREETING_NS (2 * VIA_SEC_NS)

/* --- comparison ------------------------------------------------------------------------------- */

static enum via_link_state refuse(struct via_link_refusal *ret, enum via_link_state state,
                                  enum via_link_cause cause, uint64_t mine, uint64_t peers)
{
    *ret = (struct via_link_refusal){.cause = cause, .mine = mine, .peers = peers};
    return state;
}

static bool is_power_of_two(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* The first difference between the fabrics of the two hosts. */
static enum via_link_state compare_fabrics(const struct via_hello *mine,
                                           const struct via_hello *peer,
                                           struct via_link_refusal *ret)
{
    const struct {
        enum via_link_state state;
        enum via_link_cause cause;
        uint64_t mine, peers;
    } rules[] = {
        {VIA_LINK_BAD_KEY, VIA_CAUSE_KEYED, mine->flags & VIA_GREETING_KEYED,
         peer->flags & VIA_GREETING_KEYED},
        {VIA_LINK_BAD_FABRIC, VIA_CAUSE_HOSTS_MAX, mine->hosts_max, peer->hosts_max},
        {VIA_LINK_BAD_FABRIC, VIA_CAUSE_FLOWS, mine->flows_count, peer->flows_count},
        {VIA_LINK_BAD_FABRIC, VIA_CAUSE_ACK_NS, mine->ack_ns_max, peer->ack_ns_max},
        {VIA_LINK_BAD_FABRIC, VIA_CAUSE_PIPE_FIRST, mine->pipe_first, peer->pipe_first},
        {VIA_LINK_BAD_GEOMETRY, VIA_CAUSE_CHANNELS, mine->channels_count, peer->channels_count},
        {VIA_LINK_BAD_GEOMETRY, VIA_CAUSE_FRAME_BYTES, mine->frame_bytes, peer->frame_bytes},
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(rules); i++) {
        if (rules[i].mine != rules[i].peers) {
            return refuse(ret, rules[i].state, rules[i].cause, rules[i].mine, rules[i].peers);
        }
    }
    return VIA_LINK_HANDSHAKE;
}

/* The first of four sizes that is too small for the smallest geometry. */
static enum via_link_state compare_room(const struct via_hello *mine, const struct via_hello *peer,
                                        uint64_t need, struct via_link_refusal *ret)
{
    const struct {
        enum via_link_cause cause;
        uint64_t bytes;
    } rooms[] = {
        {VIA_CAUSE_MY_INBOX, mine->inbox_bytes},
        {VIA_CAUSE_MY_WINDOW, mine->window_bytes},
        {VIA_CAUSE_PEER_INBOX, peer->inbox_bytes},
        {VIA_CAUSE_PEER_WINDOW, peer->window_bytes},
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(rooms); i++) {
        if (rooms[i].bytes < need) {
            return refuse(ret, VIA_LINK_BAD_GEOMETRY, rooms[i].cause, need, rooms[i].bytes);
        }
    }
    return VIA_LINK_HANDSHAKE;
}

enum via_link_state via_greet_compare(const struct via_hello *mine, const struct via_hello *peer,
                                      struct via_pipe_geometry *ret_geometry,
                                      struct via_link_refusal *ret_refusal)
{
    enum via_link_state state = compare_fabrics(mine, peer, ret_refusal);
    if (state != VIA_LINK_HANDSHAKE) {
        return state;
    }
    uint32_t slots = via_min(mine->pipe_slots, peer->pipe_slots);
    uint64_t room = via_min(via_min(mine->inbox_bytes, mine->window_bytes),
                            via_min(peer->inbox_bytes, peer->window_bytes));
    if (!is_power_of_two(peer->pipe_slots)) {
        return refuse(ret_refusal, VIA_LINK_BAD_GEOMETRY, VIA_CAUSE_SLOTS, mine->pipe_slots,
                      peer->pipe_slots);
    }
    for (;; slots /= 2) {
        via_geometry_of_channels(slots, mine->frame_bytes, ret_geometry);
        uint64_t need = via_inbox_bytes(ret_geometry, mine->channels_count);
        if (need <= room) {
            return VIA_LINK_HANDSHAKE;
        }
        if (slots == 1) {
            return compare_room(mine, peer, need, ret_refusal);
        }
    }
}

/* --- the proof --------------------------------------------------------------------------------*/

static void prove(const struct via_node *node, const struct via_hello *sender,
                  const struct via_hello *receiver, uint8_t ret_mac[VIA_GREETING_MAC_BYTES])
{
    struct via_greeting_proof proof = {
        .label = VIA_GREETING_LABEL,
        .sender = *sender,
        .receiver = *receiver,
    };
    node->env.mac(node->env.ctx, &proof, sizeof(proof), ret_mac);
}

/* In constant time, so that the duration does not reveal the number of correct bytes. */
static bool is_same(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    uint8_t differs = 0;
    for (size_t i = 0; i < bytes; i++) {
        differs |= (uint8_t)(a[i] ^ b[i]);
    }
    return differs == 0;
}

static bool is_proven(const struct via_node *node, const struct via_greet *greet,
                      const struct via_greeting *ready)
{
    uint8_t mac[VIA_GREETING_MAC_BYTES];
    if (!node->config.keyed) {
        return true;
    }
    prove(node, &greet->peer, &greet->mine, mac);
    return is_same(mac, ready->mac, sizeof(mac));
}

/* --- records ----------------------------------------------------------------------------------*/

static void send(struct via_link *link, const struct via_greeting *head, const void *body,
                 size_t body_bytes)
{
    /* A greeting is two records in an empty pipe, so there is room. */
    (void)via_pipe_send(&link->control_tx, head, sizeof(*head), body, body_bytes);
    via_control_pipe_sent(link);
}

int via_greet_start(struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    const struct via_node_config *config = &node->config;
    const struct via_port *port = atomic_load_explicit(&link->port, memory_order_relaxed);
    struct via_greeting head = {.kind = VIA_GREETING_HELLO};
    struct via_greet *greet = &link->greet;
    int rc = 0;

    *greet = (struct via_greet){
        .mine =
            {
                .host = config->host,
                .hosts_max = config->hosts_max,
                .session = config->session,
                .side = (uint8_t)port->side,
                .channels_count = config->channels_count,
                .flows_count = (uint16_t)config->flows_count,
                .flags = config->keyed ? VIA_GREETING_KEYED : 0,
                .pipe_slots = config->pipe_slots,
                .frame_bytes = config->frame_bytes_max,
                .pipe_first = config->pipe_first,
                .link = link->index + 1,
                .window_bytes = port->caps.window_bytes,
                .inbox_bytes = port->caps.inbox_bytes,
                .ack_ns_max = config->ack_ns_max,
            },
        .until_ns = now_ns + GREETING_NS,
    };
    if (config->keyed) {
        rc = node->env.random(node->env.ctx, greet->mine.nonce, sizeof(greet->mine.nonce));
    }
    if (rc != 0) {
        return rc;
    }
    send(link, &head, &greet->mine, sizeof(greet->mine));
    return 0;
}

void via_greet_show_refusal(struct via_link *link, const struct via_link_refusal *refusal)
{
    atomic_store_explicit(&link->refusal_mine, refusal->mine, memory_order_relaxed);
    atomic_store_explicit(&link->refusal_peers, refusal->peers, memory_order_relaxed);
    atomic_store_explicit(&link->refusal_cause, (uint8_t)refusal->cause, memory_order_relaxed);
}

/* 0, -EPROTO, or -ECONNREFUSED with *ret_state. */
static int take_hello(struct via_node *node, struct via_link *link, const void *body,
                      uint32_t body_bytes, enum via_link_state *ret_state)
{
    struct via_greet *greet = &link->greet;
    struct via_greeting ready = {.kind = VIA_GREETING_READY};
    struct via_link_refusal refusal;

    if (greet->peer_known || body_bytes != sizeof(greet->peer)) {
        return -EPROTO;
    }
    /* hostile: used only as a private copy from here on */
    memcpy(&greet->peer, body, sizeof(greet->peer));
    if (greet->peer.host != atomic_load_explicit(&link->peer, memory_order_relaxed) ||
        greet->peer.session != link->peer_seen_session || greet->peer.side == greet->mine.side ||
        greet->peer.side > 1) {
        return -EPROTO;
    }
    *ret_state = via_greet_compare(&greet->mine, &greet->peer, &link->geometry, &refusal);
    if (*ret_state != VIA_LINK_HANDSHAKE) {
        via_greet_show_refusal(link, &refusal);
        return -ECONNREFUSED;
    }
    for (unsigned pipe = 1; pipe <= node->config.channels_count && !VIA_MUTANT(NO_EPOCH); pipe++) {
        via_inbox_clear(atomic_load_explicit(&link->port, memory_order_relaxed), &link->geometry,
                        pipe);
    }
    greet->peer_known = true;
    atomic_store_explicit(&link->peer_link, greet->peer.link, memory_order_relaxed);
    if (node->config.keyed) {
        prove(node, &greet->mine, &greet->peer, ready.mac);
    }
    send(link, &ready, NULL, 0);
    return 0;
}

/* 1, -EPROTO, or -ECONNREFUSED with *ret_state. */
static int take_ready(struct via_node *node, struct via_link *link,
                      const struct via_greeting *ready, enum via_link_state *ret_state)
{
    struct via_link_refusal refusal = {.cause = VIA_CAUSE_KEY};

    if (!link->greet.peer_known) {
        return -EPROTO;
    }
    if (!is_proven(node, &link->greet, ready)) {
        via_greet_show_refusal(link, &refusal);
        *ret_state = VIA_LINK_BAD_KEY;
        return -ECONNREFUSED;
    }
    return 1;
}

int via_greet_poll(struct via_node *node, struct via_link *link, uint64_t now_ns,
                   enum via_link_state *ret_state)
{
    for (;;) {
        struct via_pipe_record record;
        struct via_greeting head;
        int rc = via_pipe_take(&link->control_rx, &record);
        if (rc == 0) {
            via_control_pipe_taken(link);
            return now_ns < link->greet.until_ns ? 0 : -ETIMEDOUT;
        }
        if (rc < 0) {
            return -EPROTO;
        }
        memcpy(&head, record.head, sizeof(head));
        if (head.kind == VIA_GREETING_HELLO) {
            rc = take_hello(node, link, record.body, record.body_bytes, ret_state);
        } else if (head.kind == VIA_GREETING_READY && record.body_bytes == 0) {
            rc = take_ready(node, link, &head, ret_state);
        } else {
            rc = -EPROTO;
        }
        via_pipe_release(&link->control_rx, 1);
        if (rc != 0) {
            via_control_pipe_taken(link);
            return rc;
        }
    }
}
