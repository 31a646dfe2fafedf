/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "hostile_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/link.h"

static void take_pipe(struct hostile_pipe *pipe, const struct via_pipe_writer *writer,
                      const struct via_pipe_reader *reader)
{
    uint32_t slots = writer->geometry.slots_count;
    assert_true(slots <= HOSTILE_SLOTS_MAX);
    pipe->writer = *writer;
    pipe->reader = *reader;
    memcpy(pipe->data_ends, writer->data_ends, slots * sizeof(uint32_t));
    pipe->writer.data_ends = pipe->data_ends;
}

void hostile_peer_become(struct hostile_peer *peer, struct fabric *fabric, int host)
{
    struct via_node *node = fabric_node(fabric, host);
    const struct via_link *link = &node->links[0];
    const struct via_way *way = &node->channels[0].ways[0];
    assert_int_equal(link->phase, VIA_PHASE_UP);
    take_pipe(&peer->control, &link->control_tx, &link->control_rx);
    take_pipe(&peer->channel, &way->tx, &way->rx);
    fabric_crash(fabric, host);
}
