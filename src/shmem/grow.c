/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/grow.h"

#include <inttypes.h>
#include <stdlib.h>

#include "shmem/gate.h"
#include "shmem/path.h"
#include "shmem/peer.h"
#include "shmem/world_make.h"

#define STEP_BYTES (UINT64_C(2) << 20)

void via_grow_init(void)
{
    uint64_t max = UINT64_MAX;

    for (int pe = 0; pe < via_hot.n_pes; pe++)
        max = via_min(
            max, atomic_load_explicit(&via_world.job->pes[pe].heap_room, memory_order_relaxed));
    via_world.heap_bytes_max = max;
}

uint64_t via_grow_max(void)
{
    return via_world.heap_bytes_max - VIA_INTERNAL_BYTES;
}

/* --- old mappings ---------------------------------------------------------------------------- */

static void keep_until_the_end(struct via_segment *segment, struct via_remote *remote)
{
    struct via_outgrown *outgrown = malloc(sizeof(*outgrown));

    if (!outgrown)
        via_fatal("symmetric heap: growing: out of memory");
    *outgrown = (struct via_outgrown){via_world.outgrown, segment, remote};
    via_world.outgrown = outgrown;
}

void via_grow_fini(void)
{
    struct via_outgrown *outgrown;

    while ((outgrown = via_world.outgrown) != NULL) {
        via_world.outgrown = outgrown->next;
        if (outgrown->remote)
            via_remote_close(outgrown->remote);
        if (outgrown->segment)
            via_segment_free(outgrown->segment);
        free(outgrown);
    }
}

/* --- growing ---------------------------------------------------------------------------------- */

/* Extends this PE's part of the heap. */
static int extend(uint64_t from, uint64_t to, struct via_error *err)
{
    int fd = via_world.me->heap_fd;
    int result = via_job_heap_grow(fd, to, err);

    if (result == 0)
        result = via_job_map_more(fd, from, to, via_world.region[VIA_REGION_HEAP].base, err);
    if (result < 0 || !via_world.attach)
        return result;
    struct via_segment *outgrown = via_world.segment[VIA_REGION_HEAP];
    result = via_world_offer(VIA_REGION_HEAP, fd, to, err);
    if (result == 0)
        keep_until_the_end(outgrown, NULL);
    return result;
}

/* Maps the new parts of the other PEs, after the gate. */
static void map_others(uint64_t from, uint64_t to)
{
    via_peers_grow(from, to);
    pthread_mutex_lock(&via_world.lock);
    for (int pe = 0; pe < via_hot.n_pes; pe++) {
        struct via_remote *remote = atomic_exchange_explicit(
            &via_world.peers[pe].remote[VIA_REGION_HEAP], NULL, memory_order_relaxed);
        if (remote)
            keep_until_the_end(NULL, remote);
    }
    pthread_mutex_unlock(&via_world.lock);
}

static bool has_grown_everywhere(uint64_t bytes)
{
    const struct via_job *job = via_world.job;

    /* These sizes were stored before the gate. */
    for (uint32_t pe = 0; pe < job->pes_count; pe++)
        if (atomic_load_explicit(&job->pes[pe].heap_bytes, memory_order_relaxed) < bytes)
            return false;
    return true;
}

static bool grow_to(uint64_t bytes)
{
    uint64_t now = via_world.region[VIA_REGION_HEAP].bytes;
    struct via_error err = {0};

    /* Earlier puts of this thread use the old mappings; they must arrive before any later put. */
    via_quiet();
    if (extend(now, bytes, &err) == 0)
        atomic_store_explicit(&via_world.me->heap_bytes, bytes, memory_order_relaxed);
    else
        via_debug("symmetric heap: growing to %" PRIu64 " bytes: %s", bytes,
                  via_error_describe(&err));
    via_gate_pass();
    if (!has_grown_everywhere(bytes)) {
        /* This PE's size is reset only after all PEs have read it. */
        via_gate_pass();
        atomic_store_explicit(&via_world.me->heap_bytes, now, memory_order_relaxed);
        return false;
    }
    /* The size is stored before the mappings grow, so that mappings that other threads open
     * meanwhile cover the whole heap. */
    atomic_store_explicit(&via_world.region[VIA_REGION_HEAP].bytes, bytes, memory_order_release);
    map_others(now, bytes);
    if (!via_world.statistics)
        atomic_store_explicit(&via_hot.bytes[VIA_REGION_HEAP], bytes, memory_order_release);
    pthread_mutex_lock(&via_world.lock);
    int result = via_heap_grow(&via_world.heap, bytes - VIA_INTERNAL_BYTES);
    pthread_mutex_unlock(&via_world.lock);
    if (result < 0)
        via_fatal("symmetric heap: growing: out of memory");
    return true;
}

bool via_grow(uint64_t bytes, uint64_t align)
{
    uint64_t now = via_world.region[VIA_REGION_HEAP].bytes;
    uint64_t needed = via_heap_bytes_for(&via_world.heap, bytes, align);

    if (needed > via_grow_max())
        return false;
    uint64_t wanted = via_align_up(via_max(needed + VIA_INTERNAL_BYTES, 2 * now), STEP_BYTES);
    return grow_to(via_min(wanted, via_world.heap_bytes_max));
}
