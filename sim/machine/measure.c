/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/machine/measure.h"

#include <errno.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"
#include "sim/memory.h"

uint64_t sim_measure_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void sim_measure_pin(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set); /* where that is not allowed, the kernel places it */
}

int sim_measure_start(pthread_t *ret_thread, unsigned cpu, void *(*main)(void *arg), void *arg)
{
    pthread_attr_t attr;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_attr_init(&attr);
    pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
    int rc = pthread_create(ret_thread, &attr, main, arg);
    pthread_attr_destroy(&attr);
    if (rc == EINVAL) { /* it may not be there: the kernel places it */
        rc = pthread_create(ret_thread, NULL, main, arg);
    }
    return rc;
}

static int compare(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? -1 : *x > *y ? 1 : 0;
}

double sim_measure_quartile(double *samples, size_t count)
{
    qsort(samples, count, sizeof(*samples), compare);
    return samples[count / 4];
}

double sim_measure_median(double *samples, size_t count)
{
    qsort(samples, count, sizeof(*samples), compare);
    return samples[count / 2];
}

/* --- between two threads --------------------------------------------------------------------- */

#define TRIALS 300u
#define LINE_ROUNDS 50u
/* On a crowded machine there are fewer trials: this long, and the one that is under way. */
#define LIMIT_NS (VIA_SEC_NS / 2)

struct pair {
    _Alignas(64) atomic_uint ball;   /* each side adds one when it is its turn */
    _Alignas(64) atomic_uint asleep; /* futex: the far side sleeps while it is 1 */
    _Alignas(64) _Atomic uint64_t woken_ns;
    atomic_bool stop;
    atomic_bool calm; /* no more work beside it */
    unsigned far_cpu;
};

/* Answers until told not to. */
static void *answer_line(void *arg)
{
    struct pair *pair = arg;
    unsigned next = 1;
    while (!atomic_load_explicit(&pair->stop, memory_order_relaxed)) {
        /* Pairs with the release in line_ns(): its turn is over. */
        if (atomic_load_explicit(&pair->ball, memory_order_acquire) == next) {
            atomic_store_explicit(&pair->ball, next + 1, memory_order_release);
            next += 2;
        }
    }
    return NULL;
}

/* The best of many runs of rounds: a run that was interrupted is longer. */
static double line_ns(struct pair *pair)
{
    unsigned turn = 0;
    double best_ns = 1e9;
    uint64_t end_ns = sim_measure_now_ns() + LIMIT_NS;
    uint64_t now_ns = 0;
    for (unsigned trial = 0; trial < TRIALS && now_ns < end_ns; trial++) {
        uint64_t start_ns = sim_measure_now_ns();
        for (unsigned round = 0; round < LINE_ROUNDS; round++) {
            atomic_store_explicit(&pair->ball, ++turn, memory_order_release);
            ++turn;
            /* Pairs with the release in answer_line(). */
            while (atomic_load_explicit(&pair->ball, memory_order_acquire) != turn) {
            }
        }
        now_ns = sim_measure_now_ns();
        double ns = (double)(now_ns - start_ns) / LINE_ROUNDS / 2;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    return best_ns;
}

static long futex(atomic_uint *word, int op, unsigned value)
{
    return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

static void *sleep_again(void *arg)
{
    struct pair *pair = arg;
    while (!atomic_load(&pair->stop)) {
        atomic_store(&pair->asleep, 1);
        while (atomic_load(&pair->asleep) == 1) {
            futex(&pair->asleep, FUTEX_WAIT_PRIVATE, 1);
        }
        atomic_store(&pair->woken_ns, sim_measure_now_ns());
    }
    return NULL;
}

static double wait_until_woken(struct pair *pair)
{
    while (atomic_load(&pair->woken_ns) == 0) {
        if (pair->far_cpu == 0) {
            sched_yield(); /* it has not taken our place */
        }
    }
    return (double)atomic_load(&pair->woken_ns);
}

/* The first quartile of what a wake-up takes: of the call, and until the other one runs. */
static void wake_ns(struct pair *pair, double *ret_bell_ns, double *ret_wake_ns)
{
    double bells[TRIALS];
    double wakes[TRIALS];
    const struct timespec pause = {.tv_nsec = 100000};
    uint64_t end_ns = sim_measure_now_ns() + LIMIT_NS;
    unsigned trials = 0;
    for (; trials < TRIALS && (trials == 0 || sim_measure_now_ns() < end_ns); trials++) {
        do {
            nanosleep(&pause, NULL); /* it says that it sleeps before it does */
        } while (atomic_load(&pair->asleep) != 1);
        atomic_store(&pair->woken_ns, 0);
        double start_ns = (double)sim_measure_now_ns();
        atomic_store(&pair->asleep, 0);
        futex(&pair->asleep, FUTEX_WAKE_PRIVATE, 1);
        double called_ns = (double)sim_measure_now_ns();
        double woken_ns = wait_until_woken(pair);
        bells[trials] = called_ns - start_ns;
        wakes[trials] = fmax(woken_ns - start_ns, 0);
    }
    *ret_bell_ns = sim_measure_quartile(bells, trials);
    *ret_wake_ns = sim_measure_quartile(wakes, trials);
}

static void pair_end(struct pair *pair, pthread_t thread)
{
    atomic_store(&pair->stop, true);
    atomic_store(&pair->asleep, 0);
    futex(&pair->asleep, FUTEX_WAKE_PRIVATE, 1);
    pthread_join(thread, NULL);
    atomic_store(&pair->stop, false);
}

/* A sleeper that is woken, on the other processor or this one. */
static int wake_on(struct pair *pair, unsigned cpu, double *ret_bell_ns, double *ret_wake_ns)
{
    pthread_t thread;
    pair->far_cpu = cpu;
    int rc = sim_measure_start(&thread, cpu, sleep_again, pair);
    if (rc == 0) {
        wake_ns(pair, ret_bell_ns, ret_wake_ns);
        pair_end(pair, thread);
    }
    return rc;
}

static void *keep_busy(void *arg)
{
    const struct pair *pair = arg;
    const struct sched_param normal = {0};
    sched_setscheduler(0, SCHED_OTHER, &normal); /* not so that nobody ever takes its place */
    while (!atomic_load_explicit(&pair->calm, memory_order_relaxed)) {
    }
    return NULL;
}

static int wake_busy(struct pair *pair, unsigned cpu, double *ret_wake_ns)
{
    pthread_t thread;
    double bell_ns;
    int rc = sim_measure_start(&thread, cpu, keep_busy, pair);
    if (rc == 0) {
        rc = wake_on(pair, cpu, &bell_ns, ret_wake_ns);
        atomic_store(&pair->calm, true);
        pthread_join(thread, NULL);
    }
    return rc;
}

static int measure_pairs(struct sim_measured *ret, struct via_error *err)
{
    struct pair *pair = sim_alloc_lines(sizeof(*pair));
    unsigned other = ret->cpus_count > 1 ? 1 : 0;
    double bell_ns;
    pthread_t thread;
    int rc = sim_measure_start(&thread, other, answer_line, pair);
    if (rc == 0) {
        ret->line_ns = line_ns(pair);
        pair_end(pair, thread);
        rc = wake_on(pair, other, &ret->bell_ns, &ret->wake_ns);
    }
    if (rc == 0) {
        rc = wake_on(pair, 0, &bell_ns, &ret->queue_ns);
    }
    if (rc == 0) {
        rc = wake_busy(pair, other, &ret->kick_ns);
    }
    free(pair);
    return rc == 0 ? 0 : via_error_set(err, -EAGAIN, "starting a thread: %s", strerror(rc));
}

/* --- by itself ------------------------------------------------------------------------------- */

static void *yield_until(void *arg)
{
    atomic_uint *stop = arg;
    while (!atomic_load(stop)) {
        sched_yield();
    }
    return NULL;
}

/* Two threads that give their processor to each other; the best of some runs. */
static int switch_ns(double *ret_ns, struct via_error *err)
{
    pthread_t thread;
    atomic_uint stop = 0;
    int rc = sim_measure_start(&thread, 0, yield_until, &stop);
    if (rc != 0) {
        return via_error_set(err, -EAGAIN, "starting a thread: %s", strerror(rc));
    }
    *ret_ns = 1e9;
    uint64_t end_ns = sim_measure_now_ns() + LIMIT_NS;
    for (unsigned trial = 0; trial < 50 && (trial < 2 || sim_measure_now_ns() < end_ns); trial++) {
        uint64_t start_ns = sim_measure_now_ns();
        for (unsigned i = 0; i < 50; i++) {
            sched_yield();
        }
        double ns = (double)(sim_measure_now_ns() - start_ns) / 100; /* there and back */
        *ret_ns = trial > 0 && ns < *ret_ns ? ns : *ret_ns; /* the other one is there by then */
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    return 0;
}

int sim_measure(struct sim_measured *ret, struct via_error *err)
{
    cpu_set_t mine;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *ret = (struct sim_measured){.cpus_count = cpus < 1 ? 1 : (unsigned)cpus};
    sched_getaffinity(0, sizeof(mine), &mine);
    sim_measure_pin(0);
    int rc = sim_measure_memory(ret, err);
    rc = rc == 0 ? measure_pairs(ret, err) : rc;
    rc = rc == 0 ? switch_ns(&ret->switch_ns, err) : rc;
    rc = rc == 0 ? sim_measure_node(ret, err) : rc;
    sched_setaffinity(0, sizeof(mine), &mine);
    return rc;
}
