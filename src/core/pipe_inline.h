/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_PIPE_INLINE_H
#define VIA_CORE_PIPE_INLINE_H

#include "base/types.h"
#include "core/pipe.h"

/* --- the arithmetic of bodies ------------------------------------------------------------------
 *
 * Data positions count bytes since the start, modulo 2 * data_bytes so that full and empty differ.
 * A body lies in one piece: when it does not fit before the end, the rest of the lap is skipped.
 * Writer and reader compute the same from the lengths alone.
 */

static inline size_t via_pipe_data_off(const struct via_pipe_geometry *geometry)
{
    return VIA_PIPE_SLOTS_OFF + (size_t)geometry->slots_count * VIA_RECORD_LINE_BYTES;
}

static inline uint32_t via_pipe_body_span(size_t body_bytes)
{
    return ((uint32_t)body_bytes + VIA_RECORD_LINE_BYTES - 1) & ~(VIA_RECORD_LINE_BYTES - 1);
}

static inline uint32_t via_pipe_data_offset(const struct via_pipe_geometry *geometry,
                                            uint32_t position)
{
    return position >= geometry->data_bytes ? position - geometry->data_bytes : position;
}

static inline uint32_t via_pipe_data_advance(const struct via_pipe_geometry *geometry,
                                             uint32_t position, uint32_t bytes)
{
    uint32_t sum = position + bytes;
    return sum >= 2 * geometry->data_bytes ? sum - 2 * geometry->data_bytes : sum;
}

/* Where a body of `span` bytes starts when the next free position is `position`. */
static inline uint32_t via_pipe_data_place(const struct via_pipe_geometry *geometry,
                                           uint32_t position, uint32_t span)
{
    uint32_t off = via_pipe_data_offset(geometry, position);
    if (via_unlikely(off + span > geometry->data_bytes)) {
        return via_pipe_data_advance(geometry, position, geometry->data_bytes - off);
    }
    return position;
}

static inline uint32_t via_pipe_data_used(const struct via_pipe_geometry *geometry, uint32_t tail,
                                          uint32_t head)
{
    return head >= tail ? head - tail : head + 2 * geometry->data_bytes - tail;
}

/* True if a body of `span` bytes fits at `start`, by the credits loaded so far. */
static inline bool via_pipe_has_room_at(const struct via_pipe_writer *writer, uint32_t start,
                                        uint32_t span)
{
    const struct via_pipe_geometry *geometry = &writer->geometry;
    uint32_t skipped = via_pipe_data_used(geometry, writer->data_head, start);
    uint32_t used = via_pipe_data_used(geometry, writer->data_tail, writer->data_head);
    /* An empty ring always fits one body: skipped < span, and two spans are at most data_bytes. */
    return used + skipped + span <= geometry->data_bytes;
}

/* --- records, inline ---------------------------------------------------------------------------
 *
 * For callers that count instructions. Both ends are mapped for direct stores; the caller has
 * checked the conditions that each comment names, and calls the functions of pipe.h in all other
 * cases.
 */

/* The place of the next record's head. The caller has checked that a slot is free
 * (via_pipe_writer_outstanding), that the pipe is not broken and that no record is deferred. */
static inline void *via_pipe_line(const struct via_pipe_writer *writer)
{
    uint32_t index = writer->sequence & (writer->geometry.slots_count - 1);
    return writer->target.direct + VIA_PIPE_SLOTS_OFF + (size_t)index * VIA_RECORD_LINE_BYTES;
}

/* The place of the next record's body of 1..body_bytes_max bytes, and *ret_head, an argument of
 * via_pipe_commit_line(). NULL: there is no room, by the credits loaded so far. */
static inline void *via_pipe_line_body(const struct via_pipe_writer *writer, uint32_t body_bytes,
                                       uint32_t *ret_head)
{
    const struct via_pipe_geometry *geometry = &writer->geometry;
    uint32_t span = via_pipe_body_span(body_bytes);
    uint32_t start = via_pipe_data_place(geometry, writer->data_head, span);
    if (!via_pipe_has_room_at(writer, start, span)) {
        return NULL;
    }
    *ret_head = via_pipe_data_advance(geometry, start, span);
    return writer->target.direct + via_pipe_data_off(geometry) +
           via_pipe_data_offset(geometry, start);
}

/* Publishes the next record after the caller has stored its head and body. A record without a body
 * has head = writer->data_head. */
static inline void via_pipe_commit_line(struct via_pipe_writer *writer, uint32_t body_bytes,
                                        uint32_t head)
{
    struct via_record_line *line = (struct via_record_line *)via_pipe_line(writer);
    /* Pairs with the acquire in via_pipe_line_at(): a reader that loads the word also sees
     * head and body. */
    atomic_store_explicit((_Atomic uint64_t *)&line->word,
                          via_record_word(writer->epoch, (uint16_t)body_bytes, writer->sequence),
                          memory_order_release);
    writer->data_head = head;
    writer->data_ends[writer->sequence & (writer->geometry.slots_count - 1)] = head;
    writer->sequence++;
}

/* A position of the reader: the next record, or a later one while earlier ones are not taken. */
struct via_pipe_at {
    uint32_t sequence;
    uint32_t data_head;
};

static inline struct via_pipe_at via_pipe_at_next(const struct via_pipe_reader *reader)
{
    return (struct via_pipe_at){reader->sequence, reader->data_head};
}

/* The head of the record at `at`, in the pipe's memory, which the writer may change at any time,
 * and the size of its body. NULL: no record has arrived there, or its size violates the geometry.
 */
static inline const void *via_pipe_line_at(const struct via_pipe_reader *reader,
                                           const struct via_pipe_at *at, uint32_t *ret_body_bytes)
{
    const struct via_record_line *line = via_pipe_slot(reader, at->sequence);
    /* Pairs with the release in via_pipe_commit_line() and in post_line(). */
    uint64_t word =
        atomic_load_explicit((const _Atomic uint64_t *)&line->word, memory_order_acquire);
    uint32_t body_bytes = via_record_word_length(word);
    *ret_body_bytes = body_bytes;
    return word == via_record_word(reader->epoch, (uint16_t)body_bytes, at->sequence) &&
                   via_likely(body_bytes <= reader->geometry.body_bytes_max)
               ? line->head
               : NULL;
}

/* The body of the record at `at`, whose size is not 0; moves `at` past the body. */
static inline const void *via_pipe_body_at(const struct via_pipe_reader *reader,
                                           struct via_pipe_at *at, uint32_t body_bytes)
{
    const struct via_pipe_geometry *geometry = &reader->geometry;
    uint32_t span = via_pipe_body_span(body_bytes);
    uint32_t start = via_pipe_data_place(geometry, at->data_head, span);
    at->data_head = via_pipe_data_advance(geometry, start, span);
    return reader->memory + via_pipe_data_off(geometry) + via_pipe_data_offset(geometry, start);
}

/* Takes and releases all records before `at`. All records taken before this call are released
 * already. True: it posted a credit. */
static inline bool via_pipe_release_to(struct via_pipe_reader *reader, const struct via_pipe_at *at)
{
    reader->released += at->sequence - reader->sequence;
    reader->sequence = at->sequence;
    reader->data_head = at->data_head;
    reader->arm = 0; /* as in via_pipe_advance() */
    if (via_likely((reader->released - reader->posted) * 4 < reader->geometry.slots_count)) {
        return false;
    }
    via_pipe_post_credit(reader);
    return true;
}

#endif
