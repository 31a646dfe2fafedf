/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/shrink.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/types.h"

/* A case that does not end is a failure, but not a helpful one. */
#define HANG_S 20u
/* Passes over everything: a part that was needed before may be removable when another part is
 * gone. */
#define ROUNDS_MAX 4u

struct search {
    struct sim_jobs jobs;
    uint64_t seed;
    struct sim_changes best;  /* fails */
    struct sim_result result; /* of it */
    unsigned runs, runs_max;
    double end_s;
    int error;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool is_over(const struct search *search)
{
    return search->error != 0 || search->runs >= search->runs_max || now_s() >= search->end_s;
}

/* Keeps the candidate if it fails, too. */
static bool try_out(struct search *search, const struct sim_changes *candidate)
{
    struct sim_result result;
    if (is_over(search)) {
        return false;
    }
    search->jobs.changes = candidate;
    search->runs++;
    search->error = sim_jobs_isolated(&search->jobs, search->seed, HANG_S, &result);
    if (search->error != 0 || !result.failed) {
        return false;
    }
    search->best = *candidate;
    search->result = result;
    return true;
}

/* --- values ---------------------------------------------------------------------------------- */

static uint64_t value_now(const struct search *search, const struct sim_knob *key)
{
    struct sim_config config;
    sim_config_make(&config, search->seed, search->jobs.graph, &search->best);
    return sim_knob_get(key, &config);
}

static bool try_value(struct search *search, unsigned index, uint64_t value)
{
    struct sim_changes candidate = search->best;
    candidate.changed[index] = true;
    candidate.values[index] = value;
    return try_out(search, &candidate);
}

/* The simplest value, or the nearest to it that halving finds. */
static bool simplify(struct search *search, unsigned index)
{
    const struct sim_knob *key = sim_knob_at(index);
    uint64_t high = value_now(search, key);
    uint64_t low = key->simplest;
    if (low == UINT64_MAX || high == low) {
        return false;
    }
    if (try_value(search, index, low)) {
        return true;
    }
    bool better = false;
    while (key->bytes != 0 && high > low + 1 && !is_over(search)) {
        uint64_t middle = low + (high - low) / 2;
        if (try_value(search, index, middle)) {
            high = middle;
            better = true;
        } else {
            low = middle;
        }
    }
    return better;
}

/* --- lists ----------------------------------------------------------------------------------- */

/* Faults or bursts of work: which of the two masks, and how many the best case has planned. */
struct list {
    size_t mask_off;  /* in struct sim_changes */
    size_t count_off; /* in struct sim_result */
};

static struct sim_mask *mask_of(struct sim_changes *changes, const struct list *list)
{
    return (struct sim_mask *)(void *)((unsigned char *)changes + list->mask_off);
}

static uint32_t count_of(const struct search *search, const struct list *list)
{
    uint32_t count;
    memcpy(&count, (const unsigned char *)&search->result + list->count_off, sizeof(count));
    return via_min(count, SIM_MASK_BITS);
}

static uint32_t kept(const struct sim_mask *mask, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += sim_mask_is_kept(mask, i);
    }
    return sum;
}

/* Removes `size` of the kept ones, from the index `*at` on; moves *at behind them. */
static bool remove_some(struct search *search, const struct list *list, uint32_t size, uint32_t *at)
{
    struct sim_changes candidate = search->best;
    struct sim_mask *mask = mask_of(&candidate, list);
    uint32_t count = count_of(search, list);
    for (; *at < count && size > 0; (*at)++) {
        if (sim_mask_is_kept(mask, *at)) {
            sim_mask_set(mask, *at, false);
            size--;
        }
    }
    return try_out(search, &candidate);
}

/* All of it, then halves, quarters, ... single ones. */
static bool thin_out(struct search *search, const struct list *list)
{
    uint32_t size = kept(mask_of(&search->best, list), count_of(search, list));
    bool better = false;
    for (; size > 0; size /= 2) {
        uint32_t at = 0;
        while (at < count_of(search, list) && !is_over(search)) {
            better = remove_some(search, list, size, &at) || better;
        }
    }
    return better;
}

/* --- the search ------------------------------------------------------------------------------ */

static const struct list faults_list = {offsetof(struct sim_changes, faults),
                                        offsetof(struct sim_result, faults_planned)};
static const struct list work_list = {offsetof(struct sim_changes, work),
                                      offsetof(struct sim_result, work_bursts)};

/* The size of the best case; a case that crashed could not report how much it had planned. */
static void measure(struct search *search, uint32_t *ret_hosts, uint32_t *ret_faults,
                    uint32_t *ret_work)
{
    struct sim_config config;
    sim_config_make(&config, search->seed, search->jobs.graph, &search->best);
    *ret_hosts = config.hosts_count;
    *ret_faults = kept(&search->best.faults, count_of(search, &faults_list));
    *ret_work = kept(&search->best.work, count_of(search, &work_list));
}

int sim_shrink(const struct sim_jobs *jobs, uint64_t seed, unsigned runs_max, double seconds_max,
               struct sim_shrunk *ret_shrunk)
{
    struct search search = {
        .jobs = *jobs,
        .seed = seed,
        .runs_max = runs_max,
        .end_s = now_s() + seconds_max,
    };
    struct sim_changes as_found = {0};
    if (jobs->changes != NULL) {
        as_found = *jobs->changes;
    }
    if (!try_out(&search, &as_found)) {
        return search.error != 0 ? search.error : -ENOENT;
    }
    measure(&search, &ret_shrunk->hosts_before, &ret_shrunk->faults_before,
            &ret_shrunk->work_before);
    bool better = true;
    for (unsigned round = 0; better && round < ROUNDS_MAX; round++) {
        better = false;
        for (unsigned i = 0; sim_knob_at(i) != NULL; i++) {
            better = simplify(&search, i) || better;
        }
        better = thin_out(&search, &faults_list) || better;
        better = thin_out(&search, &work_list) || better;
    }
    measure(&search, &ret_shrunk->hosts, &ret_shrunk->faults, &ret_shrunk->work);
    ret_shrunk->faults_planned = count_of(&search, &faults_list);
    ret_shrunk->work_planned = count_of(&search, &work_list);
    ret_shrunk->changes = search.best;
    ret_shrunk->runs = search.runs;
    memcpy(ret_shrunk->failure, search.result.failure, sizeof(ret_shrunk->failure));
    return search.error;
}

void sim_shrunk_text(const struct sim_shrunk *shrunk, char *text, size_t bytes)
{
    sim_changes_text(&shrunk->changes, shrunk->faults_planned, shrunk->work_planned, text, bytes);
}
