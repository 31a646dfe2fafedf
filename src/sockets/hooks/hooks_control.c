/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The program's interface to the library: include/viaduct/sockets.h. */
#include "viaduct/sockets.h"

#include <errno.h>
#include <stdbool.h>

#include "sockets/conn/board.h"
#include "sockets/conn/conn.h"
#include "sockets/io/wait.h"
#include "sockets/process/real.h"

/* Declared weak for programs, but not here. */
VIA_HOOK int via_sockets_info(int fd, struct via_sockets_info *ret_info)
{
    struct via_op op;
    if (ret_info->size < sizeof(*ret_info)) {
        return -EINVAL;
    }
    if (!via_op_begin(&op, fd)) {
        enum via_reason reason = via_board_reason(fd);
        *ret_info =
            (struct via_sockets_info){.size = sizeof(*ret_info), .why = via_reason_text(reason)};
        return reason != VIA_REASON_NONE ? 0 : -ENOENT;
    }
    const struct via_conn *conn = op.conn;
    const struct via_stats_conn *stats = conn->stats;
    bool pipes = via_conn_has_pipes(conn);
    *ret_info = (struct via_sockets_info){
        .size = sizeof(*ret_info),
        .carrier = !pipes                 ? VIA_SOCKETS_KERNEL
                   : conn->fabric != NULL ? VIA_SOCKETS_PIPES_TO_HOST
                                          : VIA_SOCKETS_PIPES,
        .why = pipes ? "" : via_reason_text(stats->reason),
        .tx_pipe_bytes = stats->tx_pipe_bytes,
        .rx_pipe_bytes = stats->rx_pipe_bytes,
        .tx_kernel_bytes = stats->tx_kernel_bytes,
        .rx_kernel_bytes = stats->rx_kernel_bytes,
        .tx_frames_bytes = stats->tx_frames_bytes,
        .tx_fetched_bytes = stats->tx_fetched_bytes,
        .rings_count = stats->rings,
        .sleeps_count = stats->sleeps,
    };
    via_op_end(&op);
    return 0;
}

VIA_HOOK int via_sockets_spin(int spin)
{
    if (spin < VIA_SOCKETS_SPIN_DEFAULT || spin > 1) {
        return -EINVAL;
    }
    via_wait_set_spin(spin);
    return 0;
}
