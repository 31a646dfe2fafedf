/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Faults: planned at the start, so that the history of faults does not depend on their effects. */
#include "core/way.h"
#include "sim/world.h"

/* Short times are as frequent as long ones: each power of two has the same share. */
static uint32_t duration(struct sim_world *world, uint32_t min, uint32_t max)
{
    uint32_t top = max;
    while (top / 2 > min && via_rng_chance(&world->rng_fault, 1, 2)) {
        top /= 2;
    }
    return sim_between(&world->rng_fault, min, via_max(min, top));
}

static uint64_t some_time(struct sim_world *world)
{
    return via_rng_below(&world->rng_fault, world->config.active_ns);
}

/* A fault that waits for traffic happens at most this long after its time. */
#define TRAP_NS (10 * VIA_MSEC_NS)

static void plan(struct sim_world *world, uint64_t at, const struct sim_event *fault,
                 uint64_t lasts_ns)
{
    bool wait = via_rng_chance(&world->rng_fault, 2, 3) && world->traps_count < SIM_TRAPS_MAX;
    bool happens = sim_mask_is_kept(&world->config.faults_mask, world->faults_planned++);
    world->faults_kept += happens;
    if (!wait && happens) {
        sim_clock_at(&world->clock, at, fault->kind, fault->a, fault->b, fault->c);
    } else if (wait) {
        bool is_cut = fault->kind == SIM_EVENT_CUT;
        world->traps[world->traps_count] = (struct sim_trap){
            .link = is_cut ? fault->a : UINT32_MAX,
            .host = is_cut ? UINT32_MAX : fault->a,
            .at_ns = at,
            .countdown = duration(world, 1, 100),
            .fault = *fault,
        };
        if (happens) {
            sim_clock_at(&world->clock, at, SIM_EVENT_TRAP, world->traps_count, 0, 0);
        }
        world->traps_count++;
        lasts_ns += TRAP_NS;
    }
    world->heal_ns = via_max(world->heal_ns, at + lasts_ns + VIA_MSEC_NS);
}

/* A single cut, or the beginning of a series of flaps. */
static void plan_cut(struct sim_world *world)
{
    uint64_t at = some_time(world);
    struct sim_event fault = {.kind = SIM_EVENT_CUT};
    fault.a = sim_between(&world->rng_fault, 0, world->links_count - 1);
    uint32_t times = via_rng_chance(&world->rng_fault, 1, 4) ? 4 : 1;
    for (; times > 0; times--) {
        fault.b = duration(world, 1000, world->config.faults.cut_ns_max);
        plan(world, at, &fault, fault.b);
        at += fault.b + duration(world, 1000, 20 * 1000 * 1000);
    }
}

static void plan_freeze(struct sim_world *world)
{
    struct sim_event fault = {.kind = SIM_EVENT_FREEZE};
    fault.a = sim_between(&world->rng_fault, 0, world->hosts_count - 1);
    fault.b = duration(world, 100, world->config.faults.freeze_ns_max / 1000);
    plan(world, some_time(world), &fault, fault.b * VIA_USEC_NS);
}

static void plan_crash(struct sim_world *world)
{
    struct sim_event fault = {.kind = SIM_EVENT_CRASH};
    fault.a = sim_between(&world->rng_fault, 0, world->hosts_count - 1);
    fault.b = sim_between(&world->rng_fault, 0, 7);
    fault.c = duration(world, 10, world->config.faults.restart_ns_max / 1000);
    uint64_t at = some_time(world);
    plan(world, at, &fault, fault.c * VIA_USEC_NS);
    /* Some hosts do not notice the cut in time: they are cut off themselves, or asleep. */
    while (via_rng_chance(&world->rng_fault, 1, 2)) {
        struct sim_event other = {.kind = SIM_EVENT_CUT};
        uint64_t also_at = at + via_rng_below(&world->rng_fault, fault.c * VIA_USEC_NS + 1);
        other.a = sim_between(&world->rng_fault, 0, world->links_count - 1);
        other.b = duration(world, 1000, via_max(world->config.faults.cut_ns_max, 1000u));
        if (via_rng_chance(&world->rng_fault, 1, 4)) {
            other.kind = SIM_EVENT_FREEZE;
            other.a = sim_between(&world->rng_fault, 0, world->hosts_count - 1);
            other.b = duration(world, 100, 2 * fault.c + 100);
        }
        plan(world, also_at, &other, other.kind == SIM_EVENT_CUT ? other.b : other.b * VIA_USEC_NS);
    }
}

static void plan_rogue(struct sim_world *world)
{
    struct sim_event fault = {.kind = SIM_EVENT_CRASH};
    fault.a = sim_between(&world->rng_fault, 0, world->hosts_count - 1);
    fault.b =
        SIM_CRASH_ROGUE | (via_rng_chance(&world->rng_fault, 1, 2) ? SIM_CRASH_KEEP_MEMORY : 0);
    fault.c = duration(world, 10, world->config.faults.rogue_ns_max / 1000);
    plan(world, some_time(world), &fault, fault.c * VIA_USEC_NS);
}

void sim_fault_plan(struct sim_world *world)
{
    const struct sim_config_faults *faults = &world->config.faults;
    world->heal_ns = world->config.active_ns;
    for (uint32_t i = 0; i < faults->cuts_count; i++) {
        plan_cut(world);
    }
    for (uint32_t i = 0; i < faults->freezes_count; i++) {
        plan_freeze(world);
    }
    for (uint32_t i = 0; i < faults->crashes_count; i++) {
        plan_crash(world);
    }
    for (uint32_t i = 0; i < faults->rogues_count; i++) {
        plan_rogue(world);
    }
    sim_clock_at(&world->clock, world->heal_ns, SIM_EVENT_HEAL, 0, 0, 0);
}

void sim_fault_cut(struct sim_world *world, uint32_t index, uint32_t down_ns)
{
    struct sim_link *link = &world->links[index];
    if (world->healed || !link->up) {
        return;
    }
    world->counts.cuts++;
    sim_trace(world, "link %u (%u.%u - %u.%u) is cut for %u ns", index, link->end[0].host,
              link->end[0].index, link->end[1].host, link->end[1].index, down_ns);
    sim_link_set(link, false);
    sim_clock_after(&world->clock, down_ns, SIM_EVENT_MEND, index, link->era, 0);
}

void sim_fault_mend(struct sim_world *world, uint32_t index, uint32_t era)
{
    struct sim_link *link = &world->links[index];
    if (link->up || link->era != era) {
        return;
    }
    sim_trace(world, "link %u is mended", index);
    sim_link_set(link, true);
}

void sim_fault_freeze(struct sim_world *world, uint32_t index, uint32_t us)
{
    struct sim_host *host = &world->hosts[index];
    if (world->healed || !host->alive) {
        return;
    }
    world->counts.freezes++;
    sim_trace(world, "host %u freezes for %u us", index, us);
    host->thaw_ns = via_max(host->thaw_ns, world->clock.now_ns + us * VIA_USEC_NS);
}

/* Frames of other hosts that wait in the host. */
static uint32_t frames_aboard(const struct sim_host *host)
{
    uint32_t frames = 0;
    for (uint32_t k = 0; k < host->world->config.node.channels_count; k++) {
        for (uint32_t p = 0; p < host->ports_count; p++) {
            frames += host->node->channels[k].ways[p].bypass_used;
        }
    }
    return frames;
}

void sim_fault_crash(struct sim_world *world, uint32_t index, uint32_t how, uint32_t restart_us)
{
    struct sim_host *host = &world->hosts[index];
    if (world->healed || !host->alive) {
        return;
    }
    world->counts.crashes++;
    uint32_t aboard = frames_aboard(host);
    world->counts.aboard += aboard;
    sim_trace(world, "host %u crashes for %u us, links %s, %u frames aboard", index, restart_us,
              how & SIM_CRASH_LINKS_FALL ? "fall" : "stay up", aboard);
    if (how & SIM_CRASH_BY_FINI) {
        sim_host_stop(host);
    }
    sim_host_crash(host);
    for (uint32_t i = 0; i < host->ports_count; i++) {
        if (how & SIM_CRASH_LINKS_FALL) {
            sim_link_set(host->ports[i]->link, false);
        }
    }
    if (how & SIM_CRASH_ROGUE) {
        sim_rogue_begin(world, index, restart_us);
    }
    sim_clock_after(&world->clock, restart_us * VIA_USEC_NS, SIM_EVENT_START, index, how,
                    host->life.number);
    sim_final_progress(world);
}

void sim_fault_start(struct sim_world *world, uint32_t index, uint32_t how, uint32_t life)
{
    struct sim_host *host = &world->hosts[index];
    if (host->alive || host->life.number != life) {
        return;
    }
    for (uint32_t i = 0; i < host->ports_count; i++) {
        struct sim_end *end = host->ports[i];
        sim_link_reopen(end, (how & SIM_CRASH_KEEP_MEMORY) != 0);
        if (how & SIM_CRASH_LINKS_FALL && !end->link->up) {
            sim_link_set(end->link, true);
        }
    }
    sim_host_start(host);
}

void sim_fault_arm(struct sim_world *world, uint32_t index)
{
    world->traps[index].armed = true;
    world->traps_armed++;
    sim_clock_after(&world->clock, TRAP_NS, SIM_EVENT_SPRING, index, 0, 0);
}

void sim_fault_traffic(struct sim_world *world, uint32_t link, uint32_t host)
{
    for (uint32_t i = 0; i < world->traps_count; i++) {
        struct sim_trap *trap = &world->traps[i];
        bool hit = trap->armed && (trap->link == link || trap->host == host);
        if (hit && --trap->countdown == 0) {
            sim_clock_after(&world->clock, via_rng_below(&world->rng_fault, 3000), SIM_EVENT_SPRING,
                            i, 0, 0);
        }
    }
}

void sim_fault_spring(struct sim_world *world, uint32_t index)
{
    struct sim_trap *trap = &world->traps[index];
    const struct sim_event *fault = &trap->fault;
    if (!trap->armed) {
        return;
    }
    trap->armed = false;
    world->traps_armed--;
    if (fault->kind == SIM_EVENT_CUT) {
        sim_fault_cut(world, fault->a, fault->b);
    } else if (fault->kind == SIM_EVENT_FREEZE) {
        sim_fault_freeze(world, fault->a, fault->b);
    } else {
        sim_fault_crash(world, fault->a, fault->b, fault->c);
    }
}

void sim_fault_heal(struct sim_world *world)
{
    sim_trace(world, "no more faults");
    world->healed = true;
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        struct sim_host *host = &world->hosts[i];
        host->thaw_ns = 0;
        if (!host->alive) {
            sim_fault_start(world, i, 0, host->life.number);
        }
    }
    for (uint32_t i = 0; i < world->links_count; i++) {
        sim_link_set(&world->links[i], true);
    }
    sim_final_progress(world);
}
