/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A job on a fabric: placement of PEs, and the world's hooks. */
#include "sim/shmem/shmem.h"

#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/shmem/job.h"

/* Time limit of a step once the faults are over, however many messages are lost or late. */
#define STEP_NS_MAX (500 * VIA_MSEC_NS)
/* Within this time a PE notices that its host has ended, and the launcher notices that a PE has
 * ended. */
#define NOTICE_NS_MAX (3 * VIA_SEC_NS)

static struct sim_job *job_of(struct sim_guest *guest)
{
    return (struct sim_job *)(void *)guest;
}

/* --- placement ------------------------------------------------------------------------------- */

/* Hosts in random order: consecutive hosts of a job need not be neighbours. */
static void draw_nodes(struct sim_job *job)
{
    struct sim_world *world = job->world;
    uint32_t hosts[SIM_HOSTS_MAX];
    job->pes_count = via_min(job->config->pes, SIM_PES_MAX);
    job->nodes_count = via_min(via_min(job->config->nodes, world->hosts_count), job->pes_count);
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        hosts[i] = i;
    }
    for (uint32_t i = 0; i < job->nodes_count; i++) {
        uint32_t j = sim_job_between(job, i, world->hosts_count - 1);
        job->node_hosts[i] = hosts[j];
        hosts[j] = hosts[i];
    }
}

static void place_pes(struct sim_job *job)
{
    uint32_t locals[SIM_HOSTS_MAX] = {0};
    uint32_t index = 0;
    for (uint32_t i = 0; i < job->pes_count; i++) {
        locals[i < job->nodes_count ? i : sim_job_between(job, 0, job->nodes_count - 1)]++;
    }
    job->job = sim_alloc_lines(via_job_bytes(job->pes_count));
    job->job->pes_count = job->pes_count;
    job->job->nodes_count = job->nodes_count;
    job->job->fabric = 1;
    job->job->costs = via_costs_measured;
    for (uint32_t n = 0; n < job->nodes_count; n++) {
        uint32_t apart = n % 2 == 0 ? 1 : VIA_NODE_WORDS_APART;
        struct via_node *node =
            sim_alloc_lines(sizeof(*node) + (size_t)locals[n] * apart * sizeof(uint64_t));
        node->node = n;
        node->locals_count = locals[n];
        node->words_apart = apart;
        job->nodes[n] = node;
        for (uint32_t i = 0; i < locals[n]; i++, index++) {
            struct sim_pe *pe = &job->pes[index];
            pe->host = &job->world->hosts[job->node_hosts[n]];
            pe->node = n;
            pe->local = i;
            job->job->pes[index].host = pe->host->id;
            job->job->pes[index].node = n;
            job->job->pes[index].local = i;
        }
    }
}

/* --- the state after shmem_init -------------------------------------------------------------- */

static void poll_host(void)
{
    if (via_world.attach != NULL && via_attach_poll(via_world.attach) < 0) {
        via_fatal("%s", via_error_text());
    }
}

static void make_world(struct sim_pe *pe)
{
    struct sim_job *job = pe->job;
    sim_pe_load(pe);
    via_hot = (struct via_hot){.my_pe = (int)pe->index, .n_pes = (int)job->pes_count};
    via_world = (struct via_world){
        .init_count = 1,
        .job = job->job,
        .node = job->nodes[pe->node],
        .me = &job->job->pes[pe->index],
        .life_fd = -1,
        .call_fd = -1,
        .attach = job->nodes_count > 1 ? &pe->attach : NULL,
    };
    via_world.peers = sim_alloc(job->pes_count * sizeof(*via_world.peers));
    for (int region = 0; region < VIA_REGIONS; region++) {
        via_hot.peer[region] = sim_alloc(job->pes_count * sizeof(*via_hot.peer[region]));
        via_hot.base[region] = (uintptr_t)pe->base[region];
        via_hot.bytes[region] = sim_pe_bytes[region];
        via_world.region[region].base = pe->base[region];
        via_world.region[region].bytes = sim_pe_bytes[region];
    }
    for (uint32_t i = 0; i < job->pes_count; i++) {
        struct via_peer *peer = &via_world.peers[i];
        peer->host = job->job->pes[i].host;
        peer->node = job->job->pes[i].node;
        peer->same_program = true;
        for (int region = 0; region < VIA_REGIONS && peer->node == pe->node; region++) {
            via_hot.peer[region][i] = job->pes[i].base[region];
        }
    }
    if (via_heap_init(&via_world.heap, SIM_PE_HEAP_BYTES - VIA_INTERNAL_BYTES) != 0) {
        abort();
    }
    via_team_init();
    pe->world.attach = via_world.attach; /* the host's side polls here */
}

void sim_job_wait_all(struct sim_pe *pe)
{
    struct sim_job *job = pe->job;
    pe->doing = "waits for all to begin";
    if (++job->at_gate == job->pes_count) {
        for (uint32_t i = 0; i < job->pes_count; i++) {
            sim_pe_wake(&job->pes[i]);
        }
    }
    while (job->at_gate < job->pes_count) {
        sim_pe_block(pe, VIA_MSEC_NS);
        poll_host();
    }
}

/* --- for the world --------------------------------------------------------------------------- */

static void begin(struct sim_guest *guest, struct sim_world *world)
{
    struct sim_job *job = job_of(guest);
    job->world = world;
    draw_nodes(job);
    place_pes(job);
    /* The library recognises that yielding is useless only if there are fewer CPUs than PEs. */
    bool alone = job->config->yield_ns_max > 1000 && via_rng_chance(&job->rng, 1, 2);
    via_wait_configure(job->pes_count, alone ? job->pes_count : job->pes_count - 1);
    via_wait_poll_host = poll_host;
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        sim_attach_host_init(job, i);
    }
    for (uint32_t i = 0; i < job->pes_count; i++) {
        sim_pe_init(job, i);
        sim_attach_open(&job->pes[i]);
    }
    for (uint32_t i = 0; i < job->pes_count; i++) {
        make_world(&job->pes[i]);
        sim_trace(world, "PE %u is on host %u (id %u), number %u there", i, job->pes[i].host->index,
                  job->pes[i].host->id, job->pes[i].local);
    }
    sim_program_draw(job);
    world->counts.pes += job->pes_count;
    for (uint32_t i = 0; i < job->pes_count; i++) {
        sim_pe_start(&job->pes[i]);
    }
}

static unsigned turn(struct sim_guest *guest, struct sim_thread *thread)
{
    return sim_serve_turn(job_of(guest)->hosts[thread->host->index].serve, thread);
}

static unsigned turn_over(struct sim_guest *guest, struct sim_thread *thread)
{
    return sim_serve_turn_over(job_of(guest)->hosts[thread->host->index].serve, thread);
}

static bool arm(struct sim_guest *guest, struct sim_thread *thread)
{
    return sim_serve_arm(job_of(guest)->hosts[thread->host->index].serve, thread);
}

static void complete(struct sim_guest *guest, struct sim_host *host, unsigned channel,
                     uint64_t cookie, int status, uint64_t value)
{
    sim_serve_complete(job_of(guest)->hosts[host->index].serve, channel, cookie, status, value);
}

static void kill_all(struct sim_job *job)
{
    sim_trace(job->world, "the launcher ends the job");
    for (uint32_t i = 0; i < job->pes_count; i++) {
        job->pes[i].state = SIM_PE_ENDED;
    }
    sim_final_progress(job->world);
}

/* After a crash no PE may wait forever. */
static void check_after_crash(struct sim_job *job)
{
    for (uint32_t i = 0; i < job->pes_count; i++) {
        const struct sim_pe *pe = &job->pes[i];
        bool frozen = pe->host->thaw_ns > job->world->clock.now_ns;
        if (pe->state != SIM_PE_ENDED && job->hosts[pe->host->index].crashed && !frozen) {
            sim_fail(job->world,
                     "PE %u, step %u (%s): goes on %llu ms after the daemon of its host has died",
                     i, pe->step, pe->doing, (unsigned long long)(NOTICE_NS_MAX / VIA_MSEC_NS));
        }
    }
}

static void on_event(struct sim_guest *guest, const struct sim_event *event)
{
    struct sim_job *job = job_of(guest);
    struct sim_pe *pe = &job->pes[event->a];
    switch ((enum sim_pe_event)event->b) {
    case SIM_PE_RESUME:
        sim_pe_resume(pe, event->c);
        break;
    case SIM_PE_BELL:
        pe->bell = true;
        if (pe->in_epoll) {
            sim_pe_wake(pe);
        }
        break;
    case SIM_PE_KILL:
        kill_all(job);
        break;
    case SIM_PE_CHECK:
        check_after_crash(job);
        break;
    }
}

static void on_crash(struct sim_guest *guest, struct sim_host *host)
{
    struct sim_job *job = job_of(guest);
    bool has_pes = false;
    sim_serve_crash(job->hosts[host->index].serve);
    for (uint32_t i = 0; i < job->pes_count; i++) {
        struct sim_pe *pe = &job->pes[i];
        if (pe->host != host || pe->world.attach == NULL) {
            continue;
        }
        /* Even when its own PEs are done: others may still put to their memory. */
        job->crashed = true;
        if (pe->state != SIM_PE_ENDED) {
            has_pes = true;
            job->hosts[host->index].crashed = true;
            if (pe->in_epoll) {
                sim_pe_wake(pe);
            }
        }
    }
    if (has_pes) {
        sim_clock_after(&job->world->clock, NOTICE_NS_MAX, SIM_EVENT_GUEST, 0, SIM_PE_CHECK, 0);
    }
}

static bool is_done(const struct sim_guest *guest)
{
    const struct sim_job *job = (const struct sim_job *)(const void *)guest;
    for (uint32_t i = 0; i < job->pes_count; i++) {
        if (job->pes[i].state != SIM_PE_ENDED) {
            return false;
        }
    }
    /* Operations under way of a killed job end as well. */
    for (uint32_t i = 0; i < job->world->hosts_count; i++) {
        if (!sim_serve_is_idle(job->hosts[i].serve)) {
            return false;
        }
    }
    return true;
}

/* The memory of the barrier of all PEs. */
static void trace_barrier(struct sim_job *job)
{
    if (job->loaded != NULL) {
        job->loaded->teams = via_teams;
    }
    for (uint32_t i = 0; i < job->pes_count; i++) {
        const struct sim_pe *pe = &job->pes[i];
        const struct via_internal *words = (const void *)pe->base[VIA_REGION_HEAP];
        struct via_node *node = job->nodes[pe->node];
        sim_trace(job->world,
                  "PE %u: %s, sleeps on %p, %s; has entered barrier %llu, arrived %llu, its host "
                  "released %llu; words of hosts %llu, %llu",
                  i, pe->state == SIM_PE_BLOCKED ? "blocked" : "going", pe->futex,
                  pe->in_epoll ? "waits for its host" : "not for its host",
                  (unsigned long long)pe->teams.predefined[0].epoch,
                  (unsigned long long)*via_node_arrived(node, pe->local),
                  (unsigned long long)node->released,
                  (unsigned long long)words->teams[0].words[VIA_WORD_LEFT],
                  (unsigned long long)words->teams[0].words[VIA_WORD_RIGHT]);
    }
}

static void overdue(struct sim_guest *guest)
{
    struct sim_job *job = job_of(guest);
    trace_barrier(job);
    char text[800] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < job->pes_count && used < sizeof(text) - 80; i++) {
        const struct sim_pe *pe = &job->pes[i];
        if (pe->state != SIM_PE_ENDED) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "; PE %u at step %u (%s)", i,
                                     pe->step, pe->doing);
        }
    }
    sim_fail(job->world, "%llu s after the last fault the program is not done%s",
             (unsigned long long)((job->world->clock.now_ns - job->world->heal_ns) / VIA_SEC_NS),
             text);
}

static void free_pe(struct sim_pe *pe)
{
    sim_pe_load(pe);
    sim_attach_close(pe);
    for (int region = 0; region < VIA_REGIONS; region++) {
        free(via_hot.peer[region]);
    }
    free(via_world.peers);
    sim_hooks_free_all(pe);
    sim_pe_fini(pe);
    pe->job->loaded = NULL;
}

static void end(struct sim_guest *guest)
{
    struct sim_job *job = job_of(guest);
    if (!job->world->failed) {
        sim_program_final(job);
    }
    for (uint32_t i = 0; i < job->pes_count; i++) {
        free_pe(&job->pes[i]);
    }
    for (uint32_t i = 0; i < job->world->hosts_count; i++) {
        sim_attach_host_fini(job, i);
    }
    for (uint32_t i = 0; i < job->nodes_count; i++) {
        free(job->nodes[i]);
    }
    free(job->job);
    sim_program_fini(job);
}

static const struct sim_guest_ops ops = {
    .begin = begin,
    .end = end,
    .event = on_event,
    .turn = turn,
    .turn_over = turn_over,
    .arm = arm,
    .complete = complete,
    .crashed = on_crash,
    .is_done = is_done,
    .overdue = overdue,
};

/* The fabric of the seed, with no work but the program. */
static void make_config(struct sim_config *config)
{
    config->seed ^= UINT64_C(0x7065) << 40;
    config->work.ops_count = 0;
    config->work.barrier_groups = 0;
    config->work.cancels_count = 0;
    config->node.give_up_ns = 0;
    config->node.wait_ns_max = 0;
    config->node.segments_count += config->shmem.pes * VIA_REGIONS;
    config->node.flows_count = via_max(config->node.flows_count, 2u); /* flow 0 is the hosts' */
    config->faults.rogues_count = 0;
    config->faults.crashes_count =
        config->shmem.crashes != 0 ? via_max(config->faults.crashes_count, 1u) : 0;
    config->faults.restart_ns_max = via_max(config->faults.restart_ns_max, 1000000u);
    /* More hosts would only take time, unless each of them must have PEs (pe-nodes). */
    uint32_t enough = config->hosts_count > 8 ? 20 : 8;
    config->hosts_count = via_min(config->hosts_count, via_max(enough, config->shmem.nodes));
}

void sim_shmem_run(const struct sim_config *config, int plant, FILE *trace,
                   struct sim_result *ret_result)
{
    struct sim_config *mine = sim_alloc(sizeof(*mine));
    struct sim_job *job = sim_alloc(sizeof(*job));
    *mine = *config;
    make_config(mine);
    *job = (struct sim_job){
        .guest = {.ops = &ops, .patience_ns = (mine->shmem.steps + 4) * STEP_NS_MAX},
        .config = &mine->shmem,
        .plant = plant,
    };
    via_rng_init(&job->rng, config->seed ^ UINT64_C(0x6a6f62));
    sim_job = job;
    sim_world_run(mine, plant, trace, &job->guest, ret_result);
    sim_job = NULL;
    free(job);
    free(mine);
}
