/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Many short connections. The server closes each right after its last byte.
 *
 *     prog_burst serve ADDRESS PORT                     until it is killed
 *     prog_burst fetch ADDRESS PORT COUNT THREADS BYTES SEED
 *
 * fetch requests COUNT answers of 1 to BYTES bytes, small ones as likely as large, and checks each
 * byte and the end. Before that it exchanges some bytes with the server, from none to many, so that
 * the end of file comes at every stage of the connection. It prints each kind of failure once, and
 * {"connections":N,"failures":F,"end_ms":E}: the longest time between a last byte and the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A request: the number of bytes to send, and the stream from which. */
struct request {
    uint64_t bytes;
    uint64_t seed;
};
#define ROUNDS_MAX 24u

static struct sockaddr_in server;

static _Noreturn void die(const char *attempt)
{
    fprintf(stderr, "prog_burst: %s: %s\n", attempt, strerror(errno));
    exit(1);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static unsigned char byte_at(uint64_t seed, uint64_t at)
{
    return (unsigned char)(seed + at * 131 + (at >> 8));
}

static bool read_all(int fd, void *data, size_t bytes)
{
    unsigned char *at = data;
    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n <= 0) {
            return false;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Exchanges some bytes, one in each direction at a time. False: the connection is over; errno is 0
 * at end of file. */
static bool warm_up(int fd, uint64_t seed, bool first)
{
    char byte = 'w';
    for (uint64_t left = mix(seed + 3) % ROUNDS_MAX; left > 0; left--) {
        if (first && write(fd, &byte, 1) != 1) {
            return false;
        }
        ssize_t n = read(fd, &byte, 1);
        if (n != 1) {
            errno = n == 0 ? 0 : errno;
            return false;
        }
        if (!first && write(fd, &byte, 1) != 1) {
            return false;
        }
    }
    return true;
}

/* --- serve ----------------------------------------------------------------------------------- */

static void answer(int fd, const struct request *request)
{
    unsigned char data[16384];
    uint64_t random = request->seed;
    for (uint64_t done = 0; done < request->bytes;) {
        random = mix(random + 1);
        uint64_t bytes = 1 + random % sizeof(data);
        if (bytes > request->bytes - done) {
            bytes = request->bytes - done;
        }
        for (uint64_t i = 0; i < bytes; i++) {
            data[i] = byte_at(request->seed, done + i);
        }
        for (uint64_t sent = 0; sent < bytes;) {
            ssize_t n = write(fd, data + sent, (size_t)(bytes - sent));
            if (n <= 0) {
                return;
            }
            sent += (uint64_t)n;
        }
        done += bytes;
    }
}

static void *serve_one(void *argument)
{
    int fd = (int)(intptr_t)argument;
    struct request request;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (read_all(fd, &request, sizeof(request)) && warm_up(fd, request.seed, false)) {
        answer(fd, &request);
    }
    close(fd);
    return NULL;
}

static int serve(void)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&server, sizeof(server)) != 0 ||
        listen(fd, 256) != 0) {
        die("listen");
    }
    for (;;) {
        pthread_t thread;
        int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0 || pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)peer) != 0) {
            die("accept");
        }
        pthread_detach(thread);
    }
}

/* --- fetch ----------------------------------------------------------------------------------- */

static _Atomic long left;
static _Atomic long failures;
static _Atomic uint64_t end_us;
static uint64_t bytes_max;
static uint64_t first_seed;

static void fails(const char *attempt, uint64_t done, const struct request *request)
{
    if (atomic_fetch_add(&failures, 1) < 20) {
        fprintf(stderr, "prog_burst: %s after %llu of %llu bytes: %s\n", attempt,
                (unsigned long long)done, (unsigned long long)request->bytes, strerror(errno));
    }
}

static uint64_t now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void note_end(uint64_t took_us)
{
    uint64_t before = atomic_load(&end_us);
    while (took_us > before && !atomic_compare_exchange_weak(&end_us, &before, took_us)) {
    }
}

static void fetch(struct request *request)
{
    unsigned char data[8192];
    uint64_t random = request->seed;
    uint64_t done = 0;
    uint64_t last_us = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof(server)) != 0) {
        fails("connect", 0, request);
        close(fd);
        return;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (write(fd, request, sizeof(*request)) != sizeof(*request) ||
        !warm_up(fd, request->seed, true)) {
        fails("the request", 0, request);
        close(fd);
        return;
    }
    for (;;) {
        random = mix(random + 7);
        ssize_t n = read(fd, data, 1 + random % sizeof(data));
        if (n <= 0) {
            if (n < 0 || done != request->bytes) {
                errno = n < 0 ? errno : 0;
                fails(n < 0 ? "read" : "the end", done, request);
            } else {
                note_end(now_us() - last_us);
            }
            break;
        }
        for (ssize_t i = 0; i < n; i++) {
            if (data[i] != byte_at(request->seed, done + (uint64_t)i)) {
                errno = EBADMSG;
                fails("a wrong byte", done + (uint64_t)i, request);
                close(fd);
                return;
            }
        }
        done += (uint64_t)n;
        last_us = now_us();
    }
    close(fd);
}

static void *fetch_some(void *argument)
{
    (void)argument;
    long number;
    while ((number = atomic_fetch_sub(&left, 1)) > 0) {
        struct request request = {.seed = mix(first_seed + (uint64_t)number)};
        uint64_t most = bytes_max;
        for (uint64_t halve = request.seed >> 59; halve > 0 && most > 1; halve--) {
            most /= 2;
        }
        request.bytes = 1 + mix(request.seed) % most;
        fetch(&request);
    }
    return NULL;
}

static int fetch_all(char **argv)
{
    pthread_t threads[64];
    long count = atol(argv[0]);
    long threads_count = atol(argv[1]);
    bytes_max = strtoull(argv[2], NULL, 10);
    first_seed = strtoull(argv[3], NULL, 10);
    left = count;
    if (threads_count < 1 || threads_count > 64 || bytes_max == 0) {
        return 64;
    }
    for (long i = 0; i < threads_count; i++) {
        if (pthread_create(&threads[i], NULL, fetch_some, NULL) != 0) {
            die("thread");
        }
    }
    for (long i = 0; i < threads_count; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("{\"connections\":%ld,\"failures\":%ld,\"end_ms\":%.1f}\n", count, (long)failures,
           (double)end_us / 1e3);
    return failures == 0 ? 0 : 2;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc >= 4) {
        server.sin_family = AF_INET;
        server.sin_port = htons((uint16_t)atoi(argv[3]));
        if (inet_pton(AF_INET, argv[2], &server.sin_addr) != 1) {
            errno = EINVAL;
            die(argv[2]);
        }
    }
    if (argc == 4 && strcmp(argv[1], "serve") == 0) {
        return serve();
    }
    if (argc == 8 && strcmp(argv[1], "fetch") == 0) {
        return fetch_all(argv + 4);
    }
    fprintf(stderr, "usage: prog_burst serve|fetch ...: see its source\n");
    return 64;
}
