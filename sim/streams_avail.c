/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Zero-copy: the writer leaves bytes in its own memory, for the reader to fetch. */
#include <errno.h>

#include "base/types.h"
#include "sim/streams_internal.h"

/* Have the bytes left to be fetched been fetched? Or shall the writer reclaim them? False: wait. */
bool sim_streams_avail_check(struct streams *streams, struct end *end)
{
    struct direction *way = end->out;
    uint64_t done;
    int state = via_stream_tx_avail_state(&way->tx, &done);
    if (state < 0 || done > way->avail_bytes) {
        sim_streams_fail(streams, "avail: %d, %llu of %llu bytes fetched", state,
                         (unsigned long long)done, (unsigned long long)way->avail_bytes);
    }
    if (state == VIA_AVAIL_ENDED || (streams->plant == SIM_PLANT_EARLY_REUSE &&
                                     state == VIA_AVAIL_CLAIMED && way->tx.avail.revoked)) {
        via_stream_tx_avail_end(&way->tx);
        way->sent += done;
        way->avail_bytes = 0;
        end->late = way->tx.avail.revoked && done == 0;
        return true;
    }
    bool patient = end->burst.bytes == 0;
    if (!way->tx.avail.revoked &&
        chance(streams, patient ? streams->config->avail_chance / 4 : 500)) {
        via_stream_tx_avail_revoke(&way->tx);
        return true;
    }
    return false;
}

/* Leaves some bytes in place: a stream's offset serves as address. */
bool sim_streams_avail_open(struct streams *streams, struct end *end)
{
    struct direction *way = end->out;
    uint64_t bytes = between(streams, 1, via_min(way->total - way->sent, (uint64_t)CHUNK_MAX));
    int rc = via_stream_tx_avail(&way->tx, way->sent, bytes);
    if (rc != 0 && rc != -EAGAIN) {
        sim_streams_fail(streams, "avail: %d", rc);
    }
    way->avail_bytes = rc == 0 ? bytes : 0;
    end->ring_reader |= rc == 0;
    return rc == 0;
}

/* The second half of a fetch; the first was the claim. */
void sim_streams_avail_fetch(struct streams *streams, struct end *end, uint64_t max)
{
    struct direction *way = end->in;
    uint64_t from = way->rx.avail.address + way->rx.avail.done;
    uint64_t bytes = via_min(max, way->rx.avail.bytes - way->rx.avail.done);
    if (via_rng_chance(&streams->rng, 1, 8)) {
        bytes = 0; /* only a check */
    }
    end->in_fetch = false;
    end->pulled = true;
    if (writer_of(&streams->connections[end->connection], way)->dead) {
        via_stream_rx_refuse(&way->rx); /* its memory is gone */
        return;
    }
    if (way->avail_bytes == 0 || way->sent != way->rx.avail.address) {
        sim_streams_fail(streams, "bytes are fetched from memory that the writer has taken back");
        return;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        streams->chunk[i] = sim_streams_byte(way->content, from + i);
    }
    via_stream_rx_pulled(&way->rx, bytes);
    sim_streams_check_chunk(streams, way, bytes);
}

void sim_streams_avail_meet(struct streams *streams, struct end *end)
{
    if (end->shared || via_rng_chance(&streams->rng, 1, 6)) {
        via_stream_rx_refuse(&end->in->rx);
        end->pulled = true;
    } else if (via_stream_rx_claim(&end->in->rx) == 0) {
        end->in_fetch = true;
    } else {
        end->pulled = true;
    }
}
