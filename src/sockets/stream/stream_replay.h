/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_REPLAY_H
#define VIA_SOCKETS_STREAM_REPLAY_H

#include "sockets/stream/stream.h"

/*
 * Leaving the pipe from its reading end. A reader whose bytes must come from the kernel from now on
 * (another program will read them, say) stops at some byte in the middle of what was written. It
 * gives back all records before that one and publishes how many bytes of that one it has read;
 * after that it never reads the pipe again. The writer finds everything from that byte on still in
 * the reader's memory, sends it once more through the kernel, and stays there.
 *
 * Only within one machine: the writer reads the reader's memory.
 */

/* The reader's last act. How many bytes of the oldest record that is not given back were read;
 * rx->pipe.released says which that is. */
uint32_t via_stream_rx_leave(struct via_stream_rx *rx);

/*
 * Its peer will send nothing again: may the reader, in its state before it left, have unread bytes
 * in the pipe? Handles control records: it may have left before it saw that the pipe is used at
 * all. More may come if records are under way and via_stream_rx_is_ending() does not hold.
 */
bool via_stream_rx_left_bytes(struct via_stream_rx *left);

/* The reader has announced that it gave back all before `released` and then left. The announcement
 * is not trusted. Credits are ignored from now on: an earlier one may still be on its way. */
void via_stream_tx_left(struct via_stream_tx *tx, uint32_t released);

/* Bytes of the pipe to send again. */
struct via_stream_replay {
    struct via_pipe_reader pipe; /* where the reader stopped; gives nothing back */
    struct via_pipe_record record;
    uint32_t left; /* records after the one at hand */
    uint32_t off;  /* next byte of the record at hand */
    uint32_t bytes;
    uint64_t sent; /* in all */
};

/* After that the writer does not use the pipe any more, and is in a kernel span. `skip`: the result
 * of leave() at the other end, which is not trusted. */
void via_stream_replay_begin(struct via_stream_replay *replay, struct via_stream_tx *tx,
                             uint32_t skip);
/* The next bytes: how many, 0 when there are none left. */
size_t via_stream_replay_next(struct via_stream_replay *replay, const void **ret_data);
/* So many of them have been sent. */
void via_stream_replay_sent(struct via_stream_replay *replay, size_t bytes);

#endif
