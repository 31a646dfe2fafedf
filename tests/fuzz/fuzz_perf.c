/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages between processes of viaduct perf: an order is executed in existing memory only, an
 * answer has a status and a text.
 *
 * Input: a byte of options, then orders or answers, each after a byte that may make it shorter.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/types.h"
#include "cli/perf_wire.h"
#include "tests/fuzz/input.h"

#define OPTION_ANSWERS 0x01u
#define OPTION_NO_SEGMENT 0x02u
#define SEGMENT_BYTES 8192u
#define MESSAGES_MAX 64u

static void send_message(struct input *input, int fd, void *message, size_t bytes)
{
    uint8_t odd = input_byte(input);
    size_t shorter = (odd & 0xc0) == 0xc0 ? odd & 0x3fu : 0;
    size_t length = bytes - shorter % bytes;
    require(send(fd, message, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length);
}

static void send_order(struct input *input, int fd)
{
    struct via_perf_order order = {.kind = input_byte(input) & 7,
                                   .count = input_edgy(input),
                                   .bytes = input_edgy(input),
                                   .handle = input_edgy(input),
                                   .number = input_edgy(input)};
    if (order.kind == 7) { /* unchanged */
        order.kind = VIA_PERF_ORDER_OPEN;
        order.bytes = SEGMENT_BYTES;
    }
    send_message(input, fd, &order, sizeof(order));
}

/* Executes an order like perf_peer.c, except orders for other hosts. */
static void obey(const struct via_perf_order *order, unsigned char *segment, bool *is_open)
{
    switch (order->kind) {
    case VIA_PERF_ORDER_OPEN:
        *is_open = true;
        break;
    case VIA_PERF_ORDER_PING: {
        unsigned char *copy = malloc(order->bytes);
        require(copy != NULL);
        (void)atomic_load(via_perf_last_word(segment, order->bytes));
        memcpy(copy, segment, order->bytes);
        free(copy);
        break;
    }
    default:
        require(order->kind == VIA_PERF_ORDER_BARE || order->kind == VIA_PERF_ORDER_BARRIER);
    }
}

static void take_orders(struct input *input, int fds[2], unsigned options)
{
    size_t bytes = (options & OPTION_NO_SEGMENT) != 0 ? 0 : SEGMENT_BYTES;
    unsigned char *segment =
        calloc(1, bytes != 0 ? bytes : 1); /* of that size, for the sanitizer */
    bool is_open = false;
    require(segment != NULL);
    for (unsigned i = 0; i < MESSAGES_MAX && input->bytes != 0; i++) {
        struct via_perf_order order;
        send_order(input, fds[1]);
        int rc = via_perf_order_receive(fds[0], bytes, is_open, &order);
        require(rc == 1 || rc == -EPROTO);
        if (rc == 1) {
            obey(&order, segment, &is_open);
        }
    }
    shutdown(fds[1], SHUT_WR);
    struct via_perf_order order;
    require(via_perf_order_receive(fds[0], bytes, is_open, &order) == 0);
    free(segment);
}

static void take_answers(struct input *input, int fds[2])
{
    for (unsigned i = 0; i < MESSAGES_MAX && input->bytes != 0; i++) {
        struct via_perf_answer answer_sent = {.status = (int32_t)(0u - (uint32_t)input_edgy(input)),
                                              .handle = input_edgy(input)};
        struct via_perf_answer answer;
        size_t text = input_byte(input);
        memset(answer_sent.text, 'x', text);
        answer_sent.text[text] = input_byte(input) != 0 ? 'x' : '\0';
        send_message(input, fds[1], &answer_sent, sizeof(answer_sent));
        int rc = via_perf_answer_receive(fds[0], 60000, &answer);
        require(rc == 0 || rc == -EPROTO);
        if (rc == 0) {
            require(answer.status <= 0 && answer.handle == answer_sent.handle);
            require(memchr(answer.text, 0, sizeof(answer.text)) != NULL);
        }
    }
    struct via_perf_answer answer;
    require(via_perf_answer_receive(fds[0], 0, &answer) == -ETIMEDOUT);
    shutdown(fds[1], SHUT_WR);
    require(via_perf_answer_receive(fds[0], 60000, &answer) == -ECONNRESET);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    int fds[2];
    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    unsigned options = input_byte(&input);
    if ((options & OPTION_ANSWERS) != 0) {
        take_answers(&input, fds);
    } else {
        take_orders(&input, fds, options);
    }
    close(fds[0]);
    close(fds[1]);
    return 0;
}
