/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Writes to the peer's segment: stores where it is mapped, frames elsewhere. */
#include <errno.h>
#include <string.h>

#include "base/mutant.h"
#include "base/pause.h"
#include "host/client.h"
#include "sockets/fabric/fabric_internal.h"
#include "sockets/stream/receipt.h"

#define WAIT_NS VIA_SEC_NS

/* Where this end writes now: the mapped segment, or the mirror. */
static unsigned char *base_now(struct via_fabric *fabric)
{
    void *direct = fabric->remote != NULL ? via_remote_direct(fabric->remote) : NULL;
    return direct != NULL ? direct : fabric->mirror;
}

static int error_of(const struct via_fabric *fabric)
{
    return atomic_load_explicit(&fabric->error, memory_order_relaxed);
}

/* Records the first error. */
static void note_error(struct via_fabric *fabric, int rc)
{
    int none = 0;
    if (rc != -EAGAIN && rc != 0) {
        atomic_compare_exchange_strong_explicit(&fabric->error, &none, rc, memory_order_relaxed,
                                                memory_order_relaxed);
    }
}

/* --- puts that were cancelled ---------------------------------------------------------------- */

/* Called before a word is put. If no record is under way, a later cancellation can concern only
 * words; so it records how many records have arrived. */
static void note_quiet(struct via_fabric *fabric)
{
    /* `records` is loaded before the puts under way are counted; push_record() counts them in the
     * opposite order. */
    uint32_t records = atomic_load_explicit(&fabric->records, memory_order_acquire);
    if (records % 2 != 0 ||
        records == atomic_load_explicit(&fabric->records_there, memory_order_relaxed)) {
        return;
    }
    bool cut_off = via_attach_hops(fabric->attach, fabric->host) < 0;
    unsigned pending = cut_off ? via_remote_pending(fabric->remote)
                               : via_client_remote_pending_seen(fabric->remote);
    if (pending == 0 && via_client_remote_failure(fabric->remote) == 0) {
        atomic_store_explicit(&fabric->records_there, records, memory_order_relaxed);
    }
}

/* Handles cancelled puts. Words are sent again, because only the last value counts; a cancelled
 * record means that the connection is lost. Returns -EAGAIN or the error. */
static int check_given_up(struct via_fabric *fabric, int rc)
{
    if (!via_client_is_given_up(rc) ||
        atomic_load_explicit(&fabric->records, memory_order_relaxed) !=
            atomic_load_explicit(&fabric->records_there, memory_order_relaxed)) {
        return rc;
    }
    atomic_fetch_add_explicit(&fabric->version, 1, memory_order_release);
    return -EAGAIN;
}

bool via_fabric_is_given_up(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (fabric->remote != NULL &&
        via_unlikely(via_client_is_given_up(via_client_remote_failure(fabric->remote)))) {
        note_error(fabric, check_given_up(fabric, via_client_remote_take_failure(fabric->remote)));
    }
    return via_unlikely(via_client_is_given_up(error_of(fabric)));
}

/* A put from the mirror. */
struct piece {
    size_t off;
    size_t bytes;
    unsigned flags;
    struct via_segment
        *lent; /* the daemon reads the bytes from this segment; NULL: they are copied */
    const struct via_client_reader *reader; /* NULL: the daemon always wakes the reader */
};

static int try_put(struct via_fabric *fabric, const struct piece *piece)
{
    return piece->lent != NULL
               ? via_remote_try_put_from(fabric->remote, piece->off, piece->lent, piece->off,
                                         piece->bytes, piece->flags)
               : via_client_try_put(fabric->remote, piece->off, fabric->mirror + piece->off,
                                    piece->bytes, piece->flags, piece->reader);
}

static int put(struct via_fabric *fabric, const struct piece *piece, bool wait)
{
    int rc = check_given_up(fabric, try_put(fabric, piece));
    uint64_t end_ns = wait && rc == -EAGAIN ? via_os_now_ns() + WAIT_NS : 0;
    while (rc == -EAGAIN && via_os_now_ns() < end_ns) {
        via_os_pause(500000);
        via_attach_poll(fabric->attach);
        rc = check_given_up(fabric, try_put(fabric, piece));
    }
    note_error(fabric, rc);
    return rc;
}

int via_fabric_push_word(struct via_fabric *fabric, size_t off, uint64_t *pushed,
                         const struct via_client_reader *reader, bool wait)
{
    uint64_t word;
    memcpy(&word, fabric->mirror + off, sizeof(word));
    if (word == *pushed || !via_fabric_is_put_possible(fabric)) {
        return 0;
    }
    note_quiet(fabric);
    /* Flags are sent at once: at the end of a connection a thread may wait for their arrival. */
    unsigned lazy = off == VIA_SEGMENT_FLAGS_OFF ? 0 : VIADUCT_PUT_LAZY;
    struct piece piece = {
        .off = off, .bytes = sizeof(word), .flags = VIADUCT_PUT_NOTIFY | lazy, .reader = reader};
    int rc = put(fabric, &piece, wait);
    if (rc == 0) {
        *pushed = word;
    }
    return rc;
}

static int push_tx_words(struct via_fabric *fabric, bool wait)
{
    int rc = via_fabric_push_word(fabric, VIA_SEGMENT_FLAGS_OFF, &fabric->pushed_flags, NULL, wait);
    return rc != 0 ? rc
                   : via_fabric_push_word(fabric, VIA_SEGMENT_PIPE_OFF, &fabric->pushed_want, NULL,
                                          wait);
}

/* --- writing --------------------------------------------------------------------------------- */

static void store_word(unsigned char *base, size_t off, uint64_t word)
{
    /* Pairs with the peer's acquire of its own words. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)(base + off), word, memory_order_release);
}

/* Called when the path has changed: sends the words again on the new path. */
static void tx_rebase(struct via_conn *conn, unsigned char *base)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_pipe_writer *writer = &conn->side->tx.pipe;
    fabric->tx_base = base;
    writer->target.direct = base + VIA_SEGMENT_PIPE_OFF;
    fabric->pushed_flags = 0;
    fabric->pushed_want = 0;
    store_word(base, VIA_SEGMENT_FLAGS_OFF, conn->side->sent_flags);
    if (writer->want != 0) {
        store_word(base, VIA_SEGMENT_PIPE_OFF,
                   via_credit_word(writer->epoch, writer->want, writer->want_sequence));
    }
}

void via_fabric_tx_begin(struct via_conn *conn, struct via_carrier_undo *ret_undo)
{
    struct via_fabric *fabric = conn->fabric;
    uint32_t version = atomic_load_explicit(&fabric->version, memory_order_acquire);
    unsigned char *base = base_now(fabric);
    if (base != fabric->tx_base || version != fabric->tx_version) {
        fabric->tx_version = version;
        tx_rebase(conn, base);
    }
    ret_undo->frames = base == fabric->mirror;
    ret_undo->sequence = conn->side->tx.pipe.sequence;
    if (ret_undo->frames) {
        ret_undo->tx = conn->side->tx;
    }
}

/* Below this size copying a body is as fast as lending it. */
#define LENT_BYTES_MIN 4096u

static int push_body(struct via_conn *conn, const struct via_pipe_record *record, bool wait)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_segment *lent =
        record->body_bytes >= LENT_BYTES_MIN ? via_fabric_mirror_lent(conn) : NULL;
    size_t most = via_remote_try_max(fabric->remote);
    size_t off = (size_t)((const unsigned char *)record->body - fabric->mirror);
    unsigned flags = record->body_bytes < LENT_BYTES_MIN ? VIADUCT_PUT_LAZY : 0;
    for (size_t done = 0; done < record->body_bytes;) {
        size_t bytes = via_min(record->body_bytes - done, most);
        struct piece piece = {.off = off + done, .bytes = bytes, .flags = flags, .lent = lent};
        int rc = put(fabric, &piece, wait);
        if (rc != 0) {
            return rc;
        }
        conn->stats->tx_lent_bytes += lent != NULL ? bytes : 0;
        done += bytes;
    }
    return 0;
}

/* A record that is being put. */
struct push {
    struct via_conn *conn;
    bool answered; /* the peer's next record says that it has received this one */
};

/* Do not wait longer for an answer: a read across the link takes about as long. */
#define ANSWER_US 2u
#define ANSWER_PAUSE_BITS_MAX 10u

/* True if the connection is a series of requests and replies. Records for which no answer is
 * expected do not wait for one. */
static bool is_answer_expected(struct via_fabric *fabric, uint32_t taken)
{
    bool replies = taken != fabric->answered;
    fabric->answered = taken;
    if (replies && fabric->answer_pause != 0) {
        fabric->answer_pause--;
        return false;
    }
    return replies;
}

static void note_answer(struct via_fabric *fabric, bool answered)
{
    fabric->answers_missed =
        answered ? 0 : via_min(fabric->answers_missed + 1, ANSWER_PAUSE_BITS_MAX);
    fabric->answer_pause = answered ? 0 : 1u << fabric->answers_missed;
}

/* True if the receipt in the peer's answer says that the peer has received all records. */
static bool is_answered(void *ctx)
{
    struct push *push = ctx;
    struct via_side *side = push->conn->side;
    uint32_t taken = atomic_load_explicit(&side->rx_taken, memory_order_relaxed);
    uint32_t received = 0;
    if (!is_answer_expected(push->conn->fabric, taken)) {
        return false;
    }
    uint64_t end = via_os_ticks() + via_os_us_to_ticks(ANSWER_US);
    int rc;
    while ((rc = via_receipt_find(&side->rx.pipe, taken, &received)) == 0 && via_os_ticks() < end) {
        via_cpu_pause();
    }
    push->answered = rc == 1 && received == side->tx.pipe.sequence;
    note_answer(push->conn->fabric, push->answered);
    return push->answered;
}

/* After a record that was stored through slices, only a peer that has announced its sleep is woken.
 * That announcement may still be under way if the peer's words are sent as frames: such a peer is
 * woken for each record. A peer that has answered was awake when it took the record. */
static bool is_peer_asleep(void *ctx)
{
    const struct push *push = ctx;
    struct via_conn *conn = push->conn;
    bool rings = !push->answered && (!via_side_is_peer_prompt(conn->side) ||
                                     via_pipe_take_reader_ring(&conn->side->tx.pipe));
    via_stats_count(&conn->stats->rings, rings ? 1 : 0);
    return rings;
}

/* Puts the record that was written after `undo`: the body first, then the line with its record
 * word. */
static int push_record(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_pipe_record record;
    struct via_pipe_reader probe = {.memory = fabric->mirror + VIA_SEGMENT_PIPE_OFF,
                                    .geometry = undo->tx.pipe.geometry,
                                    .sequence = undo->tx.pipe.sequence,
                                    .data_head = undo->tx.pipe.data_head,
                                    .epoch = undo->tx.pipe.epoch};
    if (via_pipe_peek(&probe, &record) != 1) {
        return -EPROTO;
    }
    atomic_fetch_add_explicit(&fabric->records, 1, memory_order_relaxed);
    int rc = push_body(conn, &record, wait);
    if (rc == 0) {
        uint32_t index = undo->tx.pipe.sequence & (undo->tx.pipe.geometry.slots_count - 1);
        struct push push = {.conn = conn};
        struct via_client_reader reader = {
            .is_asleep = is_peer_asleep, .is_answered = is_answered, .ctx = &push};
        struct piece piece = {
            .off = VIA_SEGMENT_PIPE_OFF + VIA_RECORD_LINE_BYTES * (1 + (size_t)index),
            .bytes = VIA_RECORD_LINE_BYTES,
            .flags = VIADUCT_PUT_LAST_WORD | VIADUCT_PUT_NOTIFY | VIADUCT_PUT_LAZY,
            .reader = &reader,
        };
        via_receipt_add(fabric->mirror + piece.off,
                        atomic_load_explicit(&conn->side->rx_taken, memory_order_relaxed));
        rc = put(fabric, &piece, wait);
    }
    /* Incremented after the puts are counted as under way: note_quiet(). */
    atomic_fetch_add_explicit(&fabric->records, 1, memory_order_release);
    return rc;
}

/* Records the path of the record that was written after `undo`, for via_fabric_gather(). */
static void note_path(struct via_side *side, const struct via_carrier_undo *undo)
{
    uint32_t index = undo->sequence & (side->tx.pipe.geometry.slots_count - 1);
    uint64_t bit = UINT64_C(1) << index % 64;
    if (side->tx.pipe.sequence == undo->sequence) {
        return;
    }
    if (undo->frames) {
        side->tx_mirrored[index / 64] |= bit;
    } else {
        side->tx_mirrored[index / 64] &= ~bit;
    }
}

/* Publishes the number of the last record sent as frames. If this process dies, it is not known
 * which frames its daemon still sends: a reader that waits for them reads this word at the peer's
 * host. */
static void publish_sent(struct via_side *side)
{
    _Atomic uint64_t *sent =
        side->rx.read + (VIA_SEGMENT_SENT_OFF - VIA_SEGMENT_READ_OFF) / sizeof(*sent);
    atomic_store_explicit(sent, side->tx.pipe.sequence, memory_order_relaxed);
}

int via_fabric_tx_end(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_stream_tx *tx = &conn->side->tx;
    if (!undo->frames) {
        note_path(conn->side, undo);
        /* Returned although the stores have been made: the path may have failed during them. */
        if (via_pipe_take_reader_ring(&tx->pipe)) {
            via_stats_count(&conn->stats->rings, 1);
            note_error(fabric, via_remote_ring(fabric->remote));
        }
        return error_of(fabric);
    }
    int rc = error_of(fabric);
    if (rc == 0) {
        rc = via_fabric_is_put_possible(fabric) ? push_tx_words(fabric, wait) : -EAGAIN;
    }
    if (rc == 0 && tx->pipe.sequence != undo->sequence) {
        rc = push_record(conn, undo, wait);
    }
    if (rc == 0) {
        note_path(conn->side, undo);
        publish_sent(conn->side);
        fabric->full_pending = 0;
        return 0;
    }
    if (!VIA_MUTANT(CONN_LOST_UNDO)) {
        *tx = undo->tx;
    }
    if (rc == -EAGAIN && via_fabric_is_put_possible(fabric)) {
        fabric->full_pending = via_remote_pending(fabric->remote);
    }
    return rc;
}

void via_fabric_tx_request_room(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_carrier_undo undo;
    via_fabric_tx_begin(conn, &undo);
    via_pipe_request_room(&conn->side->tx.pipe);
    if (undo.frames) {
        push_tx_words(fabric, false);
    }
}

bool via_fabric_has_path_room(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (fabric->remote != NULL && error_of(fabric) == 0 &&
        via_client_remote_is_held(fabric->remote)) {
        return false;
    }
    if (fabric->full_pending == 0 || error_of(fabric) != 0 || !via_fabric_is_put_possible(fabric)) {
        return true;
    }
    if (via_remote_pending(fabric->remote) > fabric->full_pending / 2) {
        return false;
    }
    fabric->full_pending = 0;
    return true;
}

int via_fabric_send_flags(struct via_conn *conn, uint64_t flags, bool wait)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_carrier_undo undo;
    int rc = 0;
    via_fabric_tx_begin(conn, &undo);
    store_word(fabric->tx_base, VIA_SEGMENT_FLAGS_OFF, flags);
    if (undo.frames) {
        rc = push_tx_words(fabric, wait);
    } else if ((flags & (VIA_FLAG_DEMOTE | VIA_FLAG_LEAVING | VIA_FLAG_READY | VIA_FLAG_FOLLOWS |
                         VIA_FLAG_STAYS)) != 0) {
        /* the peer may sleep without having announced it in the pipe */
        via_remote_ring(fabric->remote);
    }
    return rc == -EAGAIN ? rc : 0;
}

bool via_fabric_has_arrived(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    return error_of(fabric) != 0 || !via_fabric_is_put_possible(fabric) ||
           via_remote_pending(fabric->remote) == 0 || via_attach_poll(fabric->attach) < 0;
}

bool via_fabric_has_peer(struct via_conn *conn)
{
    return via_fabric_is_put_possible(conn->fabric);
}

bool via_fabric_is_cut_off(const struct via_conn *conn)
{
    struct via_attach *attach = via_fabric_attached();
    return attach != NULL && via_attach_hops(attach, conn->fabric->host) < 0;
}

/* --- reading --------------------------------------------------------------------------------- */

void via_fabric_rx_begin(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    via_conn_tx_is_switch_allowed(conn); /* opens the peer's segment if it is known by now */
    if (via_unlikely(fabric->slot >= 0) && conn->side->rx.span != VIA_SPAN_KERNEL) {
        via_fabric_slot_give(fabric);
    }
    uint32_t version = atomic_load_explicit(&fabric->version, memory_order_acquire);
    unsigned char *base = base_now(fabric);
    if (base != fabric->rx_base || version != fabric->rx_version) {
        fabric->rx_version = version;
        fabric->rx_base = base;
        fabric->pushed_credit = 0;
        conn->side->rx.pipe.credit.direct = base + VIA_SEGMENT_CREDIT_OFF;
        via_pipe_post_credit(&conn->side->rx.pipe);
        via_fabric_rx_end(conn);
    }
}

/* A credit word on its way to the writer. */
struct credit {
    struct via_conn *conn;
    bool arms;
    bool is_prompt; /* it was stored through a slice, so it has arrived */
};

/*
 * A credit of a quarter of the ring always wakes the writer: its announcement that it waits for
 * room may still be under way. The few credits that are sent with the announcement of a sleep wake
 * only a writer that is known to wait.
 */
static bool is_asleep(void *ctx)
{
    struct credit *credit = ctx;
    credit->is_prompt = true;
    /* Store credit, fence, load want: pairs with the fence in via_pipe_request_room(). */
    atomic_thread_fence(memory_order_seq_cst);
    return !credit->arms || via_pipe_writer_is_waiting(&credit->conn->side->rx.pipe);
}

#define PROMPT_WORDS_MIN 8u
#define PROMPT_WORDS_MAX 65536u

/*
 * Decides whether the writer may rely on the announcements of this end's sleeps arriving before the
 * sleeps, and publishes that. If it is published wrongly, this end sleeps up to UNPROVEN_POLL_NS
 * too long. So it is published after PROMPT_WORDS_MIN consecutive words that were stored through
 * slices, and after twice as many each time that it was wrong.
 */
static void note_credit(struct via_fabric *fabric, bool is_prompt)
{
    uint32_t needed = via_max(fabric->prompt_words_min, PROMPT_WORDS_MIN);
    if (!is_prompt && fabric->prompt_words == needed) {
        fabric->prompt_words_min = via_min(2 * needed, PROMPT_WORDS_MAX);
    }
    fabric->prompt_words = is_prompt ? via_min(fabric->prompt_words + 1, needed) : 0;
    store_word(fabric->mirror, VIA_SEGMENT_PROMPT_OFF, fabric->prompt_words == needed ? 1 : 0);
    via_fabric_push_word(fabric, VIA_SEGMENT_PROMPT_OFF, &fabric->pushed_prompt, NULL, false);
}

static void push_credit(struct via_conn *conn, bool arms)
{
    struct via_fabric *fabric = conn->fabric;
    struct credit credit = {.conn = conn, .arms = arms};
    struct via_client_reader reader = {.is_asleep = is_asleep, .ctx = &credit};
    uint64_t before = fabric->pushed_credit;
    int rc = via_fabric_push_word(fabric, VIA_SEGMENT_CREDIT_OFF, &fabric->pushed_credit, &reader,
                                  false);
    atomic_store_explicit(&conn->side->rx_credit_due, rc == -EAGAIN, memory_order_relaxed);
    if (rc != 0 || fabric->pushed_credit != before) {
        note_credit(fabric, credit.is_prompt);
    }
}

void via_fabric_rx_end(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    atomic_store_explicit(&conn->side->rx_taken, conn->side->rx.pipe.sequence,
                          memory_order_relaxed);
    if (fabric->rx_base != fabric->mirror) {
        atomic_store_explicit(&conn->side->rx_credit_due, false, memory_order_relaxed);
        if (via_stream_rx_take_writer_ring(&conn->side->rx)) {
            via_stats_count(&conn->stats->rings, 1);
            note_error(fabric, via_remote_ring(fabric->remote));
        }
        return;
    }
    push_credit(conn, false);
}

void via_fabric_rx_arm(struct via_conn *conn)
{
    via_fabric_rx_begin(conn);
    via_fabric_follow(conn->fabric);
    via_stream_rx_arm(&conn->side->rx);
    if (conn->fabric->rx_base == conn->fabric->mirror) {
        push_credit(conn, true);
    } else {
        via_fabric_rx_end(conn);
    }
}
