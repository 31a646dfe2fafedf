/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stream/stream_stall.h"

#include "base/mutant.h"

bool via_stream_stall_is_full(struct via_stream_tx *tx)
{
    return tx->span == VIA_SPAN_PIPE && !tx->ended && !via_stream_tx_is_writable(tx);
}

bool via_stream_stall_give_back(struct via_stream_rx *rx)
{
    rx->posted |= rx->pipe.posted != rx->pipe.released;
    return via_stream_rx_take_writer_ring(rx);
}

/* True if the peer waits for room. While it writes to the kernel it does not announce that: then
 * bytes in the kernel that no thread reads are taken as the sign. */
static bool is_peer_waiting(const struct via_stream_rx *rx, bool kernel_unread)
{
    return ((rx->held || via_pipe_is_ready(&rx->pipe)) && via_pipe_writer_is_waiting(&rx->pipe)) ||
           (kernel_unread && via_stream_rx_is_left(rx));
}

/* True if the peer has read SWITCH, where the pipe span begins. Before that it would take bytes
 * from the kernel for bytes of the kernel span before. */
static bool has_begun(const struct via_stream_tx *tx)
{
    return (int32_t)(tx->pipe.released - tx->switch_end) >= 0 || VIA_MUTANT(STALL_UNBEGUN);
}

bool via_stream_stall_is_due(struct via_stream_stall *stall, const struct via_stream_tx *tx,
                             const struct via_stream_rx *rx, bool kernel_unread, uint64_t now_ns)
{
    if (!is_peer_waiting(rx, kernel_unread) || VIA_MUTANT(STALL_NEVER)) {
        stall->begin_ns = 0;
        return false;
    }
    if (stall->begin_ns == 0 || stall->taken != tx->pipe.released ||
        stall->read != rx->pipe_bytes) {
        stall->begin_ns = now_ns;
        stall->taken = tx->pipe.released;
        stall->read = rx->pipe_bytes;
    }
    return now_ns - stall->begin_ns >= VIA_STREAM_STALL_NS && has_begun(tx);
}

bool via_stream_stall_is_over(struct via_stream_stall *stall, struct via_stream_tx *tx)
{
    if (stall->spills) {
        via_pipe_writer_room(&tx->pipe); /* updates `released` by the reader's credit */
        stall->spills =
            via_pipe_writer_outstanding(&tx->pipe) != 0 && !VIA_MUTANT(STALL_EARLY_BACK);
    }
    return !stall->spills;
}

bool via_stream_stall_must_stay(const struct via_stream_stall *stall,
                                const struct via_stream_tx *tx)
{
    return tx->ended || (stall->spills && !VIA_MUTANT(STALL_RESENT));
}
