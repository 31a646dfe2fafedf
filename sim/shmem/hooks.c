/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Replacements for the machine that the library calls in the simulator: CMakeLists.txt renames
 * system calls, clocks and malloc() to the functions below. */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shmem/grow.h"
#include "sim/memory.h"
#include "sim/shmem/hooks.h"
#include "sim/shmem/job.h"
#include "sim/stub.h"

/* --- time ------------------------------------------------------------------------------------ */

int sim_pe_sched_yield(void)
{
    struct sim_job *job = sim_job;
    uint32_t max = job->config->yield_ns_max;
    sim_pe_pause(job->running, sim_job_between(job, max / 4, max));
    sim_accesses_draw(job);
    return 0;
}

int sim_pe_nanosleep(const struct timespec *request, struct timespec *left)
{
    struct sim_job *job = sim_job;
    (void)left;
    sim_pe_pause(job->running, (uint64_t)request->tv_sec * VIA_SEC_NS + (uint64_t)request->tv_nsec +
                                   sim_job_between(job, 0, job->config->wake_ns_max));
    sim_accesses_draw(job);
    return 0;
}

/* Reading the clock takes a while, so a loop that waits for a time ends. */
int sim_pe_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    struct sim_job *job = sim_job;
    (void)clock;
    if (job->running != NULL) {
        sim_pe_pause(job->running, 30);
    }
    uint64_t now = job->world->clock.now_ns + VIA_SEC_NS;
    *ret_now = (struct timespec){(time_t)(now / VIA_SEC_NS), (long)(now % VIA_SEC_NS)};
    return 0;
}

/* --- sleeping and waking --------------------------------------------------------------------- */

static long futex_wait(struct sim_pe *pe, const uint32_t *word, uint32_t value,
                       const struct timespec *timeout)
{
    uint64_t ns = (uint64_t)timeout->tv_sec * VIA_SEC_NS + (uint64_t)timeout->tv_nsec;
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
        errno = EAGAIN;
        return -1;
    }
    pe->futex = word;
    bool woken = sim_pe_block(pe, ns);
    sim_accesses_draw(pe->job);
    errno = woken ? 0 : ETIMEDOUT;
    return woken ? 0 : -1;
}

/* A bell of a host's thread, or the event of PEs. */
static long futex_wake(struct sim_job *job, const void *word)
{
    struct sim_host *host = job->running->host;
    const struct sim_pe_host *shared = &job->hosts[host->index];
    for (unsigned i = 0; i < job->world->config.node.channels_count; i++) {
        if (word == &shared->bells[i].count) {
            if (host->alive && !shared->crashed) {
                sim_thread_interrupt(&host->threads[i]);
            }
            return 1;
        }
    }
    for (uint32_t i = 0; i < job->pes_count; i++) {
        if (job->pes[i].futex == word) {
            sim_pe_wake(&job->pes[i]);
        }
    }
    return 0;
}

/* Edge-triggered. Returns for rings since the last wait, for a ring during this wait, or when the
 * host ends. */
static long epoll_wait_once(struct sim_pe *pe, struct epoll_event *events, int timeout_ms)
{
    bool dead = pe->job->hosts[pe->host->index].crashed;
    pe->in_epoll = true;
    if (!pe->bell && !dead) {
        sim_pe_block(pe, (uint64_t)via_max(timeout_ms, 1) * VIA_MSEC_NS);
        sim_accesses_draw(pe->job);
    }
    pe->in_epoll = false;
    dead = pe->job->hosts[pe->host->index].crashed;
    if (!pe->bell && !dead) {
        return 0;
    }
    pe->bell = false;
    events[0].data.u32 = (uint32_t)(dead ? pe->attach.socket_fd : pe->attach.bell_fd);
    return 1;
}

long sim_pe_syscall(long number, ...)
{
    struct sim_job *job = sim_job;
    long a[6];
    va_list args;
    va_start(args, number);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(a); i++) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    switch (number) {
    case SYS_futex:
        if (((int)a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) {
            return futex_wake(job, (const void *)a[0]);
        }
        return futex_wait(job->running, (const uint32_t *)a[0], (uint32_t)a[2],
                          (const struct timespec *)a[3]);
    case SYS_epoll_pwait:
        return epoll_wait_once(job->running, (struct epoll_event *)a[1], (int)a[3]);
    case SYS_close:
    case SYS_fcntl:
        return syscall(number, a[0], a[1], a[2]);
    default:
        fprintf(stderr, "viaduct-sim: the library makes system call %ld\n", number);
        abort();
    }
}

/* --- locks ----------------------------------------------------------------------------------- */

/* Locks among the threads of a PE, which has only one: a locked one would be a deadlock. */
static int *word_of(pthread_mutex_t *mutex)
{
    return (int *)(void *)mutex;
}

int sim_pe_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    if (*word_of(mutex) != 0) {
        return EBUSY;
    }
    *word_of(mutex) = 1;
    return 0;
}

int sim_pe_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (sim_pe_pthread_mutex_trylock(mutex) != 0) {
        fprintf(stderr, "viaduct-sim: a PE waits for a lock that it has\n");
        abort();
    }
    return 0;
}

int sim_pe_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    *word_of(mutex) = 0;
    return 0;
}

/* --- memory of the library ------------------------------------------------------------------- */

/* Allocations of a PE end with its job, as with a process. */
struct block {
    _Alignas(64) struct via_list link;
    size_t bytes;
};

void *sim_pe_malloc(size_t bytes)
{
    struct block *block = sim_alloc_lines(sizeof(*block) + bytes);
    struct sim_pe *pe = sim_job->running != NULL ? sim_job->running : sim_job->loaded;
    block->bytes = bytes;
    via_list_push_back(&pe->allocated, &block->link);
    return block + 1;
}

void *sim_pe_calloc(size_t count, size_t bytes)
{
    return sim_pe_malloc(count * bytes);
}

void sim_pe_free(void *memory)
{
    if (memory != NULL) {
        struct block *block = (struct block *)memory - 1;
        via_list_remove(&block->link);
        free(block);
    }
}

void *sim_pe_realloc(void *memory, size_t bytes)
{
    void *larger = sim_pe_malloc(bytes);
    if (memory != NULL) {
        memcpy(larger, memory, via_min(bytes, ((struct block *)memory - 1)->bytes));
        sim_pe_free(memory);
    }
    return larger;
}

void sim_hooks_free_all(struct sim_pe *pe)
{
    while (!via_list_is_empty(&pe->allocated)) {
        free(via_list_entry(via_list_pop_front(&pe->allocated), struct block, link));
    }
}

/* --- parts of the library that are not simulated --------------------------------------------- */

/* No user traces the locks of simulated PEs. */
struct via_board *via_trace_board;

SIM_STUB_VOID(via_trace_note, const volatile void *word, int bytes, int cmp, uint64_t value)
/* Unused: the daemons' barriers are core's. */
SIM_STUB_NEVER(void, via_barrier_by_doorbells, void)
SIM_STUB(bool, false, via_grow, uint64_t bytes, uint64_t align)
SIM_STUB(uint64_t, SIM_PE_HEAP_BYTES - VIA_INTERNAL_BYTES, via_grow_max, void)
