/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_COST_STILL_H
#define SIM_COST_STILL_H

#include "core/node.h"

/*
 * Operations of ports and of what surrounds nodes, for fabrics in which nothing goes wrong and
 * nothing is asked: links that are always up, no messages, nobody to tell.
 */
bool sim_still_link_is_up(struct via_port *port);
void sim_still_close(struct via_port *port);
int sim_still_fence_start(struct via_port *port, unsigned queue);
int sim_still_fence_poll(struct via_port *port, unsigned queue);
void sim_still_flush(struct via_port *port, unsigned queue);

int sim_still_deliver(void *ctx, const struct via_delivery *delivery); /* -ENOENT */
void sim_still_notify(void *ctx, unsigned channel, uint64_t handle);
void sim_still_wake(void *ctx, unsigned channel);

#endif
