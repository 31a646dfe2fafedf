/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages of another host until two ends have pipes between hosts (a note, an offer, a hello), and
 * the contents of its memory when this end must send unread bytes again: no input may make this end
 * access foreign memory, or send bytes that it has not written.
 *
 * Input: a byte of options, then the note; or the offer, the hello, then steps of the writer, and
 * the position at which the reader claims to have left.
 */
#include <errno.h>

#include "base/types.h"
#include "sockets/conn/side.h"
#include "sockets/meet/stream_meet.h"
#include "sockets/stream/stream_replay.h"
#include "tests/fuzz/input.h"

#define OPTION_NOTE 0x01u
#define OPTION_WELL_FORMED 0x02u /* so that more inputs pass the check */
#define HOST 3u
#define STEPS_MAX 100u
#define SEGMENT_BYTES_MAX (512u * 1024)

static void take_note(struct input *input, unsigned options)
{
    struct via_fabric_note note;
    size_t bytes = (options & OPTION_WELL_FORMED) != 0 ? sizeof(note) : input_byte(input);
    input_take(input, &note, sizeof(note));
    if ((options & OPTION_WELL_FORMED) != 0) {
        note.magic = VIA_FABRIC_MAGIC;
        note.version = VIA_FABRIC_VERSION;
        note.host = HOST;
        note.mailbox_bytes %= 1u << 20;
        note.slot %= 1u << 16;
    }
    if (via_meet_note_is_sound(&note, bytes, HOST)) {
        require(bytes == sizeof(note) && note.host == HOST);
        require((note.slot + UINT64_C(1)) * sizeof(struct via_fabric_offer) <= note.mailbox_bytes);
    }
}

/* One end, and the memory of its peer, as a copy that the peer can change. */
struct scene {
    struct via_pipe_geometry geometry;
    size_t bytes;
    unsigned char *own, *mirror, *peer; /* segments */
    struct via_stream_tx tx;
    uint32_t *data_ends; /* as many as struct via_side has */
    uint64_t *mirrored;
    uint64_t sent;
};

static int fetch(void *ctx, size_t off, size_t bytes)
{
    struct scene *s = ctx;
    require(VIA_SEGMENT_PIPE_OFF + off + bytes <= s->bytes);
    memcpy(s->mirror + VIA_SEGMENT_PIPE_OFF + off, s->peer + VIA_SEGMENT_PIPE_OFF + off, bytes);
    return 0;
}

static bool take_offer(struct scene *s, struct input *input, unsigned options)
{
    struct via_fabric_offer slot, offer;
    uint64_t nonce = 0x5eed;
    input_take(input, &slot, sizeof(slot));
    if ((options & OPTION_WELL_FORMED) != 0) {
        slot.ready = VIA_FABRIC_READY;
        slot.nonce = nonce;
        slot.host = HOST;
        slot.geometry.slots_count = 4u << slot.geometry.slots_count % 12;
        slot.geometry.body_bytes_max = 64 * (1 + slot.geometry.body_bytes_max % 16);
        slot.geometry.data_bytes =
            2 * slot.geometry.body_bytes_max + 64 * (slot.geometry.data_bytes % 64);
        slot.segment_bytes = via_segment_bytes_for(&slot.geometry);
    }
    int rc = via_meet_take_offer(&slot, nonce, HOST, &offer);
    require(rc != -EAGAIN || slot.ready == 0);
    if (rc != 0) {
        return false;
    }
    require(offer.geometry.slots_count <= VIA_RING_SLOTS_MAX); /* data_ends has no more */
    if (offer.segment_bytes > SEGMENT_BYTES_MAX) {
        return false;
    }
    s->geometry = offer.geometry;
    s->bytes = offer.segment_bytes;
    return true;
}

static unsigned char *memory(size_t bytes)
{
    unsigned char *lines = aligned_alloc(4096, VIA_ALIGN_UP(bytes, (size_t)4096));
    require(lines != NULL);
    memset(lines, 0, bytes);
    return lines;
}

static void attach(struct scene *s)
{
    s->own = memory(s->bytes);
    s->mirror = memory(s->bytes);
    s->peer = memory(s->bytes);
    s->data_ends = calloc(VIA_RING_SLOTS_MAX, sizeof(*s->data_ends));
    s->mirrored = calloc(VIA_RING_SLOTS_MAX / 64, sizeof(*s->mirrored));
    require(s->data_ends != NULL && s->mirrored != NULL);
    const struct via_pipe_target out = {.direct = s->mirror + VIA_SEGMENT_PIPE_OFF};
    const _Atomic uint64_t *credit = (const void *)(s->own + VIA_SEGMENT_CREDIT_OFF);
    via_pipe_writer_init(&s->tx.pipe, &s->geometry, &out, credit, s->data_ends, 1);
    via_stream_tx_init(&s->tx);
    require(via_stream_tx_switch(&s->tx, 0) == 0);
}

static void detach(struct scene *s)
{
    free(s->own);
    free(s->mirror);
    free(s->peer);
    free(s->data_ends);
    free(s->mirrored);
}

/* A write, in frames or as a store to memory that the peer can change. */
static void write_some(struct scene *s, struct input *input)
{
    static unsigned char buffer[2048];
    bool stored = (input_byte(input) & 1) != 0;
    uint32_t index = s->tx.pipe.sequence & (s->geometry.slots_count - 1);
    struct iovec iov = {buffer, 1 + input_edgy(input) % sizeof(buffer)};
    struct via_iov cursor;
    require(via_iov_init(&cursor, &iov, 1) == 0);
    s->tx.pipe.target.direct = (stored ? s->peer : s->mirror) + VIA_SEGMENT_PIPE_OFF;
    ssize_t n = via_stream_tx_write(&s->tx, &cursor);
    require(n > 0 || n == -EAGAIN || n == -EPROTO);
    if (n > 0) {
        s->sent += (uint64_t)n;
        uint64_t bit = UINT64_C(1) << index % 64;
        s->mirrored[index / 64] =
            stored ? s->mirrored[index / 64] & ~bit : s->mirrored[index / 64] | bit;
    }
}

/* The peer changes its own memory, and the memory that it may write at this end. */
static void lie(struct scene *s, struct input *input)
{
    uint8_t where = input_byte(input);
    uint64_t word = input_edgy(input);
    uint32_t index = (uint32_t)word & (s->geometry.slots_count - 1);
    size_t off;
    switch (where & 3) {
    case 0: /* a credit that looks good */
        word = via_credit_word(1, 0, (uint32_t)word);
        memcpy(s->own + VIA_SEGMENT_CREDIT_OFF, &word, sizeof(word));
        return;
    case 1: /* a record of another length */
        word = via_record_word(1, (uint16_t)input_edgy(input), index);
        off = VIA_SEGMENT_PIPE_OFF + (1 + (size_t)index) * VIA_RECORD_LINE_BYTES + 56;
        break;
    case 2: /* ... or kind, or inline bytes */
        off = VIA_SEGMENT_PIPE_OFF + (1 + (size_t)index) * VIA_RECORD_LINE_BYTES;
        break;
    default:
        off = input_word(input) % (s->bytes - sizeof(word));
    }
    memcpy(s->peer + off, &word, sizeof(word));
}

static void leave(struct scene *s, uint32_t released, uint32_t skip)
{
    const struct via_meet_gather gather = {.memory = s->mirror + VIA_SEGMENT_PIPE_OFF,
                                           .mirrored = s->mirrored,
                                           .fetch = fetch,
                                           .ctx = s};
    struct via_stream_replay replay;
    const void *data;
    size_t bytes, sum = 0;
    uint32_t under_way = via_pipe_writer_outstanding(&s->tx.pipe);
    via_stream_tx_note_left(&s->tx, released);
    require(via_pipe_writer_outstanding(&s->tx.pipe) <= under_way);
    if (via_meet_gather(&gather, &s->tx.pipe) != 0) {
        return;
    }
    via_stream_replay_begin(&replay, &s->tx, skip);
    while ((bytes = via_stream_replay_next(&replay, &data)) != 0) {
        const unsigned char *from = data;
        unsigned char last;
        require(bytes <= via_max(s->geometry.body_bytes_max, 64u));
        memcpy(&last, from + bytes - 1, 1);
        sum += bytes;
        via_stream_replay_sent(&replay, bytes);
    }
    /* The peer loses records whose length it has increased itself, but there must not be more
     * records than before. */
    require(sum <= (uint64_t)under_way * via_max(s->geometry.body_bytes_max, 64u));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct scene s = {.sent = 0};
    struct via_fabric_hello line, hello;
    unsigned options = input_byte(&input);
    if ((options & OPTION_NOTE) != 0) {
        take_note(&input, options);
        return 0;
    }
    if (!take_offer(&s, &input, options)) {
        return 0;
    }
    input_take(&input, &line, sizeof(line));
    if (via_meet_take_hello(&line, HOST, s.bytes, &hello)) {
        require(hello.host == HOST && hello.segment_bytes == s.bytes);
    }
    attach(&s);
    uint64_t flags = input_word(&input);
    for (unsigned i = 0; i < STEPS_MAX && input.bytes != 0; i++) {
        if ((input_byte(&input) & 3) != 0) {
            write_some(&s, &input);
        } else {
            lie(&s, &input);
        }
    }
    leave(&s, VIA_FLAGS_LEFT_RELEASED(flags), VIA_FLAGS_LEFT_SKIP(flags));
    detach(&s);
    return 0;
}
