/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/io/stall.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "base/mutant.h"
#include "sockets/conn/demote.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/real.h"

/* With both tokens: returns credit for all read bytes, and reads the beginning of the peer's pipe
 * span. */
static void return_credits(struct via_op *op)
{
    via_carrier_rx_begin(op->conn);
    via_rx_next(op);
    if (via_conn_is_local(op->conn) && via_stream_stall_give_back(&op->side->rx)) {
        via_conn_posted(op->conn);
    }
    via_carrier_rx_end(op->conn);
}

static bool is_kernel_unread(const struct via_op *op)
{
    int bytes = 0;
    return VIA_REAL(ioctl)(op->fd, SIOCINQ, &bytes) == 0 && bytes > 0;
}

static bool is_kernel_full(const struct via_op *op)
{
    struct pollfd pfd = {.fd = op->fd, .events = POLLOUT};
    return VIA_REAL(poll)(&pfd, 1, 0) == 0;
}

/* With both tokens: from the next call on, bytes go through the kernel until the peer has read the
 * pipe. False: not possible now. */
static bool spill(struct via_op *op)
{
    struct via_side *side = op->side;
    side->stall.spills = !via_conn_has_demotion_request(op->conn) &&
                         via_conn_end_pipe_span(op, false) == 0 && side->tx.span != VIA_SPAN_PIPE;
    return side->stall.spills;
}

/* With both tokens. Returns how long to sleep: see via_stall_watch(). */
static uint64_t check_stall(struct via_op *op)
{
    struct via_side *side = op->side;
    if (via_stall_is_hidden(side) && is_kernel_full(op) && !VIA_MUTANT(CONN_HIDDEN_BEGIN)) {
        return_credits(op);
        return VIA_STREAM_STALL_NS;
    }
    if (!via_stream_stall_is_full(&side->tx)) {
        return VIA_NEVER_NS;
    }
    return_credits(op);
    bool due = via_stream_stall_is_due(&side->stall, &side->tx, &side->rx, is_kernel_unread(op),
                                       via_os_now_ns());
    return due && spill(op) ? 0 : VIA_STREAM_STALL_NS;
}

uint64_t via_stall_watch(struct via_op *op)
{
    uint64_t ns = VIA_STREAM_STALL_NS;
    if (!via_conn_has_pipes(op->conn) || via_stall_is_none(op->conn)) {
        return VIA_NEVER_NS;
    }
    if (via_tx_take(op) == 0) {
        if (via_rx_take(op) == 0) {
            ns = check_stall(op);
            via_rx_give(op);
        }
        via_tx_give(op);
    }
    if (ns == 0) {
        via_ep_conn_changed(op->conn);
    }
    return ns;
}
