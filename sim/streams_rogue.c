/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Connections with an end that writes garbage into all memory that its peer lets it write. */
#include <string.h>

#include "base/types.h"
#include "sim/streams_internal.h"

#define ROGUE_TURNS 200u

/* The memory that it may write: the outgoing pipe, and the credits of the incoming one. */
static void write_garbage(struct streams *streams, struct end *end)
{
    struct direction *way = end->out;
    size_t words = via_pipe_memory_bytes(&way->geometry) / 8;
    for (uint64_t n = between(streams, 1, 20); n > 0; n--) {
        uint64_t word = via_rng_next(&streams->rng);
        size_t at = via_rng_below(&streams->rng, words);
        if (via_rng_chance(&streams->rng, 1, 2)) {
            /* A record that looks valid, followed by noise. */
            struct via_stream_head head;
            uint32_t sequence = way->rx.pipe.sequence;
            at = 8 * (size_t)(1 + (sequence & (way->geometry.slots_count - 1)));
            memcpy(&head, way->memory + at * 8, sizeof(head));
            head.kind = (uint8_t)between(streams, 0, 8);
            head.inline_bytes = (uint8_t)between(streams, 0, 60);
            head.u.count = between(streams, 0, 3);
            memcpy(way->memory + at * 8, &head, sizeof(head));
            at += 7;
            uint32_t length = via_rng_chance(&streams->rng, 1, 2) ? 0 : (uint32_t)word & 0xffff;
            word = via_record_word(EPOCH, (uint16_t)length, sequence);
        }
        memcpy(way->memory + at * 8, &word, sizeof(word));
    }
    if (via_rng_chance(&streams->rng, 1, 4)) {
        end->in->at_writer.pulled = via_rng_next(&streams->rng);
        end->in->at_writer.sink = 1;
        end->out->at_reader.revoked = via_rng_next(&streams->rng);
        end->in->credit = via_credit_word(EPOCH, (uint16_t)via_rng_next(&streams->rng),
                                          (uint32_t)via_rng_next(&streams->rng));
    }
}

/* The victim: it goes on without harm, whatever it reads. */
static void suffer(struct streams *streams, struct end *end)
{
    struct direction *in = end->in;
    struct direction *out = end->out;
    if (in->rx.broken && via_rng_chance(&streams->rng, 1, 2)) {
        sim_streams_reader_init(streams, in); /* the next connection */
    }
    struct iovec iov = {streams->chunk, between(streams, 1, CHUNK_MAX)};
    struct via_iov cursor;
    bool kernel;
    int next = via_stream_rx_next(&in->rx);
    if (next == VIA_NEXT_KERNEL_UNTIL) {
        next = via_stream_rx_kernel_total(&in->rx, via_min(in->rx.switch_at, in->kernel_read));
    }
    if (via_iov_init(&cursor, &iov, 1) == 0 && next == VIA_NEXT_DATA) {
        (void)via_stream_rx_peek(&in->rx, &cursor, &kernel);
        (void)via_iov_init(&cursor, &iov, 1);
        (void)via_stream_rx_read(&in->rx, &cursor);
    }
    if (next == VIA_NEXT_AVAIL && via_stream_rx_claim(&in->rx) == 0) {
        via_stream_rx_pulled(&in->rx, via_min(in->rx.avail.bytes - in->rx.avail.done,
                                              between(streams, 0, CHUNK_MAX)));
    }
    via_stream_rx_sink(&in->rx, CHUNK_MAX);
    (void)via_stream_rx_is_ending(&in->rx);
    (void)via_stream_rx_must_ring(&in->rx);
    uint64_t fetched;
    if (out->tx.avail.open && via_stream_tx_avail_state(&out->tx, &fetched) == VIA_AVAIL_ENDED) {
        via_stream_tx_avail_end(&out->tx);
    } else if (out->tx.avail.open) {
        via_stream_tx_avail_revoke(&out->tx);
    } else if (out->tx.span == VIA_SPAN_PIPE && via_rng_chance(&streams->rng, 1, 4)) {
        (void)via_stream_tx_avail(&out->tx, 0, 1000);
    } else if (out->tx.span == VIA_SPAN_KERNEL) {
        (void)via_stream_tx_switch(&out->tx, 0);
    }
    if (out->tx.span == VIA_SPAN_PIPE && !out->tx.ended && via_iov_init(&cursor, &iov, 1) == 0) {
        (void)via_stream_tx_write(&out->tx, &cursor);
        (void)via_pipe_must_ring(&out->tx.pipe);
    }
    (void)via_stream_tx_is_writable(&out->tx);
}

bool sim_streams_rogue_turn(struct streams *streams, struct connection *connection, struct end *end)
{
    if (end->rogue_turns++ > ROGUE_TURNS) {
        return false;
    }
    if (end->rogue) {
        write_garbage(streams, end);
    } else {
        suffer(streams, end);
    }
    connection->directions[0].ended = connection->directions[1].ended = true;
    return true;
}
