/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A peer that completes bring-up like any other, and then sends arbitrary data. */
#ifndef TESTS_UNIT_HOSTILE_PEER_H
#define TESTS_UNIT_HOSTILE_PEER_H

#include "core/pipe.h"
#include "fabric.h"

#define HOSTILE_SLOTS_MAX 64

/* One of its pipes towards the victim, and the one back. */
struct hostile_pipe {
    struct via_pipe_writer writer;
    struct via_pipe_reader reader;
    uint32_t data_ends[HOSTILE_SLOTS_MAX];
};

struct hostile_peer {
    struct hostile_pipe control;
    struct hostile_pipe channel; /* channel 0 */
};

/* Takes over a host's end of its first link, which must be up, in its present state; the host
 * itself ends. */
void hostile_peer_become(struct hostile_peer *peer, struct fabric *fabric, int host);

#endif
