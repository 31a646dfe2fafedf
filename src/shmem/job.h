/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_JOB_H
#define VIA_SHMEM_JOB_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"
#include "base/types.h"
#include "shmem/costs.h"
#include "shmem/trace.h"
#include "shmem/wait.h"

/*
 * The memory of a job's launcher and its PEs. All of it is sealed memfds that the PEs inherit, so
 * nothing has a name and nothing is left behind:
 *
 * - the job block: one, for all PEs: their places, and the handles of their segments. It is used
 *   only for set-up and at the end, never on the data path: PEs of different hosts share it only
 *   because one launcher has started them all.
 * - a node block per host: the barrier of its PEs.
 * - a heap per PE: the symmetric heap; mapped by the PEs of the same host. It can grow.
 * - a data memfd per PE: its program's .data and .bss; empty until the PE has measured them.
 * - a life pipe: only the launcher holds its write end, and writes nothing. End of file reports to
 *   the PEs that the job ends: by shmem_global_exit, or because the launcher has died.
 * - a call pipe: a byte from a PE requests the launcher to read the job block.
 *
 * Environment of a PE: VIADUCT_SHMEM_JOB="<job> <node> <life> <call> <PE number>", the first four
 * being file descriptors.
 *
 * In a job over several machines each machine has a job block of its own, for all PEs, and the
 * memory of its own PEs. Data that the PEs of a machine publish before a gate reach the other
 * blocks when the gate opens, as enum via_job_gates describes.
 */
#define VIA_JOB_ENV "VIADUCT_SHMEM_JOB"
#define VIA_JOB_MAGIC UINT64_C(0x4d484f4a44564956) /* "VIVDJOHM" */
#define VIA_JOB_VERSION 6u
#define VIA_JOB_PES_MAX 1024u
/* The kernel provides memory of a heap at the first use, so a large heap costs only addresses. */
#define VIA_JOB_HEAP_BYTES_DEFAULT (UINT64_C(1) << 30)
#define VIA_JOB_HEAP_BYTES_MIN (UINT64_C(1) << 20)
#define VIA_JOB_HEAP_BYTES_MAX (UINT64_C(1) << 40)
/* A quarter of a process's address space, for the heaps of all PEs of a host. */
#define VIA_JOB_ADDRESS_BYTES_MAX (UINT64_C(1) << 45)

/* Symmetric memory lies in two regions. */
enum via_region {
    VIA_REGION_HEAP = 0,
    VIA_REGION_DATA = 1,
    VIA_REGIONS = 2,
};

/* How the leaders of the hosts synchronize in a barrier; barrier.c. */
enum via_job_barrier {
    VIA_JOB_BARRIER_WINDOWS = 0,   /* words that leaders put to each other */
    VIA_JOB_BARRIER_DOORBELLS = 1, /* requests to the daemons: barrier-start and barrier-end */
};

/* How a gate opens at all PEs; gate.c. */
enum via_job_gates {
    VIA_JOB_GATES_HERE = 0, /* all PEs share this block */
    VIA_JOB_GATES_LAUNCHER =
        1, /* the launcher collects and distributes the published data of the machines */
    VIA_JOB_GATES_PMI = 2, /* the PEs do so themselves; another launcher started them */
};

enum via_job_state {
    VIA_JOB_STARTED = 0,     /* the process exists, or is being started */
    VIA_JOB_INITIALIZED = 1, /* has entered shmem_init */
    VIA_JOB_FINALIZED = 2,   /* has left the last shmem_finalize */
    VIA_JOB_CUT_OFF = 3,     /* ends because another PE or its own host is unreachable */
    VIA_JOB_LEFT = 4,        /* has flushed its output and ends; only with other launchers */
};

struct via_job_pe {
    uint32_t host;   /* id of its host in the fabric; 0 without one */
    uint32_t node;   /* index of its host in this job */
    uint32_t local;  /* index among the PEs of its host */
    int32_t heap_fd; /* the same descriptor numbers in all processes of the job */
    int32_t data_fd;
    _Atomic uint32_t state;               /* written by the PE, read by the launcher */
    _Atomic uint64_t handle[VIA_REGIONS]; /* of its segments; stored before the first gate */
    _Atomic uint64_t data_bytes;          /* of .data and .bss; stored before the first gate */
    _Atomic uint64_t data_digest;         /* equal if the program is the same */
    _Atomic uint64_t heap_bytes;   /* current size of its heap's memfd; stored before a gate */
    _Atomic uint64_t heap_room;    /* limit up to which it can grow; stored before the first gate */
    _Atomic uint32_t thread_level; /* the level it provides; stored before the first gate */
    uint32_t reserved_word;
    uint64_t reserved;
};

/* The fields of via_job_pe that a PE publishes: handles, data_bytes, data_digest, heap_bytes,
 * heap_room, thread_level. */
#define VIA_JOB_WORDS 7u

/* A barrier of all PEs of the job for set-up; release and acquire are on `generation`. */
struct via_job_gate {
    _Atomic uint32_t arrived;
    struct via_event event;
    _Atomic uint32_t generation;
};

struct via_job {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
    uint64_t id;         /* random */
    uint64_t heap_bytes; /* of a heap's memfd at the start */
    uint32_t pes_count;
    uint32_t nodes_count;
    uint32_t cores;  /* that all PEs of this machine share */
    uint32_t fabric; /* 1: PEs attach to their hosts */
    int32_t launcher_pid;
    /* shmem_global_exit: 0 = none; else 1 + PE, claimed by compare and swap, then exit_status is
     * published by release with exit_ready. */
    _Atomic uint32_t exit_claim;
    _Atomic uint32_t exit_ready;
    int32_t exit_status;
    struct via_job_gate gate;
    uint64_t heap_bytes_max; /* limit up to which heaps may grow */
    uint32_t barrier;        /* enum via_job_barrier */
    uint32_t gates;          /* enum via_job_gates */
    uint32_t pes_here;       /* of pes_count, those that share this block and the machine's CPUs */
    /* The generation that the PEs request from the launcher. A PE stores it with release before it
     * writes a byte into the call pipe. */
    _Atomic uint32_t gate_wanted;
    uint64_t algorithms;    /* forced algorithms of collectives: via_algorithms_parse */
    struct via_costs costs; /* of the cost model of collectives */
    struct via_job_pe pes[];
};

/* A board for each PE follows the PEs: information of the PE for users, trace.h. */
static inline uint64_t via_job_boards_off(uint32_t pes_count)
{
    return VIA_ALIGN_UP(sizeof(struct via_job) + pes_count * sizeof(struct via_job_pe),
                        _Alignof(struct via_board));
}

static inline struct via_board *via_job_board(const struct via_job *job, uint32_t pe)
{
    return (struct via_board *)(void *)((char *)job + via_job_boards_off(job->pes_count)) + pe;
}

static inline uint64_t via_job_bytes(uint32_t pes_count)
{
    return via_job_boards_off(pes_count) + pes_count * sizeof(struct via_board);
}

/*
 * A word per PE; only its owner writes it. If each of many PEs has a CPU of its own, the words are
 * two cache lines apart (adjacent lines are prefetched in pairs), so that no PE waits for a line
 * that others write. On two CPUs adjacent words are better: a PE that fetches the line to write its
 * own word gets the other PE's word with it, and needs no second line (measured: 58 ns a barrier
 * instead of 135).
 */
#define VIA_NODE_WORDS_APART 16u
#define VIA_NODE_CORES_PACKED 2u

struct via_node {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
    uint32_t node;
    uint32_t locals_count;
    uint32_t words_apart; /* 1 or VIA_NODE_WORDS_APART */
    uint32_t reserved_word;
    uint64_t reserved[28];
    _Atomic uint64_t released; /* last barrier that is complete; written by the leader */
    uint64_t reserved_line[31];
    struct via_event event; /* futex for PEs that sleep in a barrier */
    uint64_t reserved_event[31];
    _Atomic uint64_t arrived[]; /* by via_node_arrived */
};

/* The number of the last barrier at which PE `local` of the host has arrived. */
static inline _Atomic uint64_t *via_node_arrived(struct via_node *node, uint32_t local)
{
    return &node->arrived[(size_t)local * node->words_apart];
}

/* --- for makers of jobs: the launcher, and a program started without one --------------------- */

struct via_job_spec {
    uint32_t pes_count;
    uint32_t nodes_count;
    const uint32_t *node_of; /* of each PE, ascending; NULL = all on one */
    const uint32_t *host_of; /* of each node; NULL = no fabric */
    uint64_t heap_bytes;
    uint32_t cores;
    /* Job over several machines: make only the memory of the PEs of `node`. */
    enum via_job_gates gates;
    uint32_t node;
    uint64_t id; /* the same in all its blocks; 0 = random */
};

struct via_job_files {
    struct via_job *job; /* mapped, writable */
    int job_fd;
    int *node_fds; /* nodes_count */
    int life_fds[2];
    int call_fds[2];
};

/* Owned by the caller until via_job_close. All fds are close-on-exec. -ENOMEM, -EMFILE, ... */
int via_job_create(const struct via_job_spec *spec, struct via_job_files *ret_files,
                   struct via_error *err) VIA_MUST_CHECK;
void via_job_close(struct via_job_files *files);

/* $SHMEM_SYMMETRIC_SIZE or the default. -EINVAL, -ERANGE with a text. */
int via_job_heap_bytes(uint64_t *ret_bytes, struct via_error *err) VIA_MUST_CHECK;

/* $VIADUCT_SHMEM_BARRIER: "windows" or "doorbells". -EINVAL for anything else. */
int via_job_barrier_parse(const char *text, uint32_t *ret_barrier) VIA_MUST_CHECK;

/* --- for PEs ---------------------------------------------------------------------------------- */

/* Maps a sealed memfd whose header states its length; checks magic and version. */
int via_job_map(int fd, struct via_job **ret_job, struct via_error *err) VIA_MUST_CHECK;
int via_node_map(int fd, struct via_node **ret_node, struct via_error *err) VIA_MUST_CHECK;

/* Sizes a memfd and seals it: afterwards no process can shrink or grow it under a reader. */
int via_job_size_and_seal(int fd, uint64_t bytes, struct via_error *err) VIA_MUST_CHECK;
/* The memfd of a heap may still grow. */
int via_job_heap_grow(int fd, uint64_t bytes, struct via_error *err) VIA_MUST_CHECK;
/* Maps all of a sealed memfd of at least `bytes`; at `where` (fixed) when it is not NULL. */
int via_job_map_memory(int fd, uint64_t bytes, void *where, void **ret_base,
                       struct via_error *err) VIA_MUST_CHECK;
/* The same from `off` on, at base + off, where the part before it is mapped at base. */
int via_job_map_more(int fd, uint64_t off, uint64_t bytes, char *base,
                     struct via_error *err) VIA_MUST_CHECK;

/* --- gates over several machines ------------------------------------------------------------- */

/* Read and write the published data of PE `pe` in this block. The gate orders these accesses. */
void via_job_words_get(const struct via_job *job, uint32_t pe, uint64_t ret_words[VIA_JOB_WORDS]);
void via_job_words_set(struct via_job *job, uint32_t pe, const uint64_t words[VIA_JOB_WORDS]);
/* Opens the gate for the waiting PEs of this block. */
void via_job_gate_open(struct via_job *job);

#endif
