/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Input of a neighbour: frames, announcements, the words of its pipes, its scratchpads. The memory
 * of the middle host of a chain of three stays intact, and when an honest host replaces the
 * neighbour, all three reach each other again.
 *
 * Input: steps, each a byte with the kind, then its numbers (input_edgy) and bytes.
 */
#include "base/types.h"
#include "core/flow.h"
#include "core/link.h"
#include "tests/fuzz/input.h"
#include "tests/unit/fabric.h"
#include "tests/unit/hostile_peer.h"
#include "wire/handshake.h"

#define SEGMENT_BYTES 4096u
#define FRAME_BYTES_MAX 256u
#define STEPS_MAX 200u
#define VICTIM 1
#define FLOWS 3u

struct scene {
    struct fabric *fabric;
    struct hostile_peer peer; /* host 0's end of its link to host 1 */
    unsigned char *segment;   /* of host 1 */
    uint64_t handle;
};

static void scene_init(struct scene *s)
{
    memset(s, 0, sizeof(*s));
    s->fabric = fabric_new(true);
    s->fabric->config.dead_ns = 1000 * VIA_SEC_NS; /* the hostile peer sends no heartbeats */
    s->fabric->config.frame_bytes_max = FRAME_BYTES_MAX;
    s->fabric->config.bypass_count = 2;
    s->fabric->config.flows_count = FLOWS;
    s->fabric->config.give_up_ns = 200 * VIA_MSEC_NS;
    fabric_chain(s->fabric, 3);
    fabric_settle(s->fabric);
    s->segment = malloc(SEGMENT_BYTES); /* of that size, for the sanitizer */
    require(s->segment != NULL);
    memset(s->segment, 0, SEGMENT_BYTES);
    require(via_node_segment_add(fabric_node(s->fabric, VICTIM), s->segment, SEGMENT_BYTES,
                                 VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 0x5eed, &s->handle) == 0);
    hostile_peer_become(&s->peer, s->fabric, 0);
}

static void scene_fini(struct scene *s)
{
    fabric_free(s->fabric);
    free(s->segment);
}

/* --- steps ----------------------------------------------------------------------------------- */

#define FIX_SOURCE 0x01u
#define FIX_SESSIONS 0x02u
#define FIX_SEQUENCE 0x04u
#define FIX_HANDLE 0x08u
#define FIX_HOPS 0x10u
#define TO_THE_THIRD 0x20u
#define ALL_FLAGS 0x40u
#define INLINE 0x80u

/* A frame from the input. Some of its fields may be corrected; otherwise the first check would drop
 * all frames. */
static void send_frame(struct scene *s, struct input *input)
{
    struct via_frame_header header;
    unsigned char body[FRAME_BYTES_MAX];
    uint8_t fix = input_byte(input);
    header = (struct via_frame_header){.kind = input_byte(input) % 14, .flags = input_byte(input)};
    header.flags &= (fix & ALL_FLAGS) != 0 ? 0xff : VIA_FRAME_FLAG_NOTIFY | VIA_FRAME_FLAG_LAST;
    header.inline_bytes = (fix & INLINE) != 0 ? (uint8_t)input_edgy(input) : 0;
    uint8_t flow = input_byte(input);
    header.flow = flow < 0xf0 ? flow % (FLOWS + 1) : (uint16_t)input_edgy(input);
    header.hops_left = (fix & FIX_HOPS) != 0 ? 4 : input_byte(input);
    header.destination = (fix & TO_THE_THIRD) != 0 ? 2 : VICTIM;
    header.source = (fix & FIX_SOURCE) != 0 ? 0 : (uint16_t)input_edgy(input);
    if ((fix & FIX_SESSIONS) != 0) {
        header.source_session = s->fabric->hosts[0].config.session;
        header.destination_session = s->fabric->hosts[header.destination].config.session;
    } else {
        header.source_session = (uint32_t)input_edgy(input);
        header.destination_session = (uint32_t)input_edgy(input);
    }
    if ((fix & FIX_SEQUENCE) != 0 && header.source == 0 && header.flow < FLOWS) {
        struct via_node *node = fabric_node(s->fabric, header.destination);
        header.sequence = via_channel_rx(&node->channels[0], 0, header.flow)->expected;
    } else {
        header.sequence = (uint32_t)input_edgy(input);
    }
    for (size_t i = 0; i < sizeof(header.args); i += sizeof(uint64_t)) {
        uint64_t word = input_edgy(input);
        memcpy(header.args + i, &word, sizeof(word));
    }
    if ((fix & FIX_HANDLE) != 0) {
        memcpy(header.args, &s->handle, sizeof(s->handle));
    }
    size_t bytes = via_min(input_edgy(input), (uint64_t)sizeof(body));
    input_take(input, body, bytes);
    (void)via_pipe_send(&s->peer.channel.writer, &header, sizeof(header), body, bytes);
}

/* A change of the victim's stored announcement of that host, or of another announcement. */
static void announce_change(struct scene *s, struct input *input, struct via_announcement *head)
{
    struct {
        struct via_change change;
        struct via_announcement_neighbour entries[VIA_LINK_STATE_CHANGE_NEIGHBOURS];
    } body = {0};
    struct via_lsdb *lsdb = fabric_node(s->fabric, VICTIM)->lsdb;
    const struct via_lsa *lsa = &lsdb->lsas[head->host % 4];
    struct via_lsa_change change = {.count =
                                        input_byte(input) % (VIA_LINK_STATE_CHANGE_NEIGHBOURS + 1)};
    uint16_t host = 0;

    head->kind = VIA_LINK_STATE_CHANGE_KIND;
    head->host %= 4;
    head->session = via_lsa_session(lsa);
    head->sequence = lsa->sequence + input_byte(input) % 3;
    for (unsigned i = 0; i < change.count; i++) {
        host = (uint16_t)(host + input_byte(input) % 8);
        change.entries[i] = (struct via_announcement_neighbour){
            .host = host++, .session = (uint32_t)input_edgy(input)};
    }
    /* Half of the digests are correct, because a lying host can compute them. */
    uint64_t digest = input_edgy(input);
    body.change.base = lsa->sequence - input_byte(input) % 2;
    body.change.digest =
        digest % 2 == 0 ? digest : via_lsa_digest_after(lsdb, lsa, head->sequence, &change);
    memcpy(body.entries, change.entries, sizeof(body.entries));
    (void)via_pipe_send(&s->peer.control.writer, head, sizeof(*head), &body,
                        sizeof(body.change) + change.count * sizeof(body.entries[0]));
    s->fabric->hosts[VICTIM].control_deadline = 0;
}

static void announce(struct scene *s, struct input *input)
{
    unsigned char body[VIA_CONTROL_PIPE_BODY_BYTES];
    struct via_announcement head = {.kind = input_byte(input),
                                    .neighbours_count = input_byte(input),
                                    .host = (uint16_t)input_edgy(input),
                                    .session = (uint32_t)input_edgy(input),
                                    .sequence = input_edgy(input)};
    uint8_t fix = input_byte(input);
    if ((fix & 0x80) != 0) {
        head.kind = VIA_LINK_STATE_KIND;
        head.host %= 4;
        head.session = head.host < 3 ? s->fabric->hosts[head.host].config.session : head.session;
        head.neighbours_count %= 2 * VIA_LINK_STATE_PART_NEIGHBOURS;
        head.first = (fix & 0x20) != 0 ? VIA_LINK_STATE_PART_NEIGHBOURS : 0;
    }
    if ((fix & 0x90) == 0x10) {
        announce_change(s, input, &head);
        return;
    }
    size_t bytes = via_announcement_entries(head.neighbours_count, head.first) * (size_t)8;
    bytes = (fix & 0x40) != 0 ? bytes : via_min((size_t)fix * 4, sizeof(body));
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        struct via_announcement_neighbour one = {.host = (uint16_t)input_edgy(input)};
        one.session =
            one.host < 3 ? s->fabric->hosts[one.host].config.session : (uint32_t)input_edgy(input);
        memcpy(body + i, &one, sizeof(one));
    }
    (void)via_pipe_send(&s->peer.control.writer, &head, sizeof(head), body, bytes);
    s->fabric->hosts[VICTIM].control_deadline = 0;
}

/* Writes a word anywhere in the victim's inbox, often where the victim polls one. */
static void poke(struct scene *s, struct input *input)
{
    struct via_port *port = &s->fabric->links[0].ports[1].port;
    struct via_inbox_place place;
    uint8_t where = input_byte(input);
    uint64_t word = input_edgy(input);
    via_inbox_place(&fabric_node(s->fabric, VICTIM)->geometry, where & 1, &place);
    const struct hostile_pipe *pipe = (where & 1) != 0 ? &s->peer.channel : &s->peer.control;
    uint32_t slots = pipe->writer.geometry.slots_count;
    uint64_t off;
    switch (where >> 1 & 3) {
    case 0:
        off = place.credit_off;
        word = (where & 0x80) != 0 ? word : via_credit_word(pipe->reader.epoch, 1, (uint32_t)word);
        break;
    case 1:
        off = place.memory_off; /* the want word */
        word = (where & 0x80) != 0 ? word : via_credit_word(pipe->writer.epoch, 1, (uint32_t)word);
        break;
    case 2:
        off = place.memory_off + 64 + (uint64_t)(pipe->writer.sequence % slots) * 64 + 56;
        word = (where & 0x80) != 0
                   ? word
                   : via_record_word(pipe->writer.epoch, (uint16_t)word, pipe->writer.sequence);
        break;
    default:
        off = input_edgy(input) % (port->caps.inbox_bytes - sizeof(word));
    }
    memcpy(port->inbox + off, &word, sizeof(word));
}

static void write_scratchpad(struct scene *s, struct input *input)
{
    struct fabric_link *link = &s->fabric->links[0];
    uint8_t index = input_byte(input);
    uint64_t value = (index & 0x80) != 0 ? input_word(input) : input_edgy(input);
    link->scratchpads[index % 4] = (uint32_t)value;
    if ((index & 0x40) != 0) { /* the state alone */
        link->scratchpads[0] =
            VIA_HANDSHAKE_MAGIC << 16 | VIA_PROTOCOL_VERSION << 8 | (uint32_t)(value & 0xff);
    }
    s->fabric->hosts[VICTIM].control_deadline = 0;
}

/* Starts operations at the victim, so that the peer can send false answers. */
static void submit(struct scene *s, struct input *input)
{
    static unsigned char result[2048];
    static const uint16_t all[] = {0, 1, 2};
    struct via_op op = {
        .kind = input_byte(input) % 8,
        .atomic = input_byte(input),
        .destination = input_byte(input) % 3,
        .flow = input_byte(input) % (FLOWS + 1),
        .segment = input_edgy(input),
        .offset = input_edgy(input),
        .source = result,
        .result = result,
        .bytes = input_edgy(input) % 2049,
        .members = all,
        .members_count = 3,
        .group = 1,
    };
    if (op.kind == VIA_OP_PUT_STRIDED) {
        op.operand = input_edgy(input);
        op.compare = 1 + input_byte(input) % 64u;
        op.bytes -= op.bytes % op.compare;
    }
    (void)via_node_submit(fabric_node(s->fabric, VICTIM), 0, &op);
}

static void take_frames(struct hostile_pipe *pipe)
{
    struct via_pipe_record record;
    for (unsigned i = 0; i < 64 && via_pipe_take(&pipe->reader, &record) == 1; i++) {
        via_pipe_release(&pipe->reader, 1);
    }
}

static void pass_time(struct scene *s, uint64_t ns)
{
    for (unsigned h = VICTIM; h < 3; h++) {
        s->fabric->hosts[h].woken[0] = true;
        s->fabric->hosts[h].completions_count = 0;
        s->fabric->hosts[h].deliveries_count = 0;
    }
    fabric_run(s->fabric, ns);
}

static void step(struct scene *s, struct input *input)
{
    uint8_t what = input_byte(input);
    switch (what & 7) {
    case 0:
    case 1:
        send_frame(s, input);
        break;
    case 2:
        announce(s, input);
        break;
    case 3:
        poke(s, input);
        break;
    case 4:
        write_scratchpad(s, input);
        break;
    case 5:
        submit(s, input);
        break;
    case 6:
        take_frames(&s->peer.channel);
        take_frames(&s->peer.control);
        break;
    default:
        s->fabric->hosts[VICTIM].deliver_answer = (what & 8) != 0 ? -11 : 0;
        pass_time(s, (what & 16) != 0 ? VIA_MSEC_NS : 20 * VIA_USEC_NS);
    }
    if ((what & 0x80) == 0) { /* else several steps at once */
        pass_time(s, 10 * VIA_USEC_NS);
    }
}

static bool is_all_delivered(const struct fabric *fabric)
{
    for (int from = 0; from < 3; from++) {
        for (uint64_t to = 0; to < 3; to++) {
            const struct fabric_completion *done = fabric_completion(fabric, from, 1000 + to);
            if (done == NULL || done->status != 0) {
                return false;
            }
        }
    }
    return true;
}

/* An honest peer replaces the hostile one, whose lies have no lasting effect. */
static void heal(struct scene *s)
{
    struct fabric *fabric = s->fabric;
    struct fabric_link *link = &fabric->links[0];
    pass_time(s, 20 * VIA_USEC_NS);
    fabric->hosts[VICTIM].deliver_answer = 0;
    for (uint16_t source = 0; source < 3; source++) {
        for (uint16_t flow = 0; flow < FLOWS; flow++) {
            via_node_resume(fabric_node(fabric, VICTIM), 0, source, flow);
        }
    }
    fabric_cut(link);
    pass_time(s, VIA_MSEC_NS);
    fabric_mend(link);
    fabric_start(fabric, 0);
    fabric_settle(fabric);
    for (int from = 0; from < 3; from++) {
        for (uint16_t to = 0; to < 3; to++) {
            struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = to, .cookie = 1000u + to};
            fabric_submit(fabric, from, &op);
        }
    }
    /* Only after all operations have ended, because the victim may be alone in a barrier. */
    for (unsigned i = 0; i < 1000 && !is_all_delivered(fabric); i++) {
        fabric_run(fabric, VIA_MSEC_NS);
    }
    require(is_all_delivered(fabric));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct scene s;
    scene_init(&s);
    for (unsigned i = 0; i < STEPS_MAX && input.bytes != 0; i++) {
        step(&s, &input);
    }
    heal(&s);
    scene_fini(&s);
    return 0;
}
