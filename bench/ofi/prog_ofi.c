/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Puts to and fro over an ofi port between two processes, as bench_ofi.py compares them with
 * libfabric's own fi_pingpong: a body of a given size and a commit each way, waited for in memory.
 *
 *   prog_ofi BYTES TIMES ADDRESS ADDRESS [encrypt]     prints the time of one way, in us
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"
#include "bench/stats.h"
#include "port/driver.h"

#define FLAG_OFF 0u
#define BODY_OFF 4096u
#define QUEUE 0u
#define UP_NS (10 * VIA_SEC_NS)
#define WAIT_NS (10 * VIA_SEC_NS)

static void wake(void *ctx, unsigned thread)
{
    (void)ctx;
    (void)thread;
}

/* A keyed hash without a key: only what follows the greeting is measured. */
static void mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[32])
{
    (void)ctx;
    (void)data;
    (void)bytes;
    memset(ret_mac, 1, 32);
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "prog_ofi: %s\n", what);
    exit(1);
}

static struct via_port *open_end(unsigned side, size_t bytes, char *const words[3],
                                 struct via_driver_host *host)
{
    struct via_link_config config;
    struct via_error err = {0};
    struct via_port *port;
    char text[200];
    *host = (struct via_driver_host){
        .host = (uint16_t)(side + 1),
        .peer = (uint16_t)(2 - side),
        .inbox_bytes = via_align_up(BODY_OFF + bytes, 4096),
        .threads_count = 1,
        .encrypted = words[2] != NULL,
        .mac = words[2] != NULL ? mac : NULL,
        .wake = wake,
    };
    snprintf(text, sizeof(text), "ofi:tcp://%s,listen=%s", words[1 - side], words[side]);
    if (via_link_parse(text, &config, &err) != 0 ||
        config.driver->open(config.config, host, &port, &err) != 0) {
        die(err.text);
    }
    for (uint64_t end_ns = via_bench_now_ns() + UP_NS; !port->ops->link_is_up(port);) {
        if (via_bench_now_ns() > end_ns) {
            die("the link does not come up");
        }
        usleep(1000);
    }
    return port;
}

static void put(struct via_port *port, const void *body, size_t bytes, uint64_t round)
{
    port->ops->body(port, QUEUE, BODY_OFF, body, bytes);
    port->ops->commit(port, QUEUE, FLAG_OFF, &round, sizeof(round));
    port->ops->flush(port, QUEUE);
}

static void await(struct via_port *port, uint64_t round)
{
    const _Atomic uint64_t *flag = (const _Atomic uint64_t *)(const void *)(port->inbox + FLAG_OFF);
    uint64_t end_ns = via_bench_now_ns() + WAIT_NS;
    while (atomic_load_explicit(flag, memory_order_acquire) != round) {
        (void)port->ops->events(port, VIA_PORT_EVENT_DOORBELL(QUEUE));
        if (!port->ops->link_is_up(port) || via_bench_now_ns() > end_ns) {
            die("the peer does not answer");
        }
    }
}

static void play(struct via_port *port, unsigned side, const void *body, size_t bytes,
                 uint64_t times, uint64_t first)
{
    for (uint64_t round = first; round < first + times; round++) {
        if (side == 0) {
            put(port, body, bytes, round);
        }
        await(port, round);
        if (side == 1) {
            put(port, body, bytes, round);
        }
    }
}

static void run(unsigned side, size_t bytes, uint64_t times, char *const words[3])
{
    struct via_driver_host host;
    struct via_port *port = open_end(side, bytes, words, &host);
    void *body = calloc(1, bytes);
    uint64_t warm = times / 10 + 1;
    play(port, side, body, bytes, warm, 1);
    uint64_t start_ns = via_bench_now_ns();
    play(port, side, body, bytes, times, warm + 1);
    if (side == 0) {
        printf("%.3f\n", (double)(via_bench_now_ns() - start_ns) / 2000 / (double)times);
    } else {
        usleep(100000); /* waits until the last write has left */
    }
    port->ops->close(port);
    free(body);
}

int main(int argc, char **argv)
{
    bool encrypt = argc == 6 && strcmp(argv[5], "encrypt") == 0;
    if ((argc != 5 && !encrypt) || atol(argv[1]) <= 0 || atol(argv[2]) <= 0) {
        fprintf(stderr, "usage: prog_ofi BYTES TIMES ADDRESS ADDRESS [encrypt]\n");
        return 2;
    }
    size_t bytes = (size_t)atol(argv[1]);
    uint64_t times = (uint64_t)atol(argv[2]);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(1, bytes, times, argv + 3);
        return 0;
    }
    run(0, bytes, times, argv + 3);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 1;
}
