/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stream/stream_replay.h"

#include <string.h>

#include "base/mutant.h"
#include "base/types.h"
#include "core/pipe_inline.h"

/* No writer of this library writes this epoch (record.h), but a hostile peer may. So a reader that
 * has left reads a private pipe, which stays empty. */
#define NO_EPOCH UINT16_MAX
static _Alignas(VIA_RECORD_LINE_BYTES) const
    unsigned char empty_pipe[VIA_PIPE_SLOTS_OFF + VIA_RECORD_LINE_BYTES];

uint32_t via_stream_rx_leave(struct via_stream_rx *rx)
{
    uint32_t skip = rx->held ? rx->record_off : 0;
    if (rx->avail.held) {
        via_stream_rx_refuse(rx);
    }
    via_pipe_post_credit(&rx->pipe);
    rx->held = false;
    rx->span = VIA_SPAN_KERNEL;
    rx->pipe.epoch = NO_EPOCH;
    rx->pipe.memory = empty_pipe;
    rx->pipe.geometry.slots_count = 1;
    return skip;
}

bool via_stream_rx_has_left_bytes(struct via_stream_rx *left)
{
    int next = via_stream_rx_next(left);
    return via_stream_rx_bytes(left, 1) != 0 ||
           (next == VIA_NEXT_KERNEL_UNTIL && via_pipe_is_ready(&left->pipe));
}

void via_stream_tx_note_left(struct via_stream_tx *tx, uint32_t released)
{
    struct via_pipe_writer *writer = &tx->pipe;
    uint32_t fresh = released - writer->released;
    if (fresh != 0 && (fresh <= via_pipe_writer_outstanding(writer) || VIA_MUTANT(MEET_LEFT))) {
        writer->released = released;
        writer->data_tail = writer->data_ends[(released - 1) & (writer->geometry.slots_count - 1)];
    }
}

void via_stream_replay_begin(struct via_stream_replay *replay, struct via_stream_tx *tx,
                             uint32_t skip)
{
    *replay = (struct via_stream_replay){
        .pipe = {.memory = tx->pipe.target.direct,
                 .geometry = tx->pipe.geometry,
                 .sequence = tx->pipe.released,
                 .data_head = tx->pipe.data_tail,
                 .epoch = tx->pipe.epoch},
        .left = via_pipe_writer_outstanding(&tx->pipe),
        .off = skip,
    };
    tx->span = VIA_SPAN_KERNEL;
}

/* Takes the next record that has bytes to send; false: there is none. */
static bool next_record(struct via_stream_replay *replay)
{
    while (replay->left > 0) {
        struct via_stream_head head;
        replay->left--;
        /* The record lies in the reader's memory. If it is invalid, the reader has overwritten it,
         * and loses the rest. */
        if (via_pipe_take(&replay->pipe, &replay->record) != 1) {
            replay->left = 0;
            return false;
        }
        memcpy(&head, replay->record.head, sizeof(head));
        replay->bytes = 0;
        if (head.kind == VIA_STREAM_DATA) {
            replay->bytes = replay->record.body_bytes != 0
                                ? replay->record.body_bytes
                                : via_min((uint32_t)head.inline_bytes, VIA_STREAM_INLINE_BYTES_MAX);
        }
        if (replay->off < replay->bytes) {
            return true;
        }
        replay->off = 0;
    }
    return false;
}

size_t via_stream_replay_next(struct via_stream_replay *replay, const void **ret_data)
{
    if (replay->bytes == 0 || replay->off == replay->bytes) {
        if (replay->bytes != 0) {
            replay->off = 0;
        }
        if (!next_record(replay)) {
            replay->bytes = 0;
            return 0;
        }
    }
    const unsigned char *data = replay->record.body_bytes != 0
                                    ? replay->record.body
                                    : replay->record.head + VIA_STREAM_HEAD_FIXED_BYTES;
    *ret_data = data + replay->off;
    return replay->bytes - replay->off;
}

void via_stream_replay_sent(struct via_stream_replay *replay, size_t bytes)
{
    replay->off += (uint32_t)bytes;
    replay->sent += bytes;
}
