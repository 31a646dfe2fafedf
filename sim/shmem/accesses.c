/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The library's sources are compiled for the simulator as if for ThreadSanitizer: the compiler then
 * calls that sanitizer's runtime at every access to memory that others may see. This file is
 * another implementation of that runtime, which lets other PEs run now and then. So PEs interleave
 * between any two accesses, as processes on their own CPUs do, and the library does not notice. Not
 * covered: stores that other CPUs see late or in another order; x86 has only late stores, and the
 * library has a fence where they matter.
 */
#include "sim/shmem/job.h"

/* An atomic access counts as ATOMIC_WEIGHT plain ones: order matters most there. */
#define ATOMIC_WEIGHT 16

/* Time of an access. */
#define ACCESS_NS_MIN 2
#define ACCESS_NS_MAX 6

static int64_t left;
static uint32_t drawn;

void sim_accesses_draw(struct sim_job *job)
{
    drawn = sim_job_between(job, 1, job->config->accesses_max);
    left = drawn;
}

/* --- the runtime of -fsanitize=thread: names and types are GCC's (gcc/sanitizer.def) --------- */

/* ThreadSanitizer itself provides this one, and Clang uses other names. */
#if !defined(__SANITIZE_THREAD__) && !defined(__clang__)

static __attribute__((noinline)) void preempt(struct sim_job *job)
{
    const struct sim_config_shmem *config = job->config;
    uint64_t ns = (uint64_t)drawn * sim_job_between(job, ACCESS_NS_MIN, ACCESS_NS_MAX);
    if (config->stall_chance != 0 && !job->world->healed &&
        via_rng_chance(&job->rng, config->stall_chance, 1000)) {
        ns += sim_job_between(job, 0, config->stall_ns_max);
    }
    sim_pe_pause(job->running, ns);
    sim_accesses_draw(job);
}

static inline void count_access(int weight)
{
    left -= weight;
    if (via_unlikely(left <= 0) && sim_job != NULL && sim_job->running != NULL) {
        preempt(sim_job);
    }
}

#define HOOK_PLAIN(NAME)               \
    void __tsan_##NAME(void *address); \
    void __tsan_##NAME(void *address)  \
    {                                  \
        (void)address;                 \
        count_access(1);               \
    }
#define HOOK_SIZES(KIND) \
    HOOK_PLAIN(KIND##1)  \
    HOOK_PLAIN(KIND##2)  \
    HOOK_PLAIN(KIND##4)  \
    HOOK_PLAIN(KIND##8)  \
    HOOK_PLAIN(KIND##16)
#define HOOK_RANGE(NAME)                           \
    void __tsan_##NAME(void *address, long bytes); \
    void __tsan_##NAME(void *address, long bytes)  \
    {                                              \
        (void)address;                             \
        (void)bytes;                               \
        count_access(1);                           \
    }

HOOK_SIZES(read)
HOOK_SIZES(write)
HOOK_SIZES(unaligned_read)
HOOK_SIZES(unaligned_write)
HOOK_SIZES(volatile_read)
HOOK_SIZES(volatile_write)
HOOK_RANGE(read_range)
HOOK_RANGE(write_range)

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller)
{
    (void)caller;
    count_access(1);
}

void __tsan_func_exit(void *unused);
void __tsan_func_exit(void *unused)
{
    (void)unused;
    count_access(1);
}

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    count_access(ATOMIC_WEIGHT);
}

/* One thread runs all PEs: plain accesses are atomic. NEW is made of *at and value. */
#define HOOK_UPDATE(BITS, NAME, NEW)                                                       \
    uint##BITS##_t __tsan_atomic##BITS##_##NAME(volatile void *word, uint##BITS##_t value, \
                                                int order);                                \
    uint##BITS##_t __tsan_atomic##BITS##_##NAME(volatile void *word, uint##BITS##_t value, \
                                                int order)                                 \
    {                                                                                      \
        volatile uint##BITS##_t *at = word;                                                \
        (void)order;                                                                       \
        count_access(ATOMIC_WEIGHT);                                                       \
        uint##BITS##_t old = *at;                                                          \
        *at = (uint##BITS##_t)(NEW);                                                       \
        return old;                                                                        \
    }
#define HOOK_ATOMIC(BITS)                                                                          \
    uint##BITS##_t __tsan_atomic##BITS##_load(const volatile void *word, int order);               \
    uint##BITS##_t __tsan_atomic##BITS##_load(const volatile void *word, int order)                \
    {                                                                                              \
        (void)order;                                                                               \
        count_access(ATOMIC_WEIGHT);                                                               \
        return *(const volatile uint##BITS##_t *)word;                                             \
    }                                                                                              \
    void __tsan_atomic##BITS##_store(volatile void *word, uint##BITS##_t value, int order);        \
    void __tsan_atomic##BITS##_store(volatile void *word, uint##BITS##_t value, int order)         \
    {                                                                                              \
        (void)order;                                                                               \
        count_access(ATOMIC_WEIGHT);                                                               \
        *(volatile uint##BITS##_t *)word = value;                                                  \
    }                                                                                              \
    HOOK_UPDATE(BITS, exchange, value)                                                             \
    HOOK_UPDATE(BITS, fetch_add, old + value)                                                      \
    HOOK_UPDATE(BITS, fetch_sub, old - value)                                                      \
    HOOK_UPDATE(BITS, fetch_and, old &value)                                                       \
    HOOK_UPDATE(BITS, fetch_or, old | value)                                                       \
    HOOK_UPDATE(BITS, fetch_xor, old ^ value)                                                      \
    bool __tsan_atomic##BITS##_compare_exchange_strong(                                            \
        volatile void *word, void *expected, uint##BITS##_t value, int order, int other);          \
    bool __tsan_atomic##BITS##_compare_exchange_strong(volatile void *word, void *expected,        \
                                                       uint##BITS##_t value, int order, int other) \
    {                                                                                              \
        volatile uint##BITS##_t *at = word;                                                        \
        uint##BITS##_t *wanted = expected;                                                         \
        (void)order;                                                                               \
        (void)other;                                                                               \
        count_access(ATOMIC_WEIGHT);                                                               \
        uint##BITS##_t old = *at;                                                                  \
        if (old == *wanted) {                                                                      \
            *at = value;                                                                           \
            return true;                                                                           \
        }                                                                                          \
        *wanted = old;                                                                             \
        return false;                                                                              \
    }

HOOK_ATOMIC(8)
HOOK_ATOMIC(16)
HOOK_ATOMIC(32)
HOOK_ATOMIC(64)

#endif
