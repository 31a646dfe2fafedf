/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An 8-byte ping-pong between two processes through pipes, beside the bare round trip of a cache
 * line between the same two processes, in interleaved pairs.
 */
#include <errno.h>
#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/stats.h"
#include "core/pipe.h"

#define PAIRS 21
#define ROUND_TRIPS 100000u
#define WARM_UP 5000u
#define SLOTS 64u
#define EPOCH 1u

struct line {
    _Alignas(64) _Atomic uint64_t word;
};

/* What the two processes share. A pipe's memory is 64 bytes of want line and the slots. */
struct shared {
    struct line ping, pong;
    struct line credit[2];
    _Alignas(64) unsigned char pipe[2][64 + SLOTS * 64];
};

struct end {
    struct via_pipe_writer writer;
    struct via_pipe_reader reader;
    uint32_t data_ends[SLOTS];
};

static void end_init(struct end *end, struct shared *shared, unsigned mine)
{
    struct via_pipe_geometry geometry = {.slots_count = SLOTS};
    struct via_pipe_target out = {.direct = shared->pipe[1 - mine]};
    struct via_pipe_target credit = {.direct = (unsigned char *)&shared->credit[1 - mine]};
    via_pipe_writer_init(&end->writer, &geometry, &out, &shared->credit[mine].word, end->data_ends,
                         EPOCH);
    via_pipe_reader_init(&end->reader, &geometry, shared->pipe[mine], &credit, EPOCH);
}

static void pipe_send(struct end *end, uint64_t value)
{
    while (via_pipe_send(&end->writer, &value, sizeof(value), NULL, 0) != 0) {
        _mm_pause();
    }
    /* Nobody sleeps here, but the question is asked after each send, as in production. */
    if (via_pipe_must_ring(&end->writer)) {
        abort();
    }
}

static uint64_t pipe_receive(struct end *end)
{
    struct via_pipe_record record;
    while (via_pipe_take(&end->reader, &record) == 0) {
        _mm_pause();
    }
    via_pipe_release(&end->reader, 1);
    uint64_t value;
    memcpy(&value, record.head, sizeof(value));
    return value;
}

static void line_wait(struct line *line, uint64_t value)
{
    while (atomic_load_explicit(&line->word, memory_order_acquire) != value) {
        _mm_pause();
    }
}

/* The echoing process: lines and pipes in the order in which the other one asks. */
static void echo(struct shared *shared, struct end *end)
{
    uint64_t number = 0;
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        for (unsigned i = 0; i < WARM_UP + ROUND_TRIPS; i++) {
            number++;
            line_wait(&shared->ping, number);
            atomic_store_explicit(&shared->pong.word, number, memory_order_release);
        }
        for (unsigned i = 0; i < WARM_UP + ROUND_TRIPS; i++) {
            pipe_send(end, pipe_receive(end));
        }
    }
}

static double line_round_trip_ns(struct shared *shared, uint64_t *number)
{
    uint64_t start = 0;
    for (unsigned i = 0; i < WARM_UP + ROUND_TRIPS; i++) {
        if (i == WARM_UP) {
            start = via_bench_now_ns();
        }
        ++*number;
        atomic_store_explicit(&shared->ping.word, *number, memory_order_release);
        line_wait(&shared->pong, *number);
    }
    return (double)(via_bench_now_ns() - start) / ROUND_TRIPS;
}

static double pipe_round_trip_ns(struct end *end)
{
    uint64_t start = 0;
    for (unsigned i = 0; i < WARM_UP + ROUND_TRIPS; i++) {
        if (i == WARM_UP) {
            start = via_bench_now_ns();
        }
        pipe_send(end, i);
        if (pipe_receive(end) != i) {
            fprintf(stderr, "bench_pipe: pipe: receive: not what was sent\n");
            exit(1);
        }
    }
    return (double)(via_bench_now_ns() - start) / ROUND_TRIPS;
}

static int report(double *line, double *pipe, double *ratio, const char *json)
{
    double line_ns = via_bench_median(line, PAIRS);
    double pipe_ns = via_bench_median(pipe, PAIRS);
    double times = via_bench_median(ratio, PAIRS);
    printf("%-36s %10s\n", "8 bytes there and back, 2 processes", "ns");
    printf("%-36s %10.1f\n", "bare cache line", line_ns);
    printf("%-36s %10.1f\n", "pipe", pipe_ns);
    printf("%-36s %10.2f   (target: at most 2.5; median of %d interleaved pairs)\n", "ratio", times,
           PAIRS);
    if (json == NULL) {
        return 0;
    }
    FILE *out = fopen(json, "w");
    if (out == NULL) {
        fprintf(stderr, "bench_pipe: %s: open: %s\n", json, strerror(errno));
        return 1;
    }
    fprintf(out, "{\"cache_line_ns\": %.1f, \"pipe_ns\": %.1f, \"ratio\": %.3f, \"pairs\": %d}\n",
            line_ns, pipe_ns, times, PAIRS);
    return fclose(out) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *json =
        via_bench_options(argc, argv, "8-byte ping-pong through pipes against a bare cache line.");
    if (via_bench_cpus() < 2) {
        fprintf(stderr, "bench_pipe: needs two CPUs: spinning processes on one would measure the "
                        "scheduler\n");
        return 77;
    }
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("bench_pipe: mmap");
        return 1;
    }
    static struct end end;
    pid_t parent = getpid();
    pid_t child = fork();
    end_init(&end, shared, child == 0);
    via_bench_pin(child == 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            echo(shared, &end);
        }
        _exit(0);
    }
    double line[PAIRS], pipe[PAIRS], ratio[PAIRS];
    uint64_t number = 0;
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        line[pair] = line_round_trip_ns(shared, &number);
        pipe[pair] = pipe_round_trip_ns(&end);
        ratio[pair] = pipe[pair] / line[pair];
    }
    waitpid(child, NULL, 0);
    return report(line, pipe, ratio, json);
}
