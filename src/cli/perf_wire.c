/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/perf_wire.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/mutant.h"

#define STATUS_MIN (-4095) /* errno has no larger number */

static bool is_sound(const struct via_perf_order *order, uint64_t bytes, bool is_open)
{
    switch (order->kind) {
    case VIA_PERF_ORDER_OPEN:
        return bytes != 0 && order->bytes == bytes && !is_open;
    case VIA_PERF_ORDER_PING:
        return is_open && order->bytes != 0 && order->bytes % sizeof(uint64_t) == 0 &&
               (order->bytes <= bytes || VIA_MUTANT(PERF_BYTES));
    default:
        return order->kind == VIA_PERF_ORDER_BARE || order->kind == VIA_PERF_ORDER_BARRIER;
    }
}

int via_perf_order_receive(int fd, uint64_t bytes, bool is_open, struct via_perf_order *ret_order)
{
    ssize_t got = recv(fd, ret_order, sizeof(*ret_order), MSG_TRUNC);
    if (got <= 0) {
        return 0;
    }
    return got == (ssize_t)sizeof(*ret_order) && is_sound(ret_order, bytes, is_open) ? 1 : -EPROTO;
}

int via_perf_answer_receive(int fd, int timeout_ms, struct via_perf_answer *ret_answer)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    int ready = poll(&pollfd, 1, timeout_ms);
    if (ready == 0) {
        return -ETIMEDOUT;
    }
    ssize_t got = ready < 0 ? 0 : recv(fd, ret_answer, sizeof(*ret_answer), MSG_TRUNC);
    if (got <= 0) {
        return -ECONNRESET;
    }
    if (got != (ssize_t)sizeof(*ret_answer) || ret_answer->status > 0 ||
        ret_answer->status < STATUS_MIN) {
        return -EPROTO;
    }
    ret_answer->text[sizeof(ret_answer->text) - 1] = '\0';
    return 0;
}
