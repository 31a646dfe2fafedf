/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_PERF_WIRE_H
#define VIA_CLI_PERF_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* The messages between processes of viaduct perf: datagrams of fixed size, orders in one direction
 * and an answer to each in the other. Either end checks the messages that it receives. */
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
    uint64_t number; /* number of the last ping before these */
};

/* The answer to each order; also sent once after the start. */
struct via_perf_answer {
    int32_t status; /* 0 or negative errno */
    uint64_t handle;
    char text[256];
};

/* Receives the next order that this end can execute with a segment of `bytes` (0: none), and with
 * or without the near segment open. 1; 0: the other end has closed the socket; -EPROTO: not a valid
 * order. */
VIA_MUST_CHECK int via_perf_order_receive(int fd, uint64_t bytes, bool is_open,
                                          struct via_perf_order *ret_order);

/* Waits for the answer. 0, and its text is terminated; -ETIMEDOUT; -ECONNRESET: the process has
 * ended; -EPROTO. */
VIA_MUST_CHECK int via_perf_answer_receive(int fd, int timeout_ms,
                                           struct via_perf_answer *ret_answer);

/* The last word of a ping of this size in a segment. */
static inline _Atomic uint64_t *via_perf_last_word(unsigned char *base, uint64_t bytes)
{
    return (_Atomic uint64_t *)(void *)(base + bytes - sizeof(uint64_t));
}

#endif
