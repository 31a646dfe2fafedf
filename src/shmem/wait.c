/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A pause takes 15 to 60 ns, depending on the CPU. */
#define PAUSES_ALONE_MAX 2000u /* with a CPU for each PE: many cache line latencies */
#define PAUSES_SHARED_MAX 64u  /* a few cache misses: the awaited PE may be running */
#define PAUSES_MIN 4u
/* A thread that polls its own connections receives by itself the stores that it waits for. A step
 * is a system call, and PAUSES_MIN_TCP steps take as long as a few round trips. With less than one
 * step each wait would yield the CPU, whatever the budget.
 */
#define PAUSES_MIN_TCP 64u
#define FAILURES_A_TRIAL 64u

/* Each yield is a system call, so yielding is limited; but a thread that sleeps wakes up late. */
#define YIELD_NS_MAX (10 * VIA_MSEC_NS)
#define YIELDS_PER_CLOCK 16u
/*
 * A yield gives the CPU only to another PE of the same scheduling group. Under some launchers
 * (Hydra) every PE is a session, and so, where the kernel has autogroups, a group of its own:
 * yields then return at once, and the awaited PE runs only when the time slice is over, after
 * milliseconds. A round of yields that takes only the time of its system calls reveals this case.
 */
#define YIELDS_PER_ROUND 256u
#define YIELD_NS_USELESS 1000u
#define SLEEP_NS_MIN (20 * VIA_USEC_NS)
#define SLEEP_NS_MAX VIA_MSEC_NS
#define EVENT_NS_MAX (100 * VIA_MSEC_NS)

_Atomic uint32_t via_wait_pauses_max = PAUSES_SHARED_MAX;
void (*via_wait_poll_host)(void);
void (*via_wait_poll_tcp)(void);
void (*via_wait_trace)(void);
void (*via_wait_trace_over)(void);
static uint32_t pauses_limit = PAUSES_SHARED_MAX;
static _Atomic uint32_t failures; /* waits for which the pauses were too few */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void via_wait_configure(unsigned pes, unsigned cores)
{
    pauses_limit = pes <= cores ? PAUSES_ALONE_MAX : PAUSES_SHARED_MAX;
    atomic_store_explicit(&via_wait_pauses_max, pauses_limit, memory_order_relaxed);
    atomic_store_explicit(&failures, 0, memory_order_relaxed);
}

/* cgroup v2: "max 100000" or "200000 100000". Absent or unlimited: no bound. */
unsigned via_wait_quota_cores(void)
{
    unsigned long long quota, period;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");

    if (!file)
        return UINT32_MAX;
    int fields = fscanf(file, "%llu %llu", &quota, &period);
    fclose(file);
    if (fields != 2 || period == 0)
        return UINT32_MAX;
    return quota < period ? 1 : (unsigned)(quota / period);
}

unsigned via_wait_cores(void)
{
    cpu_set_t set;
    unsigned cores = 1;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        cores = (unsigned)CPU_COUNT(&set);
    return via_max(1u, via_min(cores, via_wait_quota_cores()));
}

/* True if yielding has not helped, or has lasted too long. */
static bool has_yielded_enough(struct via_wait *wait)
{
    uint64_t now = now_ns();

    if (now - wait->began_ns > YIELD_NS_MAX)
        return true;
    if (pauses_limit != PAUSES_SHARED_MAX || wait->yields % YIELDS_PER_ROUND != 0)
        return false;
    bool is_useless = now - wait->round_ns < YIELDS_PER_ROUND * YIELD_NS_USELESS;
    wait->round_ns = now;
    return is_useless;
}

bool via_wait_yield(struct via_wait *wait)
{
    if (wait->yields == 0)
        wait->began_ns = wait->round_ns = now_ns();
    wait->yields++;
    if (wait->sleep_ns > 0 || (wait->yields % YIELDS_PER_CLOCK == 0 && has_yielded_enough(wait)))
        return false;
    sched_yield();
    return true;
}

static void poll_once(void)
{
    if (via_wait_poll_host)
        via_wait_poll_host();
    if (via_wait_trace)
        via_wait_trace();
}

void via_wait_sleep(struct via_wait *wait)
{
    poll_once();
    wait->sleep_ns =
        wait->sleep_ns == 0 ? SLEEP_NS_MIN : via_min(wait->sleep_ns * 2, (uint64_t)SLEEP_NS_MAX);
    struct timespec time = {.tv_nsec = (long)wait->sleep_ns};
    nanosleep(&time, NULL);
}

/* With fewer cores than PEs, the PE that is waited for may need this core. */
static uint32_t least_pauses(void)
{
    return via_wait_poll_tcp && pauses_limit == PAUSES_ALONE_MAX ? PAUSES_MIN_TCP : PAUSES_MIN;
}

/*
 * Called after waits that had to yield: their pauses were wasted. With a CPU for each PE such waits
 * are rare, and the budget stays; with fewer CPUs they are the rule, and the budget shrinks to
 * almost nothing. A wait that ended while it paused does not show whether a larger budget would
 * help other waits, so the whole budget is tried again after a number of failures: with fewer CPUs
 * that costs a few pauses for each wait, with enough CPUs it restores the budget.
 */
void via_wait_learn(void)
{
    uint32_t max = atomic_load_explicit(&via_wait_pauses_max, memory_order_relaxed);

    if (via_wait_trace_over)
        via_wait_trace_over();
    if (atomic_fetch_add_explicit(&failures, 1, memory_order_relaxed) % FAILURES_A_TRIAL == 0)
        max = pauses_limit;
    else
        max = via_max(least_pauses(), max / 2);
    atomic_store_explicit(&via_wait_pauses_max, max, memory_order_relaxed);
}

/* --- event counts ----------------------------------------------------------------------------- */

uint32_t via_event_prepare(struct via_event *event)
{
    uint32_t count = atomic_load_explicit(&event->count, memory_order_acquire);

    /* Pairs with the fence before via_event_notify. */
    atomic_fetch_add_explicit(&event->sleepers, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    return count;
}

void via_event_sleep(struct via_event *event, uint32_t count)
{
    struct timespec time = {.tv_nsec = (long)EVENT_NS_MAX};

    poll_once();
    /* Shared between processes, so not FUTEX_PRIVATE. */
    syscall(SYS_futex, &event->count, FUTEX_WAIT, count, &time, NULL, 0);
    via_event_cancel(event);
}

void via_event_cancel(struct via_event *event)
{
    atomic_fetch_sub_explicit(&event->sleepers, 1, memory_order_relaxed);
}

void via_event_wake_all(struct via_event *event)
{
    atomic_fetch_add_explicit(&event->count, 1, memory_order_release);
    syscall(SYS_futex, &event->count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
