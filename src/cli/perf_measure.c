/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Rounds of a few milliseconds, each of the measured operation and then of its comparison (memcpy
 * of the same size; a bare cache line), so that load of the machine affects both. The results are
 * medians over the rounds. Rounds before the first counted one warm up, and determine the number of
 * operations.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/perf.h"
#include "progress/progress.h"

/* Long enough that filling and emptying the pipes does not affect the result. */
#define ROUND_NS (20 * VIA_MSEC_NS)
#define ROUNDS_MIN 5u
#define ROUNDS_MAX 2000u
#define ITERATIONS_ROUNDS 10u

/* One attachment on the near host, with the memory that it moves. */
struct near {
    struct via_attach *attach;
    struct via_segment *segment;
    struct via_remote *remote;
    unsigned char *copy; /* destination of memcpy */
};

struct bench {
    struct via_perf *perf;
    struct via_perf_lines *lines;
    struct via_perf_peer peers[VIA_TOPOLOGY_HOST_MAX];
    unsigned peers_count;
    struct near nears[VIA_PERF_CHANNELS_MAX];
    unsigned nears_count;
    uint64_t area_bytes; /* of each segment */
    uint64_t bytes;      /* of this row */
    uint64_t places;     /* number of places of this size in the used part of the area */
    uint64_t number;     /* of the last ping */
    uint64_t bare_number;
    struct via_error *err;
};

/* Runs `count` operations, and stores their time in *ret_ns. */
typedef int run_function(struct bench *bench, uint64_t count, uint64_t *ret_ns);

static int fail(struct bench *bench, int code, const char *attempt)
{
    return via_error_set(bench->err, code, "host %u to host %u, %llu bytes: %s: %s",
                         bench->perf->from, bench->perf->to, (unsigned long long)bench->bytes,
                         attempt, code == -ETIMEDOUT ? "no answer in time" : via_error_text());
}

/* --- measured operations ---------------------------------------------------------------------- */

/* The offset of operation i: always the same, or consecutive places of the area. */
static uint64_t place(const struct bench *bench, uint64_t i)
{
    return bench->places == 1 ? 0 : i % bench->places * bench->bytes;
}

static int run_put(struct bench *bench, uint64_t count, uint64_t *ret_ns)
{
    uint64_t start_ns = via_process_now_ns();
    int rc = 0;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        struct near *near = &bench->nears[i % bench->nears_count];
        uint64_t off = place(bench, i);
        rc = via_remote_put_from(near->remote, off, near->segment, off, bench->bytes, 0);
    }
    for (unsigned i = 0; i < bench->nears_count && rc == 0; i++) {
        rc = via_attach_quiet(bench->nears[i].attach);
    }
    *ret_ns = via_process_now_ns() - start_ns;
    return rc == 0 ? 0 : fail(bench, rc, "put");
}

static int run_get(struct bench *bench, uint64_t count, uint64_t *ret_ns)
{
    uint64_t start_ns = via_process_now_ns();
    int rc = 0;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        struct near *near = &bench->nears[i % bench->nears_count];
        uint64_t off = place(bench, i);
        unsigned char *to = via_segment_base(near->segment);
        rc = via_remote_get(near->remote, off, to + off, bench->bytes);
    }
    *ret_ns = via_process_now_ns() - start_ns;
    return rc == 0 ? 0 : fail(bench, rc, "get");
}

static int run_memcpy(struct bench *bench, uint64_t count, uint64_t *ret_ns)
{
    uint64_t start_ns = via_process_now_ns();
    for (uint64_t i = 0; i < count; i++) {
        struct near *near = &bench->nears[i % bench->nears_count];
        uint64_t off = place(bench, i);
        const unsigned char *from = via_segment_base(near->segment);
        memcpy(near->copy + off, from + off, bench->bytes);
        /* Prevents the compiler from omitting the copy. */
        __asm__ volatile("" : : "r"(near->copy) : "memory");
    }
    *ret_ns = via_process_now_ns() - start_ns;
    return 0;
}

static int ping(struct bench *bench)
{
    struct near *near = &bench->nears[0];
    unsigned char *base = via_segment_base(near->segment);
    uint64_t number = ++bench->number;
    /* The answer arrives at the beginning of the segment, so the outgoing bytes are in its second
     * half. */
    unsigned char *out = base + bench->area_bytes / 2;
    atomic_store_explicit(via_perf_last_word(out, bench->bytes), number, memory_order_relaxed);
    int rc = via_remote_put(near->remote, 0, out, bench->bytes, VIADUCT_PUT_LAST_WORD);
    if (rc != 0) {
        return fail(bench, rc, "put");
    }
    rc = via_perf_await(via_perf_last_word(base, bench->bytes), number);
    return rc == 0 ? 0 : fail(bench, rc, "wait for the answer");
}

static int run_pings(struct bench *bench, uint64_t count, uint64_t *ret_ns)
{
    struct via_perf_order order = {
        .kind = VIA_PERF_ORDER_PING,
        .count = count + 1,
        .bytes = bench->bytes,
        .number = bench->number,
    };
    int rc = via_perf_peer_send(&bench->peers[0], &order, bench->err);
    if (rc == 0) {
        /* The first ping includes the wake-up of the other process, and is not counted. */
        rc = ping(bench);
    }
    uint64_t start_ns = via_process_now_ns();
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        rc = ping(bench);
    }
    *ret_ns = via_process_now_ns() - start_ns;
    return rc == 0 ? via_perf_peer_wait(&bench->peers[0], bench->err) : rc;
}

static int ping_bare(struct bench *bench)
{
    uint64_t number = ++bench->bare_number;
    /* Pairs with the acquire in via_perf_await(). */
    atomic_store_explicit(&bench->lines->ping, number, memory_order_release);
    int rc = via_perf_await(&bench->lines->pong, number);
    return rc == 0 ? 0 : fail(bench, rc, "wait for a bare cache line");
}

static int run_bare(struct bench *bench, uint64_t count, uint64_t *ret_ns)
{
    struct via_perf_order order = {
        .kind = VIA_PERF_ORDER_BARE,
        .count = count + 1,
        .number = bench->bare_number,
    };
    int rc = via_perf_peer_send(&bench->peers[0], &order, bench->err);
    if (rc == 0) {
        rc = ping_bare(bench);
    }
    uint64_t start_ns = via_process_now_ns();
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        rc = ping_bare(bench);
    }
    *ret_ns = via_process_now_ns() - start_ns;
    return rc == 0 ? via_perf_peer_wait(&bench->peers[0], bench->err) : rc;
}

static int run_barrier(struct bench *bench, uint64_t count, uint64_t *ret_ns)
{
    struct via_perf_order order = {.kind = VIA_PERF_ORDER_BARRIER, .count = count + 1};
    const struct via_perf *perf = bench->perf;
    int rc = 0;
    for (unsigned i = 0; i < bench->peers_count && rc == 0; i++) {
        rc = via_perf_peer_send(&bench->peers[i], &order, bench->err);
    }
    uint64_t start_ns = 0;
    for (uint64_t i = 0; i <= count && rc == 0; i++) {
        if (i == 1) {
            start_ns = via_process_now_ns();
        }
        rc = via_barrier(bench->nears[0].attach, 1, perf->hosts, perf->hosts_count);
        if (rc != 0) {
            return via_error_set(bench->err, rc, "barrier of %u hosts: %s", perf->hosts_count,
                                 via_error_text());
        }
    }
    *ret_ns = via_process_now_ns() - start_ns;
    for (unsigned i = 0; i < bench->peers_count && rc == 0; i++) {
        rc = via_perf_peer_wait(&bench->peers[i], bench->err);
    }
    return rc;
}

/* --- rounds ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), compare);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Finds the number of operations that fill a round, and runs them, which warms up. */
static int calibrate(struct bench *bench, run_function *run, uint64_t count_max,
                     uint64_t *ret_count)
{
    uint64_t count = 1;
    for (;;) {
        uint64_t ns;
        int rc = run(bench, count, &ns);
        if (rc != 0) {
            return rc;
        }
        if (ns >= ROUND_NS || count >= count_max) {
            *ret_count = via_max(via_min(count, count_max), UINT64_C(1));
            return 0;
        }
        uint64_t more = ns == 0 ? count * 16 : count * ROUND_NS / ns + 1;
        count = via_min(more, count * 16);
    }
}

struct rounds {
    double ns[ROUNDS_MAX];
    double yardstick_ns[ROUNDS_MAX];
    double ratio[ROUNDS_MAX];
    unsigned count;
};

static int run_round(struct bench *bench, run_function *run, uint64_t count,
                     run_function *yardstick, uint64_t yardstick_count, struct rounds *rounds)
{
    uint64_t ns;
    uint64_t yardstick_ns = 0;
    int rc = run(bench, count, &ns);
    if (rc == 0 && yardstick != NULL) {
        rc = yardstick(bench, yardstick_count, &yardstick_ns);
    }
    if (rc == 0) {
        unsigned at = rounds->count++;
        rounds->ns[at] = (double)ns / (double)count;
        if (yardstick != NULL) {
            rounds->yardstick_ns[at] = (double)yardstick_ns / (double)yardstick_count;
            rounds->ratio[at] = rounds->yardstick_ns[at] / rounds->ns[at];
        }
    }
    return rc;
}

static int measure_row(struct bench *bench, run_function *run, run_function *yardstick,
                       struct via_perf_row *row)
{
    static struct rounds rounds;
    const struct via_perf *perf = bench->perf;
    uint64_t count_max = UINT64_MAX / 2;
    uint64_t count = 0;
    uint64_t yardstick_count = 0;
    unsigned rounds_max = ROUNDS_MAX;

    if (perf->iterations != 0) {
        rounds_max = (unsigned)via_min(perf->iterations, (uint64_t)ITERATIONS_ROUNDS);
        count_max = perf->iterations / rounds_max;
    }
    int rc = calibrate(bench, run, count_max, &count);
    if (rc == 0 && yardstick != NULL) {
        rc = calibrate(bench, yardstick, count_max, &yardstick_count);
    }
    if (perf->iterations != 0) {
        count = count_max;
    }
    rounds.count = 0;
    uint64_t until_ns = via_process_now_ns() + perf->span_ns;
    while (
        rc == 0 && rounds.count < rounds_max &&
        (perf->iterations != 0 || rounds.count < ROUNDS_MIN || via_process_now_ns() < until_ns)) {
        rc = run_round(bench, run, count, yardstick, yardstick_count, &rounds);
    }
    if (rc != 0) {
        return rc;
    }
    row->bytes = bench->bytes;
    row->rounds = rounds.count;
    row->operations = rounds.count * count;
    row->ns = median(rounds.ns, rounds.count);
    row->ns_min = rounds.ns[0];
    row->ns_max = rounds.ns[rounds.count - 1];
    if (yardstick != NULL) {
        row->yardstick_ns = median(rounds.yardstick_ns, rounds.count);
        row->ratio = median(rounds.ratio, rounds.count);
    }
    return 0;
}

/* --- set-up ---------------------------------------------------------------------------------- */

static int near_open(struct bench *bench, struct near *near, int channel)
{
    const struct via_perf *perf = bench->perf;
    if (via_perf_attach(perf, perf->from, channel, &near->attach) != 0) {
        return via_error_set(bench->err, -ENOTCONN, "%s", via_error_text());
    }
    if (bench->area_bytes == 0) {
        return 0;
    }
    int rc = via_segment_new(near->attach, bench->area_bytes,
                             VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &near->segment);
    if (rc == 0) {
        memset(via_segment_base(near->segment), 0, bench->area_bytes);
        rc = via_remote_open(near->attach, perf->to, bench->peers[0].handle, bench->area_bytes,
                             &near->remote);
    }
    if (rc != 0) {
        return via_error_set(bench->err, rc, "%s", via_error_text());
    }
    near->copy = mmap(NULL, bench->area_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (near->copy == MAP_FAILED) {
        near->copy = NULL;
        return via_error_set(bench->err, -errno, "%llu bytes of memory: %s",
                             (unsigned long long)bench->area_bytes, strerror(errno));
    }
    return 0;
}

static int start_peers(struct bench *bench)
{
    const struct via_perf *perf = bench->perf;
    bool all = perf->test == VIA_PERF_BARRIER;
    unsigned count = all ? perf->hosts_count : 1;
    for (unsigned i = 0; i < count; i++) {
        unsigned host = all ? perf->hosts[i] : perf->to;
        if (all && host == perf->from) {
            continue;
        }
        int rc = via_perf_peer_start(perf, host, bench->area_bytes, bench->lines,
                                     &bench->peers[bench->peers_count++], bench->err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int open_all(struct bench *bench)
{
    const struct via_perf *perf = bench->perf;
    bench->lines = mmap(NULL, sizeof(*bench->lines), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bench->lines == MAP_FAILED) {
        bench->lines = NULL;
        return via_error_set(bench->err, -errno, "memory: %s", strerror(errno));
    }
    for (unsigned i = 0; i < perf->sizes_count && perf->test != VIA_PERF_BARRIER; i++) {
        /* Twice the size, because the answer of a ping must not overwrite the bytes that are being
         * sent. */
        bench->area_bytes = via_max(bench->area_bytes, 2 * perf->sizes[i]);
    }
    bench->area_bytes = via_max(bench->area_bytes, perf->spread);
    bench->area_bytes = (bench->area_bytes + 8191) & ~UINT64_C(8191);
    /* Before attaching, because a child must not inherit its parent's attachment. */
    int rc = start_peers(bench);
    bench->nears_count =
        perf->test == VIA_PERF_PUT || perf->test == VIA_PERF_GET ? perf->channels_count : 1;
    for (unsigned i = 0; i < bench->nears_count && rc == 0; i++) {
        rc = near_open(bench, &bench->nears[i], perf->channels[i]);
    }
    if (rc == 0 && perf->test == VIA_PERF_PINGPONG) {
        struct via_perf_order order = {
            .kind = VIA_PERF_ORDER_OPEN,
            .handle = via_segment_handle(bench->nears[0].segment),
            .bytes = bench->area_bytes,
        };
        rc = via_perf_peer_send(&bench->peers[0], &order, bench->err);
        if (rc == 0) {
            rc = via_perf_peer_wait(&bench->peers[0], bench->err);
        }
    }
    return rc;
}

static void close_all(struct bench *bench)
{
    for (unsigned i = 0; i < bench->peers_count; i++) {
        via_perf_peer_end(&bench->peers[i]);
    }
    for (unsigned i = 0; i < bench->nears_count; i++) {
        via_attach_close(bench->nears[i].attach);
        if (bench->nears[i].copy != NULL) {
            munmap(bench->nears[i].copy, bench->area_bytes);
        }
    }
    if (bench->lines != NULL) {
        munmap(bench->lines, sizeof(*bench->lines));
    }
}

static int measure_sizes(struct bench *bench, struct via_perf_row *rows)
{
    static const struct {
        run_function *run;
        run_function *yardstick;
    } tests[] = {
        [VIA_PERF_PINGPONG] = {run_pings, run_bare},
        [VIA_PERF_PUT] = {run_put, run_memcpy},
        [VIA_PERF_GET] = {run_get, run_memcpy},
        [VIA_PERF_BARRIER] = {run_barrier, NULL},
    };
    const struct via_perf *perf = bench->perf;
    struct via_progress progress;
    int rc = 0;
    via_progress_begin(&progress, "viaduct perf: size", perf->sizes_count);
    for (unsigned i = 0; i < perf->sizes_count && rc == 0; i++) {
        struct near *near = &bench->nears[0];
        bench->bytes = perf->sizes[i];
        bench->places = bench->bytes == 0 ? 1 : via_max(perf->spread / bench->bytes, UINT64_C(1));
        rc = measure_row(bench, tests[perf->test].run,
                         perf->alone ? NULL : tests[perf->test].yardstick, &rows[i]);
        rows[i].hops = via_attach_hops(near->attach, perf->to);
        rows[i].direct = near->remote != NULL && via_remote_direct(near->remote) != NULL;
        via_progress_step(&progress, i + 1);
    }
    via_progress_end(&progress);
    return rc;
}

int via_perf_measure(struct via_perf *perf, struct via_perf_row *ret_rows, struct via_error *err)
{
    static struct bench bench;
    bench.perf = perf;
    bench.err = err;
    int rc = open_all(&bench);
    if (rc == 0) {
        rc = measure_sizes(&bench, ret_rows);
    }
    close_all(&bench);
    return rc;
}
