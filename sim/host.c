/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Hosts: a node each, and the transfer threads that run it as those of src/host do. */
#include <stdlib.h>
#include <string.h>

#include "sim/engine.h"
#include "sim/memory.h"
#include "sim/world.h"

/* Limit of turns in a row that do nothing, but whose arming forbids to sleep: an endless loop. */
#define IDLE_TURNS_MAX 2000u
/* A thread that polls does so at least this often. */
#define POLL_NS (5 * VIA_USEC_NS)

uint64_t sim_host_now(const struct sim_host *host)
{
    return host->world->clock.now_ns + host->clock_offset_ns;
}

static bool is_frozen(const struct sim_host *host)
{
    return host->thaw_ns > host->world->clock.now_ns;
}

/* --- callbacks of the node ------------------------------------------------------------------- */

static bool is_callback_allowed(struct sim_host *host, unsigned channel)
{
    struct sim_thread *current = host->world->current;
    if (host->ended) {
        sim_fail(host->world, "host %u: a callback after fini", host->index);
        return false;
    }
    if (host->ending) {
        return true;
    }
    if (current == NULL || current->host != host || current->channel != channel) {
        sim_fail(host->world, "host %u: a callback for channel %u outside of its thread",
                 host->index, channel);
        return false;
    }
    return true;
}

static int on_deliver(void *ctx, const struct via_delivery *delivery)
{
    struct sim_host *host = ctx;
    if (!is_callback_allowed(host, delivery->channel)) {
        return 0;
    }
    struct sim_world *world = host->world;
    if (world->plant == SIM_PLANT_LOST_DELIVERY && via_rng_chance(&world->rng_work, 1, 50)) {
        return 0;
    }
    int rc = sim_check_deliver(host, delivery);
    if (world->plant == SIM_PLANT_TWICE_DELIVERY && rc == 0 &&
        via_rng_chance(&world->rng_work, 1, 50)) {
        rc = sim_check_deliver(host, delivery);
    }
    return rc;
}

static void on_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct sim_host *host = ctx;
    if (!is_callback_allowed(host, channel)) {
        return;
    }
    struct sim_thread *thread = &host->threads[channel];
    if (thread->in_submit) {
        sim_fail(host->world, "host %u: a completion from within submit", host->index);
        return;
    }
    thread->completed = true;
    if (host->world->plant == SIM_PLANT_LOST_COMPLETE &&
        via_rng_chance(&host->world->rng_work, 1, 200)) {
        return;
    }
    struct sim_guest *guest = host->world->guest;
    if ((cookie & SIM_GUEST_COOKIE) != 0) {
        if (guest != NULL) {
            guest->ops->complete(guest, host, channel, cookie, status, value);
        }
        return;
    }
    sim_check_complete(host, channel, cookie, status, value);
}

static void on_notify(void *ctx, unsigned channel, uint64_t handle)
{
    struct sim_host *host = ctx;
    if (is_callback_allowed(host, channel)) {
        sim_check_notify(host, handle);
    }
}

static void on_wake(void *ctx, unsigned channel)
{
    struct sim_host *host = ctx;
    if (host->ended) {
        sim_fail(host->world, "host %u: a callback after fini", host->index);
    } else if (channel >= host->world->config.node.channels_count) {
        sim_fail(host->world, "host %u: wakes channel %u", host->index, channel);
    } else {
        sim_thread_interrupt(&host->threads[channel]);
    }
}

static void on_trace(void *ctx, const char *text)
{
    struct sim_host *host = ctx;
    sim_trace(host->world, "  host %u: %s", host->index, text);
}

/* --- threads --------------------------------------------------------------------------------- */

/* When its turn is over, if it has waited in the port. On a bus such waits are short, and count
 * only before a turn that follows at once. */
static uint64_t over_ns(const struct sim_thread *thread)
{
    const struct sim_world *world = thread->host->world;
    if (!thread->running) {
        return thread->busy_until_ns;
    }
    return world->clock.now_ns + (world->config.like == SIM_LIKE_OFI ? thread->spent_ns : 0);
}

static void schedule(struct sim_thread *thread, uint64_t at)
{
    at = via_max(at, over_ns(thread));
    thread->turn_ns = at;
    thread->ticket++;
    sim_clock_at(&thread->host->world->clock, at, SIM_EVENT_TURN, thread->host->index,
                 thread->channel, thread->ticket);
}

void sim_thread_wake(struct sim_thread *thread, uint64_t delay_ns)
{
    uint64_t at = thread->host->world->clock.now_ns + delay_ns;
    if (thread->running) {
        thread->again = true;
    } else if (thread->host->alive && thread->turn_ns > at) {
        schedule(thread, at);
    }
}

void sim_thread_interrupt(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    const struct sim_config_cpu *cpu = &world->config.cpu;
    thread->interrupted = true;
    thread->rings++;
    sim_thread_wake(thread, sim_between(&world->rng_cpu, cpu->wake_ns_min, cpu->wake_ns_max));
}

static void run_again(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    const struct sim_config_cpu *cpu = &world->config.cpu;
    uint64_t cost =
        sim_between(&world->rng_cpu, cpu->turn_ns_min, cpu->turn_ns_max) + thread->spent_ns;
    if (!world->healed && via_rng_chance(&world->rng_cpu, cpu->stall_chance, 1000)) {
        cost += sim_between(&world->rng_cpu, 0, cpu->stall_ns_max);
    }
    schedule(thread, world->clock.now_ns + cost);
}

/* True if other threads need the CPU: the seed draws how often. */
static bool is_crowded(void *ctx)
{
    const struct sim_thread *thread = ctx;
    struct sim_world *world = thread->host->world;
    uint32_t chance = world->config.cpu.crowded_chance;
    return chance == 1000 || (chance != 0 && via_rng_chance(&world->rng_wait, chance, 1000));
}

static void sleep_until(struct sim_thread *thread, uint64_t deadline_ns)
{
    struct sim_world *world = thread->host->world;
    uint64_t now = sim_host_now(thread->host);
    uint64_t longest = world->config.cpu.insurance_ns;
    thread->asleep = true;
    thread->interrupted = false;
    if (longest != 0 && deadline_ns - now > longest) {
        deadline_ns = now + longest;
    }
    if (deadline_ns == VIA_NEVER_NS) {
        thread->turn_ns = VIA_NEVER_NS;
        thread->ticket++;
    } else {
        schedule(thread, world->clock.now_ns + (deadline_ns - now) + world->config.cpu.wake_ns_min);
    }
}

/* Schedules another poll. Most turns until then would find nothing, and only take time. */
static void poll_again(struct sim_thread *thread, uint64_t at_ns)
{
    struct sim_world *world = thread->host->world;
    uint64_t cost =
        sim_between(&world->rng_cpu, world->config.cpu.turn_ns_min, world->config.cpu.turn_ns_max);
    uint64_t soon_ns = world->clock.now_ns + cost;
    bool poll_on = via_rng_chance(&world->rng_cpu, 1, 8);
    schedule(thread, poll_on ? soon_ns : via_max(soon_ns, at_ns));
}

/* The time before which most polls for the end of a fence would find nothing. */
static uint64_t fence_poll_ns(const struct sim_thread *thread)
{
    const struct sim_world *world = thread->host->world;
    return world->config.like == SIM_LIKE_OFI ? world->clock.now_ns + world->config.port.put_ns_min
                                              : sim_fence_ends_ns(thread);
}

/* A bell that has rung in the turn is part of its work. */
static bool arm(void *ctx, enum via_arm *ret_armed)
{
    struct sim_thread *thread = ctx;
    struct sim_guest *guest = thread->host->world->guest;
    bool found = guest != NULL && guest->ops->arm(guest, thread);
    *ret_armed = via_node_arm(thread->host->node, thread->channel);
    *ret_armed = found ? VIA_ARM_BUSY : *ret_armed;
    thread->fencing = *ret_armed == VIA_ARM_FENCING;
    return true;
}

/* Woken while it armed: its descriptor is readable, and its sleep ends at once. */
static void sleep_woken(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    const struct sim_config_cpu *cpu = &world->config.cpu;
    thread->interrupted = true;
    schedule(thread, world->clock.now_ns +
                         sim_between(&world->rng_cpu, cpu->wake_ns_min, cpu->wake_ns_max));
}

static void act(void *ctx, enum via_host_wait_step step, uint64_t now, uint64_t deadline_ns)
{
    struct sim_thread *thread = ctx;
    struct sim_host *host = thread->host;
    if (thread->fencing) {
        /* The simulator does not know when a driver's fence ends: turns poll for it. */
        bool known = fence_poll_ns(thread) != VIA_NEVER_NS;
        step = known ? VIA_HOST_WAIT_FENCE : VIA_HOST_WAIT_TURN;
    }
    bool is_idle = thread->wait.idle && step != VIA_HOST_WAIT_SLEEP;
    thread->idle_turns = is_idle ? thread->idle_turns : 0;
    switch (step) {
    case VIA_HOST_WAIT_FENCE:
        poll_again(thread, fence_poll_ns(thread));
        break;
    case VIA_HOST_WAIT_TURN:
    case VIA_HOST_WAIT_ARM:
        thread->idle_turns += is_idle ? 1 : 0;
        run_again(thread);
        break;
    case VIA_HOST_WAIT_POLL:
        poll_again(thread, host->world->clock.now_ns +
                               (via_min(thread->wait.poll_until_ns, now + POLL_NS) - now));
        break;
    case VIA_HOST_WAIT_WAKE_CONTROL:
    case VIA_HOST_WAIT_SLEEP:
        thread->wakes_control = step == VIA_HOST_WAIT_WAKE_CONTROL;
        thread->idle_turns += thread->wakes_control ? 1 : 0;
        if (thread->wakes_control && thread->channel != 0) {
            sim_thread_interrupt(&host->threads[0]);
        }
        sleep_until(thread, deadline_ns);
        if (thread->again) {
            sleep_woken(thread);
        }
        break;
    }
}

/* The life of each host that the thread has dealt with: the control side may be ahead of it. */
static void note_sessions(struct sim_thread *thread)
{
    const struct sim_world *world = thread->host->world;
    for (uint32_t i = 0; i < world->hosts_count && world->counts.crashes != 0; i++) {
        struct via_route_status route;
        if (via_node_route_status(thread->host->node, world->hosts[i].id, &route) == 0) {
            thread->sessions[i] = route.session;
        }
    }
}

bool sim_thread_has_seen(const struct sim_thread *thread, uint32_t host)
{
    const struct sim_life *life = &thread->host->world->hosts[host].life;
    return life->number <= 1 || thread->sessions[host] == life->session;
}

/* The work of a host's control thread for drivers. */
static void service_chips(struct sim_host *host, uint64_t now, uint64_t *deadline_ns)
{
    for (uint32_t i = 0; i < host->ports_count; i++) {
        if (host->ports[i]->link->has_chip) {
            (void)host->world->chips->service(host->ports[i], now, deadline_ns);
        }
    }
}

static unsigned run_turn(void *ctx, uint64_t now, uint64_t *deadline_ns)
{
    struct sim_thread *thread = ctx;
    struct sim_host *host = thread->host;
    uint64_t control_ns = VIA_NEVER_NS;
    if (thread->channel == 0) {
        service_chips(host, now, deadline_ns);
        via_node_control(host->node, now, &control_ns);
        sim_check_announced(host);
    }
    if (thread->channel == 0 && host->removal_wanted) {
        host->removal_wanted = sim_region_draft_remove(host);
        thread->again = host->removal_wanted;
    }
    sim_work_turn(thread);
    struct sim_guest *guest = host->world->guest;
    unsigned done = guest != NULL ? guest->ops->turn(guest, thread) : 0;
    uint64_t poll_ns = VIA_NEVER_NS;
    done += via_node_poll(host->node, thread->channel, now, &poll_ns);
    done += guest != NULL ? guest->ops->turn_over(guest, thread) : 0;
    sim_mark(host->world, SIM_MARK_TURN, (uint64_t)host->index << 8 | thread->channel, done);
    note_sessions(thread);
    sim_region_watch(host);
    *deadline_ns = via_min(*deadline_ns, via_min(control_ns, poll_ns));
    bool wants = thread->held != NULL || thread->work_wanted != 0 || thread->barriers_wanted != 0;
    done += thread->again || (wants && thread->completed);
    thread->again = false;
    return done;
}

void sim_thread_turn(struct sim_thread *thread, uint32_t ticket)
{
    static const struct via_host_wait_ops ops = {.turn = run_turn, .arm = arm, .act = act};
    struct sim_host *host = thread->host;
    struct sim_world *world = host->world;
    if (ticket != thread->ticket || !host->alive) {
        return;
    }
    if (is_frozen(host)) {
        schedule(thread, host->thaw_ns);
        return;
    }
    thread->ran_ns = world->clock.now_ns;
    if (thread->asleep) {
        via_host_wait_slept(&thread->wait, sim_host_now(host));
    }
    thread->asleep = false;
    thread->wakes_control = false;
    thread->interrupted = false;
    thread->running = true;
    thread->again = false;
    thread->completed = false;
    thread->fencing = false;
    thread->spent_ns = 0;
    thread->turn_ns = VIA_NEVER_NS;
    world->counts.turns++;
    world->current = thread;
    via_host_wait_turn(&thread->wait, sim_host_now(host), &ops, thread);
    sim_trace_turn(host);
    world->current = NULL;
    thread->busy_until_ns = over_ns(thread);
    thread->running = false;
    if (thread->idle_turns > IDLE_TURNS_MAX) {
        sim_fail(world, "host %u thread %u: %u turns with nothing done and no sleep", host->index,
                 thread->channel, thread->idle_turns);
    }
    /* Stores through mapped windows are visible at once, so the neighbours may have work without a
     * doorbell: check that none of them sleeps on it. */
    for (uint32_t i = 0; i < host->ports_count; i++) {
        struct sim_end *end = host->ports[i];
        if (end->link->direct && end->link->up) {
            sim_thread_audit_soon(&world->hosts[end->peer->host].threads[thread->channel]);
        }
    }
}

/* --- lost wake-ups --------------------------------------------------------------------------- */

void sim_thread_audit_soon(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    /* Where doorbells get lost, a thread that sleeps on is not an error of the node. */
    if (thread->audit_due || !thread->asleep || world->config.port.bell_drop_chance != 0) {
        return;
    }
    thread->audit_due = true;
    sim_clock_after(&world->clock, 1, SIM_EVENT_AUDIT, thread->host->index, thread->channel, 0);
}

static bool bell_is_coming(const struct sim_thread *thread)
{
    const struct sim_host *host = thread->host;
    for (uint32_t i = 0; i < host->ports_count; i++) {
        const uint32_t *coming = host->ports[i]->bells_coming;
        if (host->ports[i]->link->has_chip && host->world->chips->is_ringing(host->ports[i])) {
            return true;
        }
        if (coming[thread->channel] != 0) {
            return true;
        }
        if (thread->channel == 0 && (coming[VIA_PORT_DOORBELL_BARRIER_START] != 0 ||
                                     coming[VIA_PORT_DOORBELL_BARRIER_END] != 0)) {
            return true;
        }
    }
    return false;
}

/* Doorbells get lost with their link. The control thread wakes the others when it notices that the
 * link is down. */
static bool is_link_loss_unseen(const struct sim_host *host)
{
    return host->notices_coming != 0 ||
           (host->noticed_ns != 0 && host->noticed_ns >= host->threads[0].ran_ns);
}

/*
 * A thread that sleeps, with no doorbell on its way to it, must have nothing to do: otherwise it
 * sleeps until its deadline, which on real hosts is a long time. Arming once more tells whether it
 * has.
 */
void sim_thread_audit(struct sim_thread *thread)
{
    struct sim_host *host = thread->host;
    struct sim_world *world = host->world;
    thread->audit_due = false;
    if (!host->alive || is_frozen(host) || !thread->asleep || thread->interrupted ||
        thread->wakes_control || bell_is_coming(thread) || is_link_loss_unseen(host) ||
        thread->turn_ns <= world->clock.now_ns) {
        return;
    }
    world->counts.audits++;
    world->current = thread;
    world->auditing = true;
    bool busy = via_node_arm(host->node, thread->channel) == VIA_ARM_BUSY;
    world->auditing = false;
    world->current = NULL;
    if (busy) {
        sim_fail(world,
                 "host %u thread %u: sleeps with work to do and no doorbell coming "
                 "(lost wake-up)",
                 host->index, thread->channel);
    }
}

/* --- lives ----------------------------------------------------------------------------------- */

void sim_host_init(struct sim_world *world, uint32_t index, uint16_t id)
{
    struct sim_host *host = &world->hosts[index];
    host->world = world;
    host->index = index;
    host->id = id;
    world->host_by_id[id] = index;
    via_list_init(&host->watched);
    for (uint32_t k = 0; k < VIA_CHANNELS_MAX; k++) {
        struct sim_thread *thread = &host->threads[k];
        thread->host = host;
        thread->channel = (uint8_t)k;
        thread->turn_ns = VIA_NEVER_NS;
        via_list_init(&thread->resumes);
    }
}

static void node_new(struct sim_host *host)
{
    struct sim_world *world = host->world;
    struct via_node_config config = world->config.node;
    config.host = host->id;
    config.session = host->life.session;
    config.ports_count = (uint16_t)host->ports_count;
    config.ports = host->port_configs;
    for (uint32_t i = 0; i < host->ports_count; i++) {
        host->port_configs[i].dma_bytes_min = world->config.dma.bytes_min;
    }
    /* Clocks of hosts differ, but none goes backwards. */
    config.born = (uint64_t)host->id * VIA_SEC_NS + world->clock.now_ns + host->life.number;
    host->life.born = config.born;
    if (host->life.number > 1) {
        /* From the session, as on real hosts: a life that began with the epochs of the previous one
         * could not recognise writes that were posted for that one. */
        config.epoch_first = 0;
    }
    const struct via_node_env env = {
        .ctx = host,
        .deliver = on_deliver,
        .complete = on_complete,
        .notify = on_notify,
        .wake = on_wake,
        .trace = world->trace != NULL ? on_trace : NULL,
    };
    size_t bytes = via_node_bytes(&config);
    host->memory = sim_alloc_lines(bytes);
    int rc = bytes == 0 ? -1 : via_node_init(&host->node, host->memory, &config, &env);
    if (rc != 0) {
        host->node = NULL;
        sim_fail(world, "host %u: via_node_init: %d (%zu bytes)", host->index, rc, bytes);
        return;
    }
    for (uint32_t i = 0; i < host->ports_count; i++) {
        struct sim_end *end = host->ports[i];
        rc =
            end->link->has_chip ? host->world->chips->memory_register(end, host->memory, bytes) : 0;
        if (rc != 0) {
            sim_fail(world, "host %u: memory of the node for port %u: %d", host->index, i, rc);
        }
        rc = via_node_port_set(host->node, i, &end->port);
        if (rc != 0) {
            sim_fail(world, "host %u: via_node_port_set %u: %d", host->index, i, rc);
        }
    }
}

void sim_host_start(struct sim_host *host)
{
    struct sim_world *world = host->world;
    host->alive = true;
    host->ended = false;
    host->removal_wanted = false;
    host->thaw_ns = 0;
    host->clock_offset_ns = via_rng_between(&world->rng_cpu, 1, 1000 * VIA_SEC_NS);
    host->life.number++;
    host->life.start_ns = world->clock.now_ns;
    host->life.session = sim_between(&world->rng_work, 1, UINT32_MAX);
    memset(host->announced, 0, sizeof(host->announced));
    world->current = &host->threads[0];
    node_new(host);
    if (host->node != NULL) {
        sim_region_begin_life(host);
    }
    world->current = NULL;
    sim_trace(world, "host %u (id %u) starts its life %u, session %#x", host->index, host->id,
              host->life.number, host->life.session);
    for (uint32_t k = 0; k < world->config.node.channels_count; k++) {
        via_host_wait_init(&host->threads[k].wait, world->config.cpu.spin_ns_max, is_crowded,
                           &host->threads[k]);
        sim_thread_wake(&host->threads[k], sim_between(&world->rng_cpu, 0, 100000));
    }
}

static void forget_thread(struct sim_thread *thread)
{
    memset(thread->sessions, 0, sizeof(thread->sessions));
    thread->asleep = false;
    thread->wakes_control = false;
    thread->interrupted = false;
    thread->ticket++;
    thread->turn_ns = VIA_NEVER_NS;
    thread->busy_until_ns = 0;
    thread->idle_turns = 0;
    thread->work_wanted = 0;
    thread->owners_given_up = 0;
    thread->barriers_wanted = 0;
    thread->barriers_given_up = 0;
    if (thread->held != NULL) {
        sim_op_free_buffer(thread->held);
        thread->held = NULL;
    }
    for (;;) {
        struct via_list *member = via_list_pop_front(&thread->resumes);
        if (member == NULL) {
            break;
        }
        free(via_list_entry(member, struct sim_resume, member));
    }
}

static void forget_life(struct sim_host *host)
{
    for (uint32_t k = 0; k < VIA_CHANNELS_MAX; k++) {
        forget_thread(&host->threads[k]);
    }
    for (uint32_t i = 0; i < host->ports_count; i++) {
        sim_engine_drop(host->ports[i]); /* what the process had open is closed */
        if (host->ports[i]->link->has_chip) {
            host->world->chips->crashed(host->ports[i]);
        }
    }
    free(host->memory);
    host->memory = NULL;
    host->node = NULL;
    host->alive = false;
}

void sim_host_crash(struct sim_host *host)
{
    struct sim_world *world = host->world;
    forget_life(host);
    for (uint32_t i = 0; i < world->ops_count; i++) {
        struct sim_op *op = world->ops[i];
        if (op->state == SIM_OP_PENDING && op->source == host->index) {
            sim_check_orphan(world, op);
        }
    }
    sim_barrier_crashed(host);
    sim_region_life_fini(host);
    if (world->guest != NULL) {
        world->guest->ops->crashed(world->guest, host);
    }
}

/* All operations in progress must be reported cancelled by then, and no callback may follow. */
void sim_host_stop(struct sim_host *host)
{
    struct sim_world *world = host->world;
    for (uint32_t i = 0; i < world->ops_count; i++) {
        struct sim_op *op = world->ops[i];
        op->cancelled |= op->state == SIM_OP_PENDING && op->source == host->index;
    }
    host->ending = true;
    world->current = &host->threads[0];
    via_node_fini(host->node);
    world->current = NULL;
    host->ending = false;
    host->ended = true;
    for (uint32_t i = 0; i < world->ops_count; i++) {
        const struct sim_op *op = world->ops[i];
        if (op->state == SIM_OP_PENDING && op->source == host->index) {
            sim_fail(world, "%s: fini has not ended it", sim_op_name(op));
        }
    }
}

void sim_host_fini(struct sim_host *host)
{
    if (host->node != NULL) {
        sim_host_stop(host);
    }
    forget_life(host);
    sim_region_life_fini(host);
}
