/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A host that writes garbage on purpose. It is no longer a node, but it knows what a node knows: it
 * keeps its links up by correct heartbeats and registers, and writes garbage into the inboxes of
 * its neighbours: noise, records with bad lengths, credits for records that were never sent, frames
 * with forged fields, HELLOs that are wrong in one byte, announcements of links that do not exist,
 * announcements in the name of other hosts with the last sequence numbers, false numbers and
 * acknowledgements of its own flows, so that a neighbour's answers to it go out and are
 * acknowledged late or never, arrivals at barriers that it is not a member of, and frames in the
 * name of another host to which its reader has a link. It knows neither the keys of writable
 * segments nor the sessions that would prove another identity, so receivers can recognise it. Hosts
 * that are not rogues must neither crash nor hang, and lose nothing that is not to, from or through
 * the rogue.
 */
#include <string.h>

#include "core/link.h"
#include "core/op.h"
#include "sim/posted.h"
#include "wire/handshake.h"

/* Messages that rogues forge have numbers that no real message has. */
#define FORGED_NUMBER (UINT32_C(1) << 31)

static void put_word(unsigned char *memory, size_t off, uint64_t word)
{
    memcpy(memory + off, &word, sizeof(word));
}

const char *sim_rogue_kind_name(enum sim_rogue_kind kind)
{
    static const char *const names[SIM_ROGUE_KINDS] = {
        [SIM_ROGUE_NOISE] = "noise",
        [SIM_ROGUE_REGISTERS] = "registers",
        [SIM_ROGUE_CREDIT] = "credits",
        [SIM_ROGUE_LENGTH] = "lengths",
        [SIM_ROGUE_FIELDS] = "frames",
        [SIM_ROGUE_NUMBER] = "sequence numbers",
        [SIM_ROGUE_SESSION] = "sessions",
        [SIM_ROGUE_ACK] = "acknowledgements",
        [SIM_ROGUE_NAME] = "names of others",
        [SIM_ROGUE_ASK] = "requests",
        [SIM_ROGUE_ANNOUNCE] = "announcements",
        [SIM_ROGUE_ANNOUNCE_OTHERS] = "announcements of others",
        [SIM_ROGUE_ANNOUNCE_LAST] = "announcements with last numbers",
        [SIM_ROGUE_ANNOUNCE_SESSION] = "announcements with false sessions",
        [SIM_ROGUE_HELLO_IDENTITY] = "greetings: identity",
        [SIM_ROGUE_HELLO_GEOMETRY] = "greetings: geometry",
        [SIM_ROGUE_HELLO_OTHER] = "greetings: rest",
    };
    return names[kind];
}

/* State of one of the rogue's links from its life as a node. */
struct rogue_view {
    struct sim_end *end; /* its own */
    unsigned char *to;   /* the inbox of the neighbour */
    const struct via_node
        *node;      /* the neighbour: for the layout, which is the same at every host */
    uint16_t epoch; /* of records into that inbox */
};

static struct via_rng *rng_of(const struct rogue_view *view)
{
    return &view->end->world->rng_fault;
}

static void count(const struct rogue_view *view, enum sim_rogue_kind kind)
{
    view->end->world->counts.rogue[kind]++;
}

/* false if there is no neighbour to write to. */
static bool view_neighbour(struct sim_end *end, struct rogue_view *ret_view)
{
    const struct sim_host *neighbour = &end->world->hosts[end->peer->host];
    if (!end->link->up || neighbour->node == NULL) {
        return false;
    }
    *ret_view = (struct rogue_view){
        .end = end,
        .to = end->peer->inbox,
        .node = neighbour->node,
        .epoch = neighbour->node->links[end->peer->index].rx_epoch,
    };
    return true;
}

/* The number that the neighbour's reader of a channel expects. */
static uint32_t next_record(const struct rogue_view *view, unsigned channel)
{
    return view->node->channels[channel].ways[view->end->peer->index].rx.sequence;
}

/* Publishes a record of a pipe with `slots` slots. */
static void write_line(const struct rogue_view *view, const struct via_inbox_place *place,
                       uint32_t slots, const void *head, size_t head_bytes, uint32_t length,
                       uint32_t sequence)
{
    struct via_record_line line = {0};
    memcpy(line.head, head, head_bytes);
    line.word = via_record_word(view->epoch, (uint16_t)length, sequence);
    memcpy(view->to + place->memory_off + VIA_RECORD_LINE_BYTES * (1 + (sequence & (slots - 1))),
           &line, sizeof(line));
}

/* --- the garbage ----------------------------------------------------------------------------- */

static void write_noise(const struct rogue_view *view)
{
    size_t words = view->end->port.caps.window_bytes / 8;
    count(view, SIM_ROGUE_NOISE);
    for (uint32_t n = sim_between(rng_of(view), 1, 64); n > 0; n--) {
        put_word(view->to, via_rng_below(rng_of(view), words) * 8, via_rng_next(rng_of(view)));
    }
}

static void write_credit(const struct rogue_view *view, const struct via_inbox_place *place)
{
    uint32_t released = (uint32_t)via_rng_next(rng_of(view));
    uint16_t generation = (uint16_t)via_rng_next(rng_of(view));
    bool want = via_rng_chance(rng_of(view), 1, 2);
    count(view, SIM_ROGUE_CREDIT);
    put_word(view->to, want ? place->memory_off : place->credit_off,
             via_credit_word(view->epoch, generation, released));
}

/* Some fields valid, others not: a frame that is entirely wrong is dropped by the first check. */
static void forge_header(const struct rogue_view *view, struct via_frame_header *header)
{
    struct sim_world *world = view->end->world;
    struct via_rng *rng = rng_of(view);
    const struct sim_host *me = &world->hosts[view->end->host];
    const struct sim_host *to = &world->hosts[sim_between(rng, 0, world->hosts_count - 1)];
    unsigned char *bytes = (unsigned char *)header;
    for (size_t i = 0; i < sizeof(*header); i++) {
        bytes[i] = (unsigned char)via_rng_next(rng);
    }
    if (via_rng_chance(rng, 1, 8)) {
        return;
    }
    header->kind = (uint8_t)sim_between(rng, 1, VIA_FRAME_ACK + 1);
    header->flow = (uint16_t)sim_between(rng, 0, world->config.node.flows_count + 1u);
    header->source = me->id;
    header->destination = to->id;
    header->source_session = me->life.session;
    header->destination_session = to->life.session;
    header->hops_left = (uint16_t)sim_between(rng, 0, 8);
    header->inline_bytes = via_rng_chance(rng, 1, 2) ? 0 : (uint8_t)sim_between(rng, 0, 40);
    if (via_rng_chance(rng, 1, 2)) {
        /* It will be accepted as the beginning of a flow. */
        header->flags |= VIA_FRAME_FLAG_START;
    }
    if (header->kind == VIA_FRAME_MESSAGE) {
        struct via_frame_message args;
        memcpy(&args, header->args, sizeof(args));
        args.source_endpoint |= FORGED_NUMBER;
        memcpy(header->args, &args, sizeof(args));
    }
    if (header->kind == VIA_FRAME_ACK) {
        struct via_frame_ack args;
        memcpy(&args, header->args, sizeof(args));
        args.state = sim_between(rng, 0, VIA_ACK_NO_STATE + 1);
        args.next = via_rng_chance(rng, 1, 2) ? UINT32_MAX - sim_between(rng, 0, 63) : args.next;
        memcpy(header->args, &args, sizeof(args));
    }
}

/* A number that the neighbour may accept: the next one, one near it, or one half the range away. */
static uint32_t near_number(struct via_rng *rng, uint32_t number)
{
    static const uint32_t off[] = {0, 0, 0, 1, 2, 16, UINT32_MAX, UINT32_C(1) << 31};
    return number + off[sim_between(rng, 0, VIA_ARRAY_COUNT(off) - 1)];
}

/* An acknowledgement of frames that the neighbour has sent. Now and then it claims that one more
 * frame has arrived. */
static void forge_acknowledgement(const struct rogue_view *view, unsigned channel,
                                  struct via_frame_header *header)
{
    struct via_rng *rng = rng_of(view);
    count(view, SIM_ROGUE_ACK);
    const struct via_tx_flow *flow =
        via_channel_tx(&view->node->channels[channel], header->source, header->flow);
    struct via_frame_ack args = {
        .next = via_rng_chance(rng, 1, 4) ? flow->sent_max : near_number(rng, flow->acked + 1),
        .state = via_rng_chance(rng, 1, 2) ? VIA_ACK_NOT_READY : sim_between(rng, 0, 5),
        .status = -(int32_t)sim_between(rng, 0, 5000),
    };
    memcpy(header->args, &args, sizeof(args));
}

/* Requests that any host may make: gets from memory that all hosts may read, so that the answers go
 * to the rogue, and arrivals at barriers of which it is not a member. */
static void forge_request(const struct rogue_view *view, struct via_frame_header *header)
{
    struct sim_world *world = view->end->world;
    struct via_rng *rng = rng_of(view);
    count(view, SIM_ROGUE_ASK);
    header->inline_bytes = 0;
    if (header->kind == VIA_FRAME_GET) {
        struct via_frame_get args = {
            .segment = world->hosts[view->end->peer->host].life.library,
            .cookie = via_rng_next(rng),
            .length = sim_between(rng, 0, world->config.work.library_bytes),
        };
        memcpy(header->args, &args, sizeof(args));
    } else if (header->kind == VIA_FRAME_BARRIER_ARRIVE) {
        struct via_frame_barrier args = {
            .group = sim_barrier_group(sim_between(rng, 0, 100)),
            .round = sim_between(rng, 1, 5),
            .action = sim_between(rng, 0, VIA_BARRIER_LEAVE + 1),
        };
        memcpy(header->args, &args, sizeof(args));
    }
}

/* Forges a frame of the rogue's own flows, with numbers, acknowledgements and sessions that the
 * neighbour expects. */
static void forge_own_flow(const struct rogue_view *view, unsigned channel,
                           struct via_frame_header *header)
{
    struct sim_world *world = view->end->world;
    struct via_rng *rng = rng_of(view);
    const struct sim_host *neighbour = &world->hosts[view->end->peer->host];
    header->source = world->hosts[view->end->host].id;
    header->destination = neighbour->id;
    header->source_session = world->hosts[view->end->host].life.session;
    header->destination_session = neighbour->life.session;
    header->flow = (uint16_t)sim_between(rng, 0, world->config.node.flows_count);
    static const uint8_t kinds[] = {
        VIA_FRAME_ACK, VIA_FRAME_ACK, VIA_FRAME_GET, VIA_FRAME_GET, VIA_FRAME_BARRIER_ARRIVE,
        VIA_FRAME_SKIP};
    header->kind = kinds[sim_between(rng, 0, VIA_ARRAY_COUNT(kinds) - 1)];
    if (header->kind == VIA_FRAME_ACK) {
        forge_acknowledgement(view, channel, header);
        return;
    }
    const struct via_rx_flow *flow =
        via_channel_rx(&view->node->channels[channel], header->source, header->flow);
    header->sequence = near_number(rng, flow->expected);
    if (header->sequence != flow->expected) {
        count(view, SIM_ROGUE_NUMBER);
    }
    forge_request(view, header);
    if (via_rng_chance(rng, 1, 8)) {
        header->source_session ^= (uint32_t)via_rng_next(rng);
        count(view, SIM_ROGUE_SESSION);
    }
}

/* A flow that the reader knows from that life of the host; if there is none, any flow. */
static uint16_t flow_in_use(const struct rogue_view *view, unsigned channel, uint16_t host,
                            uint32_t session)
{
    const struct sim_world *world = view->end->world;
    uint32_t count = world->config.node.flows_count;
    uint32_t first = sim_between(rng_of(view), 0, count - 1);
    for (uint32_t i = 0; i < count; i++) {
        uint16_t number = (uint16_t)((first + i) % count);
        if (via_channel_rx(&view->node->channels[channel], host, number)->session == session) {
            return number;
        }
    }
    return (uint16_t)first;
}

/* Forges the next frame of another host to which the reader has a link of its own. False if there
 * is no such host. */
static bool speak_for_another(const struct rogue_view *view, unsigned channel,
                              struct via_frame_header *header)
{
    struct sim_world *world = view->end->world;
    struct via_rng *rng = rng_of(view);
    const struct sim_host *reader = &world->hosts[view->end->peer->host];
    const struct sim_host *other = &world->hosts[sim_between(rng, 0, world->hosts_count - 1)];
    uint32_t route = atomic_load_explicit(&view->node->routes[other->id], memory_order_relaxed);
    if (!other->alive || other == reader || route == VIA_ROUTE_NONE || via_route_hops(route) != 1) {
        return false;
    }
    header->source = other->id;
    header->source_session = other->life.session;
    header->destination = reader->id;
    header->destination_session = reader->life.session;
    header->flow = flow_in_use(view, channel, other->id, other->life.session);
    header->flags = VIA_FRAME_FLAG_START;
    header->kind = via_rng_chance(rng, 1, 2) ? VIA_FRAME_ACK : VIA_FRAME_MESSAGE;
    if (header->kind == VIA_FRAME_ACK) {
        forge_acknowledgement(view, channel, header);
    } else {
        /* No FORGED_NUMBER: a host that delivers this message has failed to check its source. */
        const struct via_frame_message args = {.source_endpoint = FORGED_NUMBER / 2};
        memcpy(header->args, &args, sizeof(args));
        header->inline_bytes = 8;
        header->sequence =
            via_channel_rx(&view->node->channels[channel], other->id, header->flow)->expected;
    }
    count(view, SIM_ROGUE_NAME);
    return true;
}

static void write_frame(const struct rogue_view *view)
{
    struct sim_world *world = view->end->world;
    unsigned channel = sim_between(rng_of(view), 0, world->config.node.channels_count - 1u);
    const struct via_pipe_geometry *geometry = &view->node->links[view->end->peer->index].geometry;
    struct via_inbox_place place;
    struct via_frame_header header;
    via_inbox_place(geometry, 1 + channel, &place);
    forge_header(view, &header);
    bool lies = world->config.faults.lies_chance != 0 &&
                via_rng_chance(rng_of(view), world->config.faults.lies_chance, 1000);
    uint32_t names_chance = world->config.faults.names_chance;
    bool names = names_chance != 0 && via_rng_chance(rng_of(view), names_chance, 1000) &&
                 speak_for_another(view, channel, &header);
    lies = lies && !names;
    if (lies) {
        forge_own_flow(view, channel, &header);
    } else if (!names) {
        count(view, SIM_ROGUE_FIELDS);
    }
    uint32_t length = 0;
    if (!lies && !names && via_rng_chance(rng_of(view), 1, 2)) {
        length = sim_between(rng_of(view), 0, world->config.node.frame_bytes_max + 64);
        count(view, SIM_ROGUE_LENGTH);
    }
    write_line(view, &place, geometry->slots_count, &header, sizeof(header), length,
               next_record(view, channel));
    world->counts.forged++;
}

/* Records that the neighbour will parse as announcements of other hosts: their numbers are often
 * the first or the last possible, their sessions unknown or those of an innocent host. */
static void forge_announcement(const struct rogue_view *view, struct via_announcement *head)
{
    struct sim_world *world = view->end->world;
    struct via_rng *rng = rng_of(view);
    const uint64_t numbers[] = {
        VIA_LINK_STATE_SEQUENCE_HIGH,
        VIA_LINK_STATE_SEQUENCE_MAX - 2,
        VIA_LINK_STATE_SEQUENCE_MAX,
        UINT64_MAX,
    };
    const struct sim_host *victim = &world->hosts[sim_between(rng, 0, world->hosts_count - 1)];
    bool is_known = via_rng_chance(rng, 1, 2);
    head->host =
        is_known ? victim->id : (uint16_t)sim_between(rng, 0, world->config.node.hosts_max);
    head->session = is_known && via_rng_chance(rng, 1, 2) ? victim->life.session
                                                          : sim_between(rng, 0, UINT32_MAX);
    count(view, SIM_ROGUE_ANNOUNCE_OTHERS);
    if (is_known && head->session != victim->life.session) {
        count(view, SIM_ROGUE_ANNOUNCE_SESSION);
    }
    if (via_rng_chance(rng, 1, 2)) {
        /* Near the last well-formed number, so that most are accepted. */
        size_t pick = via_rng_chance(rng, 7, 8) ? sim_between(rng, 0, 1) : sim_between(rng, 2, 3);
        head->sequence = numbers[pick] - sim_between(rng, 0, 2) + 1;
        count(view, SIM_ROGUE_ANNOUNCE_LAST);
    } else {
        head->sequence = victim->life.born + sim_between(rng, 0, 1000);
    }
    world->counts.lies++;
}

/* Entries of announcements at each place where the reader may expect the body: at multiples of 64,
 * ascending. Most name existing hosts, with their sessions. */
static void write_neighbours(const struct rogue_view *view, size_t off, size_t bytes, bool real)
{
    const struct sim_world *world = view->end->world;
    struct via_rng *rng = rng_of(view);
    uint32_t ids = world->config.node.hosts_max;
    uint32_t id = 0;

    for (size_t i = 0; i < bytes; i += sizeof(struct via_announcement_neighbour)) {
        struct via_announcement_neighbour entry;
        id = i % VIA_RECORD_LINE_BYTES == 0 ? sim_between(rng, 0, ids / 2)
                                            : id + sim_between(rng, 1, via_max(ids / 4, 1u));
        uint32_t index = sim_host_of_id(world, id);
        bool is_known = real && index != UINT32_MAX && via_rng_chance(rng, 7, 8);
        entry.host = (uint16_t)id;
        entry.reserved = 0;
        entry.session = is_known ? world->hosts[index].life.session : (uint32_t)via_rng_next(rng);
        memcpy(view->to + off + i, &entry, sizeof(entry));
    }
}

/* Writes a change of an announcement, either of the one that the neighbour has of that host or of
 * another one. */
static uint32_t write_change(const struct rogue_view *view, struct via_announcement *head,
                             size_t off)
{
    struct via_rng *rng = rng_of(view);
    const struct via_lsdb *lsdb = view->node->lsdb;
    uint16_t host = head->host < view->node->config.hosts_max ? head->host : 0;
    const struct via_lsa *lsa = &lsdb->lsas[host];
    struct via_change change = {.base = lsa->sequence - sim_between(rng, 0, 1)};
    if (via_rng_chance(rng, 3, 4)) {
        head->session = via_lsa_session(lsa);
        head->sequence = lsa->sequence + sim_between(rng, 0, 2);
        head->neighbours_count = (uint16_t)(via_lsa_neighbours_count(lsa) + sim_between(rng, 0, 1));
        head->first = 0;
    }
    change.digest = via_rng_chance(rng, 1, 2) ? via_lsa_digest(lsdb, lsa) : via_rng_next(rng);
    head->kind = VIA_LINK_STATE_CHANGE_KIND;
    memcpy(view->to + off, &change, sizeof(change));
    return (uint32_t)(sizeof(change) + sim_between(rng, 0, VIA_LINK_STATE_CHANGE_NEIGHBOURS + 1) *
                                           sizeof(struct via_announcement_neighbour));
}

static void write_announcement(const struct rogue_view *view)
{
    struct sim_world *world = view->end->world;
    const struct sim_host *me = &world->hosts[view->end->host];
    struct via_rng *rng = rng_of(view);
    struct via_inbox_place place;
    uint32_t lies_chance = world->config.faults.lies_chance;
    uint32_t sequence = view->node->links[view->end->peer->index].control_rx.sequence;
    struct via_announcement head = {
        .kind = via_rng_chance(rng, 7, 8) ? VIA_LINK_STATE_KIND : (uint8_t)via_rng_next(rng),
        .neighbours_count = (uint16_t)sim_between(rng, 0, 20),
        .first = via_rng_chance(rng, 7, 8) ? 0 : VIA_LINK_STATE_PART_NEIGHBOURS,
        .host = me->id,
        .session = me->life.session,
        .sequence = me->life.born + sim_between(rng, 1, 1000),
    };
    if (lies_chance != 0 && via_rng_chance(rng, lies_chance, 1000)) {
        forge_announcement(view, &head);
        head.neighbours_count %= 4; /* so that the neighbours named exist */
    } else {
        count(view, SIM_ROGUE_ANNOUNCE);
    }
    via_inbox_place(via_control_geometry(), 0, &place);
    size_t body = place.memory_off + VIA_RECORD_LINE_BYTES * (1 + VIA_CONTROL_PIPE_SLOTS);
    write_neighbours(view, body,
                     lies_chance != 0 ? via_control_geometry()->data_bytes
                                      : VIA_CONTROL_PIPE_BODY_BYTES,
                     lies_chance != 0);
    uint32_t bytes = (uint32_t)(via_announcement_entries(head.neighbours_count, head.first) *
                                sizeof(struct via_announcement_neighbour));
    if (sequence % 4 == 0) {
        bytes = write_change(view, &head, body);
    }
    write_line(view, &place, VIA_CONTROL_PIPE_SLOTS, &head, sizeof(head), bytes, sequence);
    world->counts.forged++;
}

static void write_registers(const struct rogue_view *view)
{
    struct sim_end *end = view->end;
    unsigned first = VIA_HANDSHAKE_REGISTERS * end->port.side;
    count(view, SIM_ROGUE_REGISTERS);
    for (unsigned i = 0; i < VIA_HANDSHAKE_REGISTERS; i++) {
        if (via_rng_chance(rng_of(view), 1, 3)) {
            end->link->scratchpad[first + i] ^=
                (uint32_t)via_rng_next(rng_of(view)) & (uint32_t)via_rng_next(rng_of(view));
        }
    }
}

static void write_heartbeat(const struct rogue_view *view)
{
    uint64_t count = view->end->world->clock.now_ns & UINT64_C(0xffffffffffff);
    put_word(view->to, 0, via_heartbeat_word(view->epoch, count));
}

/* The kind of lie of a HELLO that is wrong at this byte. */
static enum sim_rogue_kind kind_of_hello(size_t off)
{
    if (off < offsetof(struct via_hello, hosts_max) ||
        (off >= offsetof(struct via_hello, session) &&
         off < offsetof(struct via_hello, channels_count))) {
        return SIM_ROGUE_HELLO_IDENTITY;
    }
    bool other = (off >= offsetof(struct via_hello, flags) &&
                  off < offsetof(struct via_hello, pipe_slots)) ||
                 (off >= offsetof(struct via_hello, link) &&
                  off < offsetof(struct via_hello, window_bytes)) ||
                 off >= offsetof(struct via_hello, nonce);
    return other ? SIM_ROGUE_HELLO_OTHER : SIM_ROGUE_HELLO_GEOMETRY;
}

/* The victim is greeting it: sends HELLOs with one wrong byte, and READYs without a HELLO. */
static void write_greeting(const struct rogue_view *view)
{
    struct sim_world *world = view->end->world;
    struct via_rng *rng = rng_of(view);
    const struct via_link *victim = &view->node->links[view->end->peer->index];
    struct via_inbox_place place;
    struct via_greeting head = {.kind = via_rng_chance(rng, 3, 4) ? VIA_GREETING_HELLO
                                                                  : VIA_GREETING_READY};
    struct via_hello hello = victim->greet.mine;
    hello.host = world->hosts[view->end->host].id;
    hello.session = world->hosts[view->end->host].life.session;
    hello.side = (uint8_t)(1 - hello.side);
    size_t off = sim_between(rng, 0, sizeof(hello) - 1);
    unsigned char *byte = (unsigned char *)&hello + off;
    count(view, head.kind == VIA_GREETING_HELLO ? kind_of_hello(off) : SIM_ROGUE_HELLO_OTHER);
    *byte ^= (unsigned char)sim_between(rng, 1, 255);

    via_inbox_place(via_control_geometry(), 0, &place);
    size_t data = place.memory_off + VIA_RECORD_LINE_BYTES * (1 + VIA_CONTROL_PIPE_SLOTS);
    memcpy(view->to + data, &hello, sizeof(hello)); /* the first body of the pipe */
    write_line(view, &place, VIA_CONTROL_PIPE_SLOTS, &head, sizeof(head),
               head.kind == VIA_GREETING_HELLO ? sizeof(hello) : 0, victim->control_rx.sequence);
    world->counts.greetings++;
}

static void write_something(const struct rogue_view *view)
{
    struct sim_world *world = view->end->world;
    struct via_inbox_place place;
    enum via_link_phase phase = view->node->links[view->end->peer->index].phase;
    if (phase == VIA_PHASE_GREETING) {
        write_heartbeat(view);
        write_greeting(view);
        return;
    }
    if (phase != VIA_PHASE_UP) {
        /* No records ahead of time, in the epoch that its next life will have: that life could not
         * distinguish such records from its own, and would be blamed for them. */
        write_registers(view);
        return;
    }
    write_heartbeat(view);
    switch (sim_between(rng_of(view), 0, 15)) {
    case 0:
        write_noise(view);
        break;
    case 1:
        write_registers(view);
        break;
    case 2:
        via_inbox_place(&view->node->links[view->end->peer->index].geometry,
                        sim_between(rng_of(view), 0, world->config.node.channels_count), &place);
        write_credit(view, &place);
        break;
    case 3:
    case 4:
        write_announcement(view);
        break;
    default:
        write_frame(view);
        break;
    }
}

/* --- when ------------------------------------------------------------------------------------ */

/* Discards the unread frames of its life as a node: a relay may lose frames, and the node must not
 * be blamed for frames that garbage overwrites now. */
static void discard_unread(struct sim_end *end)
{
    struct rogue_view view;
    for (uint32_t k = 0; k < VIA_PORT_QUEUES; k++) {
        sim_posted_drop(&end->lanes[k]);
    }
    if (!view_neighbour(end, &view)) {
        return;
    }
    for (unsigned pipe = 0; pipe <= end->world->config.node.channels_count; pipe++) {
        uint32_t slots = pipe == 0 ? VIA_CONTROL_PIPE_SLOTS
                                   : view.node->links[view.end->peer->index].geometry.slots_count;
        struct via_inbox_place place;
        via_inbox_place(&view.node->links[view.end->peer->index].geometry, pipe, &place);
        for (uint32_t i = 0; i < slots; i++) {
            put_word(view.to,
                     place.memory_off + VIA_RECORD_LINE_BYTES * (i + 1) +
                         offsetof(struct via_record_line, word),
                     0);
        }
    }
}

void sim_rogue_begin(struct sim_world *world, uint32_t index, uint32_t for_us)
{
    struct sim_host *host = &world->hosts[index];
    sim_trace(world, "host %u writes garbage for %u us", index, for_us);
    world->counts.rogues++;
    host->rogue_life = host->life.number;
    host->rogue_session = host->life.session;
    for (uint32_t i = 0; i < host->ports_count; i++) {
        discard_unread(host->ports[i]);
    }
    sim_clock_after(&world->clock, 0, SIM_EVENT_ROGUE, index, host->life.number, for_us);
}

/* Garbage may look like work, and no thread may sleep while there is work: ring the bells of all
 * channels, and one bit at random. */
static void ring_all(struct sim_end *end)
{
    struct sim_world *world = end->world;
    for (unsigned k = 0; k < world->config.node.channels_count; k++) {
        sim_link_ring(end, k);
    }
    sim_link_ring(end, sim_between(&world->rng_fault, 0, VIA_PORT_DOORBELLS - 1));
}

void sim_rogue_turn(struct sim_world *world, uint32_t index, uint32_t life, uint32_t left_us)
{
    struct sim_host *host = &world->hosts[index];
    if (host->alive || host->life.number != life || world->healed) {
        return;
    }
    for (uint32_t i = 0; i < host->ports_count; i++) {
        struct rogue_view view;
        if (!view_neighbour(host->ports[i], &view)) {
            continue;
        }
        for (uint32_t n = sim_between(&world->rng_fault, 1, 4); n > 0; n--) {
            write_something(&view);
        }
        ring_all(host->ports[i]->peer);
    }
    uint32_t pause_us = sim_between(&world->rng_fault, 1, via_max(left_us / 8, 2u));
    if (pause_us < left_us) {
        sim_clock_after(&world->clock, pause_us * VIA_USEC_NS, SIM_EVENT_ROGUE, index, life,
                        left_us - pause_us);
    }
}

bool sim_rogue_has_run_since(const struct sim_host *host, uint32_t life)
{
    return host->rogue_life >= life;
}

bool sim_rogue_is_forged(const struct via_delivery *delivery)
{
    return (delivery->source_endpoint & FORGED_NUMBER) != 0;
}

bool sim_rogue_has_sent(const struct sim_host *receiver, const struct via_delivery *delivery)
{
    const struct sim_world *world = receiver->world;
    uint32_t source = sim_host_of_id(world, delivery->source);
    if (source == UINT32_MAX || world->hosts[source].rogue_life == 0 ||
        delivery->channel >= world->config.node.channels_count ||
        delivery->flow >= world->config.node.flows_count) {
        return false;
    }
    const struct via_rx_flow *flow = via_channel_rx(&receiver->node->channels[delivery->channel],
                                                    delivery->source, delivery->flow);
    return flow->session == world->hosts[source].rogue_session;
}
