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
 * Where posts go: memory mapped for direct stores, or the functions of a port.
 * direct != NULL: `direct + off` is stored to. Stores must be seen in order by the other side, and
 *   an aligned 8-byte store whole (cache-coherent memory).
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
    uint32_t
        *data_ends;    /* slots_count entries, the owner's memory: data position after the record */
    uint32_t sequence; /* of the next record */
    uint32_t released; /* last credit accepted */
    uint32_t data_head; /* data position where the next body may start (bytes, wraps) */
    uint32_t data_tail; /* data position up to which the reader has released */
    uint32_t deferred;  /* how many records before `sequence` have their places, but no line yet */
    uint16_t epoch;
    uint16_t arm_rung; /* arm generation already rung for */
    uint16_t want;     /* want generation posted last, 0 = not waiting for credit */
    uint16_t want_next;
    uint32_t want_sequence; /* value of `released` when it was posted */
    bool broken;            /* the peer posted nonsense: nothing more is accepted */
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

/* Records that may be written now, by the credits seen so far and one fresh load of the word;
 * bodies of up to body_bytes_max each are not considered. */
uint32_t via_pipe_writer_room(struct via_pipe_writer *writer);

/* Bytes of bodies written and not given back, by a fresh load; what the reader has not posted yet
 * is among them. */
uint32_t via_pipe_writer_data_bytes(struct via_pipe_writer *writer);

/* true when a record with such a body could be written now. */
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
 * A record whose body a DMA engine brings: defer takes its slot and the place of its body, *ret_off
 * in the target (what body() would be given; for a direct target as well). Its reader sees nothing
 * of it. publish posts the line of the oldest deferred record, when its body is there: lines leave
 * in the order of the records. While records are deferred, all that follow must be. Same errors as
 * via_pipe_send; publish can not fail.
 */
int via_pipe_defer(struct via_pipe_writer *writer, size_t body_bytes, uint64_t *ret_off);
void via_pipe_publish(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                      size_t body_bytes);
/* Brings the body of a deferred record itself, to where defer said. */
void via_pipe_put_body(struct via_pipe_writer *writer, uint64_t off, const void *body,
                       size_t body_bytes);

/*
 * After one or more sends: true if the writer must ring the reader's doorbell, at most once per arm
 * generation. Contains the full fence that pairs with the one in via_pipe_arm() (store record,
 * fence, load armed against store armed, fence, load record: one of the two sees the other). Ports
 * that are not coherent flush before calling this; see facts in docs/protocol.md.
 */
bool via_pipe_take_reader_ring(struct via_pipe_writer *writer);

/*
 * A hint without a fence: does the reader sleep and has not been rung for it? May be wrong in both
 * directions; via_pipe_take_reader_ring() decides, and has to be asked anyway.
 */
bool via_pipe_reader_is_asleep(const struct via_pipe_writer *writer);

/*
 * Before sleeping for want of room: posts "want" (once per generation), then a full fence; true
 * when anything was posted. The caller waits for a fence of the port, as after via_pipe_arm(),
 * calls via_pipe_writer_room() or _fits() again, and only then sleeps. The reader rings when it
 * posts a credit after that (via_pipe_take_writer_ring).
 */
bool via_pipe_ask_for_room(struct via_pipe_writer *writer);

/*
 * True if credits arrived since the writer last asked for room. The doorbell for them may have rung
 * already, for another thread or before the writer slept. A writer that checks right before it
 * sleeps, and finds too little room, asks again and checks again.
 */
static inline bool via_pipe_want_is_old(const struct via_pipe_writer *writer)
{
    return writer->want != 0 && writer->want_sequence != writer->released;
}

/* Records sent or deferred and not yet released, by the last credit seen. */
static inline uint32_t via_pipe_writer_outstanding(const struct via_pipe_writer *writer)
{
    return writer->sequence - writer->released;
}

struct via_pipe_reader {
    const unsigned char
        *memory; /* want line, slots, data: the reader's own memory, the peer posts into it */
    struct via_pipe_geometry geometry;
    struct via_pipe_target credit; /* 8 bytes at offset 0: the writer's credit cell */
    uint32_t sequence;             /* of the next record to take */
    uint32_t released;             /* records given back */
    uint32_t posted;               /* value of `released` in the last posted credit */
    uint32_t data_head;            /* data position of the next body */
    uint16_t epoch;
    uint16_t arm; /* arm generation posted last, 0 = not armed */
    uint16_t arm_next;
    uint16_t want_rung; /* want generation already rung for */
    bool arm_held;      /* records were taken and not released when `arm` was posted */
};

/* One taken record. head is a private copy; body points into the pipe, stays valid until the record
 * is released, and must be treated as changing under the reader's feet. */
struct via_pipe_record {
    unsigned char head[VIA_RECORD_HEAD_BYTES] __attribute__((aligned(8)));
    const void *body; /* NULL when body_bytes is 0 */
    uint32_t body_bytes;
};

/*
 * memory: via_pipe_memory_bytes() bytes, 64-byte aligned; init does not touch it (stale words are
 * recognised by their epoch), so the caller must make sure it holds no word of this epoch: zero it
 * once or use a new epoch each time.
 */
void via_pipe_reader_init(struct via_pipe_reader *reader, const struct via_pipe_geometry *geometry,
                          const void *memory, const struct via_pipe_target *credit, uint16_t epoch);

/* The reader's via_pipe_writer_start_at(). */
void via_pipe_reader_start_at(struct via_pipe_reader *reader, uint32_t sequence);

/* The reader's memory: a line whose first word is the want word, then slots, then data. */
#define VIA_PIPE_SLOTS_OFF ((size_t)VIA_RECORD_LINE_BYTES)

/* Where the record of that sequence number is posted. */
static inline const struct via_record_line *via_pipe_slot(const struct via_pipe_reader *reader,
                                                          uint32_t sequence)
{
    uint32_t index = sequence & (reader->geometry.slots_count - 1);
    return (const struct via_record_line *)(const void *)(reader->memory + VIA_PIPE_SLOTS_OFF +
                                                          (size_t)index * VIA_RECORD_LINE_BYTES);
}

/* true when the record of that sequence number is there; its word in *ret_word. */
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

/* True if a record is there. The cheapest check. */
static inline bool via_pipe_is_ready(const struct via_pipe_reader *reader)
{
    uint64_t word;
    return via_pipe_find(reader, reader->sequence, &word);
}

/* The same for a later record than the next: true when the record of that sequence number is there
 * and not overwritten. */
bool via_pipe_is_ready_at(const struct via_pipe_reader *reader, uint32_t sequence);

/*
 * Takes the next record: 1 and *ret_record, 0 when there is none, -EPROTO when its length breaks
 * the geometry (the pipe is then unusable until re-initialised). The record stays in memory until
 * released; several may be taken before the first is released. Release is in order.
 */
int via_pipe_take(struct via_pipe_reader *reader, struct via_pipe_record *ret_record);

/* Looks without taking: same result as take, the next take returns the same record. */
int via_pipe_peek(const struct via_pipe_reader *reader, struct via_pipe_record *ret_record);

/* Takes the record that via_pipe_peek() has just returned, without loading its word again. */
void via_pipe_advance(struct via_pipe_reader *reader, const struct via_pipe_record *record);

/* Gives the `records` oldest taken records back. Posts a credit when a quarter of the ring is due.
 */
void via_pipe_release(struct via_pipe_reader *reader, uint32_t records);

/* Posts credits that are due now (before sleeping, or when the writer is known to wait). */
void via_pipe_post_credit(struct via_pipe_reader *reader);

/*
 * Before sleeping: posts "armed" (with all credits due), then a full fence; true when anything was
 * posted. When the port is not coherent the caller must then wait for a fence of the port that was
 * started after the last post. It checks via_pipe_is_ready() again, and only then sleeps.
 * Arming twice without a record taken between costs nothing while all that was taken is released
 * (the generation stays), else one posted word, for a ring that came late may have used the
 * generation up; so a reader that a doorbell woke arms again before it sleeps on. A take disarms,
 * and "awake" is posted lazily, with the next credit.
 */
bool via_pipe_arm(struct via_pipe_reader *reader);

/* A hint, as via_pipe_reader_is_asleep(): does the writer wait for room and has not been rung? */
bool via_pipe_writer_is_waiting(const struct via_pipe_reader *reader);

/*
 * After one or more releases: true if the reader must ring the doorbell of a writer that waits for
 * room, at most once per want generation, and only when all that was released is posted (this call
 * posts it). Contains the full fence that pairs with the one in via_pipe_ask_for_room().
 */
bool via_pipe_take_writer_ring(struct via_pipe_reader *reader);

#endif
