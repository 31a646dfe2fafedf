/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Posted writes of one queue of a simulated port. */
#ifndef SIM_POSTED_H
#define SIM_POSTED_H

#include "sim/world.h"

/* core/port.h: body, commit, flush. */
void sim_posted_body(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                     size_t len);
void sim_posted_commit(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                       size_t len);
/* A write of the port's engine, ordered before the next commit of the lane's thread. */
void sim_posted_by_engine(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                          size_t len);
void sim_posted_flush(struct sim_end *end, struct sim_lane *lane);
/* The queue's write-combining buffers. */
void sim_posted_drain(struct sim_end *end, struct sim_lane *lane);

/* Called while the host of this end works: some writes that are under way to it arrive. */
void sim_posted_pump(struct sim_end *end);

/* Delivers all writes with a number below mark, and those in front of them. */
void sim_posted_arrive_until(struct sim_end *from, struct sim_lane *lane, uint64_t mark);
/* The link is lost, and with it the writes under way: all from some point on; one write is torn. */
void sim_posted_cut(struct sim_end *from, struct sim_lane *lane);
/* Discards all of them. */
void sim_posted_drop(struct sim_lane *lane);

#endif
