/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_REPLAY_H
#define VIA_SOCKETS_STREAM_REPLAY_H

#include "sockets/stream/stream.h"

/*
 * How a reader leaves its pipe, for example because a process without this library will read the
 * connection. It stops at some byte, releases all records before the record with that byte,
 * publishes how many bytes of that record it has read, and never reads the pipe again. The writer
 * finds everything from that byte on in the reader's memory, resends it through the kernel, and
 * does not return to the pipe.
 *
 * Only within one machine: the writer reads the reader's memory.
 */

/* The reader's last step. Returns how many bytes it has read of the oldest record that is not
 * released; rx->pipe.released is the number of that record. */
uint32_t via_stream_rx_leave(struct via_stream_rx *rx);

/*
 * For a peer that can not resend. `left` is the reader's state before it left: true if the pipe has
 * bytes that this reader has not read. Handles control records, because the reader may have left
 * before it took SWITCH. If records are under way and via_stream_rx_is_ending() is false, more
 * bytes may come.
 */
bool via_stream_rx_has_left_bytes(struct via_stream_rx *left);

/* The reader has announced that it released all records before `released` and then left. The
 * announcement is checked against the records that were sent. Credits are ignored from now on: an
 * earlier one may still be on its way. */
void via_stream_tx_note_left(struct via_stream_tx *tx, uint32_t released);

/* The bytes of the pipe to resend. */
struct via_stream_replay {
    struct via_pipe_reader pipe; /* where the reader stopped; releases no records */
    struct via_pipe_record record;
    uint32_t left; /* records after the current one */
    uint32_t off;  /* next byte of the current record */
    uint32_t bytes;
    uint64_t sent; /* total bytes resent */
};

/* From now on the writer does not use the pipe any more, and is in a kernel span. `skip` is the
 * result of via_stream_rx_leave() at the peer, and is not trusted. */
void via_stream_replay_begin(struct via_stream_replay *replay, struct via_stream_tx *tx,
                             uint32_t skip);
/* Returns how many bytes to resend next, and where they are; 0: all are resent. */
size_t via_stream_replay_next(struct via_stream_replay *replay, const void **ret_data);
/* The caller has resent the first `bytes` bytes that via_stream_replay_next() returned. */
void via_stream_replay_sent(struct via_stream_replay *replay, size_t bytes);

#endif
