/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_REPLAY_H
#define VIA_SOCKETS_STREAM_REPLAY_H

#include "sockets/stream/stream.h"

/*
 * How a reader leaves its pipe. A reader whose bytes must come by the kernel from now on (because
 * another program will read them, for example) stops at some byte. It releases all records before
 * the record with that byte, publishes how many bytes of that record it has read, and never reads
 * the pipe again. The writer finds everything from that byte on in the reader's memory, sends it
 * once more through the kernel, and stays with the kernel.
 *
 * Only within one machine: the writer reads the reader's memory.
 */

/* The last step of the reader. Returns how many bytes of the oldest record that is not released
 * were read; rx->pipe.released is the number of that record. */
uint32_t via_stream_rx_leave(struct via_stream_rx *rx);

/*
 * The peer will send nothing again: may the reader, in the state before it left, have unread bytes
 * in the pipe? Handles control records: the reader may have left before it saw that the pipe is
 * used at all. More bytes may come if records are under way and via_stream_rx_is_ending() does not
 * hold.
 */
bool via_stream_rx_has_left_bytes(struct via_stream_rx *left);

/* The reader has announced that it released all records before `released` and then left. The
 * announcement is not trusted. Credits are ignored from now on: an earlier one may still be on its
 * way. */
void via_stream_tx_note_left(struct via_stream_tx *tx, uint32_t released);

/* Bytes of the pipe to send again. */
struct via_stream_replay {
    struct via_pipe_reader pipe; /* where the reader stopped; releases no records */
    struct via_pipe_record record;
    uint32_t left; /* records after the current one */
    uint32_t off;  /* next byte of the current record */
    uint32_t bytes;
    uint64_t sent; /* bytes sent, in all */
};

/* From now on the writer does not use the pipe any more, and is in a kernel span. `skip`: the
 * result of leave() at the other end, which is not trusted. */
void via_stream_replay_begin(struct via_stream_replay *replay, struct via_stream_tx *tx,
                             uint32_t skip);
/* Returns how many bytes come next, 0 when none are left. */
size_t via_stream_replay_next(struct via_stream_replay *replay, const void **ret_data);
/* `bytes` of the bytes that next() returned have been sent. */
void via_stream_replay_sent(struct via_stream_replay *replay, size_t bytes);

#endif
