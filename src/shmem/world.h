/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_WORLD_H
#define VIA_SHMEM_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/types.h"
#include "host/client_tcp.h"
#include "shmem/heap.h"
#include "shmem/job.h"
#include "viaduct/viaduct.h"

/*
 * State of a PE between shmem_init and shmem_finalize, in two parts: the small, mostly read-only
 * part that every access needs (via_hot), and the rest (via_world).
 */

/*
 * The fast path of an access converts a symmetric address of this PE to the address at which this
 * process maps the same object of another PE. bytes of a region is 0 while every access must take
 * the slow path (statistics). A peer is NULL if its memory is not mapped (yet); then the access
 * takes the slow path.
 */
struct via_hot {
    uintptr_t base[VIA_REGIONS];
    _Atomic size_t bytes[VIA_REGIONS];  /* stored after the new part is mapped: a growing heap */
    _Atomic(char *) *peer[VIA_REGIONS]; /* n_pes each; stored once at the first use, peer.c */
    int my_pe;
    int n_pes;
};
extern struct via_hot via_hot;

static inline char *via_hot_peer(enum via_region region, int pe)
{
    /* Pairs with the release in via_peer_map; the address points to a mapping, which other threads
     * see through the kernel. */
    return atomic_load_explicit(&via_hot.peer[region][pe], memory_order_acquire);
}

static inline void *via_direct_in(enum via_region region, uintptr_t off, int pe)
{
    if (via_unlikely((unsigned)pe >= (unsigned)via_hot.n_pes))
        return NULL;
    char *peer = via_hot_peer(region, pe);
    return via_likely(peer) ? peer + off : NULL;
}

/* Both regions are equally likely, so the code avoids an extra jump for either. Always inline,
 * because with very many uses the compiler would otherwise emit a call. */
static inline __attribute__((always_inline)) void *via_direct(const void *address, int pe)
{
    uintptr_t heap_off = (uintptr_t)address - via_hot.base[VIA_REGION_HEAP];
    uintptr_t data_off = (uintptr_t)address - via_hot.base[VIA_REGION_DATA];

    _Static_assert(VIA_REGIONS == 2, "heap and data");
    /* Pairs with the release in grow.c. Without cost on x86, whose loads are acquires. */
    if (heap_off < atomic_load_explicit(&via_hot.bytes[VIA_REGION_HEAP], memory_order_acquire))
        return via_direct_in(VIA_REGION_HEAP, heap_off, pe);
    if (data_off < atomic_load_explicit(&via_hot.bytes[VIA_REGION_DATA], memory_order_relaxed))
        return via_direct_in(VIA_REGION_DATA, data_off, pe);
    return NULL;
}

/* Bytes by path. */
enum via_way {
    VIA_WAY_DIRECT, /* memory of this host */
    VIA_WAY_WINDOW, /* loads and stores in a neighbour's window */
    VIA_WAY_FRAMES, /* by the hosts' daemons */
    VIA_WAYS,
};

struct via_way_count {
    _Atomic uint64_t calls;
    _Atomic uint64_t bytes;
};

/* Another PE, or this one. */
struct via_peer {
    _Atomic(struct via_remote *) remote[VIA_REGIONS]; /* opened at first use */
    uint32_t host;
    uint32_t node;
    bool same_program; /* its variables are symmetric with those of this PE */
};

struct via_region_mine {
    char *base;
    _Atomic size_t bytes;
};

/* The old mappings of a heap that has grown: other threads may use them until the end. */
struct via_outgrown {
    struct via_outgrown *next;
    struct via_segment *segment; /* one of the two */
    struct via_remote *remote;
};

struct via_world {
    unsigned init_count; /* 0: not initialized */
    bool is_child;       /* this process was forked by a PE, and is not a PE itself */
    int thread_level;
    /* Some PE provides SHMEM_THREAD_MULTIPLE, so that threads of it may make collective calls of
     * several active sets at the same time. */
    bool concurrent;
    bool implicit_finalize; /* set by start_pes */
    bool statistics;

    struct via_job *job;
    struct via_node *node;
    struct via_job_files own_files; /* of a program without launcher */
    bool own_job;
    int life_fd, call_fd; /* -1 without a launcher */
    struct via_job_pe *me;

    struct via_region_mine region[VIA_REGIONS];
    struct via_peer *peers; /* n_pes */
    void *map;              /* address range of all heaps of this host */
    size_t map_bytes;
    char *map_first; /* the heap of local PE 0; the others follow at map_stride */
    uint64_t map_stride;
    uint64_t heap_bytes_max; /* address space that every PE has for its heap */

    struct via_heap heap;
    pthread_mutex_t lock; /* heap, peers[].remote, outgrown */
    struct via_outgrown *outgrown;

    /* NULL without a fabric, or when all PEs are on one host. */
    struct via_attach *attach;
    struct via_segment *segment[VIA_REGIONS];
    /* The number of operations by frames that threads have passed to the host, and how many of
     * these a quiet has completed. If both are equal, a quiet need not wait. */
    _Atomic uint64_t frames_issued;
    _Atomic uint64_t frames_quiet;

    struct via_way_count ways[VIA_WAYS];
    _Atomic uint64_t
        rounds; /* waits for other hosts in collectives; a statistic, lost counts are accepted */
};
extern struct via_world via_world;

static inline bool via_has_frames(void)
{
    uint64_t issued = atomic_load_explicit(&via_world.frames_issued, memory_order_relaxed);

    /* Acquire: pairs with the release of another thread's via_path_quiet, whose puts have
     * arrived. */
    return issued != atomic_load_explicit(&via_world.frames_quiet, memory_order_acquire);
}

/* --- before the heap: symmetric memory of the library itself --------------------------------- */

/* Heaps begin at multiples of this, so it is the largest alignment that shmem_align can give. */
#define VIA_HEAP_ALIGN (UINT64_C(64) << 20)

/* Sync words of a team: enum via_hosts_word. */
#define VIA_SYNC_WORDS 72u
#define VIA_TEAMS_MAX 64u
#define VIA_SETS_MAX 16u /* slots for teams of active sets */
#define VIA_SLOTS_MAX (VIA_TEAMS_MAX + VIA_SETS_MAX)

/* A PE's block for the PEs of its host: only the PE writes it. Two cache lines, as adjacent ones
 * are prefetched in pairs. */
#define VIA_SYNC_LINE_BYTES 112u
struct via_sync_line {
    _Alignas(128) _Atomic uint64_t arrived;
    _Alignas(16) unsigned char bytes[VIA_SYNC_LINE_BYTES];
};

struct via_sync_slot {
    _Atomic uint64_t words[VIA_SYNC_WORDS];
    struct via_sync_line lines[2]; /* alternating */
};

/* The data that members exchange in one meeting, at the leader of each host: hosts.h. */
#define VIA_BOX_BYTES ((size_t)8 << 10)
_Static_assert(VIA_BOX_BYTES / VIA_JOB_PES_MAX >= sizeof(uint64_t), "a word of every PE");

struct via_internal {
    struct via_sync_slot teams[VIA_SLOTS_MAX];
    _Alignas(64) unsigned char boxes[VIA_SLOTS_MAX][2][VIA_BOX_BYTES]; /* two, alternating */
    struct via_tcp_card card;                   /* how PEs of other hosts connect to this one */
    _Alignas(64) struct via_check_board checks; /* with VIADUCT_SHMEM_CHECK */
};
/* One huge page, so that huge pages of the memfd are aligned in the address space too. */
#define VIA_INTERNAL_BYTES (UINT64_C(2) << 20)
_Static_assert(sizeof(struct via_internal) <= VIA_INTERNAL_BYTES, "fits before the heap");

static inline struct via_internal *via_internal(void)
{
    return (struct via_internal *)(void *)via_world.region[VIA_REGION_HEAP].base;
}

/* The beginning of the program's part of the heap. */
static inline char *via_heap_base(void)
{
    return via_world.region[VIA_REGION_HEAP].base + VIA_INTERNAL_BYTES;
}

/* --- */

/* Ends the process, with a message that names the call, before shmem_init, after the last
 * shmem_finalize, and in a child that a PE has forked. */
void via_fatal_uninitialized(const char *call) __attribute__((noreturn));
static inline void via_require_initialized(const char *call)
{
    if (via_unlikely(via_world.init_count == 0))
        via_fatal_uninitialized(call);
}

/* Prints "PE n on host h: ..." and ends the process with code 1, and so the job. */
void via_fatal(const char *format, ...) VIA_PRINTF(1, 2) __attribute__((noreturn));
/* The same if another PE or this PE's host is unreachable: the launcher finds the reason in the
 * reports of the other PEs. Call it after via_world_find_job. */
void via_fatal_cut_off(const char *format, ...) VIA_PRINTF(1, 2) __attribute__((noreturn));
void via_debug(const char *format, ...) VIA_PRINTF(1, 2); /* with SHMEM_DEBUG */

#endif
