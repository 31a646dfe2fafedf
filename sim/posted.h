/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Posted writes of one queue of a port, as ports of the simulator make them. */
#ifndef SIM_POSTED_H
#define SIM_POSTED_H

#include "sim/world.h"

/* core/port.h: body, commit, flush. */
void sim_posted_body(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                     size_t len);
void sim_posted_commit(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                       size_t len);
/* A write of the port's engine that is ordered in front of what the lane's thread commits next. */
void sim_posted_by_engine(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                          size_t len);
void sim_posted_flush(struct sim_end *end, struct sim_lane *lane);
/* The queue's write-combining buffers. */
void sim_posted_drain(struct sim_end *end, struct sim_lane *lane);

/* Time passes while the host of this end works: something that is on its way to it arrives. */
void sim_posted_pump(struct sim_end *end);

/* All with a number less than mark, and what is in front of them. */
void sim_posted_arrive_until(struct sim_end *from, struct sim_lane *lane, uint64_t mark);
/* The link is lost, and with it what is under way: from some point on, one write torn. */
void sim_posted_cut(struct sim_end *from, struct sim_lane *lane);
/* All of it, without a trace. */
void sim_posted_drop(struct sim_lane *lane);

#endif
