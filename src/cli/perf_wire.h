/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_PERF_WIRE_H
#define VIA_CLI_PERF_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* The messages between processes of viaduct perf: orders one way, an answer to each the
 * other, datagrams of a fixed size. Either end checks what it gets. */
enum via_perf_order_kind {
    VIA_PERF_ORDER_OPEN = 1, /* handle, bytes: of the near segment */
    VIA_PERF_ORDER_BARE,     /* count pings on the lines */
    VIA_PERF_ORDER_PING,     /* count pings of bytes */
    VIA_PERF_ORDER_BARRIER,  /* count barriers */
};

struct via_perf_order {
    uint32_t kind; /* enum via_perf_order_kind */
    uint64_t count;
    uint64_t bytes;
    uint64_t handle;
    uint64_t number; /* of the last ping before these */
};

/* Comes back for each order, and once after the start. */
struct via_perf_answer {
    int32_t status; /* 0 or negative errno */
    uint64_t handle;
    char text[256];
};

/* The next order that this end can carry out with a segment of `bytes` (0: none), with or without
 * the near one open: 1. 0: the other end has closed. -EPROTO: it is none such. */
VIA_MUST_CHECK int via_perf_order_receive(int fd, uint64_t bytes, bool is_open,
                                          struct via_perf_order *ret_order);

/* Waits for the answer: 0, with a text that ends; -ETIMEDOUT, -ECONNRESET (the process has ended),
 * -EPROTO. */
VIA_MUST_CHECK int via_perf_answer_receive(int fd, int timeout_ms,
                                           struct via_perf_answer *ret_answer);

/* The last word of a ping of this size in a segment. */
static inline _Atomic uint64_t *via_perf_last_word(unsigned char *base, uint64_t bytes)
{
    return (_Atomic uint64_t *)(void *)(base + bytes - sizeof(uint64_t));
}

#endif
