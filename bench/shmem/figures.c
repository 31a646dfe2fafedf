/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Measures OpenSHMEM calls between two PEs, or among all. PE 0 prints "name value unit" lines.
 *
 *     oshrun -n N figures [quick] [only TEXT]
 *
 * only: only figures whose names contain TEXT. PEs with a core each are bound to it. Times are
 * those of the fastest of many slices of 0.1 ms, so that other programs do not count. Works with
 * every implementation of OpenSHMEM 1.4 or later, and leaves out later calls that are missing.
 */
#include <sched.h>
#include <shmem.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 5
#define SLICE_NS 1e5
#define SLICES_MIN 10
/* With fewer operations, all other PEs may have arrived before a slice begins. */
#define TOGETHER_MIN 20
#define SLICES_MAX 1000
#define BYTES_MAX ((size_t)4 << 20)
#define GUPS_WORDS ((size_t)1 << 24)
#define GUPS_UPDATES 500000L
#define CONTENDED_ADDS 2000000L /* long enough for all PEs to be at work */
#define BUSY_NS 3e8
#define BUSY_CALLS 1000L /* of a round: the clock may have ticks of 10 ns */

#if SHMEM_MAJOR_VERSION > 1 || SHMEM_MINOR_VERSION >= 5
#define HAS_TEAMS 1
#endif

static int me, pes;
static double seconds_each = 0.1;
static const char *only = ""; /* only figures whose names contain this text are measured */
static long static_words[64];
static long *words;
#ifdef HAS_TEAMS
static uint64_t *signals;
#endif
static char *block;
static char *source;

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void bind_to_core(void)
{
    cpu_set_t set, mine;
    int wanted = me;

    if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < pes)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set) || wanted-- != 0)
            continue;
        CPU_ZERO(&mine);
        CPU_SET(cpu, &mine);
        sched_setaffinity(0, sizeof(mine), &mine);
        return;
    }
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* --- the measured operations, each made `count` times ---------------------------------------- */

typedef void measured(long count);

/* The number increases from round to round, so that no PE waits for an earlier one. */
static long turn;

static void pingpong(long *word, long count)
{
    for (long i = 0; i < count && me < 2; i++) {
        long number = turn + i + 1;
        if (me == 0)
            shmem_long_p(word, number, 1);
        shmem_long_wait_until(word, SHMEM_CMP_GE, number);
        if (me == 1)
            shmem_long_p(word, number, 0);
    }
    turn += count;
}

static void pingpong_heap(long count)
{
    pingpong(words, count);
}

static void pingpong_static(long count)
{
    pingpong(static_words, count);
}

static void pingpong_flag(long count)
{
    for (long i = 0; i < count && me < 2; i++) {
        long number = turn + i + 1;
        if (me == 1)
            shmem_long_wait_until(&words[8], SHMEM_CMP_GE, number);
        shmem_long_put(words, &number, 1, 1 - me);
        shmem_fence();
        shmem_long_p(&words[8], number, 1 - me);
        if (me == 0)
            shmem_long_wait_until(&words[8], SHMEM_CMP_GE, number);
    }
    turn += count;
}

#ifdef HAS_TEAMS
static void pingpong_signal(long count)
{
    for (long i = 0; i < count && me < 2; i++) {
        long number = turn + i + 1;
        if (me == 1)
            shmem_signal_wait_until(signals, SHMEM_CMP_GE, (uint64_t)number);
        shmem_long_put_signal(words, &number, 1, signals, (uint64_t)number, SHMEM_SIGNAL_SET,
                              1 - me);
        if (me == 0)
            shmem_signal_wait_until(signals, SHMEM_CMP_GE, (uint64_t)number);
    }
    turn += count;
}
#endif

static void p_heap(long count)
{
    for (long i = 0; i < count; i++)
        shmem_long_p(words, i, 1);
}

static void p_static(long count)
{
    for (long i = 0; i < count; i++)
        shmem_long_p(static_words, i, 1);
}

static void p_quiet(long count)
{
    for (long i = 0; i < count; i++) {
        shmem_long_p(words, i, 1);
        shmem_quiet();
    }
}

static void g_heap(long count)
{
    volatile long sum = 0;

    for (long i = 0; i < count; i++)
        sum += shmem_long_g(words, 1);
}

static void iput_256(long count)
{
    for (long i = 0; i < count; i++)
        shmem_long_iput((long *)(void *)block, (long *)(void *)source, 2, 2, 256, 1);
}

static void iput_quiet(long count)
{
    for (long i = 0; i < count; i++) {
        shmem_long_iput((long *)(void *)block, (long *)(void *)source, 2, 2, 256, 1);
        shmem_quiet();
    }
}

/* The same number of bytes as iput_quiet. */
static void put_quiet(long count)
{
    for (long i = 0; i < count; i++) {
        shmem_long_put((long *)(void *)block, (long *)(void *)source, 256, 1);
        shmem_quiet();
    }
}

static void iget_256(long count)
{
    for (long i = 0; i < count; i++)
        shmem_long_iget((long *)(void *)source, (long *)(void *)block, 2, 2, 256, 1);
}

/* Operations under way at a time in these; one quiet waits for all. */
#define OVERLAPPED 1000

static void get_overlapped(long count)
{
    for (long i = 0; i < count; i++) {
        for (int j = 0; j < OVERLAPPED; j++)
            shmem_long_get_nbi((long *)(void *)source + j, (long *)(void *)block + j, 1, 1);
        shmem_quiet();
    }
}

static void inc_overlapped(long count)
{
    for (long i = 0; i < count; i++) {
        for (int j = 0; j < OVERLAPPED; j++)
            shmem_long_atomic_inc(words, 1);
        shmem_quiet();
    }
}

#ifdef HAS_TEAMS
static void fetch_add_overlapped(long count)
{
    for (long i = 0; i < count; i++) {
        for (int j = 0; j < OVERLAPPED; j++)
            shmem_long_atomic_fetch_add_nbi((long *)(void *)source + j, words, 1, 1);
        shmem_quiet();
    }
}
#endif

static void fetch_add(long count)
{
    for (long i = 0; i < count; i++)
        shmem_long_atomic_fetch_add(words, 1, 1);
}

static void lock_free(long count)
{
    static long lock;

    for (long i = 0; i < count; i++) {
        shmem_set_lock(&lock);
        shmem_clear_lock(&lock);
    }
}

static void barrier(long count)
{
    for (long i = 0; i < count; i++)
        shmem_barrier_all();
}

/* --- without a library: the CPU's own operations ---------------------------------------------- */

static _Atomic long *theirs, *mine; /* a word of the other PE, mapped here, and this PE's word */

static void bare_line(long count)
{
    for (long i = 0; i < count && me < 2; i++) {
        long number = turn + i + 1;
        if (me == 0)
            atomic_store_explicit(theirs, number, memory_order_release);
        while (atomic_load_explicit(mine, memory_order_acquire) < number)
            ;
        if (me == 1)
            atomic_store_explicit(theirs, number, memory_order_release);
    }
    turn += count;
}

static void bare_store_and_fence(long count)
{
    for (long i = 0; i < count; i++) {
        atomic_store_explicit(theirs, i, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
    }
}

static void bare_fetch_add(long count)
{
    for (long i = 0; i < count; i++)
        atomic_fetch_add_explicit(theirs, 1, memory_order_seq_cst);
}

static size_t bytes;

static void put_bytes(long count)
{
    for (long i = 0; i < count; i++)
        shmem_putmem(block, source, bytes, 1);
    shmem_quiet();
}

static void get_bytes(long count)
{
    for (long i = 0; i < count; i++)
        shmem_getmem(source, block, bytes, 1);
}

static void memcpy_bytes(long count)
{
    static char *copy;

    if (!copy) {
        copy = malloc(BYTES_MAX);
        memset(copy, 1, BYTES_MAX);
    }
    for (long i = 0; i < count; i++) {
        memcpy(copy, source, bytes);
        __asm__ volatile("" ::: "memory");
    }
}

static size_t elements;

#ifdef HAS_TEAMS
static void sum_reduce(long count)
{
    for (long i = 0; i < count; i++)
        shmem_long_sum_reduce(SHMEM_TEAM_WORLD, (long *)(void *)block,
                              (long *)(void *)(block + BYTES_MAX), elements);
}
#else
/* Two of each, because one may be used again only when all PEs have left the previous call. */
static long psync[2][SHMEM_REDUCE_SYNC_SIZE];
static long pwork[2][65536 / 2 + SHMEM_REDUCE_MIN_WRKDATA_SIZE];

static void sum_reduce(long count)
{
    static int which;

    for (long i = 0; i < count; i++, which = !which)
        shmem_long_sum_to_all((long *)(void *)block, (long *)(void *)(block + BYTES_MAX),
                              (int)elements, 0, 0, pes, pwork[which], psync[which]);
}

static void prepare_sync(void)
{
    for (int i = 0; i < 2 * SHMEM_REDUCE_SYNC_SIZE; i++)
        psync[i / SHMEM_REDUCE_SYNC_SIZE][i % SHMEM_REDUCE_SYNC_SIZE] = SHMEM_SYNC_VALUE;
}
#endif

/* Random updates of a table that is spread over all PEs, as HPCC's RandomAccess has them: by get
 * and put, as lost updates are allowed; and by atomics. */
static long *table;

static inline uint64_t next_random(uint64_t last)
{
    return (last << 1) ^ ((int64_t)last < 0 ? 7 : 0);
}

static void gups(long count)
{
    static uint64_t random_word = 0x123456789abcdef;
    uint64_t word = random_word + (uint64_t)me;

    for (long i = 0; i < count; i++) {
        word = next_random(word);
        int pe = (int)((word >> 40) % (uint64_t)pes);
        long *at = &table[word % GUPS_WORDS];
        shmem_long_p(at, shmem_long_g(at, pe) ^ (long)word, pe);
    }
    random_word = word;
}

static void gups_atomic(long count)
{
    static uint64_t random_word = 0xfedcba987654321;
    uint64_t word = random_word + (uint64_t)me;

    for (long i = 0; i < count; i++) {
        word = next_random(word);
        shmem_ulong_atomic_xor((unsigned long *)&table[word % GUPS_WORDS], word,
                               (int)((word >> 40) % (uint64_t)pes));
    }
    random_word = word;
}

/* --- measuring -------------------------------------------------------------------------------- */

/* How many operations are a slice, and how many slices are measured. */
struct plan {
    long count, slices;
};

static struct plan plan_for(double op_ns, long count_min)
{
    struct plan plan = {.count = (long)(SLICE_NS / op_ns) + count_min};
    double slices = seconds_each * 1e9 / ((double)plan.count * op_ns);

    plan.slices = slices < SLICES_MIN   ? SLICES_MIN
                  : slices > SLICES_MAX ? SLICES_MAX
                                        : (long)slices;
    return plan;
}

static struct plan plan_alone(measured *function)
{
    double took = 0;
    long count = 1;

    for (; me == 0; count *= 2) {
        double began = now_ns();
        function(count);
        took = now_ns() - began;
        if (took > SLICE_NS)
            break;
    }
    return plan_for(me == 0 ? took / (double)count : SLICE_NS, 1);
}

/* PE 0 decides the plan for all PEs. */
static struct plan plan_together(measured *function)
{
    static long count, slices;

    for (long tried = 1;; tried *= 4) {
        shmem_barrier_all();
        double began = now_ns();
        function(tried);
        double took = now_ns() - began;
        struct plan plan = plan_for(took / (double)tried, TOGETHER_MIN);
        count = plan.count;
        slices = took > SLICE_NS ? plan.slices : 0;
        shmem_barrier_all();
        plan = (struct plan){shmem_long_g(&count, 0), shmem_long_g(&slices, 0)};
        shmem_barrier_all();
        if (plan.slices > 0)
            return plan;
    }
}

/* The time of the fastest slice: no other program used the CPUs during it. */
static double measure(measured *function, bool together)
{
    struct plan plan = together ? plan_together(function) : plan_alone(function);
    double fastest = 0;

    shmem_barrier_all();
    for (long slice = 0; slice < plan.slices && (me == 0 || together); slice++) {
        double began = now_ns();
        function(plan.count);
        double took = (now_ns() - began) / (double)plan.count;
        if (slice == 0 || took < fastest)
            fastest = took;
    }
    shmem_barrier_all();
    return fastest;
}

static bool is_wanted(const char *name)
{
    return strstr(name, only) != NULL;
}

static void say(const char *name, double value, const char *unit)
{
    if (me == 0)
        printf("%s\t%.6g\t%s\n", name, value, unit);
    fflush(stdout);
}

static void time_of(const char *name, measured *function, bool together)
{
    if (is_wanted(name))
        say(name, measure(function, together), "ns");
}

static void rate_of(const char *name, measured *function)
{
    if (is_wanted(name))
        say(name, 1e3 / measure(function, false), "M/s");
}

static void bandwidths(void)
{
    static const struct {
        const char *name;
        measured *function;
    } ways[] = {{"put", put_bytes}, {"get", get_bytes}, {"memcpy", memcpy_bytes}};
    static const char *const names[] = {"4K", "64K", "1M", "4M"};
    char name[32];

    for (int way = 0; way < 3; way++) {
        for (int i = 0; i < 4; i++) {
            bytes = (size_t[]){4096, 65536, 1 << 20, BYTES_MAX}[i];
            snprintf(name, sizeof(name), "%s %s", ways[way].name, names[i]);
            if (is_wanted(name))
                say(name, (double)bytes / measure(ways[way].function, false), "GB/s");
        }
    }
}

static void add_to_one(long count)
{
    for (long i = 0; i < count; i++)
        shmem_long_atomic_fetch_add(&words[16], 1, 0);
}

/* `count` calls by each PE: by the fastest of a few runs of all PEs, with their end. */
static void say_total(const char *name, measured *function, long count, double unit,
                      const char *unit_name)
{
    double best = 0;

    if (!is_wanted(name))
        return;
    for (int round = 0; round < ROUNDS; round++) {
        shmem_barrier_all();
        double began = now_ns();
        function(count);
        shmem_barrier_all();
        double rate = (double)count * pes * unit / (now_ns() - began);
        best = rate > best ? rate : best;
    }
    say(name, best, unit_name);
}

static void contended(void)
{
    say_total("fetch-add contended, total", add_to_one, CONTENDED_ADDS, 1e3, "M/s");
}

static void random_updates(void)
{
    shmem_barrier_all();
    table = shmem_malloc(GUPS_WORDS * sizeof(long));
    if (!table)
        return;
    memset(table, 1, GUPS_WORDS * sizeof(long));
    shmem_barrier_all();
    say_total("GUPs, get and put", gups, GUPS_UPDATES, 1, "GUP/s");
    say_total("GUPs, atomic", gups_atomic, GUPS_UPDATES, 1, "GUP/s");
    shmem_free(table);
}

static void bare(void)
{
    mine = (_Atomic long *)&words[32];
    theirs = shmem_ptr(&words[32], 1 - me);
    time_of("bare cache line, there and back", bare_line, true);
    time_of("bare store + fence", bare_store_and_fence, false);
    rate_of("bare fetch-add", bare_fetch_add);
}

static void busy_calls(long count)
{
    for (long i = 0; i < count; i++) {
        shmem_long_p(static_words, 1, 1);
        shmem_quiet();
        shmem_long_atomic_fetch_add(static_words, 1, 1);
    }
}

/* PE 1 computes and makes no calls: measures how long PE 0 waits. */
static void busy_target(void)
{
    if (!is_wanted("p + quiet + fetch-add, busy PE, first"))
        return;
    /* The dynamic linker binds the calls, which takes longer than they do, and the memory is
     * mapped, if no earlier figure has done so. */
    if (me == 0)
        busy_calls(1);
    shmem_long_p(static_words, 0, 1 - me);
    shmem_barrier_all();
    double began = now_ns();
    if (me == 1) {
        while (now_ns() - began < BUSY_NS)
            ;
    } else if (me == 0) {
        while (now_ns() - began < BUSY_NS / 10)
            ;
        double rounds[ROUNDS];
        double from = now_ns();
        busy_calls(1);
        double first = now_ns() - from;
        for (int round = 0; round < ROUNDS; round++) {
            from = now_ns();
            busy_calls(BUSY_CALLS);
            rounds[round] = (now_ns() - from) / (double)BUSY_CALLS;
        }
        /* The first call is the one that must wait for another PE, where calls do. */
        say("p + quiet + fetch-add, busy PE, first", first / 1e3, "us");
        qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
        say("p + quiet + fetch-add, busy PE", rounds[ROUNDS / 2] / 1e3, "us");
    }
    shmem_barrier_all();
}

int main(int argc, char **argv)
{
    double began = now_ns();
    shmem_init();
    double init_ms = (now_ns() - began) / 1e6;
    me = shmem_my_pe();
    pes = shmem_n_pes();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "quick") == 0)
            seconds_each = 0.02;
        else if (strcmp(argv[i], "only") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    bind_to_core();
    words = shmem_calloc(64, sizeof(long));
#ifdef HAS_TEAMS
    signals = shmem_calloc(1, sizeof(*signals));
#endif
    block = shmem_malloc(2 * BYTES_MAX);
    source = malloc(BYTES_MAX);
    memset(block, 1, 2 * BYTES_MAX);
    memset(source, 1, BYTES_MAX);
#ifndef HAS_TEAMS
    prepare_sync();
#endif
    bool near = shmem_ptr(words, (me + 1) % pes) != NULL;
    shmem_barrier_all();

    if (is_wanted("shmem_init"))
        say("shmem_init", init_ms, "ms");
    time_of("barrier", barrier, true);
    elements = 1;
    time_of("sum-reduce 8 B", sum_reduce, true);
    if (pes == 2) {
        time_of("p 8 B + wait, there and back", pingpong_heap, true);
        time_of("the same, static variable", pingpong_static, true);
        time_of("put 8 B + fence + flag, there and back", pingpong_flag, true);
#ifdef HAS_TEAMS
        time_of("put_signal 8 B, there and back", pingpong_signal, true);
#endif
        rate_of("p 8 B", p_heap);
        rate_of("p 8 B, static variable", p_static);
        time_of("p + quiet", p_quiet, false);
        time_of("g 8 B", g_heap, false);
        time_of("iput 256 x 8 B", iput_256, false);
        time_of("iput 256 x 8 B + quiet", iput_quiet, false);
        time_of("put 2 KiB + quiet", put_quiet, false);
        time_of("iget 256 x 8 B", iget_256, false);
        rate_of("fetch-add", fetch_add);
        time_of("1,000 get_nbi 8 B + quiet", get_overlapped, false);
        time_of("1,000 atomic inc + quiet", inc_overlapped, false);
#ifdef HAS_TEAMS
        time_of("1,000 fetch-add_nbi + quiet", fetch_add_overlapped, false);
#endif
        bandwidths();
        if (near) {
            bare();
            contended();
            time_of("lock, free", lock_free, false);
            elements = 65536;
            time_of("sum-reduce 512 KiB", sum_reduce, true);
            busy_target();
            random_updates();
        }
    }
    shmem_finalize();
    return 0;
}
