/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How posts reach the peer's segment: stored where it is mapped, else put as frames. */
#include <errno.h>
#include <string.h>

#include "host/client.h"
#include "sockets/fabric/fabric_internal.h"

#define WAIT_NS VIA_SEC_NS

/* Where posts go now. */
static unsigned char *base_now(struct via_fabric *fabric)
{
    void *direct = fabric->remote != NULL ? via_remote_direct(fabric->remote) : NULL;
    return direct != NULL ? direct : fabric->mirror;
}

static bool is_by_frames(const struct via_fabric *fabric, const unsigned char *base)
{
    return base == fabric->mirror;
}

static int error_of(const struct via_fabric *fabric)
{
    return atomic_load_explicit(&fabric->error, memory_order_relaxed);
}

/* The first one counts. */
static void fail(struct via_fabric *fabric, int rc)
{
    int none = 0;
    if (rc != -EAGAIN && rc != 0) {
        atomic_compare_exchange_strong_explicit(&fabric->error, &none, rc, memory_order_relaxed,
                                                memory_order_relaxed);
    }
}

/* --- puts that were given up -------------------------------------------------------------------
 */

/* Before a word is put: are records under way, too? What does not arrive of them is missing. */
static void note_quiet(struct via_fabric *fabric)
{
    /* In this order; pairs with the order in push_record(). */
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

/* Of puts that were given up. Words alone are said again: the last one counts. */
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
        fail(fabric, check_given_up(fabric, via_client_remote_take_failure(fabric->remote)));
    }
    return via_unlikely(via_client_is_given_up(error_of(fabric)));
}

/* lent: the host takes the bytes from there, NULL: they are copied for it. */
static int try_put(struct via_fabric *fabric, struct via_segment *lent, size_t off, size_t bytes,
                   unsigned flags)
{
    return lent != NULL
               ? via_remote_try_put_from(fabric->remote, off, lent, off, bytes, flags)
               : via_remote_try_put(fabric->remote, off, fabric->mirror + off, bytes, flags);
}

static int put(struct via_fabric *fabric, struct via_segment *lent, size_t off, size_t bytes,
               unsigned flags, bool wait)
{
    int rc = check_given_up(fabric, try_put(fabric, lent, off, bytes, flags));
    uint64_t end_ns = wait && rc == -EAGAIN ? via_os_now_ns() + WAIT_NS : 0;
    while (rc == -EAGAIN && via_os_now_ns() < end_ns) {
        struct timespec pause = {.tv_nsec = 500000};
        nanosleep(&pause, NULL);
        via_attach_poll(fabric->attach);
        rc = check_given_up(fabric, try_put(fabric, lent, off, bytes, flags));
    }
    fail(fabric, rc);
    return rc;
}

int via_fabric_push_word(struct via_fabric *fabric, size_t off, uint64_t *pushed, bool wait)
{
    uint64_t word;
    memcpy(&word, fabric->mirror + off, sizeof(word));
    if (word == *pushed || !via_fabric_can_put(fabric)) {
        return 0;
    }
    note_quiet(fabric);
    /* At an end a thread may wait until the flags have arrived. */
    unsigned lazy = off == VIA_SEGMENT_FLAGS_OFF ? 0 : VIADUCT_PUT_LAZY;
    int rc = put(fabric, NULL, off, sizeof(word), VIADUCT_PUT_NOTIFY | lazy, wait);
    if (rc == 0) {
        *pushed = word;
    }
    return rc;
}

static int push_tx_words(struct via_fabric *fabric, bool wait)
{
    int rc = via_fabric_push_word(fabric, VIA_SEGMENT_FLAGS_OFF, &fabric->pushed_flags, wait);
    return rc != 0 ? rc
                   : via_fabric_push_word(fabric, VIA_SEGMENT_PIPE_OFF, &fabric->pushed_want, wait);
}

/* --- writing -----------------------------------------------------------------------------------
 */

static void store_word(unsigned char *base, size_t off, uint64_t word)
{
    /* Pairs with the peer's acquire of its own words. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)(base + off), word, memory_order_release);
}

/* The way has changed: words that were said on the old one are said again on the new one. */
static void tx_rebase(struct via_conn *conn, unsigned char *base)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_pipe_writer *writer = &conn->side->tx.pipe;
    fabric->tx_base = base;
    writer->target.direct = base + VIA_SEGMENT_PIPE_OFF;
    fabric->pushed_flags = 0;
    fabric->pushed_want = 0;
    store_word(base, VIA_SEGMENT_FLAGS_OFF, conn->side->said);
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
    ret_undo->frames = is_by_frames(fabric, base);
    ret_undo->sequence = conn->side->tx.pipe.sequence;
    if (ret_undo->frames) {
        ret_undo->tx = conn->side->tx;
    }
}

/* Smaller ones are as fast copied as lent. */
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
        int rc = put(fabric, lent, off + done, bytes, flags, wait);
        if (rc != 0) {
            return rc;
        }
        conn->stats->tx_lent_bytes += lent != NULL ? bytes : 0;
        done += bytes;
    }
    return 0;
}

/* Puts the record that was written after `undo`: body first, the line with its word last. */
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
        size_t off = VIA_SEGMENT_PIPE_OFF + VIA_RECORD_LINE_BYTES * (1 + (size_t)index);
        rc = put(fabric, NULL, off, VIA_RECORD_LINE_BYTES,
                 VIADUCT_PUT_LAST_WORD | VIADUCT_PUT_NOTIFY | VIADUCT_PUT_LAZY, wait);
    }
    /* After the puts are counted as under way: note_quiet(). */
    atomic_fetch_add_explicit(&fabric->records, 1, memory_order_release);
    return rc;
}

/* Where the record that was written after `undo` can be found again: via_fabric_gather(). */
static void note_way(struct via_side *side, const struct via_carrier_undo *undo)
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

/* What becomes of frames is not known when their process ends: a thread that waits for them asks.
 * */
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
        note_way(conn->side, undo);
        /* Once more: the way may have gone down under the stores, but they have arrived. */
        if (via_pipe_must_ring(&tx->pipe)) {
            via_stats_count(&conn->stats->rings, 1);
            fail(fabric, via_remote_ring(fabric->remote));
        }
        return error_of(fabric);
    }
    int rc = error_of(fabric);
    if (rc == 0) {
        rc = via_fabric_can_put(fabric) ? push_tx_words(fabric, wait) : -EAGAIN;
    }
    if (rc == 0 && tx->pipe.sequence != undo->sequence) {
        rc = push_record(conn, undo, wait);
    }
    if (rc == 0) {
        note_way(conn->side, undo);
        publish_sent(conn->side);
        fabric->full_pending = 0;
        return 0;
    }
    *tx = undo->tx;
    if (rc == -EAGAIN && via_fabric_can_put(fabric)) {
        fabric->full_pending = via_remote_pending(fabric->remote);
    }
    return rc;
}

void via_fabric_tx_ask_for_room(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_carrier_undo undo;
    via_fabric_tx_begin(conn, &undo);
    via_pipe_ask_for_room(&conn->side->tx.pipe);
    if (undo.frames) {
        push_tx_words(fabric, false);
    }
}

bool via_fabric_has_way(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (fabric->remote != NULL && error_of(fabric) == 0 &&
        via_client_remote_is_held(fabric->remote)) {
        return false;
    }
    if (fabric->full_pending == 0 || error_of(fabric) != 0 || !via_fabric_can_put(fabric)) {
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
    } else if ((flags & (VIA_FLAG_DEMOTE | VIA_FLAG_LOOK | VIA_FLAG_READY | VIA_FLAG_HEEDED |
                         VIA_FLAG_STAYS)) != 0) {
        via_remote_ring(fabric->remote); /* it may sleep without waiting for a record */
    }
    return rc == -EAGAIN ? rc : 0;
}

bool via_fabric_has_arrived(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    return error_of(fabric) != 0 || !via_fabric_can_put(fabric) ||
           via_remote_pending(fabric->remote) == 0 || via_attach_poll(fabric->attach) < 0;
}

bool via_fabric_has_peer(struct via_conn *conn)
{
    return via_fabric_can_put(conn->fabric);
}

bool via_fabric_is_cut_off(const struct via_conn *conn)
{
    struct via_attach *attach = via_fabric_attached();
    return attach != NULL && via_attach_hops(attach, conn->fabric->host) < 0;
}

/* --- reading -----------------------------------------------------------------------------------
 */

void via_fabric_rx_begin(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    via_conn_tx_can_switch(conn); /* whom credits go to may have become known */
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

void via_fabric_rx_end(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (!is_by_frames(fabric, fabric->rx_base)) {
        if (via_stream_rx_must_ring(&conn->side->rx)) {
            via_stats_count(&conn->stats->rings, 1);
            fail(fabric, via_remote_ring(fabric->remote));
        }
        return;
    }
    /* Frames ring by themselves: who wants may not have been heard yet. */
    via_fabric_push_word(fabric, VIA_SEGMENT_CREDIT_OFF, &fabric->pushed_credit, false);
}

void via_fabric_rx_arm(struct via_conn *conn)
{
    via_fabric_rx_begin(conn);
    via_fabric_follow(conn->fabric);
    via_stream_rx_arm(&conn->side->rx);
    via_fabric_rx_end(conn);
}
