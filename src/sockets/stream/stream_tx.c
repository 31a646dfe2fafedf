/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/types.h"
#include "sockets/stream/stream.h"
#include "sockets/stream/stream_quick.h"

#define RESERVED_SLOTS VIA_STREAM_RESERVED_SLOTS
#define PULLED_BYTES_MASK ((UINT64_C(1) << 38) - 1) /* the bytes in via_avail_words.pulled */

__thread const struct via_stream_tx *via_stream_last[VIA_STREAM_SETS]
    __attribute__((tls_model("initial-exec")));

void via_stream_tx_init(struct via_stream_tx *tx)
{
    struct via_pipe_writer pipe = tx->pipe;
    *tx = (struct via_stream_tx){.pipe = pipe, .span = VIA_SPAN_KERNEL};
}

/* Returns a new record head, for send_head() or for a record with a body. */
static struct via_stream_head new_head(const struct via_stream_tx *tx, enum via_stream_kind kind,
                                       size_t inline_bytes, uint8_t flags)
{
    struct via_stream_head head = {0};
    uint64_t fixed = via_stream_fixed(tx, (uint8_t)kind, (uint8_t)inline_bytes, flags);
    memcpy(&head, &fixed, sizeof(fixed));
    return head;
}

/* Sends a record without a body: the fixed bytes of `head` and the `bytes` bytes behind them. */
static int send_head(struct via_stream_tx *tx, const struct via_stream_head *head, size_t bytes)
{
    int rc = via_pipe_send(&tx->pipe, head, VIA_STREAM_HEAD_FIXED_BYTES + bytes, NULL, 0);
    if (rc == 0) {
        via_stream_note_write(tx);
    }
    return rc;
}

static int send_control(struct via_stream_tx *tx, enum via_stream_kind kind, uint8_t flags,
                        uint64_t count)
{
    struct via_stream_head head = new_head(tx, kind, 0, flags);
    head.u.count = count;
    return send_head(tx, &head, sizeof(count));
}

/* True if a slot is free besides the reserved ones. */
static bool has_slots_left(struct via_stream_tx *tx)
{
    uint32_t slots = tx->pipe.geometry.slots_count;
    return via_pipe_writer_outstanding(&tx->pipe) + RESERVED_SLOTS < slots ||
           via_pipe_writer_room(&tx->pipe) > RESERVED_SLOTS;
}

int via_stream_tx_switch(struct via_stream_tx *tx, uint64_t kernel_bytes)
{
    assert(tx->span == VIA_SPAN_KERNEL);
    if (tx->ended) {
        return -EPIPE;
    }
    if (!has_slots_left(tx)) {
        return -EAGAIN;
    }
    int rc = send_control(tx, VIA_STREAM_SWITCH, 0, kernel_bytes);
    if (rc == 0) {
        tx->kernel_bytes = kernel_bytes;
        tx->switch_end = tx->pipe.sequence;
        tx->span = VIA_SPAN_PIPE;
    }
    return rc;
}

int via_stream_tx_demote_again(struct via_stream_tx *tx, uint64_t again, bool whole)
{
    struct via_stream_head head =
        new_head(tx, VIA_STREAM_DEMOTE, 0, whole ? VIA_STREAM_DEMOTE_WHOLE : 0);
    assert(tx->span == VIA_SPAN_PIPE && !tx->ended);
    head.u.demote.count = tx->pipe_bytes;
    head.u.demote.again = again;
    int rc = send_head(tx, &head, sizeof(head.u.demote));
    if (rc == 0) {
        tx->span = VIA_SPAN_KERNEL;
    }
    return rc;
}

bool via_stream_tx_has_begun(struct via_stream_tx *tx)
{
    via_pipe_writer_room(&tx->pipe); /* updates `released` by the reader's credit */
    return (int32_t)(tx->pipe.released - tx->switch_end) >= 0;
}

bool via_stream_tx_is_demoted(const struct via_stream_tx *tx)
{
    return tx->span == VIA_SPAN_KERNEL && via_pipe_writer_is_released(&tx->pipe, tx->switch_end);
}

static ssize_t write_inline(struct via_stream_tx *tx, struct via_iov *iov, size_t bytes)
{
    struct via_stream_head head = new_head(tx, VIA_STREAM_DATA, bytes, 0);
    struct via_iov before = *iov;
    via_iov_get(iov, head.u.data, bytes, false);
    int rc = send_head(tx, &head, bytes);
    if (rc != 0) {
        *iov = before;
        return rc;
    }
    return (ssize_t)bytes;
}

static ssize_t write_body(struct via_stream_tx *tx, struct via_iov *iov, size_t bytes)
{
    void *body;
    int rc = via_pipe_reserve(&tx->pipe, bytes, &body);
    if (rc != 0) {
        return rc;
    }
    via_iov_get(iov, body, bytes, tx->past_caches);
    struct via_stream_head head = new_head(tx, VIA_STREAM_DATA, 0, 0);
    rc = via_pipe_commit(&tx->pipe, &head, VIA_STREAM_HEAD_FIXED_BYTES, bytes);
    assert(rc == 0);
    via_stream_note_write(tx);
    return (ssize_t)bytes;
}

ssize_t via_stream_tx_write(struct via_stream_tx *tx, struct via_iov *iov)
{
    assert(tx->span == VIA_SPAN_PIPE);
    if (tx->ended) {
        return -EPIPE;
    }
    if (!has_slots_left(tx)) {
        return tx->pipe.broken ? -EPROTO : -EAGAIN;
    }
    size_t bytes = via_min(iov->left, (size_t)tx->pipe.geometry.body_bytes_max);
    ssize_t rc = bytes <= VIA_STREAM_INLINE_BYTES_MAX ? write_inline(tx, iov, bytes)
                                                      : write_body(tx, iov, bytes);
    if (rc > 0) {
        via_stream_tx_count(tx, (size_t)rc);
    }
    return rc;
}

bool via_stream_tx_is_writable(struct via_stream_tx *tx)
{
    uint32_t slots = tx->pipe.geometry.slots_count;
    uint32_t used = via_pipe_writer_outstanding(&tx->pipe);
    if (used > slots / 2) {
        used = slots - via_pipe_writer_room(&tx->pipe);
    }
    if (via_unlikely(tx->pipe.broken)) {
        return true; /* the program's next write gets the error */
    }
    return slots - used >= RESERVED_SLOTS + via_max(slots / 4, 1u) &&
           via_pipe_writer_has_place(&tx->pipe, tx->pipe.geometry.body_bytes_max);
}

int via_stream_tx_fin(struct via_stream_tx *tx, uint8_t flags)
{
    if (tx->ended) {
        return -EALREADY;
    }
    tx->ended = true;
    if (tx->span != VIA_SPAN_PIPE) {
        return 0; /* the kernel's FIN announces it */
    }
    return send_control(tx, VIA_STREAM_FIN, flags, tx->kernel_bytes + tx->pipe_bytes);
}

/* --- zero-copy ------------------------------------------------------------------------------- */

void via_stream_tx_allow_avail(struct via_stream_tx *tx, const struct via_avail_words *own,
                               struct via_avail_words *peer)
{
    memset(&tx->avail, 0, sizeof(tx->avail));
    tx->avail.own = own;
    tx->avail.peer = peer;
}

uint64_t via_stream_tx_sink(const struct via_stream_tx *tx)
{
    return tx->avail.own != NULL ? atomic_load_explicit(&tx->avail.own->sink, memory_order_relaxed)
                                 : 0;
}

int via_stream_tx_avail(struct via_stream_tx *tx, uint64_t address, uint64_t bytes)
{
    struct via_stream_head head = new_head(tx, VIA_STREAM_AVAIL, 0, 0);
    assert(tx->span == VIA_SPAN_PIPE && tx->avail.own != NULL && bytes != 0);
    if (tx->ended) {
        return -EPIPE;
    }
    if (atomic_load_explicit(&tx->avail.open, memory_order_acquire)) {
        return -EBUSY;
    }
    if (!has_slots_left(tx)) {
        return tx->pipe.broken ? -EPROTO : -EAGAIN;
    }
    head.u.avail.address = address;
    head.u.avail.bytes = via_min(bytes, VIA_AVAIL_BYTES_MAX);
    head.u.avail.id = (tx->avail.id + 1) & VIA_AVAIL_ID_MASK;
    /* All earlier AVAILs have ended. The store keeps `revoked` near the ids in use: the reader
     * compares ids modulo 2^24, so the distance must stay below half of that. The record's release
     * makes the store visible to the reader. */
    atomic_store_explicit(&tx->avail.peer->revoked, tx->avail.id, memory_order_relaxed);
    int rc = send_head(tx, &head, sizeof(head.u.avail));
    if (rc == 0) {
        tx->avail.id = (uint32_t)head.u.avail.id;
        tx->avail.bytes = head.u.avail.bytes;
        tx->avail.done = 0;
        tx->avail.revoked = false;
        /* Pairs with the acquire in via_stream_tx_is_unread(). */
        atomic_store_explicit(&tx->avail.open, true, memory_order_release);
    }
    return rc;
}

int via_stream_tx_avail_state(struct via_stream_tx *tx, uint64_t *ret_done)
{
    /* Pairs with the release in post_pulled(): the reader has finished reading the bytes that it
     * reports. */
    uint64_t word = atomic_load_explicit(&tx->avail.own->pulled, memory_order_acquire);
    uint64_t done = word & PULLED_BYTES_MASK;
    unsigned state = (unsigned)(word >> 38) & 3u;
    *ret_done = tx->avail.done;
    if (word >> 40 != tx->avail.id) {
        /* The reader has not reached this AVAIL yet. */
        return tx->avail.revoked ? VIA_AVAIL_ENDED : VIA_AVAIL_OPEN;
    }
    if (done < tx->avail.done || done > tx->avail.bytes) {
        tx->pipe.broken = true;
        return -EPROTO;
    }
    tx->avail.done = done;
    *ret_done = done;
    if (state == VIA_PULL_CLAIMED) {
        return VIA_AVAIL_CLAIMED;
    }
    bool ended = tx->avail.revoked || state == VIA_PULL_REFUSED || done == tx->avail.bytes;
    return ended ? VIA_AVAIL_ENDED : VIA_AVAIL_OPEN;
}

bool via_stream_tx_is_unread(const struct via_stream_tx *tx, uint64_t fresh)
{
    if (tx->read == NULL) {
        return false;
    }
    uint64_t sent = atomic_load_explicit(&tx->pipe_bytes, memory_order_relaxed) - fresh;
    uint64_t read = atomic_load_explicit(tx->read, memory_order_relaxed);
    if ((int64_t)(sent - read) > 0) {
        return true;
    }
    /* Pairs with the release in via_stream_tx_avail(). */
    if (!atomic_load_explicit(&tx->avail.open, memory_order_acquire)) {
        return false;
    }
    uint64_t word = atomic_load_explicit(&tx->avail.own->pulled, memory_order_relaxed);
    return word >> 40 != tx->avail.id || (word & PULLED_BYTES_MASK) != tx->avail.bytes;
}

void via_stream_tx_avail_revoke(struct via_stream_tx *tx)
{
    tx->avail.revoked = true;
    atomic_store_explicit(&tx->avail.peer->revoked, tx->avail.id, memory_order_release);
    /* Store revoked, fence, load pulled: pairs with the fence in via_stream_rx_claim(). */
    atomic_thread_fence(memory_order_seq_cst);
}

void via_stream_tx_avail_end(struct via_stream_tx *tx)
{
    atomic_store_explicit(&tx->avail.open, false, memory_order_release);
}
