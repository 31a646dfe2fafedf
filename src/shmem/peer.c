/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/peer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

static const char *const names[VIA_REGIONS] = {"symmetric heap", "program's data"};

/* Serializes the threads that map. A signal handler that puts must not deadlock with its own thread
 * here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void enter(sigset_t *ret_before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, ret_before);
    pthread_mutex_lock(&lock);
}

static void leave(const sigset_t *before)
{
    pthread_mutex_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

static bool is_here(enum via_region region, int pe)
{
    const struct via_peer *peer = &via_world.peers[pe];

    return peer->node == via_world.me->node && via_world.region[region].bytes > 0 &&
           (region == VIA_REGION_HEAP || peer->same_program);
}

static __attribute__((noreturn)) void refuse(enum via_region region, int pe, int result,
                                             const struct via_error *err)
{
    /* The kernel returns the same error for both causes. */
    const char *limit =
        result == -ENOMEM ? "; the limit is vm.max_map_count or the process's own (ulimit -v)" : "";

    via_fatal("%s of PE %d: %s%s", names[region], pe, via_error_describe(err), limit);
}

static char *map(enum via_region region, int pe)
{
    const struct via_job_pe *entry = &via_world.job->pes[pe];
    bool heap = region == VIA_REGION_HEAP;
    void *where = heap ? via_world.map_first + entry->local * via_world.map_stride : NULL;
    struct via_error err = {0};
    void *base;

    int result = via_job_map_memory(heap ? entry->heap_fd : entry->data_fd,
                                    via_world.region[region].bytes, where, &base, &err);
    if (result < 0)
        refuse(region, pe, result, &err);
    return base;
}

char *via_peer_map(enum via_region region, int pe)
{
    sigset_t before;

    if (!is_here(region, pe))
        return NULL;
    enter(&before);
    char *base = via_hot_peer(region, pe);
    if (!base) {
        base = map(region, pe);
        atomic_store_explicit(&via_hot.peer[region][pe], base, memory_order_release);
    }
    leave(&before);
    return base;
}

void via_peers_grow(uint64_t from, uint64_t bytes)
{
    struct via_error err = {0};
    sigset_t before;

    /* A PE that another thread maps after this gets the new size, which the caller has stored. */
    enter(&before);
    for (int pe = 0; pe < via_hot.n_pes; pe++) {
        char *base = via_hot_peer(VIA_REGION_HEAP, pe);
        int result = !base || pe == via_hot.my_pe ? 0
                                                  : via_job_map_more(via_world.job->pes[pe].heap_fd,
                                                                     from, bytes, base, &err);
        if (result < 0)
            refuse(VIA_REGION_HEAP, pe, result, &err);
    }
    leave(&before);
}
