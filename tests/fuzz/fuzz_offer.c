/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Offers of pipes by a peer, and its writes into the pipes: no input may make this end access
 * memory outside the pipes, or loop forever.
 *
 * Input: a byte of options, the message, then the contents of the memory it describes.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sockets/conn/side.h"
#include "sockets/meet/stream_offer.h"
#include "sockets/stream/stream_quick.h"
#include "sockets/stream/stream_replay.h"
#include "tests/fuzz/input.h"

#define OPTION_WELL_FORMED 0x01u /* so that more inputs pass the check */
#define OPTION_WRITE 0x02u
#define SEGMENT_BYTES_MAX (256u * 1024)
#define STEPS 600

/* A reader of this memory, as instructed by another process. */
static void read_all(const struct via_offer *offer, unsigned char *memory)
{
    static struct via_avail_words own, peer;
    static unsigned char buffer[4096];
    uint64_t credit[2] = {0, 0};
    struct via_stream_rx rx;
    struct via_pipe_target back = {.direct = (unsigned char *)credit};
    via_pipe_reader_init(&rx.pipe, &offer->geometry, memory + VIA_SEGMENT_PIPE_OFF, &back, 1);
    via_stream_rx_init(&rx);
    via_stream_rx_allow_avail(&rx, &own, &peer);
    via_stream_rx_sink(&rx, 1u << 20);
    for (int i = 0; i < STEPS; i++) {
        struct iovec iov = {buffer, 1 + (size_t)i % sizeof(buffer)};
        struct via_iov cursor;
        require(via_iov_init(&cursor, &iov, 1) == 0);
        via_stream_rx_bytes(&rx, 1u << 20);
        via_stream_rx_is_ending(&rx);
        if (i % 3 == 0) { /* the inline path takes a part, and leaves the rest unchanged */
            via_stream_rx_has_quick(&rx);
            require(via_stream_rx_quick(&rx, buffer, iov.iov_len, i % 2 == 0) <= iov.iov_len);
        }
        int next = via_stream_rx_next(&rx);
        if (next == VIA_NEXT_KERNEL_UNTIL) {
            via_stream_rx_kernel_total(&rx, (uint64_t)i % 2 * rx.switch_at);
        } else if (next == VIA_NEXT_AVAIL) {
            require(rx.avail.bytes - rx.avail.done <= VIA_AVAIL_BYTES_MAX);
            if (via_stream_rx_claim(&rx) == 0) {
                via_stream_rx_pulled(&rx, rx.avail.bytes - rx.avail.done);
            }
        } else if (next == VIA_NEXT_DATA) {
            require(via_stream_rx_read(&rx, &cursor) >= 0);
        } else if (next != VIA_NEXT_KERNEL) {
            break; /* end of file, no bytes, or permanently broken */
        }
    }
    require(via_stream_rx_leave(&rx) <= offer->geometry.body_bytes_max);
    require(!via_pipe_is_ready(&rx.pipe));
}

/* A writer that reads its credit from this memory, and has to repeat all bytes from some offset. */
static void write_all(const struct via_offer *offer, unsigned char *memory)
{
    static unsigned char buffer[3000];
    static uint32_t data_ends[VIA_RING_SLOTS_MAX];
    struct via_stream_tx tx;
    struct via_pipe_target out = {.direct = memory + VIA_SEGMENT_PIPE_OFF};
    const _Atomic uint64_t *credit = (const void *)(memory + VIA_SEGMENT_CREDIT_OFF);
    struct via_stream_replay replay;
    uint64_t skip;
    memcpy(&skip, memory + VIA_SEGMENT_FLAGS_OFF, sizeof(skip));
    via_pipe_writer_init(&tx.pipe, &offer->geometry, &out, credit, data_ends, 1);
    via_stream_tx_init(&tx);
    if (via_stream_tx_switch(&tx, 0) != 0) {
        return;
    }
    size_t written = 0;
    for (int i = 0; i < STEPS; i++) {
        struct iovec iov = {buffer, (size_t)i * 37 % sizeof(buffer) + 1};
        struct via_iov cursor;
        require(via_iov_init(&cursor, &iov, 1) == 0);
        bool quick = i % 3 == 0 && via_stream_tx_write_quick(&tx, buffer, iov.iov_len);
        ssize_t n = quick ? (ssize_t)iov.iov_len : via_stream_tx_write(&tx, &cursor);
        require(n > 0 || n == -EAGAIN || n == -EPROTO);
        written += n > 0 ? (size_t)n : 0;
    }
    via_stream_replay_begin(&replay, &tx, (uint32_t)skip);
    const void *data;
    size_t bytes, sum = 0;
    while ((bytes = via_stream_replay_next(&replay, &data)) != 0) {
        require(bytes <= offer->geometry.body_bytes_max);
        sum += bytes;
        via_stream_replay_sent(&replay, bytes);
    }
    require(sum <= written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct via_offer offer;
    unsigned char message[sizeof(offer)];
    unsigned options = bytes > 0 ? data[0] : 0;
    if (bytes < 1 + sizeof(message)) {
        require(via_offer_parse(data, bytes, &offer) == -EPROTO || bytes == sizeof(offer));
        return 0;
    }
    memcpy(message, data + 1, sizeof(message));
    data += 1 + sizeof(message);
    bytes -= 1 + sizeof(message);
    if ((options & OPTION_WELL_FORMED) != 0) {
        struct via_offer *shaped = &offer;
        memcpy(shaped, message, sizeof(*shaped));
        shaped->magic = VIA_RENDEZVOUS_MAGIC;
        shaped->version = VIA_RENDEZVOUS_VERSION;
        shaped->geometry.slots_count = 4u << shaped->geometry.slots_count % 7;
        shaped->geometry.body_bytes_max = 64 * (1 + shaped->geometry.body_bytes_max % 16);
        shaped->geometry.data_bytes =
            2 * shaped->geometry.body_bytes_max + 64 * (shaped->geometry.data_bytes % 64);
        shaped->segment_bytes = via_segment_bytes_for(&shaped->geometry);
        memcpy(message, shaped, sizeof(message));
    }
    if (via_offer_parse(message, sizeof(message), &offer) != 0 ||
        !via_offer_is_sound(&offer, 2 * offer.segment_bytes) ||
        offer.segment_bytes > SEGMENT_BYTES_MAX) {
        return 0;
    }
    require(!via_offer_is_sound(&offer, 2 * offer.segment_bytes + 4096));
    unsigned char *memory = aligned_alloc(4096, offer.segment_bytes);
    require(memory != NULL);
    memset(memory, 0, offer.segment_bytes);
    memcpy(memory, data, via_min(bytes, (size_t)offer.segment_bytes));
    if ((options & OPTION_WRITE) != 0) {
        write_all(&offer, memory);
    } else {
        read_all(&offer, memory);
    }
    free(memory);
    return 0;
}
