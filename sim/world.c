/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/world.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"

/* A run that needs more events hangs: an ordinary one takes some ten thousand, sixty hosts with the
 * smallest frames take some million. Thousands of links with a driver have heartbeats for seconds.
 */
#define EVENTS_MAX UINT64_C(20000000)
#define EVENTS_OF_LINK_MAX UINT64_C(100000)

void sim_fail(struct sim_world *world, const char *format, ...)
{
    if (world->failed) {
        return;
    }
    world->failed = true;
    int length =
        snprintf(world->failure, sizeof(world->failure),
                 "at %llu.%06llu ms: ", (unsigned long long)(world->clock.now_ns / VIA_MSEC_NS),
                 (unsigned long long)(world->clock.now_ns % VIA_MSEC_NS));
    va_list args;
    va_start(args, format);
    vsnprintf(world->failure + length, sizeof(world->failure) - (size_t)length, format, args);
    va_end(args);
    sim_trace(world, "FAILURE %s", world->failure);
}

void sim_trace_line(struct sim_world *world, const char *format, ...)
{
    fprintf(world->trace, "%6llu.%06llu ", (unsigned long long)(world->clock.now_ns / VIA_MSEC_NS),
            (unsigned long long)(world->clock.now_ns % VIA_MSEC_NS));
    va_list args;
    va_start(args, format);
    vfprintf(world->trace, format, args);
    va_end(args);
    fputc('\n', world->trace);
}

/* --- events ---------------------------------------------------------------------------------- */

static void work_wanted(struct sim_world *world, const struct sim_event *event)
{
    struct sim_host *host = &world->hosts[event->a];
    if (host->alive) {
        host->threads[event->b].work_wanted += event->c;
        sim_thread_wake(&host->threads[event->b], 0);
    }
}

static void resume_wanted(struct sim_world *world, const struct sim_event *event)
{
    struct sim_host *host = &world->hosts[event->a];
    if (!host->alive || host->life.number != event->c) {
        return;
    }
    struct sim_thread *thread = &host->threads[world->flows[event->b].channel];
    struct sim_resume *wanted = sim_alloc(sizeof(*wanted));
    wanted->flow = event->b;
    via_list_push_back(&thread->resumes, &wanted->member);
    sim_thread_wake(thread, 0);
}

static void cancel_wanted(struct sim_world *world, const struct sim_event *event)
{
    struct sim_host *host = &world->hosts[event->a];
    if (host->alive) {
        host->threads[event->b].owners_given_up |= 1u << event->c;
        sim_thread_wake(&host->threads[event->b], 0);
    }
}

static void handle_fault(struct sim_world *world, const struct sim_event *event)
{
    switch (event->kind) {
    case SIM_EVENT_CUT:
        sim_fault_cut(world, event->a, event->b);
        break;
    case SIM_EVENT_MEND:
        sim_fault_mend(world, event->a, event->b);
        break;
    case SIM_EVENT_FREEZE:
        sim_fault_freeze(world, event->a, event->b);
        break;
    case SIM_EVENT_CRASH:
        sim_fault_crash(world, event->a, event->b, event->c);
        break;
    case SIM_EVENT_START:
        sim_fault_start(world, event->a, event->b, event->c);
        break;
    case SIM_EVENT_ROGUE:
        sim_rogue_turn(world, event->a, event->b, event->c);
        break;
    case SIM_EVENT_TRAP:
        sim_fault_arm(world, event->a);
        break;
    case SIM_EVENT_SPRING:
        sim_fault_spring(world, event->a);
        break;
    case SIM_EVENT_HEAL:
        sim_fault_heal(world);
        break;
    case SIM_EVENT_LIMIT:
        sim_limit_check(world, event->a);
        break;
    case SIM_EVENT_OVERDUE:
        sim_final_overdue(world);
        break;
    case SIM_EVENT_SETTLED:
        sim_final_settled(world);
        break;
    default:
        sim_final_stop(world);
        break;
    }
}

static void handle(struct sim_world *world, const struct sim_event *event)
{
    struct sim_host *hosts = world->hosts;
    switch (event->kind) {
    case SIM_EVENT_TURN:
        sim_thread_turn(&hosts[event->a].threads[event->b], event->c);
        break;
    case SIM_EVENT_PUTS:
        sim_link_puts(&world->links[event->a], event->b, event->c);
        break;
    case SIM_EVENT_DRAIN:
        sim_link_drain(&world->links[event->a], event->b, event->c);
        break;
    case SIM_EVENT_SHOW:
        sim_link_show(&world->links[event->a], event->b, event->c);
        break;
    case SIM_EVENT_FENCE:
        sim_link_fence(&world->links[event->a], event->b & 0xff, event->b >> 8, event->c);
        break;
    case SIM_EVENT_DMA:
        sim_link_dma(&world->links[event->a], event->b, event->c);
        break;
    case SIM_EVENT_DMA_SHOW:
        sim_link_dma_show(&world->links[event->a], event->b, event->c);
        break;
    case SIM_EVENT_BELL:
        sim_link_bell(&world->links[event->a], event->b & 0xff, event->b >> 8, event->c);
        break;
    case SIM_EVENT_NOTICE:
        sim_link_notice(&world->links[event->a], event->b, event->c != 0);
        break;
    case SIM_EVENT_CHIP:
        world->chips->event(&world->links[event->a], event->b, event->c);
        break;
    case SIM_EVENT_AUDIT:
        sim_thread_audit(&hosts[event->a].threads[event->b]);
        break;
    case SIM_EVENT_WORK:
        work_wanted(world, event);
        break;
    case SIM_EVENT_RESUME:
        resume_wanted(world, event);
        break;
    case SIM_EVENT_CANCEL:
        cancel_wanted(world, event);
        break;
    case SIM_EVENT_REMOVE:
        if (hosts[event->a].alive) {
            hosts[event->a].removal_wanted = true;
            sim_thread_wake(&hosts[event->a].threads[0], 0);
        }
        break;
    case SIM_EVENT_GUEST:
        world->guest->ops->event(world->guest, event);
        break;
    case SIM_EVENT_BARRIER:
        sim_barrier_wanted(world, event->a, event->b);
        break;
    default:
        handle_fault(world, event);
        break;
    }
}

/* --- the run --------------------------------------------------------------------------------- */

/* Ids below hosts_max, in no order: an id is no index. */
static void make_hosts(struct sim_world *world)
{
    uint16_t ids[VIA_HOSTS_MAX];
    uint32_t max = world->config.node.hosts_max;
    memset(world->host_by_id, 0xff, sizeof(world->host_by_id));
    for (uint32_t i = 0; i < max; i++) {
        ids[i] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        uint32_t j = sim_between(&world->rng_fault, i, max - 1);
        uint16_t id = ids[j];
        ids[j] = ids[i];
        sim_host_init(world, i, id);
    }
}

static struct sim_world *world_new(const struct sim_config *config, int plant, FILE *trace)
{
    struct sim_world *world = sim_alloc(sizeof(*world));
    world->config = *config;
    world->plant = plant;
    world->trace = trace;
    world->digest = VIA_HASH64_INIT;
    world->hosts_count = config->hosts_count;
    world->chips = sim_chips[config->like];
    /* A stream each, so that more draws of one do not change the others. */
    via_rng_init(&world->rng_port, config->seed ^ UINT64_C(0x706f7274));
    via_rng_init(&world->rng_cpu, config->seed ^ UINT64_C(0x637075));
    via_rng_init(&world->rng_work, config->seed ^ UINT64_C(0x776f726b));
    via_rng_init(&world->rng_fault, config->seed ^ UINT64_C(0x6661756c74));
    via_rng_init(&world->rng_dma, config->seed ^ UINT64_C(0x656e67696e65));
    via_rng_init(&world->rng_wait, config->seed ^ UINT64_C(0x77616974));
    sim_clock_init(&world->clock);
    make_hosts(world);
    sim_topology_build(world);
    sim_work_init(world);
    return world;
}

static void world_start(struct sim_world *world)
{
    struct via_node_config config = world->config.node;
    config.session = 1;
    for (uint32_t i = 0; i < world->links_count; i++) {
        config.ports_count = 1;
        sim_link_open(world, &world->links[i], via_node_inbox_bytes(&config));
    }
    sim_trace_world(world);
    sim_fault_plan(world);
    sim_final_plan(world);
    sim_work_plan(world);
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        sim_host_start(&world->hosts[i]);
    }
    sim_barrier_plan(world);
    if (world->guest != NULL) {
        world->guest->ops->begin(world->guest, world);
    }
}

static void world_run(struct sim_world *world)
{
    struct sim_event event;
    uint64_t events_max = via_max(EVENTS_MAX, world->links_count * EVENTS_OF_LINK_MAX);
    while (!world->failed && !world->over && sim_clock_take(&world->clock, &event)) {
        sim_mark(world, SIM_MARK_EVENT, (uint64_t)event.kind << 32 | event.a,
                 (uint64_t)event.b << 32 | event.c);
        handle(world, &event);
        if (world->clock.taken_count > events_max) {
            sim_fail(world, "no end after %llu events", (unsigned long long)events_max);
        }
    }
    if (!world->failed && !world->over) {
        sim_fail(world, "no event is left, but the run has not ended");
    }
}

static void world_free(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        sim_host_fini(&world->hosts[i]);
    }
    for (uint32_t i = 0; i < world->links_count; i++) {
        sim_link_fini(&world->links[i]);
    }
    sim_work_fini(world);
    sim_clock_fini(&world->clock);
}

void sim_world_run(const struct sim_config *config, int plant, FILE *trace, struct sim_guest *guest,
                   struct sim_result *ret_result)
{
    sim_plant_apply(plant);
    struct sim_world *world = world_new(config, plant, trace);
    world->guest = guest;
    world_start(world);
    *ret_result = (struct sim_result){
        /* For checks of the remains of a crashed process. */
        .faults_planned = world->faults_planned,
        .work_bursts = world->work_bursts,
    };
    world_run(world);
    uint64_t now = world->clock.now_ns;
    if (guest != NULL) {
        guest->ops->end(guest);
        world->guest = NULL; /* its operations end with the hosts */
    }
    world_free(world);
    *ret_result = (struct sim_result){
        .failed = world->failed,
        .digest = world->digest,
        .events = world->clock.taken_count,
        .virtual_ns = now,
        .drain_ns = world->done ? world->done_ns - world->heal_ns : 0,
        .faults_planned = world->faults_planned,
        .work_bursts = world->work_bursts,
        .counts = world->counts,
    };
    memcpy(ret_result->failure, world->failure, sizeof(ret_result->failure));
    free(world);
}
