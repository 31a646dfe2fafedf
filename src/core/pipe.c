/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "core/pipe.h"

#include <errno.h>
#include <string.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "core/pipe_inline.h"

#define LINE VIA_RECORD_LINE_BYTES

#define WANT_OFF 0u
#define SLOTS_OFF VIA_PIPE_SLOTS_OFF

int via_pipe_geometry_check(const struct via_pipe_geometry *geometry)
{
    uint32_t slots = geometry->slots_count;
    uint32_t data = geometry->data_bytes;
    uint32_t body = geometry->body_bytes_max;

    if (slots == 0 || slots > (1u << 20) || (slots & (slots - 1)) != 0) {
        return -EINVAL;
    }
    if (data % LINE != 0 || data > (1u << 30) || body % LINE != 0 ||
        body > VIA_RECORD_BODY_BYTES_MAX) {
        return -EINVAL;
    }
    /* With less than two bodies, a body in the middle of an empty ring might fit on neither side of
     * it. */
    if (data == 0 ? body != 0 : (body == 0 || data / 2 < body)) {
        return -EINVAL;
    }
    return 0;
}

size_t via_pipe_memory_bytes(const struct via_pipe_geometry *geometry)
{
    return via_pipe_data_off(geometry) + geometry->data_bytes;
}

void via_pipe_writer_init(struct via_pipe_writer *writer, const struct via_pipe_geometry *geometry,
                          const struct via_pipe_target *target, const _Atomic uint64_t *credit,
                          uint32_t *data_ends, uint16_t epoch)
{
    *writer = (struct via_pipe_writer){
        .target = *target,
        .geometry = *geometry,
        .credit = credit,
        .data_ends = data_ends,
        .epoch = epoch,
        .want_next = 1,
    };
}

/* A valid generation: never 0. */
static uint16_t generation_of(uint32_t sequence)
{
    return (uint16_t)sequence != 0 ? (uint16_t)sequence : 1;
}

void via_pipe_writer_start_at(struct via_pipe_writer *writer, uint32_t sequence)
{
    writer->sequence = sequence;
    writer->released = sequence;
    writer->want_next = generation_of(sequence);
}

/* Loads the credit cell. The peer writes it, so it is loaded once and checked. */
static void take_credit(struct via_pipe_writer *writer)
{
    /* Pairs with the release in via_pipe_post_credit(): the reader has finished with the slots that
     * it has released. */
    uint64_t word = atomic_load_explicit(writer->credit, memory_order_acquire);
    if (via_credit_word_epoch(word) != writer->epoch) {
        return; /* no credit in this epoch so far */
    }
    uint32_t released = via_credit_word_released(word);
    uint32_t fresh = released - writer->released;
    if (fresh == 0 || (VIA_MUTANT(CREDIT_WRAP) && released < writer->released)) {
        return;
    }
    if (fresh > writer->sequence - writer->deferred - writer->released) {
        writer->broken = true; /* it releases records that were never sent */
        return;
    }
    writer->released = released;
    writer->data_tail = writer->data_ends[(released - 1) & (writer->geometry.slots_count - 1)];
}

uint32_t via_pipe_writer_room(struct via_pipe_writer *writer)
{
    take_credit(writer);
    return writer->broken ? 0
                          : writer->geometry.slots_count - (writer->sequence - writer->released);
}

bool via_pipe_writer_is_released(const struct via_pipe_writer *writer, uint32_t sequence)
{
    /* Pairs with the release in via_pipe_post_credit(). */
    uint64_t word = atomic_load_explicit(writer->credit, memory_order_acquire);
    return via_credit_word_epoch(word) == writer->epoch &&
           (int32_t)(via_credit_word_released(word) - sequence) >= 0;
}

static bool has_room_now(const struct via_pipe_writer *writer, uint32_t span)
{
    return writer->sequence - writer->released < writer->geometry.slots_count &&
           (span == 0 ||
            via_pipe_has_room_at(
                writer, via_pipe_data_place(&writer->geometry, writer->data_head, span), span));
}

uint32_t via_pipe_writer_data_bytes(struct via_pipe_writer *writer)
{
    take_credit(writer);
    return via_pipe_data_used(&writer->geometry, writer->data_tail, writer->data_head);
}

bool via_pipe_writer_has_place(struct via_pipe_writer *writer, size_t body_bytes)
{
    if (body_bytes > writer->geometry.body_bytes_max || writer->broken) {
        return false;
    }
    if (has_room_now(writer, via_pipe_body_span(body_bytes))) {
        return true;
    }
    take_credit(writer);
    return !writer->broken && has_room_now(writer, via_pipe_body_span(body_bytes));
}

static int check_room(struct via_pipe_writer *writer, size_t body_bytes)
{
    if (body_bytes > writer->geometry.body_bytes_max) {
        return -EMSGSIZE;
    }
    if (via_pipe_writer_has_place(writer, body_bytes)) {
        return 0;
    }
    return writer->broken ? -EPROTO : -EAGAIN;
}

/* Posts to a target that is not direct. off: in the target's memory. */
static void commit(const struct via_pipe_target *target, uint64_t off, const void *src, size_t len)
{
    target->commit(target->ctx, target->queue, target->off + off, src, len);
}

/* off: as for body() in core/port.h. */
static void post_body(const struct via_pipe_target *target, uint64_t off, const void *src,
                      size_t len)
{
    target->body(target->ctx, target->queue, off, src, len);
}

/* Posts the line of record `sequence`, which makes the record visible to the reader. */
static void post_line(struct via_pipe_writer *writer, uint32_t sequence, const void *head,
                      size_t head_bytes, size_t body_bytes)
{
    uint32_t index = sequence & (writer->geometry.slots_count - 1);
    uint64_t off = SLOTS_OFF + (uint64_t)index * LINE;
    uint64_t word = via_record_word(writer->epoch, (uint16_t)body_bytes, sequence);

    if (writer->target.direct != NULL) {
        struct via_record_line *line =
            (struct via_record_line *)(void *)(writer->target.direct + off);
        memcpy(line->head, head, head_bytes);
        /* Pairs with the acquire in via_pipe_find(): head and body are stored before the word. */
        atomic_store_explicit((_Atomic uint64_t *)&line->word, word, memory_order_release);
    } else {
        struct via_record_line line;
        memcpy(line.head, head, head_bytes);
        memset(line.head + head_bytes, 0, sizeof(line.head) - head_bytes);
        line.word = word;
        commit(&writer->target, off, &line, sizeof(line));
    }
}

/* Accounts for the slot, and the place of the body, of the record at `sequence`. */
static void take_slot(struct via_pipe_writer *writer)
{
    uint32_t index = writer->sequence & (writer->geometry.slots_count - 1);
    writer->data_ends[index] = writer->data_head;
    writer->sequence++;
}

static void publish(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                    size_t body_bytes)
{
    post_line(writer, writer->sequence, head, head_bytes, body_bytes);
    take_slot(writer);
}

/* Places a body that fits. Returns its offset in the pipe's memory and advances the head. */
static uint64_t place_body(struct via_pipe_writer *writer, size_t body_bytes)
{
    const struct via_pipe_geometry *geometry = &writer->geometry;
    uint32_t span = via_pipe_body_span(body_bytes);
    uint32_t start = via_pipe_data_place(geometry, writer->data_head, span);
    writer->data_head = via_pipe_data_advance(geometry, start, span);
    return SLOTS_OFF + (uint64_t)geometry->slots_count * LINE +
           via_pipe_data_offset(geometry, start);
}

int via_pipe_send(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                  const void *body, size_t body_bytes)
{
    if (head_bytes > VIA_RECORD_HEAD_BYTES) {
        return -EINVAL;
    }
    int rc = check_room(writer, body_bytes);
    if (rc != 0) {
        return rc;
    }
    uint64_t off = body_bytes != 0 ? place_body(writer, body_bytes) : 0;
    if (VIA_MUTANT(FLAG_FIRST)) {
        publish(writer, head, head_bytes, body_bytes);
    }
    if (body_bytes != 0 && writer->target.direct != NULL) {
        via_copy_foreign(writer->target.direct + off, body, body_bytes);
    } else if (body_bytes != 0) {
        post_body(&writer->target, writer->target.off + off, body, body_bytes);
    }
    if (!VIA_MUTANT(FLAG_FIRST)) {
        publish(writer, head, head_bytes, body_bytes);
    }
    return 0;
}

int via_pipe_reserve(struct via_pipe_writer *writer, size_t body_bytes, void **ret_body)
{
    if (writer->target.direct == NULL) {
        return -ENOTSUP;
    }
    int rc = check_room(writer, body_bytes);
    if (rc != 0) {
        return rc;
    }
    const struct via_pipe_geometry *geometry = &writer->geometry;
    uint32_t start =
        via_pipe_data_place(geometry, writer->data_head, via_pipe_body_span(body_bytes));
    *ret_body =
        writer->target.direct + via_pipe_data_off(geometry) + via_pipe_data_offset(geometry, start);
    return 0;
}

int via_pipe_commit(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                    size_t body_bytes)
{
    if (head_bytes > VIA_RECORD_HEAD_BYTES) {
        return -EINVAL;
    }
    int rc = check_room(writer, body_bytes);
    if (rc != 0) {
        return rc;
    }
    if (body_bytes != 0) {
        place_body(writer, body_bytes);
    }
    publish(writer, head, head_bytes, body_bytes);
    return 0;
}

int via_pipe_defer(struct via_pipe_writer *writer, size_t body_bytes, uint64_t *ret_off)
{
    int rc = check_room(writer, body_bytes);
    if (rc != 0) {
        return rc;
    }
    *ret_off = writer->target.off + (body_bytes != 0 ? place_body(writer, body_bytes) : 0);
    take_slot(writer);
    writer->deferred++;
    return 0;
}

void via_pipe_publish(struct via_pipe_writer *writer, const void *head, size_t head_bytes,
                      size_t body_bytes)
{
    post_line(writer, writer->sequence - writer->deferred, head, head_bytes, body_bytes);
    writer->deferred--;
}

void via_pipe_put_body(struct via_pipe_writer *writer, uint64_t off, const void *body,
                       size_t body_bytes)
{
    if (writer->target.direct != NULL) {
        via_copy_foreign(writer->target.direct + (off - writer->target.off), body, body_bytes);
    } else {
        post_body(&writer->target, off, body, body_bytes);
    }
}

/*
 * An arm generation of this epoch for which the writer has not rung; 0: none.
 *
 * A word that releases everything that was ever sent belongs to a reader that has taken everything.
 * A ring for that word would use the generation up without effect: the reader would check, find
 * nothing and sleep on in the same generation, and the writer would not ring for the next record.
 * That happens to a writer that calls this late, after the reader has taken its record.
 */
static uint16_t arm_not_rung(const struct via_pipe_writer *writer)
{
    uint64_t word = atomic_load_explicit(writer->credit, memory_order_relaxed);
    uint16_t arm = via_credit_word_arm(word);
    return via_credit_word_epoch(word) == writer->epoch && arm != writer->arm_rung &&
                   via_credit_word_released(word) != writer->sequence - writer->deferred
               ? arm
               : 0;
}

bool via_pipe_reader_is_asleep(const struct via_pipe_writer *writer)
{
    return arm_not_rung(writer) != 0;
}

bool via_pipe_take_reader_ring(struct via_pipe_writer *writer)
{
    /*
     * The writer stores the record, fences, loads the armed word. The reader stores the armed word,
     * fences, loads the record (via_pipe_arm()). Without either fence both could miss the other's
     * store: a lost wake-up.
     */
    atomic_thread_fence(memory_order_seq_cst);
    uint16_t arm = arm_not_rung(writer);
    if (arm == 0) {
        return false;
    }
    writer->arm_rung = arm;
    return true;
}

bool via_pipe_request_room(struct via_pipe_writer *writer)
{
    bool fresh = writer->want == 0 || writer->want_sequence != writer->released;
    if (fresh) {
        writer->want = writer->want_next;
        writer->want_next = writer->want_next == UINT16_MAX ? 1 : (uint16_t)(writer->want_next + 1);
        writer->want_sequence = writer->released;
        uint64_t word = via_credit_word(writer->epoch, writer->want, writer->released);
        if (writer->target.direct != NULL) {
            atomic_store_explicit((_Atomic uint64_t *)(void *)writer->target.direct, word,
                                  memory_order_release);
        } else {
            commit(&writer->target, WANT_OFF, &word, sizeof(word));
        }
    }
    /* Pairs with the fence in via_pipe_take_writer_ring(). */
    atomic_thread_fence(memory_order_seq_cst);
    return fresh;
}

void via_pipe_reader_init(struct via_pipe_reader *reader, const struct via_pipe_geometry *geometry,
                          const void *memory, const struct via_pipe_target *credit, uint16_t epoch)
{
    *reader = (struct via_pipe_reader){
        .memory = memory,
        .geometry = *geometry,
        .credit = *credit,
        .epoch = epoch,
        .arm_next = 1,
    };
}

void via_pipe_reader_start_at(struct via_pipe_reader *reader, uint32_t sequence)
{
    reader->sequence = sequence;
    reader->released = sequence;
    reader->posted = sequence;
    reader->arm_next = generation_of(sequence);
}

bool via_pipe_is_ready_at(const struct via_pipe_reader *reader, uint32_t sequence)
{
    uint64_t word;
    return via_pipe_find(reader, sequence, &word);
}

int via_pipe_peek(const struct via_pipe_reader *reader, struct via_pipe_record *ret_record)
{
    uint64_t word;
    /* If all slots are taken and not released, the slot still contains an old word that was already
     * taken. */
    if (!via_pipe_find(reader, reader->sequence, &word)) {
        return 0;
    }
    uint32_t length = via_record_word_length(word);
    if (length > reader->geometry.body_bytes_max && !VIA_MUTANT(OFFER_BODY)) {
        return -EPROTO;
    }
    memcpy(ret_record->head, via_pipe_slot(reader, reader->sequence)->head, VIA_RECORD_HEAD_BYTES);
    ret_record->body_bytes = length;
    ret_record->body = NULL;
    if (length != 0) {
        uint32_t start =
            via_pipe_data_place(&reader->geometry, reader->data_head, via_pipe_body_span(length));
        ret_record->body = reader->memory + via_pipe_data_off(&reader->geometry) +
                           via_pipe_data_offset(&reader->geometry, start);
    }
    return 1;
}

void via_pipe_advance(struct via_pipe_reader *reader, const struct via_pipe_record *record)
{
    if (record->body_bytes != 0) {
        uint32_t span = via_pipe_body_span(record->body_bytes);
        uint32_t start = via_pipe_data_place(&reader->geometry, reader->data_head, span);
        reader->data_head = via_pipe_data_advance(&reader->geometry, start, span);
    }
    reader->sequence++;
    /* the writer may have rung for this generation; the next sleep needs a new one */
    reader->arm = 0;
}

int via_pipe_take(struct via_pipe_reader *reader, struct via_pipe_record *ret_record)
{
    int rc = via_pipe_peek(reader, ret_record);
    if (rc > 0) {
        via_pipe_advance(reader, ret_record);
    }
    return rc;
}

void via_pipe_post_credit(struct via_pipe_reader *reader)
{
    uint64_t word = via_credit_word(reader->epoch, reader->arm, reader->released);
    if (reader->credit.direct != NULL) {
        /* Pairs with the acquire in take_credit(): all loads from the released slots come
         * before. */
        atomic_store_explicit((_Atomic uint64_t *)(void *)reader->credit.direct, word,
                              memory_order_release);
    } else {
        commit(&reader->credit, 0, &word, sizeof(word));
    }
    reader->posted = reader->released;
}

void via_pipe_release(struct via_pipe_reader *reader, uint32_t records)
{
    reader->released += records;
    uint32_t due = reader->released - reader->posted;
    if (due != 0 && due * 4 >= reader->geometry.slots_count) {
        via_pipe_post_credit(reader);
    }
}

bool via_pipe_arm(struct via_pipe_reader *reader)
{
    /*
     * The reader must not reuse a generation for which the writer may have rung. Taking a record
     * ends the generation. Without a take, a late ring may still have used it up, if it was posted
     * while taken records were not released, even if they are released by now. arm_not_rung()
     * recognizes late rings only by the number of released records.
     */
    bool held = reader->sequence != reader->released;
    bool fresh = reader->arm == 0 || held || reader->arm_held;

    if (fresh) {
        reader->arm = reader->arm_next;
        reader->arm_next = reader->arm_next == UINT16_MAX ? 1 : (uint16_t)(reader->arm_next + 1);
        reader->arm_held = held;
    }
    bool due = fresh || reader->posted != reader->released;
    if (due) {
        via_pipe_post_credit(reader);
    }
    /* Pairs with the fence in via_pipe_take_reader_ring(). */
    atomic_thread_fence(memory_order_seq_cst);
    return due;
}

/* True for a want word of this epoch for which the reader has not rung. The peer writes the word,
 * so it is only compared. */
static bool is_want_new(const struct via_pipe_reader *reader, uint64_t word)
{
    uint16_t generation = via_credit_word_arm(word);
    return via_credit_word_epoch(word) == reader->epoch && generation != 0 &&
           generation != reader->want_rung;
}

bool via_pipe_writer_is_waiting(const struct via_pipe_reader *reader)
{
    const _Atomic uint64_t *want = (const _Atomic uint64_t *)(const void *)reader->memory;
    return is_want_new(reader, atomic_load_explicit(want, memory_order_relaxed));
}

bool via_pipe_take_writer_ring(struct via_pipe_reader *reader)
{
    const _Atomic uint64_t *want = (const _Atomic uint64_t *)(const void *)reader->memory;
    uint64_t word = atomic_load_explicit(want, memory_order_relaxed);
    if (reader->posted != reader->released && is_want_new(reader, word)) {
        via_pipe_post_credit(reader);
    }
    /* The reader stores the credit, fences, loads the want word. The writer stores the want word,
     * fences, loads the credit (via_pipe_request_room()). */
    atomic_thread_fence(memory_order_seq_cst);
    word = atomic_load_explicit(want, memory_order_relaxed);
    if (!is_want_new(reader, word)) {
        return false;
    }
    if (reader->posted != reader->released) {
        via_pipe_post_credit(reader);
    } else if (reader->released == via_credit_word_released(word)) {
        return false; /* nothing was released since the writer's request */
    }
    reader->want_rung = via_credit_word_arm(word);
    return true;
}
