/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Two programs that count the messages and puts between them, for tests over several machines:
 *
 *   prog_deliver receive SOURCES
 *       receives messages until each of SOURCES hosts has announced its end
 *   prog_deliver send HOST COUNT BYTES PAUSE_US [SECONDS]
 *       sends COUNT messages (0: for SECONDS; either way until SIGUSR1), then sends their number
 *   prog_deliver put HOST BYTES SECONDS [connect]
 *       puts BYTES bytes repeatedly; connect: over a direct connection if possible. Prints the
 *       bandwidth and the time of a put that waits for its completion
 *   prog_deliver memory HOST BYTES
 *       provides the memory to which a process on HOST puts, until end of file on its input
 *
 * All attach to $VIADUCT_HOST in $VIADUCT_RUNDIR. The receiver prints a line whenever a source was
 * silent for a while ("gap SECONDS"), at SIGUSR1 "so far N of N doubled N reordered N wrong N"
 * (received, and the highest number seen), and at the end "received N lost N doubled N reordered N
 * wrong N".
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "viaduct/viaduct.h"

#define ENDPOINT 77u
#define MAGIC 0x5649414445ull
#define HOSTS_MAX 1024u
#define GAP_S 0.05
#define BYTES_MAX (1u << 15)
#define NOTE "deliver-memory"

struct body {
    uint64_t magic;
    uint64_t number; /* from 1 on; in the last message, the number of messages */
    uint64_t last;   /* 1: the last message */
    uint64_t filling[];
};

struct source {
    uint64_t number; /* highest seen */
    uint64_t count;
    double received_s;
};

struct tally {
    uint64_t received;
    uint64_t lost;
    uint64_t doubled;
    uint64_t reordered;
    uint64_t wrong;
};

static struct source sources[HOSTS_MAX];
static volatile sig_atomic_t is_signalled;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static _Noreturn void fail(const char *attempt)
{
    printf("failed: %s: %s\n", attempt, via_error_text());
    exit(1);
}

static struct via_attach *attach(void)
{
    struct via_attach *attach;
    if (via_attach_open(NULL, &attach) != 0) {
        fail("attach");
    }
    return attach;
}

static bool body_is_right(const struct body *body, size_t bytes)
{
    if (bytes < sizeof(*body) || body->magic != MAGIC) {
        return false;
    }
    for (size_t i = 0; i < (bytes - sizeof(*body)) / 8; i++) {
        if (body->filling[i] != body->number * 31 + i) {
            return false;
        }
    }
    return true;
}

/* True when that source has sent everything. */
static bool take(struct source *source, const struct body *body, struct tally *tally)
{
    double now = now_s();
    if (source->count != 0 && now - source->received_s > GAP_S) {
        printf("gap %.3f\n", now - source->received_s);
    }
    source->received_s = now;
    if (body->last != 0) {
        tally->lost += body->number - source->count;
        return true;
    }
    source->count++;
    tally->received++;
    if (body->number <= source->number) {
        tally->doubled += body->number == source->number;
        tally->reordered += body->number < source->number;
    } else {
        tally->reordered += body->number > source->number + 1; /* lost, unless it comes later */
        source->number = body->number;
    }
    return false;
}

static void signalled(int number)
{
    (void)number;
    is_signalled = 1;
}

static void answer(const struct tally *tally)
{
    uint64_t highest = 0;
    for (unsigned i = 0; i < HOSTS_MAX; i++) {
        highest += sources[i].number;
    }
    printf("so far %llu of %llu doubled %llu reordered %llu wrong %llu\n",
           (unsigned long long)tally->received, (unsigned long long)highest,
           (unsigned long long)tally->doubled, (unsigned long long)tally->reordered,
           (unsigned long long)tally->wrong);
    is_signalled = 0;
}

static int receive(unsigned sources_count)
{
    static uint64_t buffer[BYTES_MAX / 8];
    struct via_attach *at = attach();
    struct tally tally = {0};
    (void)sigaction(SIGUSR1, &(struct sigaction){.sa_handler = signalled}, NULL);
    if (via_endpoint_open(at, ENDPOINT) != 0) {
        fail("open endpoint");
    }
    printf("ready\n");
    while (sources_count > 0) {
        struct via_message_info info;
        int bytes = via_message_receive(at, buffer, sizeof(buffer), 120000, &info);
        if (is_signalled) {
            answer(&tally);
        }
        if (bytes == -EINTR) { /* a request, or the machine was suspended */
            continue;
        }
        if (bytes < 0) {
            printf("after %llu: ", (unsigned long long)tally.received);
            fail("receive");
        }
        if (!body_is_right((const struct body *)buffer, (size_t)bytes) ||
            info.source_host >= HOSTS_MAX) {
            tally.wrong++;
            continue;
        }
        sources_count -= take(&sources[info.source_host], (const struct body *)buffer, &tally);
    }
    printf("received %llu lost %llu doubled %llu reordered %llu wrong %llu\n",
           (unsigned long long)tally.received, (unsigned long long)tally.lost,
           (unsigned long long)tally.doubled, (unsigned long long)tally.reordered,
           (unsigned long long)tally.wrong);
    via_attach_close(at);
    return 0;
}

static int send_all(unsigned host, uint64_t count, size_t bytes, unsigned pause_us, double seconds)
{
    static uint64_t buffer[BYTES_MAX / 8];
    struct body *body = (struct body *)buffer;
    struct via_attach *at = attach();
    double end = now_s() + seconds;
    uint64_t number = 0;
    body->magic = MAGIC;
    (void)sigaction(SIGUSR1, &(struct sigaction){.sa_handler = signalled}, NULL);
    while (!is_signalled && (count != 0 ? number < count : now_s() < end)) {
        body->number = ++number;
        for (size_t i = 0; i < (bytes - sizeof(*body)) / 8; i++) {
            body->filling[i] = number * 31 + i;
        }
        if (via_message_send(at, host, ENDPOINT, 1, body, bytes) != 0) {
            fail("send");
        }
        if (pause_us != 0) {
            usleep(pause_us);
        }
    }
    body->number = number;
    body->last = 1;
    if (via_message_send(at, host, ENDPOINT, 1, body, sizeof(*body)) != 0 ||
        via_attach_quiet(at) != 0) {
        fail("send");
    }
    printf("sent %llu\n", (unsigned long long)number);
    via_attach_close(at);
    return 0;
}

struct note {
    uint64_t handle;
    uint64_t bytes;
};

/* Posts the handle to the host that will put, repeatedly, because that host may start later. */
static int memory(unsigned host, size_t bytes)
{
    struct via_attach *at = attach();
    struct via_segment *segment;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (via_segment_new(at, bytes, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &segment) != 0) {
        fail("new segment");
    }
    struct note note = {.handle = via_segment_handle(segment), .bytes = bytes};
    if (via_board_post(at, host, NOTE, strlen(NOTE), &note, sizeof(note), 0) != 0) {
        fail("post");
    }
    printf("ready\n");
    while (poll(&input, 1, 100) == 0) {
        (void)via_attach_poll(at);
    }
    via_attach_close(at);
    return 0;
}

static double put_some(struct via_attach *at, struct via_remote *remote, const void *data,
                       size_t bytes, unsigned count, bool wait)
{
    double begin = now_s();
    for (unsigned i = 0; i < count; i++) {
        if (via_remote_put(remote, 0, data, bytes, 0) != 0 || (wait && via_attach_quiet(at) != 0)) {
            fail("put");
        }
    }
    if (via_attach_quiet(at) != 0) {
        fail("put");
    }
    return now_s() - begin;
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

static double median_put_s(struct via_attach *at, struct via_remote *remote, const void *data)
{
    double took[301];
    unsigned count = sizeof(took) / sizeof(took[0]);
    for (unsigned i = 0; i < count; i++) {
        took[i] = put_some(at, remote, data, 8, 1, true);
    }
    qsort(took, count, sizeof(took[0]), compare);
    return took[count / 2];
}

static int put(unsigned host, size_t bytes, double seconds, bool connects)
{
    struct via_attach *at = attach();
    struct via_remote *remote;
    struct note note;
    double end = now_s() + 10;
    while (via_board_take(at, NOTE, strlen(NOTE), &note, sizeof(note)) != (int)sizeof(note)) {
        if (now_s() > end) {
            fail("wait for the memory");
        }
        usleep(1000);
    }
    void *data = calloc(1, bytes);
    if (data == NULL || bytes > note.bytes ||
        via_remote_open(at, host, note.handle, note.bytes, &remote) != 0) {
        fail("open");
    }
    int rc = connects ? via_remote_connect(remote) : 0;
    if (rc != 0 && rc != -EXDEV) {
        fail("connect");
    }
    unsigned count = 4;
    double took = put_some(at, remote, data, bytes, count, false); /* a warm-up */
    for (end = now_s() + seconds / 2; now_s() < end; count *= 2) {
        took = put_some(at, remote, data, bytes, count, false);
    }
    printf("bandwidth %.4g Gbit/s\n", (double)bytes * count / 2 * 8e-9 / took);
    printf("put %.1f us\n", median_put_s(at, remote, data) * 1e6);
    free(data);
    via_attach_close(at);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(what, "receive") == 0) {
        return receive((unsigned)atoi(argv[2]));
    }
    if ((argc == 6 || argc == 7) && strcmp(what, "send") == 0) {
        size_t bytes = (size_t)atol(argv[4]) / 8 * 8;
        if (bytes < sizeof(struct body) || bytes > BYTES_MAX) {
            fprintf(stderr, "prog_deliver: %zu bytes: %zu to %u are possible\n", bytes,
                    sizeof(struct body), BYTES_MAX);
            return 2;
        }
        return send_all((unsigned)atoi(argv[2]), strtoull(argv[3], NULL, 10), bytes,
                        (unsigned)atoi(argv[5]), argc == 7 ? atof(argv[6]) : 0);
    }
    bool connects = argc == 6 && strcmp(argv[5], "connect") == 0;
    if ((argc == 5 || connects) && strcmp(what, "put") == 0) {
        return put((unsigned)atoi(argv[2]), (size_t)atol(argv[3]), atof(argv[4]), connects);
    }
    if (argc == 4 && strcmp(what, "memory") == 0) {
        return memory((unsigned)atoi(argv[2]), (size_t)atol(argv[3]));
    }
    fprintf(stderr,
            "usage: prog_deliver receive SOURCES | send HOST COUNT BYTES PAUSE_US [SECONDS] | "
            "memory HOST BYTES | put HOST BYTES SECONDS [connect]\n");
    return 2;
}
