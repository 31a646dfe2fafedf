/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.1: set-up, exit and query. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shmem/api.h"
#include "shmem/barrier.h"
#include "shmem/check.h"
#include "shmem/gate.h"
#include "shmem/grow.h"
#include "shmem/info.h"
#include "shmem/path.h"
#include "shmem/pmi.h"
#include "shmem/team.h"
#include "shmem/world_make.h"

VIADUCT_SHMEM_SETUP_ENTRIES(VIA_ALIAS)
VIA_ALIAS(void, shmem_global_exit, (int status))
VIA_ALIAS(void, start_pes, (int npes))

/* --- the end of the job, seen from a PE ------------------------------------------------------ */

/* Only one thread may call exit: the program's, or watch_life() when the job ends; the other
 * waits. */
static __attribute__((noreturn)) void leave(int status)
{
    static atomic_flag leaving = ATOMIC_FLAG_INIT;

    while (atomic_flag_test_and_set(&leaving))
        pause();
    exit(status);
}

/*
 * One thread sleeps on the life pipe, because the other threads of a PE may be anywhere when its
 * job ends: spinning in a wait, in a computation, in libc. After shmem_global_exit the process ends
 * by exit, so that its output is flushed; without a launcher there may be no reader of the output
 * left.
 */
static void *watch_life(void *argument)
{
    struct pollfd life = {.fd = via_world.life_fd, .events = POLLIN};

    (void)argument;
    /* The end of oshrun closes the pipe, so poll() returns at once; the end of other launchers is
     * polled for. */
    while (poll(&life, 1, via_pmi_watch_ms()) <= 0)
        if (via_pmi_launcher_is_gone())
            via_fatal("the launcher is gone");
    /* Pairs with the release in pshmem_global_exit. */
    if (atomic_load_explicit(&via_world.job->exit_ready, memory_order_acquire))
        leave(via_world.job->exit_status);
    _exit(1);
}

static int start_watching(struct via_error *err)
{
    static bool started;
    sigset_t all, before;
    pthread_t thread;

    if (started || via_world.life_fd < 0)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, NULL, watch_life, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0)
        return via_error_set(err, -result, "watching the launcher: thread: %s", strerror(result));
    pthread_detach(thread);
    started = true;
    return 0;
}

static void set_state(enum via_job_state state)
{
    atomic_store_explicit(&via_world.me->state, state, memory_order_release);
}

/* --- init and finalize ------------------------------------------------------------------------ */

/* Programs that request a lower level get faster collectives over active sets: group.c. */
static int provide_threads(int requested)
{
    return via_max(requested, SHMEM_THREAD_SERIALIZED);
}

/* Called after the gate. PEs may have requested different levels, and all must choose the same
 * algorithms. */
static bool has_concurrent_pes(void)
{
    bool concurrent = false;

    for (int pe = 0; pe < via_hot.n_pes; pe++)
        concurrent |= atomic_load_explicit(&via_world.job->pes[pe].thread_level,
                                           memory_order_relaxed) == SHMEM_THREAD_MULTIPLE;
    return concurrent;
}

/* A forked child has the PE's heap mapped, and its calls would count as the PE's. It can not call
 * shmem_init either: the number of PEs is fixed. */
static void leave_job_in_child(void)
{
    via_world.is_child = true;
    via_world.init_count = 0;
    via_hot.n_pes = 0;
    for (int region = 0; region < VIA_REGIONS; region++)
        atomic_store_explicit(&via_hot.bytes[region], 0, memory_order_relaxed);
}

/* Called after via_world_share_data, whose child handler must run before any other handler writes
 * variables. */
static int watch_forks(struct via_error *err)
{
    static bool done;
    int result = done ? 0 : pthread_atfork(NULL, NULL, leave_job_in_child);

    if (result != 0)
        return via_error_set(err, -result, "pthread_atfork: %s", strerror(result));
    done = true;
    return 0;
}

static int initialize(int requested, struct via_error *err)
{
    int result = via_world_find_job(err);
    if (result == 0)
        result = via_world_make_peers(err);
    if (result < 0)
        return result;
    set_state(VIA_JOB_INITIALIZED);
    via_trace_init();
    /* The daemons of a fabric need a CPU, too. */
    via_wait_configure(via_world.job->pes_here + via_world.job->fabric, via_world.job->cores);
    via_copy_configure();
    via_world.statistics = getenv("VIADUCT_SHMEM_STATS") != NULL;
    result = via_world_map_heaps(err);
    if (result == 0)
        result = via_world_share_data(err);
    if (result == 0)
        result = watch_forks(err);
    if (result == 0)
        result = start_watching(err);
    if (result == 0)
        result = via_world_attach(err);
    if (result == 0)
        result = via_heap_init(&via_world.heap,
                               via_world.region[VIA_REGION_HEAP].bytes - VIA_INTERNAL_BYTES);
    if (result < 0)
        return result;
    via_world.thread_level = provide_threads(requested);
    atomic_store_explicit(&via_world.me->thread_level, (uint32_t)via_world.thread_level,
                          memory_order_relaxed);
    via_gate_pass();
    via_world.concurrent = has_concurrent_pes();
    via_world_compare_programs();
    via_grow_init();
    via_world_open_hot();
    via_team_init();
    via_check_start();
    return 0;
}

static int init(int requested, struct via_error *err)
{
    if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE)
        return via_error_set(err, -EINVAL, "shmem_init_thread: %d is not a thread level",
                             requested);
    if (via_world.is_child)
        via_fatal_uninitialized("shmem_init");
    if (via_world.init_count == 0) {
        int result = initialize(requested, err);
        if (result < 0)
            return result;
        via_info_at_start();
    }
    /* The thread level stays the one that the first call requested. */
    via_world.init_count++;
    return 0;
}

void pshmem_init(void)
{
    struct via_error err = {0};

    if (init(SHMEM_THREAD_SINGLE, &err) < 0)
        via_fatal("shmem_init: %s", via_error_describe(&err));
}

int pshmem_init_thread(int requested, int *provided)
{
    struct via_error err = {0};

    int result = init(requested, &err);
    if (result < 0) {
        via_debug("shmem_init_thread: %s", via_error_describe(&err));
        return -result;
    }
    *provided = via_world.thread_level;
    return 0;
}

void pshmem_finalize(void)
{
    /* Earlier versions of OpenSHMEM allowed one call of finalize too many, so it is ignored:
     * programs written for those versions continue. */
    if (via_world.init_count == 0)
        return;
    via_quiet();
    via_barrier_world();
    if (via_world.init_count > 1) {
        via_world.init_count--;
        return;
    }
    /* The last words of the barrier may still be under way. */
    via_path_quiet();
    via_info_at_end();
    via_world.init_count = 0;
    via_team_fini();
    via_world_release();
    set_state(VIA_JOB_FINALIZED);
    via_check_stop();
    via_pmi_leave();
}

/* Does nothing after exit(n) with an error, or when the job is ending: the other PEs might not
 * reach the barrier. */
static void finalize_at_exit(int status, void *argument)
{
    (void)argument;
    if (status == 0 && via_world.init_count > 0 &&
        !atomic_load_explicit(&via_world.job->exit_claim, memory_order_relaxed))
        pshmem_finalize();
}

void pstart_pes(int npes)
{
    (void)npes;
    if (via_world.init_count > 0)
        return;
    pshmem_init();
    on_exit(finalize_at_exit, NULL);
}

void pshmem_global_exit(int status)
{
    via_require_initialized(VIA_CALL);
    struct via_job *job = via_world.job;
    uint32_t unclaimed = 0;

    if (atomic_compare_exchange_strong(&job->exit_claim, &unclaimed, (uint32_t)via_hot.my_pe + 1)) {
        job->exit_status = status;
        /* Pairs with the acquire of the launcher and of watch_life. */
        atomic_store_explicit(&job->exit_ready, 1, memory_order_release);
        if (via_world.call_fd >= 0 && write(via_world.call_fd, "", 1) < 0)
            via_debug("shmem_global_exit: pipe to the launcher: write: %s", strerror(errno));
    }
    leave(status);
}

/* --- queries ---------------------------------------------------------------------------------- */

void pshmem_query_thread(int *provided)
{
    via_require_initialized(VIA_CALL);
    *provided = via_world.thread_level;
}

void pshmem_query_initialized(int *initialized)
{
    *initialized = via_world.init_count > 0;
}

int pshmem_my_pe(void)
{
    return via_hot.my_pe;
}

int pshmem_n_pes(void)
{
    return via_hot.n_pes;
}

int pshmem_pe_accessible(int pe)
{
    return pe >= 0 && pe < via_hot.n_pes;
}

int pshmem_addr_accessible(const void *addr, int pe)
{
    enum via_region region;
    uint64_t off;

    return pshmem_pe_accessible(pe) && via_path_locate(addr, 1, &region, &off) &&
           (region == VIA_REGION_HEAP || via_world.peers[pe].same_program);
}

void *pshmem_ptr(const void *dest, int pe)
{
    return via_path_pointer(dest, pe);
}

void pshmem_info_get_version(int *major, int *minor)
{
    *major = SHMEM_MAJOR_VERSION;
    *minor = SHMEM_MINOR_VERSION;
}

void pshmem_info_get_name(char *name)
{
    memcpy(name, SHMEM_VENDOR_STRING, sizeof(SHMEM_VENDOR_STRING));
}

void pshmem_pcontrol(int level, ...)
{
    (void)level;
}
