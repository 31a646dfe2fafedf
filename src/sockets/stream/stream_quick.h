/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_QUICK_H
#define VIA_SOCKETS_STREAM_QUICK_H

#include <string.h>

#include "base/types.h"
#include "core/pipe_inline.h"
#include "sockets/process/os.h"
#include "sockets/stream/stream.h"

/*
 * The common case, inline: a message that fits in one record is written if there is room, and whole
 * DATA records are read if they are next. The effect is that of via_stream_tx_write() and
 * via_stream_rx_read(). In any other case these functions do nothing, and the caller must call
 * those two.
 *
 * Only within one machine: between hosts the carrier must begin and end each record (carrier.h).
 */

/* Slots that DATA, SWITCH and AVAIL leave free, so that DEMOTE and FIN always have room. */
#define VIA_STREAM_RESERVED_SLOTS 2u

/* Shifts ticks to the place of via_stream_head.written in the first bytes of a record, as a
 * number. */
#define VIA_STREAM_WRITTEN_SHIFT 20
#define VIA_STREAM_FIXED_MASK UINT64_C(0xffffff) /* the other bits of those bytes */

/* Copies 1 byte or more. For few bytes, calling the C library's memcpy() costs more than the
 * copying. */
static inline void via_stream_copy(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes > 64) {
        memcpy(to, from, bytes);
    } else if (bytes >= 16) {
        memcpy(to, from, 16);
        if (bytes > 32) {
            memcpy(to + 16, from + 16, 16);
            memcpy(to + bytes - 32, from + bytes - 32, 16);
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

/* Counts bytes that were put into the pipe. */
static inline void via_stream_tx_count(struct via_stream_tx *tx, size_t bytes)
{
    uint64_t before = atomic_load_explicit(&tx->pipe_bytes, memory_order_relaxed);
    atomic_store_explicit(&tx->pipe_bytes, before + bytes, memory_order_relaxed);
}

/* Counts bytes that were read. The writer loads this number only after the reader's end, be it by
 * exit or by a signal: the reader's stores are visible by then. */
static inline void via_stream_rx_count(struct via_stream_rx *rx, size_t bytes)
{
    rx->pipe_bytes += bytes;
    if (via_likely(rx->read != NULL)) {
        atomic_store_explicit(rx->read, rx->pipe_bytes, memory_order_relaxed);
    }
}

/* By number of the epoll set, modulo VIA_STREAM_SETS: the stream of that set to which this thread
 * has written last. */
#define VIA_STREAM_SETS 32u
extern __thread const struct via_stream_tx *via_stream_last[VIA_STREAM_SETS]
    __attribute__((tls_model("initial-exec")));

/* The entry of the reader's set; NULL: the reader does not request time stamps. */
static inline const struct via_stream_tx **via_stream_last_of(const struct via_stream_tx *tx)
{
    uint64_t set = tx->times != NULL ? atomic_load_explicit(tx->times, memory_order_relaxed) : 0;
    return set != 0 ? &via_stream_last[set % VIA_STREAM_SETS] : NULL;
}

/* The first bytes of a record that is written now. Reading the clock costs a tenth of a round trip,
 * so only a reader that requests the time gets it. */
static inline uint64_t via_stream_fixed(const struct via_stream_tx *tx, uint8_t kind,
                                        uint8_t inline_bytes, uint8_t flags)
{
    uint64_t fixed = kind | (uint64_t)inline_bytes << 8 | (uint64_t)flags << 16;
    const struct via_stream_tx **last = via_stream_last_of(tx);
    if (last != NULL) {
        fixed |= *last != tx ? (uint64_t)VIA_STREAM_OTHERS << 16 : 0;
        fixed |= via_os_ticks() << VIA_STREAM_WRITTEN_SHIFT & ~VIA_STREAM_FIXED_MASK;
    }
    return fixed;
}

/* Records that this stream is the last one to which this thread has written. */
static inline void via_stream_note_write(const struct via_stream_tx *tx)
{
    const struct via_stream_tx **last = via_stream_last_of(tx);
    if (last != NULL) {
        *last = tx;
    }
}

/* Writes one message as one record. False: nothing has been done. */
static inline bool via_stream_tx_write_quick(struct via_stream_tx *tx, const void *data,
                                             size_t bytes)
{
    struct via_pipe_writer *pipe = &tx->pipe;
    uint32_t slots = pipe->geometry.slots_count;
    uint32_t data_head = pipe->data_head;
    if (bytes - 1 >= pipe->geometry.body_bytes_max || tx->span != VIA_SPAN_PIPE || tx->ended ||
        pipe->broken || pipe->sequence - pipe->released + VIA_STREAM_RESERVED_SLOTS >= slots) {
        return false;
    }
    struct via_stream_head *head = via_pipe_line(pipe);
    bool in_head = bytes <= VIA_STREAM_INLINE_BYTES_MAX;
    void *to = in_head ? head->u.data : via_pipe_line_body(pipe, (uint32_t)bytes, &data_head);
    if (to == NULL) {
        return false;
    }
    via_stream_copy(to, data, bytes);
    uint64_t fixed = via_stream_fixed(tx, VIA_STREAM_DATA, in_head ? (uint8_t)bytes : 0, 0);
    memcpy(head, &fixed, VIA_STREAM_HEAD_FIXED_BYTES);
    via_pipe_commit_line(pipe, in_head ? 0 : (uint32_t)bytes, data_head);
    via_stream_note_write(tx);
    via_stream_tx_count(tx, bytes);
    return true;
}

/* True if the next records can be read by the inline functions, provided that they are DATA. */
static inline bool via_stream_rx_is_quick(const struct via_stream_rx *rx)
{
    return !rx->held && rx->span == VIA_SPAN_PIPE && !rx->ended && !rx->broken && !rx->avail.held;
}

/* If the record at `at` is DATA with 1..room bytes, returns these bytes and moves `at` to the next
 * record; else returns NULL. */
static inline const void *via_stream_rx_record(const struct via_stream_rx *rx,
                                               struct via_pipe_at *at, size_t room,
                                               uint32_t *ret_bytes, uint32_t *ret_body_bytes)
{
    const struct via_stream_head *head = via_pipe_line_at(&rx->pipe, at, ret_body_bytes);
    if (head == NULL) {
        return NULL;
    }
    uint64_t fixed; /* loaded once and then checked, because the peer may change it meanwhile */
    memcpy(&fixed, head, sizeof(fixed));
    __asm__ volatile("" : "+r"(fixed));
    uint32_t inline_bytes = (uint32_t)(fixed >> 8) & 0xff;
    uint32_t bytes = *ret_body_bytes != 0 ? *ret_body_bytes : inline_bytes;
    if ((fixed & 0xff) != VIA_STREAM_DATA || bytes == 0 || bytes > room ||
        (*ret_body_bytes == 0 && bytes > VIA_STREAM_INLINE_BYTES_MAX)) {
        return NULL;
    }
    const void *data =
        *ret_body_bytes != 0 ? via_pipe_body_at(&rx->pipe, at, *ret_body_bytes) : head->u.data;
    *ret_bytes = bytes;
    at->sequence++;
    return data;
}

/* Reads the time stamp of the record `sequence`. False: the record has not arrived, or has no time
 * stamp. The time is the writer's claim, so it may be anything. *ret_others is set if the record
 * has VIA_STREAM_OTHERS. */
static inline bool via_stream_rx_read_time(const struct via_stream_rx *rx, uint32_t sequence,
                                           uint64_t now, uint64_t *ret_ticks, bool *ret_others)
{
    struct via_pipe_at at = {.sequence = sequence};
    uint32_t body_bytes;
    const void *head = via_pipe_line_at(&rx->pipe, &at, &body_bytes);
    uint64_t fixed;
    if (head == NULL) {
        return false;
    }
    memcpy(&fixed, head, sizeof(fixed));
    *ret_others |= (fixed >> 16 & VIA_STREAM_OTHERS) != 0;
    fixed &= ~VIA_STREAM_FIXED_MASK;
    /* The stamp has only the low bits of the counter; the time is assumed to be recent. */
    int64_t ago = (int64_t)((now << VIA_STREAM_WRITTEN_SHIFT) - fixed);
    *ret_ticks = now - (uint64_t)(ago >> VIA_STREAM_WRITTEN_SHIFT);
    return fixed != 0;
}

/* True if the inline functions can read the next record. */
static inline bool via_stream_rx_has_quick(const struct via_stream_rx *rx)
{
    struct via_pipe_at at = via_pipe_at_next(&rx->pipe);
    uint32_t bytes;
    uint32_t body_bytes;
    return via_stream_rx_is_quick(rx) &&
           via_stream_rx_record(rx, &at, SIZE_MAX, &bytes, &body_bytes) != NULL;
}

/* Releases all records before `at`, whose bodies have body_bytes in total. Posts credit as
 * release() in stream_rx.c does. */
static inline void via_stream_rx_release_to(struct via_stream_rx *rx, const struct via_pipe_at *at,
                                            uint32_t body_bytes)
{
    bool posted = via_pipe_release_to(&rx->pipe, at);
    rx->unposted_bytes += body_bytes;
    if (!posted && body_bytes != 0 && rx->unposted_bytes >= rx->pipe.geometry.data_bytes / 4) {
        via_pipe_post_credit(&rx->pipe);
        posted = true;
    }
    if (via_unlikely(posted)) {
        rx->unposted_bytes = 0;
        rx->posted = true;
    }
}

/* Reads as many whole records as fit into `room`; exactly: only if they fill it. Returns the number
 * of bytes; 0: nothing was consumed. */
static inline size_t via_stream_rx_quick(struct via_stream_rx *rx, unsigned char *to, size_t room,
                                         bool exactly)
{
    struct via_pipe_at at = via_pipe_at_next(&rx->pipe);
    uint32_t slots = rx->pipe.geometry.slots_count;
    uint32_t first = at.sequence;
    const void *data;
    size_t total = 0;
    uint32_t bytes;
    uint32_t body_bytes;
    uint32_t all_body_bytes = 0;
    if (!via_stream_rx_is_quick(rx)) {
        return 0;
    }
    /* At most a quarter of the ring in one call: so the writer gets credit at the same records as
     * from via_stream_rx_read(). Larger batches would hold back up to a quarter more. */
    while ((at.sequence - first) * 4 <= slots &&
           rx->unposted_bytes + all_body_bytes < rx->pipe.geometry.data_bytes / 4 &&
           (data = via_stream_rx_record(rx, &at, room - total, &bytes, &body_bytes)) != NULL) {
        via_stream_copy(to + total, data, bytes);
        total += bytes;
        all_body_bytes += body_bytes;
    }
    if (total == 0 || (exactly && total != room)) {
        return 0;
    }
    via_stream_rx_count(rx, total);
    via_stream_rx_release_to(rx, &at, all_body_bytes);
    return total;
}

#endif
