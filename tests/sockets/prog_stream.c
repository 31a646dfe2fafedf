/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sends streams over ordinary sockets, and checks every byte.
 *
 *     prog_stream serve ADDRESS PORT COUNT
 *         sends received bytes back, for COUNT connections
 *     prog_stream echo ADDRESS PORT BYTES SEED
 *         sends BYTES in random pieces while it reads them back, and checks them
 *     prog_stream accept-echo ADDRESS PORT BYTES SEED
 *         the same for a peer that connects here
 *     prog_stream pingpong ADDRESS PORT BYTES COUNT [spin]
 *         round trips, one at a time; spin: by calls that do not block
 *     prog_stream connect ADDRESS PORT COUNT
 *         connects, sends a byte, reads it back, closes
 *
 * echo prints {"bytes":N,"seconds":S,"silence_ms":M}: the longest time without a received byte.
 * With PROG_STREAM_REPORT in the environment each command prints "reported", the time
 * (CLOCK_MONOTONIC) at which a call reported the end of the stream, the errno of this call (0 for
 * end of file), and the nanoseconds that the process has waited for a CPU so far. pingpong prints
 * {"median_us":M,"p99_us":P}, connect {"per_second":N}.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dial.h"

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static unsigned long long cpu_wait_ns(void)
{
    unsigned long long ns = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");
    if (file != NULL) {
        (void)!fscanf(file, "%*u %llu", &ns);
        fclose(file);
    }
    return ns;
}

/* A call has reported the end of the stream, or an error. */
static void report_end(void)
{
    int saved = errno;
    if (getenv("PROG_STREAM_REPORT") != NULL) {
        double reported_s = now_s();
        printf("reported %.7f %d %llu\n", reported_s, saved == ENODATA ? 0 : saved, cpu_wait_ns());
    }
    errno = saved;
}

static _Noreturn void die(const char *attempt)
{
    report_end();
    fprintf(stderr, "prog_stream: %s: %s\n", attempt, strerror(errno));
    exit(1);
}

/* --- the server: one process per connection -------------------------------------------------- */

static void send_back(int fd)
{
    static char data[1 << 17];
    ssize_t n;
    no_delay(fd);
    while ((n = read(fd, data, sizeof(data))) > 0) {
        for (ssize_t done = 0; done < n;) {
            ssize_t k = write(fd, data + done, (size_t)(n - done));
            if (k <= 0) {
                die("write");
            }
            done += k;
        }
    }
    if (n < 0 && errno != ECONNRESET) {
        die("read");
    }
    errno = n < 0 ? errno : 0;
    report_end();
    close(fd);
}

static int accept_one(int listen_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        die("accept");
    }
    return fd;
}

static int serve(char **argv)
{
    int fd = listen_at(argv);
    for (long left = atol(argv[2]); left > 0; left--) {
        send_back(accept_one(fd));
    }
    return 0;
}

/* --- echo ------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Returns the 8 bytes at position 8 * index of the stream of this seed. */
static uint64_t word_at(uint64_t seed, uint64_t index)
{
    return mix(seed * UINT64_C(0x9e3779b97f4a7c15) + index + 1);
}

static void fill(unsigned char *data, uint64_t seed, uint64_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(word_at(seed, (at + i) / 8) >> 8 * ((at + i) % 8));
    }
}

static size_t piece(uint64_t *random)
{
    *random = mix(*random + 1);
    unsigned bits = (unsigned)(*random >> 60);
    return 1 + (*random & ((1u << (bits + 2)) - 1)); /* 1 to 2^17, small ones as likely as large */
}

struct echo {
    int fd;
    uint64_t seed, bytes, sent, received;
    double last, silence;
};

static void send_some(struct echo *echo, uint64_t *random)
{
    static unsigned char data[1 << 17];
    static size_t ready, done;
    if (ready == done && echo->sent + 0 < echo->bytes) {
        ready = piece(random);
        if (ready > echo->bytes - echo->sent) {
            ready = (size_t)(echo->bytes - echo->sent);
        }
        done = 0;
        fill(data, echo->seed, echo->sent, ready);
    }
    ssize_t n = send(echo->fd, data + done, ready - done, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
        die("send");
    }
    if (n > 0) {
        done += (size_t)n;
        echo->sent += (uint64_t)n;
    }
    if (echo->sent == echo->bytes) {
        shutdown(echo->fd, SHUT_WR);
    }
}

static void receive_some(struct echo *echo, uint64_t *random)
{
    static unsigned char data[1 << 17], expected[1 << 17];
    ssize_t n = read(echo->fd, data, piece(random));
    if (n == 0) {
        errno = ENODATA;
        die("end of the stream before all has come back");
    }
    if (n < 0) {
        if (errno == EAGAIN) {
            return;
        }
        die("read");
    }
    fill(expected, echo->seed, echo->received, (size_t)n);
    if (memcmp(data, expected, (size_t)n) != 0) {
        fprintf(stderr, "prog_stream: bytes after %llu are wrong\n",
                (unsigned long long)echo->received);
        exit(2);
    }
    echo->received += (uint64_t)n;
    double now = now_s();
    if (now - echo->last > echo->silence) {
        echo->silence = now - echo->last;
    }
    echo->last = now;
}

/* Only end of file may follow. */
static void check_end(int fd)
{
    char byte;
    struct pollfd pfd = {fd, POLLIN, 0};
    poll(&pfd, 1, 20000);
    ssize_t n = read(fd, &byte, 1);
    if (n != 0) {
        errno = n > 0 ? EBADMSG : errno;
        die("the end of the stream");
    }
}

static int echo(int fd, char **argv)
{
    struct echo echo = {.bytes = strtoull(argv[0], NULL, 10), .seed = strtoull(argv[1], NULL, 10)};
    uint64_t random = echo.seed;
    echo.fd = fd;
    fcntl(echo.fd, F_SETFL, O_NONBLOCK);
    double begin = echo.last = now_s();
    while (echo.received < echo.bytes) {
        struct pollfd pfd = {echo.fd, POLLIN, 0};
        if (echo.sent < echo.bytes) {
            pfd.events |= POLLOUT;
        }
        if (poll(&pfd, 1, 20000) <= 0) {
            errno = ETIMEDOUT;
            die("poll");
        }
        if ((pfd.revents & POLLOUT) != 0) {
            send_some(&echo, &random);
        }
        if ((pfd.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            receive_some(&echo, &random);
        }
    }
    check_end(echo.fd);
    printf("{\"bytes\":%llu,\"seconds\":%.3f,\"silence_ms\":%.1f}\n",
           (unsigned long long)echo.received, now_s() - begin, echo.silence * 1e3);
    return 0;
}

/* --- pingpong, connect ----------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void take(int fd, char *data, size_t bytes, int flags)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(fd, data + done, bytes - done, flags);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EAGAIN) {
            errno = n == 0 ? ENODATA : errno;
            die("recv");
        }
    }
}

static int pingpong(int argc, char **argv)
{
    size_t bytes = strtoul(argv[2], NULL, 10);
    long count = atol(argv[3]);
    int flags = argc > 4 && strcmp(argv[4], "spin") == 0 ? MSG_DONTWAIT : 0;
    char *data = calloc(1, bytes);
    double *times = calloc((size_t)count, sizeof(*times));
    int fd = connect_to(argv);
    for (long i = -count / 10; i < count; i++) {
        double begin = now_s();
        if (send(fd, data, bytes, 0) != (ssize_t)bytes) {
            die("send");
        }
        take(fd, data, bytes, flags);
        if (i >= 0) {
            times[i] = (now_s() - begin) * 1e6;
        }
    }
    qsort(times, (size_t)count, sizeof(*times), by_size);
    printf("{\"median_us\":%.3f,\"p99_us\":%.3f}\n", times[count / 2], times[count * 99 / 100]);
    return 0;
}

static int connects(char **argv)
{
    long count = atol(argv[2]);
    double begin = now_s();
    for (long i = 0; i < count; i++) {
        char byte = 'c';
        int fd = connect_to(argv);
        if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1) {
            die("a byte there and back");
        }
        close(fd);
    }
    printf("{\"per_second\":%.0f}\n", (double)count / (now_s() - begin));
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (getenv("PROG_STREAM_REPORT") != NULL) {
        signal(SIGPIPE, SIG_IGN); /* it is an answer, too */
    }
    if (strcmp(what, "serve") == 0 && argc == 5) {
        return serve(argv + 2);
    }
    if (strcmp(what, "echo") == 0 && argc == 6) {
        return echo(connect_to(argv + 2), argv + 4);
    }
    if (strcmp(what, "accept-echo") == 0 && argc == 6) {
        return echo(accept_one(listen_at(argv + 2)), argv + 4);
    }
    if (strcmp(what, "pingpong") == 0 && argc >= 6) {
        return pingpong(argc - 2, argv + 2);
    }
    if (strcmp(what, "connect") == 0 && argc == 5) {
        return connects(argv + 2);
    }
    fprintf(stderr,
            "usage: prog_stream serve|echo|accept-echo|pingpong|connect ...: see its source\n");
    return 64;
}
