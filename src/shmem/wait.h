/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_WAIT_H
#define VIA_SHMEM_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/pause.h"
#include "base/types.h"

/*
 * How a PE waits for a change of memory: it first pauses, then yields, then sleeps. Pausing is best
 * while every PE has a CPU of its own. With more PEs than CPUs the awaited PE may need this CPU,
 * and each pause delays it. So the initial budget of pauses depends on the number of CPUs, and then
 * adapts: a wait that uses up the budget halves it, and at intervals the whole budget is tried
 * again.
 *
 *     struct via_wait wait = VIA_WAIT_INIT;
 *     while (!condition)
 *         via_wait_step(&wait);
 *     via_wait_done(&wait);
 */
struct via_wait {
    uint32_t pauses;
    uint32_t yields;
    uint64_t began_ns; /* time of the first yield */
    uint64_t round_ns; /* start of the current round of yields */
    uint64_t sleep_ns;
};

#define VIA_WAIT_INIT \
    {                 \
        0, 0, 0, 0, 0 \
    }

/* Pauses before a wait yields: one number per process, read and adapted by all its threads. */
extern _Atomic uint32_t via_wait_pauses_max;

/* pes: how many PEs share `cores`. Call it once, before the first wait. */
void via_wait_configure(unsigned pes, unsigned cores);

/*
 * Called before each sleep of a long wait: checks whether the awaited event can still happen. NULL
 * for none; set while no thread waits.
 */
extern void (*via_wait_poll_host)(void);

/* Called in each step of a wait: makes progress on direct connections. NULL for none; as above.
 */
extern void (*via_wait_poll_tcp)(void);

/* Called at the same points, and at the end of a long wait: for `viaduct shmem trace`; or NULL. */
extern void (*via_wait_trace)(void);
extern void (*via_wait_trace_over)(void);

/* The number of CPUs that this process may use: by affinity and by the quota of its control
 * group. */
unsigned via_wait_cores(void);
unsigned via_wait_quota_cores(void); /* limit by the quota alone; UINT32_MAX without one */

/*
 * One step of pausing or yielding. False when yielding has not helped for a while: the caller
 * should sleep, on a futex if another PE will wake it, else by via_wait_sleep.
 */
bool via_wait_yield(struct via_wait *wait);
void via_wait_sleep(struct via_wait *wait);
void via_wait_learn(void);

/* True if it has paused or yielded; false if the caller should sleep. */
static inline bool via_wait_try(struct via_wait *wait)
{
    if (via_unlikely(via_wait_poll_tcp))
        via_wait_poll_tcp();
    if (via_likely(wait->pauses <
                   atomic_load_explicit(&via_wait_pauses_max, memory_order_relaxed))) {
        wait->pauses++;
        via_cpu_pause();
        return true;
    }
    return via_wait_yield(wait);
}

static inline void via_wait_step(struct via_wait *wait)
{
    if (!via_wait_try(wait))
        via_wait_sleep(wait);
}

static inline void via_wait_done(const struct via_wait *wait)
{
    if (via_unlikely(wait->yields > 0))
        via_wait_learn();
}

/*
 * An event count in shared memory: a thread sleeps on it until others make a condition true. The
 * waker's side is one load while no thread sleeps. Pairing: the waker makes the condition true by a
 * sequentially consistent operation, then loads `sleepers` by another one (processors with a weak
 * memory order would let a relaxed load pass the former); the sleeper counts itself, then executes
 * a full fence, then checks the condition. So the waker sees the sleeper, or the sleeper sees the
 * condition.
 */
struct via_event {
    _Atomic uint32_t count; /* the futex word */
    _Atomic uint32_t sleepers;
};

uint32_t via_event_prepare(struct via_event *event);           /* ends with the full fence */
void via_event_sleep(struct via_event *event, uint32_t count); /* returns at the latest in 100 ms */
void via_event_cancel(struct via_event *event);
void via_event_wake_all(struct via_event *event);

/* Called after the condition is true: made so sequentially consistently, or followed by a full
 * fence. */
static inline void via_event_notify(struct via_event *event)
{
    if (via_unlikely(atomic_load_explicit(&event->sleepers, memory_order_seq_cst) > 0))
        via_event_wake_all(event);
}

#endif
