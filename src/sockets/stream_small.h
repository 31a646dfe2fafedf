/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_SMALL_H
#define VIA_SOCKETS_STREAM_SMALL_H

#include <string.h>

#include "base/types.h"
#include "sockets/stream.h"

/*
 * The common case, inline: a message that fits in one line, written where there is room and read
 * whole where it is next. What these do is what via_stream_tx_write() and via_stream_rx_read() do;
 * where anything is unusual they do nothing, and those are to be called.
 *
 * Only where nobody wants to see the records elsewhere: within one machine.
 */

/* Slots that data leaves free, so that DEMOTE and FIN never have to wait. */
#define VIA_STREAM_RESERVED_SLOTS 2u

/* 1..48 bytes. The C library's memcpy() costs more than the copying. */
static inline void via_stream_copy_small(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes >= 16) {
        memcpy(to, from, 16);
        if (bytes > 32) {
            memcpy(to + 16, from + 16, 16);
        }
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        to[0] = from[0];
        to[bytes / 2] = from[bytes / 2];
        to[bytes - 1] = from[bytes - 1];
    }
}

/* One message as one record. false: nothing has been done. */
static inline bool via_stream_tx_small(struct via_stream_tx *tx, const void *data, size_t bytes)
{
    struct via_pipe_writer *pipe = &tx->pipe;
    uint32_t slots = pipe->geometry.slots_count;
    if (bytes - 1 >= VIA_STREAM_INLINE_BYTES_MAX || tx->span != VIA_SPAN_PIPE || tx->ended ||
        pipe->broken || via_pipe_writer_outstanding(pipe) + VIA_STREAM_RESERVED_SLOTS >= slots) {
        return false;
    }
    struct via_stream_head *head = via_pipe_line(pipe);
    uint64_t fixed = VIA_STREAM_DATA | (uint64_t)bytes << 8;
    memcpy(head, &fixed, VIA_STREAM_HEAD_FIXED_BYTES);
    via_stream_copy_small(head->u.data, data, bytes);
    via_pipe_commit_line(pipe);
    tx->pipe_bytes += bytes;
    return true;
}

/* The next record's head when it is there and is DATA with 1..48 bytes, *ret_bytes; else NULL. */
static inline const struct via_stream_head *via_stream_rx_next_small(const struct via_stream_rx *rx,
                                                                     size_t *ret_bytes)
{
    const struct via_stream_head *head = via_pipe_next_line(&rx->pipe);
    if (head == NULL || rx->held || rx->span != VIA_SPAN_PIPE || rx->ended || rx->broken ||
        rx->avail.held) {
        return NULL;
    }
    uint64_t fixed; /* the peer may change it meanwhile: loaded once, then checked */
    memcpy(&fixed, head, sizeof(fixed));
    __asm__ volatile("" : "+r"(fixed));
    size_t bytes = (fixed >> 8) & 0xff;
    *ret_bytes = bytes;
    return (fixed & 0xff) == VIA_STREAM_DATA && bytes - 1 < VIA_STREAM_INLINE_BYTES_MAX ? head
                                                                                        : NULL;
}

/* The next record's bytes, if it has at most `room`, or exactly that many. 0: nothing has been
 * done. */
static inline size_t via_stream_rx_small(struct via_stream_rx *rx, void *data, size_t room,
                                         bool exactly)
{
    size_t bytes;
    const struct via_stream_head *head = via_stream_rx_next_small(rx, &bytes);
    if (head == NULL || bytes > room || (exactly && bytes != room)) {
        return 0;
    }
    via_stream_copy_small(data, head->u.data, bytes);
    rx->pipe_bytes += bytes;
    if (via_pipe_release_line(&rx->pipe)) {
        rx->unposted_bytes = 0;
        rx->posted = true;
    }
    return bytes;
}

#endif
