/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stall.h"

#include "sockets/demote.h"
#include "sockets/epoll_set.h"
#include "sockets/fabric.h"
#include "sockets/io_internal.h"

/* Long for two ends that are at work, short for a program that hangs. */
#define STALL_NS (30 * VIA_MSEC_NS)

/* With both tokens. */
static bool is_full(struct via_side *side)
{
    return side->tx.span == VIA_SPAN_PIPE && !side->tx.ended && !via_stream_tx_writable(&side->tx);
}

static bool peer_waits(const struct via_side *side)
{
    return (side->rx.held || via_pipe_ready(&side->rx.pipe)) &&
           via_pipe_writer_waits(&side->rx.pipe);
}

/* With both tokens: what this end has read is given back, and where the peer's pipe began is read.
 */
static void take_in(struct via_op *op)
{
    struct via_stream_rx *rx = &op->side->rx;
    if (op->conn->fabric == NULL) {
        via_rx_next(op);
        rx->posted = rx->pipe.posted != rx->pipe.released;
        if (via_stream_rx_must_ring(rx)) {
            via_conn_posted(op->conn);
        }
    } else {
        via_fabric_rx_begin(op->conn);
        via_rx_next(op);
        via_fabric_rx_end(op->conn);
    }
}

/* With both tokens: for how long has nothing moved? VIA_NEVER_NS: there is room. */
static uint64_t stalled_ns(struct via_op *op)
{
    struct via_side *side = op->side;
    struct via_stall *stall = &side->stall;
    uint64_t now = via_os_now_ns();
    if (!is_full(side)) {
        return VIA_NEVER_NS;
    }
    take_in(op);
    if (!peer_waits(side)) {
        stall->begin_ns = 0;
    } else if (stall->begin_ns == 0 || stall->taken != side->tx.pipe.released ||
               stall->read != side->rx.pipe_bytes) {
        *stall = (struct via_stall){
            .begin_ns = now, .taken = side->tx.pipe.released, .read = side->rx.pipe_bytes};
    }
    return stall->begin_ns == 0 ? 0 : now - stall->begin_ns;
}

/* With both tokens. What follows goes by the kernel, from the next call on until the peer has read
 * the pipe. Not before it has read where the pipe began: it would take these bytes for earlier
 * ones. */
static bool spill(struct via_op *op)
{
    struct via_side *side = op->side;
    bool begun = (int32_t)(side->tx.pipe.released - side->tx.switch_end) >= 0;
    side->spills = begun && !via_conn_must_heed(op->conn) && via_conn_end_pipe_span(op) == 0 &&
                   side->tx.span != VIA_SPAN_PIPE;
    return side->spills;
}

uint64_t via_stall_watch(struct via_op *op)
{
    uint64_t ns = 0;
    bool spills = false;
    if (!via_conn_has_pipes(op->conn) || via_stall_is_none(op->side, op->conn->fabric != NULL)) {
        return VIA_NEVER_NS;
    }
    if (via_tx_take(op) == 0) {
        if (via_rx_take(op) == 0) {
            ns = stalled_ns(op);
            spills = ns >= STALL_NS && ns != VIA_NEVER_NS && spill(op);
            via_rx_give(op);
        }
        via_tx_give(op);
    }
    if (spills) {
        via_ep_conn_changed(op->conn);
        return 0;
    }
    return ns == VIA_NEVER_NS ? ns : STALL_NS;
}
