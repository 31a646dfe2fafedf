/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_PIPE_H
#define VIA_CORE_PIPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutant.h"
#include "wire/record.h"

/*
 * The pipe: one writer, one reader, memory at the reader, posted writes only.
 *
 * The writer posts records (wire/record.h) and a want word into the reader's memory and never reads
 * it. The reader posts one credit word into the writer's memory. Neither reads across the bridge.
 * The same code serves two threads, two processes of one machine, an emulated window and a real
 * one; what differs is the via_pipe_target through which posts leave.
 *
 * Nothing here blocks, allocates or takes a lock. A writer and a reader each belong to one thread
 * at a time.
 */

/* Sizes of a pipe; both ends must have the same. */
struct via_pipe_geometry {
    uint32_t slots_count;    /* power of two, 1..2^20 */
    uint32_t data_bytes;     /* multiple of 64; 0 (no bodies) or >= 2 * body_bytes_max */
    uint32_t body_bytes_max; /* multiple of 64, <= VIA_RECORD_BODY_BYTES_MAX */
};

/* 0, or -EINVAL when the rules above are broken. Use it on every geometry a peer names. */
int via_pipe_geometry_check(const struct via_pipe_geometry *geometry);

/* Bytes of reader's memory: one line for the want word, slots, then data. A multiple of 64. */
size_t via_pipe_memory_bytes(const struct via_pipe_geometry *geometry);

/*
 * The destination of posts: memory mapped for direct stores, or the functions of a port.
 * direct != NULL: posts are stores to `direct + off`. The reader must see stores in order, and an
 *   aligned 8-byte store whole (cache-coherent memory).
 * direct == NULL: body(ctx, queue, off, src, len) and commit(), which keep the rules of the
 *   functions of the same name in core/port.h: a record is a body, if it has one, and the commit of
 *   its line; words are commits. Offsets are `off` + the place in the pipe's memory.
 */
typedef void via_pipe_post(void *ctx, unsigned queue, uint64_t off, const void *src, size_t len);
struct via_pipe_target {
    unsigned char *direct;
    via_pipe_post *body, *commit;
    void *ctx;
    unsigned queue;
    uint64_t off; /* not used with direct */
};

struct via_pipe_writer {
    struct via_pipe_target target; /* the reader's pipe memory */
    struct via_pipe_geometry geometry;
    const _Atomic uint64_t *credit; /* in the writer's own memory; posted by the reader */
    uint32_t *data_ends; /* slots_count entries, borrowed: data position after each record */
    uint32_t sequence;   /* of the next record */
    uint32_t released;   /* last credit accepted */
    uint32_t data_head;  /* data position where the next body may start (bytes, wraps) */
    uint32_t data_tail;  /* data position up to which the reader has released */
    uint32_t deferred;   /* number of records before `sequence` with a place, but no line yet */
    uint16_t epoch;
    uint16_t arm_rung; /* arm generation for which the writer has already rung */
    uint16_t want;     /* want generation posted last, 0 = not waiting for credit */
    uint16_t want_next;
    uint32_t want_sequence; /* value of `released` when `want` was posted */
    bool broken;            /* the peer posted an invalid word: the writer accepts nothing more */
};

/*
 * Starts an empty pipe in `epoch` (1..0xfffe). All pointers are borrowed and must outlive the
 * writer. The credit cell may hold anything but a word of the same epoch.
 */
void via_pipe_writer_init(struct via_pipe_writer *writer, const struct via_pipe_geometry *geometry,
                          const struct via_pipe_target *target, const _Atomic uint64_t *credit,
                          uint32_t *data_ends, uint16_t epoch);

/*
 * Counts records from `sequence` instead of 0, and generations from its low half: tests cross the
 * wraps early in this way. Right after init; the other end does the same.
 */
void via_pipe_writer_start_at(struct via_pipe_writer *writer, uint32_t sequence);

/* Number of records that may be written now, after a fresh load of the credit word; ignores the
 * room for bodies. */
uint32_t via_pipe_writer_room(struct via_pipe_writer *writer);

/* True if the reader has returned credit for all records before `sequence`, by a fresh load of the
 * credit word. Changes nothing, so a thread that may not use the writer may ask. The peer writes
 * the word: this function does not check it. */
bool via_pipe_writer_is_released(const struct via_pipe_writer *writer, uint32_t sequence);

/* Bytes of bodies written and not released, after a fresh load of the credit word. Includes bodies
 * that the reader has released without posting the credit yet. */
uint32_t via_pipe_writer_data_bytes(struct via_pipe_writer *writer);

/* True if a record with a body of this size can be written now. */
bool via_pipe_writer_has_place(struct via_pipe_writer *writer, size_t body_bytes);

/*
 * Writes one record: head_bytes (0..56) of head, the rest of the head is unspecified, and the body.
 * 0, -EAGAIN (no credit), -EMSGSIZE (body over body_bytes_max), -EINVAL (head), -EPROTO (broken).
 */
int via_pipe_send(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                  const void *body, size_t body_bytes);

/*
 * The same in two steps, to build the body in place: reserve gives a pointer into the reader's
 * memory (only when target.direct != NULL, else -ENOTSUP); commit publishes it, with the body_bytes
 * that were reserved. Same errors as via_pipe_send. A reserve that is not committed costs nothing.
 */
int via_pipe_reserve(struct via_pipe_writer *writer, size_t body_bytes, void **ret_body);
int via_pipe_commit(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                    size_t body_bytes);

/*
 * A record whose body a DMA engine writes: defer reserves its slot and the place of its body,
 * *ret_off in the target (the offset that body() would get; also for a direct target). The reader
 * does not see the record yet. publish posts the line of the oldest deferred record after its body
 * has been written: lines are posted in the order of the records. While records are deferred, all
 * later ones must be deferred, too. Same errors as via_pipe_send; publish can not fail.
 */
int via_pipe_defer(struct via_pipe_writer *writer, size_t body_bytes, uint64_t *ret_off);
void via_pipe_publish(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                      size_t body_bytes);
/* Writes the body of a deferred record without DMA, to the offset from defer. */
void via_pipe_put_body(struct via_pipe_writer *writer, uint64_t off, const void *body,
                       size_t body_bytes);

/*
 * After one or more sends: true if the writer must ring the reader's doorbell, at most once per arm
 * generation. Contains the full fence that pairs with the fence in via_pipe_arm() (writer: store
 * record, fence, load armed; reader: store armed, fence, load record: at least one of them loads
 * the other's store). For a port that is not coherent the caller flushes first; see
 * docs/protocol.md.
 */
bool via_pipe_take_reader_ring(struct via_pipe_writer *writer);

/*
 * A hint without a fence: does the reader sleep, without a ring so far? May be wrong in both
 * directions; the caller must call via_pipe_take_reader_ring() in any case, which decides.
 */
bool via_pipe_reader_is_asleep(const struct via_pipe_writer *writer);

/*
 * Before sleeping because there is no room: posts "want" (once per generation), then a full fence;
 * true if anything was posted. The caller waits for a fence of the port, as after via_pipe_arm(),
 * calls via_pipe_writer_room() or _has_place() again, and only then sleeps. The reader rings when
 * it posts the next credit (via_pipe_take_writer_ring).
 */
bool via_pipe_request_room(struct via_pipe_writer *writer);

/*
 * True if credits arrived since the writer last requested room. The doorbell for them may have rung
 * already, for another thread or before the writer slept. A writer that checks right before it
 * sleeps, and finds too little room, repeats the request and checks again.
 */
static inline bool via_pipe_want_is_old(const struct via_pipe_writer *writer)
{
    return writer->want != 0 && writer->want_sequence != writer->released;
}

/* Records sent or deferred and not yet released, by the last loaded credit. */
static inline uint32_t via_pipe_writer_outstanding(const struct via_pipe_writer *writer)
{
    return writer->sequence - writer->released;
}

struct via_pipe_reader {
    const unsigned char
        *memory; /* want line, slots, data: the reader's own memory, into which the peer posts */
    struct via_pipe_geometry geometry;
    struct via_pipe_target credit; /* 8 bytes at offset 0: the writer's credit cell */
    uint32_t sequence;             /* of the next record to take */
    uint32_t released;             /* number of released records */
    uint32_t posted;               /* value of `released` in the last posted credit */
    uint32_t data_head;            /* data position of the next body */
    uint16_t epoch;
    uint16_t arm; /* arm generation posted last, 0 = not armed */
    uint16_t arm_next;
    uint16_t want_rung; /* want generation for which the reader has already rung */
    bool arm_held;      /* some taken records were not released when `arm` was posted */
};

/* One taken record. head is a private copy. body points into the pipe and stays valid until the
 * record is released; a hostile writer may change it at any time. */
struct via_pipe_record {
    unsigned char head[VIA_RECORD_HEAD_BYTES] __attribute__((aligned(8)));
    const void *body; /* NULL when body_bytes is 0 */
    uint32_t body_bytes;
};

/*
 * memory: via_pipe_memory_bytes() bytes, 64-byte aligned. init does not write to it, because the
 * epoch distinguishes stale words. The caller makes sure that the memory contains no word of this
 * epoch: it zeroes the memory once, or uses a new epoch each time.
 */
void via_pipe_reader_init(struct via_pipe_reader *reader, const struct via_pipe_geometry *geometry,
                          const void *memory, const struct via_pipe_target *credit, uint16_t epoch);

/* The reader's via_pipe_writer_start_at(). */
void via_pipe_reader_start_at(struct via_pipe_reader *reader, uint32_t sequence);

/* The reader's memory: a line whose first word is the want word, then slots, then data. */
#define VIA_PIPE_SLOTS_OFF ((size_t)VIA_RECORD_LINE_BYTES)

/* The slot of the record with this sequence number. */
static inline const struct via_record_line *via_pipe_slot(const struct via_pipe_reader *reader,
                                                          uint32_t sequence)
{
    uint32_t index = sequence & (reader->geometry.slots_count - 1);
    return (const struct via_record_line *)(const void *)(reader->memory + VIA_PIPE_SLOTS_OFF +
                                                          (size_t)index * VIA_RECORD_LINE_BYTES);
}

/* True if the record with this sequence number has arrived; its word in *ret_word. */
static inline bool via_pipe_find(const struct via_pipe_reader *reader, uint32_t sequence,
                                 uint64_t *ret_word)
{
    const struct via_record_line *line = via_pipe_slot(reader, sequence);
    /* Pairs with the release in via_pipe_commit_line() and in post_line(). */
    uint64_t word =
        atomic_load_explicit((const _Atomic uint64_t *)&line->word, memory_order_acquire);
    *ret_word = word;
    return (via_record_word_epoch(word) == reader->epoch || VIA_MUTANT(NO_EPOCH)) &&
           via_record_word_sequence(word) == sequence;
}

/* True if the next record has arrived. The cheapest check. */
static inline bool via_pipe_is_ready(const struct via_pipe_reader *reader)
{
    uint64_t word;
    return via_pipe_find(reader, reader->sequence, &word);
}

/* The same for a record after the next one: true if the record with this sequence number has
 * arrived and is not overwritten. */
bool via_pipe_is_ready_at(const struct via_pipe_reader *reader, uint32_t sequence);

/*
 * Takes the next record: 1 and *ret_record, 0 if there is none, -EPROTO if its length violates the
 * geometry (the pipe is then unusable until re-initialised). The record stays in memory until it is
 * released; several records may be taken before the first one is released. Records are released in
 * order.
 */
int via_pipe_take(struct via_pipe_reader *reader, struct via_pipe_record *ret_record);

/* Returns the next record without taking it: the next take returns the same record. */
int via_pipe_peek(const struct via_pipe_reader *reader, struct via_pipe_record *ret_record);

/* Takes the record that via_pipe_peek() has just returned, without loading its word again. */
void via_pipe_advance(struct via_pipe_reader *reader, const struct via_pipe_record *record);

/* Releases the oldest `records` taken records. Posts a credit when a quarter of the ring is due. */
void via_pipe_release(struct via_pipe_reader *reader, uint32_t records);

/* Posts all credits that are due (before sleeping, or for a writer that waits). */
void via_pipe_post_credit(struct via_pipe_reader *reader);

/*
 * Before sleeping: posts "armed" (with all credits due), then a full fence; true if anything was
 * posted. If the port is not coherent, the caller then waits for a fence of the port that was
 * started after the last post. The caller checks via_pipe_is_ready() again, and only then sleeps.
 * Arming twice without a take in between posts nothing if all taken records are released (the
 * generation stays). Otherwise it posts one word, because a late ring may have used the generation
 * up; so a reader that was woken by a doorbell arms again before it sleeps. A take disarms, and the
 * next credit posts "awake".
 */
bool via_pipe_arm(struct via_pipe_reader *reader);

/* A hint, as via_pipe_reader_is_asleep(): does the writer wait for room, without a ring so far? */
bool via_pipe_writer_is_waiting(const struct via_pipe_reader *reader);

/*
 * After one or more releases: true if the reader must ring the doorbell of a writer that waits for
 * room, at most once per want generation, and only after the credits of all released records are
 * posted (this call posts them). Contains the full fence that pairs with the fence in
 * via_pipe_request_room().
 */
bool via_pipe_take_writer_ring(struct via_pipe_reader *reader);

#endif
