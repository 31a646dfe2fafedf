/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A DMA engine: channels, each of which makes one transfer after the other. A transfer is started
 * (set-up, and a fetch of its descriptor if that is in memory), then cut into read requests of
 * MRRS, of which a channel has a limited number under way; the data is posted to the destination as
 * it arrives. A source or destination in the engine's own node crosses no link.
 */
#ifndef SIM_COST_DMA_H
#define SIM_COST_DMA_H

#include "sim/cost/net.h"

struct sim_dma_transfer {
    const struct sim_path *to_source, *from_source; /* from the engine's node and back to it */
    const struct sim_path *to_target;
    const struct sim_path *to_descriptor,
        *from_descriptor; /* NULL: the descriptor is in registers */
    uint64_t bytes;
    struct sim_call done; /* the last byte is visible at the target */
};

struct sim_dma_job;

struct sim_dma_channel {
    struct sim_dma_job *first, *last; /* owned; the first is under way */
    struct sim_server issue;          /* of read requests */
    uint64_t tags_free;
};

struct sim_dma {
    struct sim_net *net; /* borrowed */
    unsigned channels_count;
    struct sim_dma_channel *channels;
    uint64_t setup_ps;         /* from the start until the first read request or descriptor fetch */
    uint64_t finish_ps;        /* from the last visible byte until the engine reports completion */
    uint64_t request_ps;       /* minimum time between two read requests of a channel */
    uint64_t tags_count;       /* maximum number of read requests of a channel under way */
    uint64_t descriptor_bytes; /* bytes of the descriptor in memory */
    unsigned mrrs_bytes;
};

/* section: "dma NAME". */
void sim_dma_init(struct sim_dma *dma, struct sim_net *net, const struct sim_scenario *scenario,
                  const char *section);
void sim_dma_fini(struct sim_dma *dma);

/* Queues a transfer; paths are borrowed until done. */
void sim_dma_start(struct sim_dma *dma, unsigned channel, const struct sim_dma_transfer *transfer);

#endif
