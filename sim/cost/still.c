/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/still.h"

#include <errno.h>

bool sim_still_link_is_up(struct via_port *port)
{
    (void)port;
    return true;
}

void sim_still_close(struct via_port *port)
{
    (void)port;
}

int sim_still_fence_start(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
    return 0;
}

int sim_still_fence_poll(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
    return 1;
}

void sim_still_flush(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
}

int sim_still_deliver(void *ctx, const struct via_delivery *delivery)
{
    (void)ctx;
    (void)delivery;
    return -ENOENT;
}

void sim_still_notify(void *ctx, unsigned channel, uint64_t handle)
{
    (void)ctx;
    (void)channel;
    (void)handle;
}

void sim_still_wake(void *ctx, unsigned channel)
{
    (void)ctx;
    (void)channel;
}
