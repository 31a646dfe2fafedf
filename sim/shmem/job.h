/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A job of PEs under virtual time. A PE is a fiber that runs the library; what the library stands
 * on is here:
 *   pe.c       fibers: which PE runs, and whose state the library's variables hold
 *   accesses.c accesses to memory, after any of which another PE may run
 *   hooks.c    system calls, clocks, malloc()
 *   attach.c   a PE's attachment: what via_attach_open() sets up, and the host's answers
 *   serve.c    the host's side of its pipes, which is src/host's
 *   program.c  what the PEs do, drawn by the seed      check.c   whether it was done right
 *   steps.c    the steps of a program, by the library's calls
 *   shmem.c    all of it together
 */
#ifndef SIM_SHMEM_JOB_H
#define SIM_SHMEM_JOB_H

#include "host/attach_wire.h"
#include "host/client.h"
#include "shmem/hosts.h"
#include "shmem/job.h"
#include "shmem/team.h"
#include "shmem/world.h"
#include "sim/cost/fiber.h"
#include "sim/shmem/program.h"
#include "sim/shmem/serve.h"
#include "sim/world.h"

#define SIM_PES_MAX 64u
#define SIM_PE_HEAP_BYTES (4u << 20) /* with VIA_INTERNAL_BYTES of the library's own */
#define SIM_PE_DATA_BYTES (1u << 20)
static const size_t sim_pe_bytes[VIA_REGIONS] = {SIM_PE_HEAP_BYTES, SIM_PE_DATA_BYTES};

enum sim_pe_state {
    SIM_PE_GOING,   /* an event will resume it */
    SIM_PE_BLOCKED, /* and possibly another event that wakes it earlier */
    SIM_PE_ENDED,
};

enum sim_pe_event {
    SIM_PE_RESUME = 0, /* a = PE, c = its ticket */
    SIM_PE_BELL = 1,   /* a = PE: its host rings its bell */
    SIM_PE_KILL = 2,   /* the launcher ends all PEs */
    SIM_PE_CHECK = 3,  /* after a crash: check that they have ended */
};

struct sim_pe {
    struct sim_job *job;
    struct sim_host *host;
    uint32_t index, node, local;
    struct sim_fiber fiber;
    enum sim_pe_state state;
    uint32_t ticket;
    const void *futex; /* the PE sleeps on it */
    bool woken, bell, in_epoll;
    bool fatal;
    char last_words[400];

    uint32_t step; /* the host is working on it */
    const char *doing;

    /* The library's variables while another PE runs. */
    struct via_hot hot;
    struct via_world world;
    struct via_teams teams;
    char error_text[256];

    int fds[VIA_REGIONS]; /* owned, as what they map */
    char *base[VIA_REGIONS];
    struct via_list allocated; /* allocations of the library */
    struct via_attach attach;
    /* Of its program. */
    shmem_team_t handles[SIM_TEAMS_MAX];
    uint64_t arena_off; /* in its heap */
};

/* State that the processes of a host share. */
struct sim_pe_host {
    struct via_bell *bells; /* owned, one per channel */
    int life_fd;
    _Atomic uint64_t *lives; /* mapped */
    struct sim_serve *serve; /* owned */
    bool crashed;            /* the host died; the PEs that were attached to it are on their own */
};

struct sim_job {
    struct sim_guest guest; /* first */
    struct sim_world *world;
    const struct sim_config_shmem *config;
    struct via_rng rng;
    int plant;
    uint32_t pes_count, nodes_count;
    struct sim_pe pes[SIM_PES_MAX];
    struct sim_pe *running; /* the PE whose fiber runs now */
    struct sim_pe *loaded;  /* the PE whose variables the library has */
    struct via_job *job;    /* owned */
    struct via_node *nodes[SIM_HOSTS_MAX];
    uint32_t node_hosts[SIM_HOSTS_MAX];
    struct sim_pe_host hosts[SIM_HOSTS_MAX];
    struct sim_program program;
    uint32_t at_gate;
    bool ending;  /* a PE has ended the job */
    bool crashed; /* a host with PEs has crashed: the job ends */
};

/* The running PE: the library has no argument to find it by. */
extern struct sim_job *sim_job;

/* Waits until all PEs are here; called by a fiber. */
void sim_job_wait_all(struct sim_pe *pe);

/* --- pe.c ------------------------------------------------------------------------------------ */

void sim_pe_init(struct sim_job *job, uint32_t index);
void sim_pe_fini(struct sim_pe *pe);
void sim_pe_start(struct sim_pe *pe);
void sim_pe_resume(struct sim_pe *pe, uint32_t ticket);
/* Called by its fiber: continues after longest_ns, or when woken. True if woken. */
bool sim_pe_block(struct sim_pe *pe, uint64_t longest_ns);
/* The same without wake-ups. */
void sim_pe_pause(struct sim_pe *pe, uint64_t ns);
void sim_pe_wake(struct sim_pe *pe);
/* Loads this PE's copy of the library's variables. */
void sim_pe_load(struct sim_pe *pe);
/* The PE ends; called by its fiber for a fatal error, does not return. */
void sim_pe_end(struct sim_pe *pe);
void sim_pe_trace(struct sim_pe *pe, const char *format, ...) VIA_PRINTF(2, 3);

static inline uint32_t sim_job_between(struct sim_job *job, uint32_t lo, uint32_t hi)
{
    return (uint32_t)via_rng_between(&job->rng, lo, via_max(lo, hi));
}

/* --- accesses.c ------------------------------------------------------------------------------ */

/* Draws how many accesses the running PE makes until another may run. */
void sim_accesses_draw(struct sim_job *job);

/* --- hooks.c --------------------------------------------------------------------------------- */

/* Frees what the library has allocated for a PE and not freed. */
void sim_hooks_free_all(struct sim_pe *pe);

/* --- attach.c -------------------------------------------------------------------------------- */

void sim_attach_host_init(struct sim_job *job, uint32_t host);
void sim_attach_host_fini(struct sim_job *job, uint32_t host);
void sim_attach_open(struct sim_pe *pe);
/* Registers its memory; called by its fiber. */
void sim_attach_offer(struct sim_pe *pe);
void sim_attach_close(struct sim_pe *pe);

#endif
