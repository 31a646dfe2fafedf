/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * OpenSHMEM 1.6, section 9.10: all PEs of a group make the same collective calls in the same order.
 * Each PE counts its calls per group, and writes the call to its board before it makes it; then it
 * reads the boards of the others. If the calls of two PEs differ, the PE that writes last sees the
 * other's entry, because each PE has a fence between its write and its reads.
 *
 * Boards are symmetric memory, so a board on another host is read by a get. Of PEs on other hosts a
 * PE reads only those before and after it in the group: if all such pairs agree, all PEs do.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "shmem/api.h"
#include "shmem/check.h"
#include "shmem/path.h"
#include "shmem/trace.h"
#include "shmem/world.h"

#define GROUPS_MAX 128u

static struct {
    pthread_mutex_t lock;
    uint64_t ids[GROUPS_MAX];
    uint64_t numbers[GROUPS_MAX];
    unsigned count;
} made = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- groups ----------------------------------------------------------------------------------- */

static void describe_group(struct via_check_group *group, const char *kind, uint64_t tag)
{
    uint64_t id = via_hash64(VIA_HASH64_INIT, &tag, sizeof(tag));

    id = via_hash64(id, &group->start, sizeof(group->start));
    id = via_hash64(id, &group->stride, sizeof(group->stride));
    group->id = via_hash64(id, &group->size, sizeof(group->size));
    if (group->size == via_hot.n_pes)
        snprintf(group->name, sizeof(group->name), "%s of all PEs", kind);
    else
        snprintf(group->name, sizeof(group->name), "%s of PEs %d to %d by %d", kind, group->start,
                 group->start + group->stride * (group->size - 1), group->stride);
}

static uint64_t place_of(uintptr_t address)
{
    enum via_region region;
    uint64_t off;

    return via_check_locate(address, &region, &off) ? off * VIA_REGIONS + region : UINT64_MAX;
}

static bool find_group_of_active_set(const struct via_arguments *arguments,
                                     struct via_check_group *group)
{
    int log_stride = via_int_argument(arguments, VIA_ROLE_LOG_STRIDE);

    group->start = via_int_argument(arguments, VIA_ROLE_START);
    group->size = via_int_argument(arguments, VIA_ROLE_SIZE);
    if (log_stride < 0 || log_stride > 30 || group->start < 0 || group->size < 1 ||
        (int64_t)group->start + ((int64_t)(group->size - 1) << log_stride) >= via_hot.n_pes) {
        via_check_report(arguments, NULL,
                         "PE_start = %d, logPE_stride = %d, PE_size = %d: the job has PEs 0 to %d",
                         group->start, log_stride, group->size, via_hot.n_pes - 1);
        return false;
    }
    group->stride = 1 << log_stride;
    /* Several threads may use active sets of the same PEs at the same time and in any order, each
     * with its own pSync, so in such programs pSync is part of the group's identity.
     */
    describe_group(group, "the active set",
                   via_world.concurrent && via_has_argument(arguments, VIA_ROLE_SYNC)
                       ? place_of((uintptr_t)via_argument(arguments, VIA_ROLE_SYNC))
                       : UINT64_MAX);
    return true;
}

bool via_check_find_group(const struct via_arguments *arguments, struct via_check_group *ret_group)
{
    shmem_team_t handle = SHMEM_TEAM_WORLD;

    if (via_has_argument(arguments, VIA_ROLE_START))
        return find_group_of_active_set(arguments, ret_group);
    if (via_has_argument(arguments, VIA_ROLE_TEAM))
        handle = (shmem_team_t)(uintptr_t)via_argument(arguments, VIA_ROLE_TEAM);
    if (handle == SHMEM_TEAM_INVALID) {
        /* To split or destroy the invalid team is defined; all other calls of section 9.10 on it
         * are not. */
        if (via_has_argument(arguments, VIA_ROLE_DEST) ||
            strstr(arguments->call->name, "team_sync"))
            via_check_report(arguments, "9.10", "team is SHMEM_TEAM_INVALID");
        return false;
    }
    const struct viaduct_shmem_team *team = via_team(handle);
    ret_group->start = team->start;
    ret_group->stride = team->stride;
    ret_group->size = team->size;
    /* The first member's slot identifies the team: all members know it, and no other team with the
     * same first member has it. */
    describe_group(ret_group, "the team", via_team_slot(team, 0));
    return true;
}

static uint64_t next_number(uint64_t id)
{
    uint64_t number = 0;
    unsigned i = 0;

    pthread_mutex_lock(&made.lock);
    while (i < made.count && made.ids[i] != id)
        i++;
    if (i < GROUPS_MAX) {
        if (i == made.count)
            made.count++;
        made.ids[i] = id;
        number = ++made.numbers[i];
    }
    pthread_mutex_unlock(&made.lock);
    return number;
}

/* --- what a call is --------------------------------------------------------------------------- */

/* The arguments that must be equal at every PE. Addresses count as offsets in symmetric memory. */
static const struct {
    enum via_role role;
    const char *name;
    bool address;
} compared[] = {
    {VIA_ROLE_DEST, "dest", true},
    {VIA_ROLE_SOURCE, "source", true},
    {VIA_ROLE_NELEMS, "nelems", false},
    {VIA_ROLE_DST, "dst", false},
    {VIA_ROLE_SST, "sst", false},
    {VIA_ROLE_ROOT, "PE_root", false},
    {VIA_ROLE_SYNC, "pSync", true},
    {VIA_ROLE_POINTER, "ptr", true},
    {VIA_ROLE_ALIGNMENT, "alignment", false},
    {VIA_ROLE_COUNT, "count", false},
    {VIA_ROLE_BYTES, "size", false},
    {VIA_ROLE_TEAM_START, "start", false},
    {VIA_ROLE_TEAM_STRIDE, "stride", false},
    {VIA_ROLE_XRANGE, "xrange", false},
};

/* collect takes a different number of elements from each PE. */
static bool is_difference_allowed(const struct via_arguments *arguments, enum via_role role)
{
    return role == VIA_ROLE_NELEMS && strstr(arguments->call->name, "_collect") != NULL;
}

static uint64_t describe_call(const struct via_arguments *arguments,
                              char text[VIA_TRACE_WHAT_BYTES])
{
    const struct via_call *call = arguments->call;
    uint64_t digest = via_hash64(VIA_HASH64_INIT, call->name, strlen(call->name));
    char place[VIA_CHECK_TEXT_BYTES];
    const char *comma = "";
    size_t used = (size_t)snprintf(text, VIA_TRACE_WHAT_BYTES, "%s(", call->name);

    for (size_t i = 0; i < VIA_ARRAY_COUNT(compared) && used < VIA_TRACE_WHAT_BYTES; i++) {
        if (!via_has_argument(arguments, compared[i].role) ||
            is_difference_allowed(arguments, compared[i].role))
            continue;
        uint64_t value = via_argument(arguments, compared[i].role);
        size_t room = VIA_TRACE_WHAT_BYTES - used;
        if (compared[i].address) {
            used += (size_t)snprintf(text + used, room, "%s%s %.60s", comma, compared[i].name,
                                     via_check_describe((uintptr_t)value, place));
            value = place_of((uintptr_t)value);
        } else {
            /* The upper half of an int's register is undefined. */
            if (compared[i].role == VIA_ROLE_ROOT || call->narrow)
                value = (uint64_t)(int64_t)(int)value;
            used += (size_t)snprintf(text + used, room, "%s%s %" PRId64, comma, compared[i].name,
                                     (int64_t)value);
        }
        digest = via_hash64(digest, &value, sizeof(value));
        comma = ", ";
    }
    if (used < VIA_TRACE_WHAT_BYTES - 1)
        strcpy(text + used, ")");
    return digest;
}

/* --- the boards ------------------------------------------------------------------------------- */

static struct via_trace_collective *line_for(const struct via_trace_collective *call)
{
    return &via_internal()
                ->checks.collectives[(call->group + call->number) % VIA_TRACE_COLLECTIVES];
}

static void publish(const struct via_trace_collective *mine)
{
    struct via_trace_collective *line = line_for(mine);

    /* Two threads may have the same line. */
    pthread_mutex_lock(&made.lock);
    /* The version is odd while the line changes. A reader that finds an odd version, or a line that
     * is half written, reads it again. */
    atomic_fetch_add_explicit(&line->version, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    line->group = mine->group;
    line->number = mine->number;
    line->digest = mine->digest;
    memcpy(line->text, mine->text, sizeof(line->text));
    atomic_fetch_add_explicit(&line->version, 1, memory_order_release);
    pthread_mutex_unlock(&made.lock);
    atomic_thread_fence(memory_order_seq_cst);
}

/* True if the PE made a different call under the same number. False also if its board does not have
 * that entry yet, or no longer has it. */
static bool read_other_call(int pe, const struct via_trace_collective *mine,
                            struct via_trace_collective *ret_theirs)
{
    struct via_trace_collective again;

    via_get("check", ret_theirs, line_for(mine), sizeof(*ret_theirs), pe);
    if (ret_theirs->group != mine->group || ret_theirs->number != mine->number ||
        ret_theirs->digest == mine->digest)
        return false;
    /* If the entry is being written, its writer reads this PE's entry afterwards, and compares. */
    via_get("check", &again, line_for(mine), sizeof(again), pe);
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bytes of two copies, padding too */
    bool whole = ret_theirs->version % 2 == 0 && memcmp(&again, ret_theirs, sizeof(again)) == 0;
    ret_theirs->text[sizeof(ret_theirs->text) - 1] = '\0';
    return whole;
}

static bool is_compared(const struct via_check_group *group, int index)
{
    int mine = (via_hot.my_pe - group->start) / group->stride;
    int apart = abs(index - mine);

    return apart != 0 &&
           (apart == 1 || apart == group->size - 1 ||
            via_world.peers[group->start + group->stride * index].node == via_world.me->node);
}

void via_check_collective(const struct via_arguments *arguments,
                          const struct via_check_group *group)
{
    struct via_trace_collective mine = {.group = group->id, .number = next_number(group->id)};
    struct via_trace_collective theirs;

    if (mine.number == 0 || group->size == 1)
        return;
    mine.digest = describe_call(arguments, mine.text);
    publish(&mine);
    for (int i = 0; i < group->size; i++) {
        int pe = group->start + group->stride * i;
        if (!is_compared(group, i) || !read_other_call(pe, &mine, &theirs))
            continue;
        via_check_report(arguments, NULL,
                         "collective %" PRIu64 " of %s is %s here, and %s at PE %d", mine.number,
                         group->name, mine.text, theirs.text, pe);
        return;
    }
}
