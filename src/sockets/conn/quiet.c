/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/quiet.h"

#include <sys/mman.h>

#include "sockets/conn/share.h"
#include "sockets/hooks/hooks.h"
#include "sockets/io/io_internal.h"

#define PAGE 4096u
/* In a round of this length all descriptors are checked, SLICE at a time. */
#define ROUND_NS VIA_SEC_NS
#define SLICE 1024u
#define QUIET_NS (2 * VIA_SEC_NS)
/* Number of checks after which this end stops waiting for the credits of a peer that does not read,
 * until bytes move again. */
#define TRIES_MAX 4u

_Atomic bool via_quiet_due;

static atomic_flag checking = ATOMIC_FLAG_INIT; /* one thread checks at a time */
static unsigned hand; /* the next descriptor to check; used with the flag held */
static bool found;    /* this round has found a connection to check again */

static bool is_free(const struct via_token *token)
{
    return atomic_load_explicit(&token->holder, memory_order_relaxed) == 0;
}

/* Checks the reading side of a connection. A quiet reader returns all credits. False: another
 * thread uses that side. */
static bool check_reader(struct via_op *op, bool quiet, uint32_t *ret_sequence)
{
    struct via_pipe_reader *pipe = &op->side->rx.pipe;
    if (!is_free(&op->side->rx_token) || via_rx_take(op) != 0) {
        return false;
    }
    *ret_sequence = pipe->sequence;
    bool rings = false;
    if (quiet && pipe->sequence == op->conn->quiet.rx && pipe->posted != pipe->released) {
        rings = via_pipe_take_writer_ring(pipe);
        if (!rings) {
            via_pipe_post_credit(pipe);
        }
        op->side->rx.unposted_bytes = 0;
    }
    via_rx_give(op);
    if (rings) {
        via_conn_posted(op->conn);
    }
    return true;
}

/* Estimates the used memory by the bytes written since the pages were removed. */
static uint32_t used_bytes(const struct via_quiet *quiet, const struct via_stream_tx *tx)
{
    const struct via_pipe_geometry *geometry = &tx->pipe.geometry;
    uint64_t records = tx->pipe.sequence - quiet->emptied;
    uint64_t bytes = tx->pipe_bytes - quiet->pipe_bytes;
    return (uint32_t)(VIA_SHARE_IDLE_BYTES +
                      via_min(records, (uint64_t)geometry->slots_count) * VIA_RECORD_LINE_BYTES +
                      via_min(bytes, (uint64_t)geometry->data_bytes));
}

/* Removes the pages of an empty pipe. With the tx token. False: they are locked (mlockall(2)). */
static bool remove_pages(struct via_side *side)
{
    unsigned char *segment = side->tx.pipe.target.direct - VIA_SEGMENT_PIPE_OFF;
    size_t bytes = via_segment_bytes_for(&side->tx.pipe.geometry);
    via_side_remove_pages(side);
    return madvise(segment + PAGE, bytes - PAGE, MADV_REMOVE) == 0;
}

/* Checks the writing side. *ret_left: pages have to be removed at a later check. False: another
 * thread uses that side. */
static bool check_writer(struct via_op *op, bool quiet, uint32_t *ret_sequence, bool *ret_left)
{
    struct via_stream_tx *tx = &op->side->tx;
    struct via_quiet *of = &op->conn->quiet;
    if (!is_free(&op->side->tx_token) || via_tx_take(op) != 0) {
        return false;
    }
    *ret_sequence = tx->pipe.sequence;
    *ret_left = tx->pipe.sequence != of->emptied;
    /* Checked with the token: another thread may have left the pipes before. */
    if (quiet && *ret_left && tx->pipe.sequence == of->tx &&
        via_conn_is_in(op->conn, VIA_PHASE_BIT(LIVE)) &&
        via_pipe_writer_room(&tx->pipe) == tx->pipe.geometry.slots_count &&
        !atomic_load_explicit(&tx->avail.open, memory_order_relaxed) && remove_pages(op->side)) {
        of->emptied = tx->pipe.sequence;
        of->pipe_bytes = tx->pipe_bytes;
        *ret_left = false;
    }
    via_share_charge(&of->used_bytes, used_bytes(of, tx));
    via_tx_give(op);
    return true;
}

/* True if the connection must be checked again. */
static bool check_connection(struct via_op *op, uint64_t now_ns)
{
    struct via_quiet *of = &op->conn->quiet;
    bool quiet = of->since_ns != 0 && now_ns - of->since_ns >= QUIET_NS;
    uint32_t rx, tx;
    bool left;
    if (!check_reader(op, quiet, &rx) || !check_writer(op, quiet, &tx, &left)) {
        return true;
    }
    if (tx != of->tx || rx != of->rx || of->since_ns == 0) {
        of->tx = tx;
        of->rx = rx;
        of->since_ns = now_ns;
        of->tries = 0;
        return true;
    }
    return !quiet || (left && ++of->tries < TRIES_MAX);
}

static bool check_descriptor(int fd, uint64_t now_ns)
{
    struct via_op op;
    bool again = false;
    if (via_likely(via_fd_peek(fd) == NULL) || !via_op_begin(&op, fd)) {
        return false;
    }
    if (via_conn_has_pipes(op.conn) && via_conn_is_local(op.conn) &&
        via_conn_is_in(op.conn, VIA_PHASE_BIT(LIVE))) {
        again = check_connection(&op, now_ns);
    }
    via_op_end(&op);
    return again;
}

/* Checks one slice of a round. Returns the time until the next slice; VIA_NEVER_NS: no connection
 * needs more checks. */
static uint64_t check_slice(void)
{
    unsigned top = via_fds_top();
    uint64_t now_ns = via_os_now_ns();
    if (hand == 0) {
        found = false;
        /* Cleared before the tokens are taken: a thread that writes later finds it false, and sets
         * it. */
        atomic_store_explicit(&via_quiet_due, false, memory_order_relaxed);
    }
    unsigned end = via_min(hand + SLICE, top);
    for (; hand < end; hand++) {
        found |= check_descriptor((int)hand, now_ns);
    }
    if (hand < top) {
        return ROUND_NS / (top / SLICE + 1);
    }
    hand = 0;
    if (found) {
        atomic_store_explicit(&via_quiet_due, true, memory_order_relaxed);
    }
    bool due = atomic_load_explicit(&via_quiet_due, memory_order_relaxed);
    return due ? ROUND_NS / (top / SLICE + 1) : VIA_NEVER_NS;
}

void via_quiet_check(void)
{
    VIA_KEEP_ERRNO;
    if (!atomic_flag_test_and_set_explicit(&checking, memory_order_acquire)) {
        uint64_t next_ns = check_slice();
        if (next_ns != VIA_NEVER_NS) {
            via_sock_bell_call_in(next_ns);
        }
        atomic_flag_clear_explicit(&checking, memory_order_release);
    }
}

void via_quiet_begin(void)
{
    VIA_KEEP_ERRNO;
    if (!via_hooks_is_guest() &&
        !atomic_exchange_explicit(&via_quiet_due, true, memory_order_relaxed)) {
        via_sock_bell_call_in(ROUND_NS);
    }
}

void via_quiet_forked(void)
{
    atomic_flag_clear(&checking);
    hand = 0;
    atomic_store_explicit(&via_quiet_due, false, memory_order_relaxed);
}
