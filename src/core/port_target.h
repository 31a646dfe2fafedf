/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A pipe over a port: the functions of struct via_pipe_target, whose ctx is the port. */
#ifndef VIA_CORE_PORT_TARGET_H
#define VIA_CORE_PORT_TARGET_H

#include "core/pipe.h"
#include "core/port.h"

static inline void via_port_target_body(void *ctx, unsigned queue, uint64_t off, const void *src,
                                        size_t len)
{
    struct via_port *port = ctx;
    port->ops->body(port, queue, off, src, len);
}

static inline void via_port_target_commit(void *ctx, unsigned queue, uint64_t off, const void *src,
                                          size_t len)
{
    struct via_port *port = ctx;
    port->ops->commit(port, queue, off, src, len);
}

/* `off`: in the peer's inbox. */
static inline struct via_pipe_target via_port_target(struct via_port *port, unsigned queue,
                                                     uint64_t off)
{
    return (struct via_pipe_target){.body = via_port_target_body,
                                    .commit = via_port_target_commit,
                                    .ctx = port,
                                    .queue = queue,
                                    .off = off};
}

#endif
