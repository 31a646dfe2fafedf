/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Runs reductions and scans. Operations are commutative. Every member gets the same bits; with
 * floating-point numbers another algorithm may give different bits. */
#include <stdlib.h>

#include "shmem/group.h"

#define PIECE_BYTES VIA_REDUCE_PIECE_BYTES
_Static_assert(VIA_BOX_BYTES <= PIECE_BYTES, "what is exchanged is one piece");

/* Memory of another PE is read in place if it is mapped, else fetched into `buffer`. */
static const void *map_or_fetch(const char *call, const void *source, size_t bytes, int pe,
                                void *buffer)
{
    const void *direct = via_direct(source, pe);

    if (via_likely(direct))
        return direct;
    via_path_get(call, buffer, source, bytes, pe);
    return buffer;
}

/* Like via_get(), but with the CPU's string copy where via_copy() uses it: that copy does not read
 * the lines of `into`, which saves 3 % of the time of a sum of 512 KiB. */
static void fetch(const char *call, void *into, const void *source, size_t bytes, int pe)
{
    const void *direct = via_direct(source, pe);

    if (via_likely(direct))
        via_copy(into, direct, bytes);
    else
        via_path_get(call, into, source, bytes, pe);
}

static const char *source_at(const struct via_task *task, size_t at)
{
    return (const char *)task->source + at * task->element_bytes;
}

static char *dest_at(const struct via_task *task, size_t at)
{
    return (char *)task->dest + at * task->element_bytes;
}

void via_reduce_members(const struct via_task *task, void *into, size_t at, size_t count, int from,
                        int to)
{
    _Alignas(64) char buffer[PIECE_BYTES];

    for (int i = from; i < to; i++)
        task->kernel(into,
                     map_or_fetch(task->call, source_at(task, at), count * task->element_bytes,
                                  via_group_pe(task->group, i), buffer),
                     count);
}

/* --- with one exchange ----------------------------------------------------------------------- */

/* Combines the values of members 0 to count - 1. */
static void combine_exchanged(const struct via_task *task, int count)
{
    _Alignas(64) char sum[PIECE_BYTES];
    struct via_group *group = task->group;

    via_group_exchange(group, task->source, task->bytes);
    if (count == 0) {
        memset(task->dest, 0, task->bytes);
        return;
    }
    memcpy(sum, via_group_exchanged(group, 0), task->bytes);
    for (int i = 1; i < count; i++)
        task->kernel(sum, via_group_exchanged(group, i), task->elements);
    memcpy(task->dest, sum, task->bytes);
}

void via_reduce_exchange(const struct via_task *task)
{
    combine_exchanged(task, task->group->size);
}

static int scan_count(const struct via_task *task)
{
    return task->group->my_pe + (task->inclusive ? 1 : 0);
}

void via_scan_exchange(const struct via_task *task)
{
    combine_exchanged(task, scan_count(task));
}

/* --- by reading each other's memory ---------------------------------------------------------- */

/* Each PE computes its share of the elements and puts it to all; only that PE reads the share,
 * which is why dest may equal source. */
void via_reduce_shares(const struct via_task *task)
{
    _Alignas(64) char sum[PIECE_BYTES];
    struct via_group *group = task->group;
    size_t begin = task->elements * (size_t)group->my_pe / (size_t)group->size;
    size_t end = task->elements * ((size_t)group->my_pe + 1) / (size_t)group->size;
    size_t piece_max = PIECE_BYTES / task->element_bytes;

    /* After this barrier the source of every member is ready. */
    via_group_barrier(group);
    for (size_t at = begin; at < end; at += piece_max) {
        size_t piece = via_min(piece_max, end - at), bytes = piece * task->element_bytes;
        fetch(task->call, sum, source_at(task, at), bytes, via_group_pe(group, 0));
        via_reduce_members(task, sum, at, piece, 1, group->size);
        for (int i = 0; i < group->size; i++)
            via_put(task->call, dest_at(task, at), sum, bytes, via_group_pe(group, i));
    }
    via_group_barrier(group);
}

/* Where a scan puts its results: dest, or a copy owned by the caller. In place, no PE may write
 * before every PE has read. */
static char *scan_results(const struct via_task *task)
{
    char *results = task->dest;

    if (task->dest == task->source)
        results = malloc(via_max(task->bytes, (size_t)1));
    if (!results)
        via_fatal("%s: no memory for %zu elements", task->call, task->elements);
    return results;
}

static void take_results(const struct via_task *task, char *results)
{
    if (results == task->dest)
        return;
    memcpy(task->dest, results, task->bytes);
    free(results);
}

void via_scan_direct(const struct via_task *task)
{
    struct via_group *group = task->group;
    size_t piece_max = PIECE_BYTES / task->element_bytes;
    int count = scan_count(task);
    char *results = scan_results(task);

    via_group_barrier(group);
    memset(results, 0, count == 0 ? task->bytes : 0);
    for (size_t at = 0; at < task->elements && count > 0; at += piece_max) {
        size_t piece = via_min(piece_max, task->elements - at);
        char *sum = results + at * task->element_bytes;
        via_get(task->call, sum, source_at(task, at), piece * task->element_bytes,
                via_group_pe(group, 0));
        via_reduce_members(task, sum, at, piece, 1, count);
    }
    via_group_barrier(group);
    take_results(task, results);
}

/* --- within hosts, then among leaders -------------------------------------------------------- */

static void combine_host(const struct via_task *task, void *into, const char *mine, size_t at,
                         size_t count)
{
    const struct via_hosts *hosts = &task->group->team->hosts;

    memcpy(into, mine, count * task->element_bytes);
    via_reduce_members(task, into, at, count, task->group->my_pe + 1,
                       hosts->first[hosts->mine + 1]);
}

/* On return the team's box has a block of each host: the values of its members at element `at`. */
static void exchange_partials(const struct via_task *task, size_t at, size_t count, size_t stride)
{
    struct viaduct_shmem_team *team = task->group->team;
    const struct via_load load = {.stride = stride, .is_by_host = true};

    if (via_hosts_gather(team)) {
        combine_host(task, via_hosts_box(team) + team->hosts.mine * stride, source_at(task, at), at,
                     count);
        via_hosts_pass(team, &load);
    }
    via_hosts_release(team);
}

/* into = the values of hosts 0 to count - 1 */
static void combine_partials(const struct via_task *task, void *into, size_t elements,
                             size_t stride, unsigned count)
{
    const char *box = via_hosts_box(task->group->team);

    memcpy(into, box, elements * task->element_bytes);
    for (unsigned host = 1; host < count; host++)
        task->kernel(into, box + host * stride, elements);
}

void via_reduce_leaders(const struct via_task *task)
{
    const struct via_hosts *hosts = via_hosts_of(task->group->team);
    size_t piece_max = hosts->shape.partial_max / task->element_bytes;

    for (size_t at = 0; at < task->elements; at += piece_max) {
        size_t piece = via_min(piece_max, task->elements - at);
        size_t stride = via_align_up(piece * task->element_bytes, 8);
        exchange_partials(task, at, piece, stride);
        combine_partials(task, dest_at(task, at), piece, stride, hosts->count);
    }
}

/* Combines the values of the hosts before this one, then of the members of this host. */
static void combine_before(const struct via_task *task, const struct via_hosts *hosts, char *sum,
                           size_t at, size_t piece, size_t stride)
{
    int first = hosts->first[hosts->mine], end = scan_count(task);

    if (hosts->mine > 0)
        combine_partials(task, sum, piece, stride, hosts->mine);
    else if (end > 0)
        via_get(task->call, sum, source_at(task, at), piece * task->element_bytes,
                via_group_pe(task->group, first++));
    else
        memset(sum, 0, piece * task->element_bytes);
    via_reduce_members(task, sum, at, piece, first, end);
}

void via_scan_leaders(const struct via_task *task)
{
    struct viaduct_shmem_team *team = task->group->team;
    const struct via_hosts *hosts = via_hosts_of(team);
    size_t piece_max = hosts->shape.partial_max / task->element_bytes;
    char *results = scan_results(task);

    for (size_t at = 0; at < task->elements; at += piece_max) {
        size_t piece = via_min(piece_max, task->elements - at);
        size_t stride = via_align_up(piece * task->element_bytes, 8);
        exchange_partials(task, at, piece, stride);
        combine_before(task, hosts, results + at * task->element_bytes, at, piece, stride);
    }
    /* All members of this host have read this PE's source. */
    via_hosts_meet_locals(team);
    take_results(task, results);
}

void via_reduce_host(const struct via_task *task, const struct via_hosts *hosts)
{
    size_t piece_max = PIECE_BYTES / task->element_bytes;

    for (size_t at = 0; at < task->elements; at += piece_max) {
        size_t piece = via_min(piece_max, task->elements - at);
        if (task->dest != task->source)
            memcpy(dest_at(task, at), source_at(task, at), piece * task->element_bytes);
        via_reduce_members(task, dest_at(task, at), at, piece, task->group->my_pe + 1,
                           hosts->first[hosts->mine + 1]);
    }
}

void via_reduce_spread(const struct via_task *task, const struct via_hosts *hosts)
{
    struct viaduct_shmem_team *team = task->group->team;

    if (!via_hosts_is_leader(team))
        via_get(task->call, task->dest, task->dest, task->bytes,
                via_team_pe(team, hosts->first[hosts->mine]));
    if (hosts->shape.locals_max > 1)
        via_hosts_meet_locals(team);
}
