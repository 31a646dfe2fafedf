/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/jobs.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/memory.h"
#include "sim/streams.h"

#define PROCESSES_MAX 64u
/* Seconds of processor time: far more than any run takes. A mesh of 64 hosts takes some minutes
 * while others use the caches; with ThreadSanitizer small runs take more than one, too. */
#define HANG_S 900u

/* Memory that the processes share. The parent only reads it until they have ended. */
struct shared {
    _Atomic uint64_t next; /* index of the next seed */
    _Atomic uint64_t done;
    _Atomic bool stop;
    struct worker {
        uint64_t seed; /* seed in progress */
        bool failed;
        char failure[1024];
        struct sim_jobs_result sums;
    } workers[PROCESSES_MAX];
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void run_streams(const struct sim_jobs *jobs, const struct sim_config *config, FILE *trace,
                        struct sim_result *ret_result)
{
    struct sim_streams_result streams;
    jobs->sockets(config, jobs->plant, trace, &streams);
    ret_result->digest ^= streams.digest;
    ret_result->events += streams.events;
    ret_result->counts.stream_bytes += streams.bytes;
    ret_result->counts.stream_spills += streams.spills;
    ret_result->counts.stream_kills += streams.kills;
    ret_result->counts.stream_execs += streams.execs;
    ret_result->failed = streams.failed;
    memcpy(ret_result->failure, streams.failure, sizeof(streams.failure));
}

static void add_counts(struct sim_counts *sum, const struct sim_counts *counts)
{
    /* All of its fields are uint64_t. */
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)counts;
    for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++) {
        to[i] += from[i];
    }
}

static void run_shmem(const struct sim_jobs *jobs, const struct sim_config *config, FILE *trace,
                      struct sim_result *ret_result)
{
    struct sim_result *shmem = sim_alloc(sizeof(*shmem));
    jobs->shmem(config, jobs->plant, trace, shmem);
    ret_result->digest ^= shmem->digest * 3;
    ret_result->events += shmem->events;
    add_counts(&ret_result->counts, &shmem->counts);
    if (shmem->failed) {
        /* The faults and bursts that a smaller case may leave out are those of the failed part. */
        ret_result->faults_planned = shmem->faults_planned;
        ret_result->work_bursts = shmem->work_bursts;
        ret_result->failed = true;
        memcpy(ret_result->failure, shmem->failure, sizeof(ret_result->failure));
    }
    free(shmem);
}

/* The fabric, then the streams, then a program of OpenSHMEM. */
static void run_all(const struct sim_jobs *jobs, const struct sim_config *config, FILE *trace,
                    struct sim_result *ret_result)
{
    sim_world_run(config, jobs->plant, trace, NULL, ret_result);
    if (!ret_result->failed && jobs->sockets != NULL && config->streams.count != 0) {
        run_streams(jobs, config, trace, ret_result);
    }
    if (!ret_result->failed && jobs->shmem != NULL && config->shmem.pes != 0) {
        run_shmem(jobs, config, trace, ret_result);
    }
}

void sim_jobs_one(const struct sim_jobs *jobs, uint64_t seed, FILE *trace,
                  struct sim_result *ret_result)
{
    struct sim_config config;
    sim_config_make(&config, seed, jobs->graph, jobs->changes);
    run_all(jobs, &config, trace, ret_result);
    if (jobs->twice && !ret_result->failed) {
        uint64_t digest = ret_result->digest;
        run_all(jobs, &config, NULL, ret_result);
        if (digest != ret_result->digest) {
            ret_result->failed = true;
            snprintf(ret_result->failure, sizeof(ret_result->failure),
                     "run twice, the digests are %016llx and %016llx", (unsigned long long)digest,
                     (unsigned long long)ret_result->digest);
        }
    }
}

/* All but failures. */
static void add_sums(struct sim_jobs_result *sums, const struct sim_jobs_result *more)
{
    sums->events += more->events;
    add_counts(&sums->counts, &more->counts);
    if (more->longest_s > sums->longest_s) {
        sums->longest_s = more->longest_s;
        sums->longest_seed = more->longest_seed;
    }
    if (more->drain_ns_max > sums->drain_ns_max) {
        sums->drain_ns_max = more->drain_ns_max;
        sums->drain_seed = more->drain_seed;
    }
}

static unsigned hang_s(const struct sim_jobs *jobs)
{
    return jobs->hang_s != 0 ? jobs->hang_s : HANG_S;
}

/* For the next seed of this process: SIGPROF ends the process. */
static void limit_processor_time(const struct sim_jobs *jobs)
{
    const struct itimerval limit = {.it_value.tv_sec = hang_s(jobs)};
    setitimer(ITIMER_PROF, &limit, NULL);
}

static void work(const struct sim_jobs *jobs, struct shared *shared, struct worker *worker)
{
    struct sim_result *result = sim_alloc(sizeof(*result));
    while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
        uint64_t index = atomic_fetch_add_explicit(&shared->next, 1, memory_order_relaxed);
        if (index >= jobs->count) {
            break;
        }
        worker->seed = jobs->first + index;
        double start = now_s();
        limit_processor_time(jobs);
        sim_jobs_one(jobs, worker->seed, NULL, result);
        const struct sim_jobs_result one = {.events = result->events,
                                            .counts = result->counts,
                                            .longest_s = now_s() - start,
                                            .longest_seed = worker->seed,
                                            .drain_ns_max = result->drain_ns,
                                            .drain_seed = worker->seed};
        add_sums(&worker->sums, &one);
        atomic_fetch_add_explicit(&shared->done, 1, memory_order_relaxed);
        if (result->failed) {
            worker->failed = true;
            memcpy(worker->failure, result->failure, sizeof(worker->failure));
            atomic_store_explicit(&shared->stop, true, memory_order_relaxed);
            break;
        }
    }
    free(result);
}

/* How a process has ended, in words; false when all is well. */
static bool has_died(const struct sim_jobs *jobs, int status, char *text, size_t bytes)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return false;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) {
        snprintf(text, bytes, "no end after %u s of processor time", hang_s(jobs));
    } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        snprintf(text, bytes, "waits: no processor time taken for %u s", hang_s(jobs));
    } else if (WIFSIGNALED(status)) {
        snprintf(text, bytes, "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(text, bytes, "ended with exit code %d", WEXITSTATUS(status));
    }
    return true;
}

static void note_death(const struct sim_jobs *jobs, struct shared *shared, struct worker *worker,
                       int status)
{
    if (has_died(jobs, status, worker->failure, sizeof(worker->failure))) {
        worker->failed = true;
        atomic_store_explicit(&shared->stop, true, memory_order_relaxed);
    }
}

/* The parent's knowledge of a process. */
struct child {
    pid_t pid; /* 0: it has ended */
    struct timespec processor_time;
    double ran_s; /* when the parent last saw that it had taken processor time */
};

/* A seed that waits forever takes no processor time, so its process would not end by itself. */
static void end_if_waiting(const struct sim_jobs *jobs, struct child *child)
{
    struct timespec processor_time;
    clockid_t clock;
    if (clock_getcpuclockid(child->pid, &clock) != 0 ||
        clock_gettime(clock, &processor_time) != 0) {
        return;
    }
    if (memcmp(&processor_time, &child->processor_time, sizeof(processor_time)) != 0) {
        child->processor_time = processor_time;
        child->ran_s = now_s();
    } else if (now_s() - child->ran_s > hang_s(jobs)) {
        kill(child->pid, SIGALRM);
    }
}

/* True: it has ended. */
static bool watch(const struct sim_jobs *jobs, struct shared *shared, struct worker *worker,
                  struct child *child)
{
    int status;
    if (waitpid(child->pid, &status, WNOHANG) != child->pid) {
        end_if_waiting(jobs, child);
        return false;
    }
    note_death(jobs, shared, worker, status);
    child->pid = 0;
    return true;
}

/* The parent waits for all of its processes, and reports their progress. */
static void wait_for_all(const struct sim_jobs *jobs, struct shared *shared, struct child *children,
                         unsigned started, double start)
{
    unsigned left = started;
    while (left > 0) {
        const struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};
        nanosleep(&nap, NULL);
        for (unsigned i = 0; i < started; i++) {
            if (children[i].pid > 0 && watch(jobs, shared, &shared->workers[i], &children[i])) {
                left--;
            }
        }
        if (jobs->seconds_max != 0 && now_s() - start >= (double)jobs->seconds_max) {
            atomic_store_explicit(&shared->stop, true, memory_order_relaxed);
        }
        if (jobs->step != NULL) {
            jobs->step(jobs->object, atomic_load_explicit(&shared->done, memory_order_relaxed));
        }
    }
}

static void collect(struct shared *shared, unsigned started, struct sim_jobs_result *result)
{
    result->done = atomic_load_explicit(&shared->done, memory_order_relaxed);
    for (unsigned i = 0; i < started; i++) {
        const struct worker *worker = &shared->workers[i];
        add_sums(result, &worker->sums);
        /* The smallest failing seed, so that the same run tends to report the same one. */
        if (worker->failed && (!result->failed || worker->seed < result->seed)) {
            result->failed = true;
            result->seed = worker->seed;
            memcpy(result->failure, worker->failure, sizeof(result->failure));
        }
    }
}

int sim_jobs_run(const struct sim_jobs *jobs, struct sim_jobs_result *ret_result)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return -errno;
    }
    double start = now_s();
    struct child children[PROCESSES_MAX];
    unsigned started = 0;
    int rc = 0;
    fflush(NULL);
    for (; started < via_min(jobs->processes, PROCESSES_MAX); started++) {
        children[started] = (struct child){.pid = fork(), .ran_s = now_s()};
        if (children[started].pid < 0) {
            rc = -errno;
            atomic_store_explicit(&shared->stop, true, memory_order_relaxed);
            break;
        }
        if (children[started].pid == 0) {
            work(jobs, shared, &shared->workers[started]);
            exit(0); /* not _exit: LeakSanitizer runs at exit */
        }
    }
    wait_for_all(jobs, shared, children, started, start);
    *ret_result = (struct sim_jobs_result){0};
    collect(shared, started, ret_result);
    ret_result->elapsed_s = now_s() - start;
    munmap(shared, sizeof(*shared));
    return rc;
}
