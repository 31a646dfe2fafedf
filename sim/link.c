/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A link according to PCIe: posted writes of one queue arrive late but in order, bodies perhaps
 * early, and those of different queues in any order (posted.c); a fence waits for them; doorbells
 * are hints. When the link goes down, writes under way are lost, one of them in part, and the
 * registers lose their contents.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/layout.h"
#include "sim/engine.h"
#include "sim/memory.h"
#include "sim/posted.h"

static struct sim_end *end_of(struct via_port *port)
{
    return via_container_of(port, struct sim_end, port);
}

/* The queue must belong to the transfer thread whose turn it is. Thread 0 is the control thread,
 * too. */
struct sim_lane *sim_link_lane(struct sim_end *end, unsigned queue)
{
    const struct sim_thread *thread = end->world->current;
    if (thread == NULL || thread->host->index != end->host) {
        sim_fail(end->world, "host %u: its port is used outside of its turns", end->host);
        return &end->lanes[0];
    }
    if (queue != thread->channel && (queue != VIA_PORT_QUEUE_CONTROL || thread->channel != 0)) {
        sim_fail(end->world, "host %u: thread %u uses queue %u of port %u", end->host,
                 thread->channel, queue, end->index);
        return &end->lanes[0];
    }
    return &end->lanes[queue];
}

static uint32_t event_end(const struct sim_end *end)
{
    return (uint32_t)(end - end->link->end);
}

/* --- posted writes --------------------------------------------------------------------------- */

bool sim_link_put(struct sim_end *end, uint64_t off, const void *src, size_t len)
{
    const struct via_port *port = &end->port;
    struct sim_world *world = end->world;
    if (off > port->caps.window_bytes || len > port->caps.window_bytes - off) {
        sim_fail(world, "host %u port %u: put of %zu bytes at %#llx is outside the window",
                 end->host, end->index, len, (unsigned long long)off);
        return false;
    }
    world->counts.puts++;
    if (world->traps_armed != 0) {
        sim_fault_traffic(world, end->link->index, end->host);
    }
    sim_mark(world, SIM_MARK_PUT, off << 20 ^ len, (uint64_t)end->host << 8 ^ end->index);
    if (port->caps.dma_depth != 0) {
        sim_engine_check_put(end, off, src, len);
    }
    return true;
}

/* The common part of body and commit. True if the write has to travel to the peer. */
static bool is_write_leaving(struct sim_end *end, uint64_t off, const void *src, size_t len)
{
    struct via_port *port = &end->port;
    if (!sim_link_put(end, off, src, len)) {
        return false;
    }
    if (!end->link->up) {
        return false;
    }
    sim_trace_put(end, off, src, len);
    if (port->window != NULL) {
        memcpy(port->window + off, src, len);
        return false;
    }
    sim_credit_put(end, off, src, len);
    sim_posted_pump(end);
    return true;
}

static void sim_port_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                          size_t len)
{
    struct sim_end *end = end_of(port);
    struct sim_lane *lane = sim_link_lane(end, queue);
    if (is_write_leaving(end, off, src, len)) {
        sim_posted_body(end, lane, off, src, len);
    }
}

static void sim_port_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                            size_t len)
{
    struct sim_end *end = end_of(port);
    struct sim_lane *lane = sim_link_lane(end, queue);
    if ((len != sizeof(uint64_t) && len != VIA_RECORD_LINE_BYTES) || off % len != 0) {
        sim_fail(end->world, "host %u port %u: commit of %zu bytes at %#llx, no word and no line",
                 end->host, end->index, len, (unsigned long long)off);
        return;
    }
    if (is_write_leaving(end, off, src, len)) {
        sim_posted_commit(end, lane, off, src, len);
    }
}

static void sim_port_flush(struct via_port *port, unsigned queue)
{
    struct sim_end *end = end_of(port);
    sim_posted_flush(end, sim_link_lane(end, queue));
}

static int sim_port_fence_start(struct via_port *port, unsigned queue)
{
    struct sim_end *end = end_of(port);
    (void)sim_link_lane(end, queue);
    return sim_fence_start(end, queue);
}

static int sim_port_fence_poll(struct via_port *port, unsigned queue)
{
    struct sim_end *end = end_of(port);
    (void)sim_link_lane(end, queue);
    return sim_fence_poll(end, queue);
}

/* --- DMA ------------------------------------------------------------------------------------- */

static int sim_port_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                        size_t len, uint64_t cookie)
{
    return sim_engine_start(end_of(port), queue, off, src, len, cookie);
}

static unsigned sim_port_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                                  int *ret_results, unsigned max)
{
    return sim_engine_take(end_of(port), queue, ret_cookies, ret_results, max);
}

static void sim_port_dma_abort(struct via_port *port, unsigned queue)
{
    sim_engine_abort(end_of(port), queue);
}

/* --- doorbells ------------------------------------------------------------------------------- */

static void bell_at(struct sim_end *to, unsigned bit, uint64_t at)
{
    struct sim_world *world = to->world;
    to->bells_coming[bit]++;
    sim_clock_at(&world->clock, at, SIM_EVENT_BELL, to->link->index, event_end(to) | bit << 8,
                 to->link->era);
}

void sim_link_ring(struct sim_end *to, unsigned bit)
{
    bell_at(to, bit, to->world->clock.now_ns + to->world->config.port.bell_ns_min);
}

static uint64_t bell_arrival(struct sim_world *world, const struct sim_lane *lane)
{
    const struct sim_config_port *config = &world->config.port;
    uint64_t at = world->clock.now_ns +
                  sim_between(&world->rng_port, config->bell_ns_min, config->bell_ns_max);
    if (!world->healed && via_rng_chance(&world->rng_port, config->bell_late_chance, 1000)) {
        at += sim_between(&world->rng_port, 0, config->bell_late_ns_max);
    }
    /* A doorbell comes after flushed writes. It may overtake the other writes of the lane. */
    for (const struct sim_flight *flight = lane->head; flight != NULL; flight = flight->next) {
        at = flight->flushed ? via_max(at, flight->arrive_ns) : at;
    }
    return at;
}

bool sim_link_is_bell_leaving(struct sim_end *end, unsigned bit)
{
    struct sim_world *world = end->world;
    if (bit >= VIA_PORT_DOORBELLS) {
        sim_fail(world, "host %u port %u: doorbell %u does not exist", end->host, end->index, bit);
        return false;
    }
    world->counts.bells++;
    if (world->traps_armed != 0) {
        sim_fault_traffic(world, end->link->index, end->host);
    }
    sim_mark(world, SIM_MARK_BELL, bit, (uint64_t)end->host << 8 ^ end->index);
    return true;
}

static int sim_port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct sim_end *end = end_of(port);
    struct sim_world *world = end->world;
    const struct sim_config_port *config = &world->config.port;
    struct sim_lane *lane = sim_link_lane(end, queue);
    if (!sim_link_is_bell_leaving(end, bit)) {
        return -EINVAL;
    }
    if (!end->link->up) {
        return -ENOLINK;
    }
    sim_trace(world, "  %u.%u: rings bell %u of host %u", end->host, end->index, bit,
              end->peer->host);
    if (world->plant == SIM_PLANT_LOST_BELL && via_rng_chance(&world->rng_port, 1, 50)) {
        return 0;
    }
    if (!world->healed && via_rng_chance(&world->rng_port, config->bell_drop_chance, 1000)) {
        return 0;
    }
    bell_at(end->peer, bit, bell_arrival(world, lane));
    if (!world->healed && via_rng_chance(&world->rng_port, config->bell_double_chance, 1000)) {
        bell_at(end->peer, bit, bell_arrival(world, lane) + config->bell_ns_max);
    }
    return 0;
}

static struct sim_thread *thread_of_bell(struct sim_end *end, unsigned bit)
{
    unsigned channels = end->world->config.node.channels_count;
    return &end->world->hosts[end->host].threads[bit < channels ? bit : 0];
}

void sim_link_bell(struct sim_link *link, uint32_t end_number, uint32_t bit, uint32_t era)
{
    struct sim_end *end = &link->end[end_number];
    if (era != link->era) {
        return;
    }
    bool was_set = (end->events >> bit & 1) != 0;
    end->bells_coming[bit]--;
    end->events |= VIA_PORT_EVENT_DOORBELL(bit);
    if (was_set && end->world->config.port.bell_edge) {
        return;
    }
    sim_thread_interrupt(thread_of_bell(end, bit));
}

static uint64_t sim_port_events(struct via_port *port, uint64_t mask)
{
    struct sim_end *end = end_of(port);
    uint64_t events = end->events & mask;
    end->events &= ~mask;
    return events;
}

/* --- link state, scratchpads ----------------------------------------------------------------- */

static bool sim_port_link_is_up(struct via_port *port)
{
    const struct sim_link *link = end_of(port)->link;
    /* After a surprise link-down the port reports the link as up for a while. */
    return link->up || end_of(port)->world->clock.now_ns < link->blind_until_ns;
}

/* The completion of the read times out, and the root complex makes one up. */
static bool is_read_timed_out(struct sim_world *world)
{
    uint32_t chance = world->config.port.ones_chance;
    if (chance == 0 || world->healed || !via_rng_chance(&world->rng_port, chance, 1000)) {
        return false;
    }
    world->counts.ones++;
    return true;
}

static uint32_t sim_port_scratchpad_read(struct via_port *port, unsigned index)
{
    struct sim_end *end = end_of(port);
    if (index >= VIA_PORT_SCRATCHPADS) {
        sim_fail(end->world, "host %u reads scratchpad %u", end->host, index);
        return UINT32_MAX;
    }
    bool answers = end->link->up && !is_read_timed_out(end->world);
    return answers ? end->link->scratchpad[index] : UINT32_MAX;
}

static void sim_port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct sim_end *end = end_of(port);
    if (index >= VIA_PORT_SCRATCHPADS || index / 4 != port->side) {
        sim_fail(end->world, "host %u port %u, side %u, writes scratchpad %u", end->host,
                 end->index, port->side, index);
        return;
    }
    if (end->link->up) {
        end->link->scratchpad[index] = value;
    }
}

static void sim_port_close(struct via_port *port)
{
    struct sim_end *end = end_of(port);
    sim_fail(end->world, "host %u port %u: closed by the node, whose it is not", end->host,
             end->index);
}

const struct via_port_ops sim_port_ops = {
    .body = sim_port_body,
    .commit = sim_port_commit,
    .flush = sim_port_flush,
    .fence_start = sim_port_fence_start,
    .fence_poll = sim_port_fence_poll,
    .ring = sim_port_ring,
    .dma = sim_port_dma,
    .dma_take = sim_port_dma_take,
    .dma_abort = sim_port_dma_abort,
    .events = sim_port_events,
    .link_is_up = sim_port_link_is_up,
    .scratchpad_read = sim_port_scratchpad_read,
    .scratchpad_write = sim_port_scratchpad_write,
    .close = sim_port_close,
};

/* --- cut and repair -------------------------------------------------------------------------- */

/* A window of a link that is down swallows stores: other memory takes its place. */
static void map_window(struct sim_end *end, bool real)
{
    void *place = mmap(end->port.window, end->window_bytes, PROT_READ | PROT_WRITE,
                       MAP_FIXED | (real ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS),
                       real ? end->peer->inbox_fd : -1, 0);
    if (place == MAP_FAILED) {
        abort();
    }
}

/* The writes under way are lost. So are the port's registers: DL_Down resets them. */
static void lose(struct sim_end *end)
{
    for (uint32_t k = 0; k < VIA_PORT_QUEUES; k++) {
        sim_posted_cut(end, &end->lanes[k]);
    }
    sim_engine_cut(end);
    if (end->world->config.port.forgets) {
        end->events &= VIA_PORT_EVENT_CONTROL;
    }
}

/* Both ends learn of it, in order. */
static void announce(struct sim_link *link, uint32_t end_number, bool up)
{
    struct sim_end *end = &link->end[end_number];
    struct sim_world *world = end->world;
    uint64_t at = via_max(world->clock.now_ns, up ? 0 : link->blind_until_ns);
    at = via_max(at + world->config.port.notice_ns, end->notice_ns);
    end->notice_ns = at;
    world->hosts[end->host].notices_coming++;
    sim_clock_at(&world->clock, at, SIM_EVENT_NOTICE, link->index, end_number, up);
}

void sim_link_set(struct sim_link *link, bool up)
{
    if (link->up == up) {
        return;
    }
    struct sim_world *world = link->end[0].world;
    if (link->has_chip) {
        link->up = up;
        link->era++;
        world->chips->set(link, up);
        return;
    }
    uint32_t blind_ns = world->config.port.blind_ns_max;
    if (!up && blind_ns != 0 && via_rng_chance(&world->rng_fault, 1, 2)) {
        link->blind_until_ns = world->clock.now_ns + via_rng_below(&world->rng_fault, blind_ns);
    }
    link->up = up;
    link->era++;
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_end *end = &link->end[i];
        if (!up) {
            lose(end);
        }
        if (link->direct) {
            map_window(end, up);
        }
        memset(end->bells_coming, 0, sizeof(end->bells_coming));
        announce(link, i, up);
    }
    if (!world->config.port.pads_survive) {
        memset(link->scratchpad, 0, sizeof(link->scratchpad));
    }
}

void sim_link_notice(struct sim_link *link, uint32_t end_number, bool up)
{
    struct sim_end *end = &link->end[end_number];
    struct sim_host *host = &end->world->hosts[end->host];
    host->notices_coming--;
    host->noticed_ns = end->world->clock.now_ns;
    end->events |= up ? VIA_PORT_EVENT_LINK_UP : VIA_PORT_EVENT_LINK_DOWN;
    sim_thread_interrupt(&host->threads[0]);
}

void sim_link_reopen(struct sim_end *end, bool keep_memory)
{
    end->events = 0;
    sim_fence_drop(end);
    if (end->link->has_chip) {
        end->world->chips->reopen(end);
        return;
    }
    if (!keep_memory) {
        memset(end->inbox, 0, end->port.caps.inbox_bytes);
    }
}

/* --- making and ending ----------------------------------------------------------------------- */

void sim_link_init(struct sim_world *world, struct sim_link *link, uint32_t host_a, uint32_t host_b)
{
    const uint32_t hosts[2] = {host_a, host_b};
    link->up = true;
    link->has_chip = sim_like_has_driver(world->config.like);
    if (link->has_chip && world->chips == NULL) {
        sim_fail(world, "this program has no driver for links like %s",
                 sim_like_names[world->config.like]);
        link->has_chip = false;
    }
    link->direct = sim_between(&world->rng_fault, 0, 99) < world->config.port.direct_percent;
    const struct sim_config_dma *dma = &world->config.dma;
    bool engine = dma->percent != 0 && sim_between(&world->rng_dma, 0, 99) < dma->percent;
    link->combines = !link->direct && world->config.port.wc_percent != 0 &&
                     sim_between(&world->rng_fault, 0, 99) < world->config.port.wc_percent;
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_host *host = &world->hosts[hosts[i]];
        struct sim_end *end = &link->end[i];
        *end = (struct sim_end){
            .world = world,
            .link = link,
            .peer = &link->end[1 - i],
            .host = hosts[i],
            .index = host->ports_count,
            .inbox_fd = -1,
        };
        end->port = (struct via_port){.ops = &sim_port_ops, .side = i};
        end->port.caps.dma_depth = engine ? dma->depth : 0;
        host->ports[host->ports_count++] = end;
    }
}

/* The window of an end: of the whole inbox, or with room for fewer slots. */
static uint64_t draw_window(const struct sim_link *link, uint32_t number, size_t inbox_bytes)
{
    const struct sim_config *config = &link->end[0].world->config;
    struct via_pipe_geometry geometry;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x77696e646f77) ^ (link->index * 2 + number));
    if (sim_between(&rng, 0, 99) >= config->port.narrow_percent) {
        return inbox_bytes;
    }
    uint32_t slots = config->node.pipe_slots >> sim_between(&rng, 0, 5);
    via_geometry_of_channels(via_max(slots, 1u), config->node.frame_bytes_max, &geometry);
    uint64_t least = via_inbox_bytes(&geometry, config->node.channels_count);
    return via_min(inbox_bytes, least + sim_between(&rng, 0, 4096));
}

void sim_link_open(struct sim_world *world, struct sim_link *link, size_t inbox_bytes)
{
    if (link->has_chip) {
        world->chips->open(link, inbox_bytes);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_end *end = &link->end[i];
        for (uint32_t k = 0; link->combines && k < VIA_PORT_QUEUES; k++) {
            end->lanes[k].wc = sim_alloc(SIM_WC_BUFFERS_MAX * sizeof(struct sim_wc_buffer));
        }
        end->port.caps = (struct via_port_caps){
            .window_bytes = draw_window(link, i, inbox_bytes),
            .inbox_bytes = inbox_bytes,
            .store_bytes_max = link->direct ? 8 : 64,
            .dma_depth = end->port.caps.dma_depth,
            .coherent = link->direct,
            .lines_wake = !link->direct && world->config.like == SIM_LIKE_NETWORK,
            .writes_ordered =
                link->direct || (!link->combines && world->config.port.relaxed_chance == 0),
        };
        if (!link->direct) {
            end->inbox = sim_alloc_lines(inbox_bytes);
            continue;
        }
        end->window_bytes = via_align_up(inbox_bytes, 4096);
        end->inbox = sim_map_shared(end->window_bytes, &end->inbox_fd);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_end *end = &link->end[i];
        end->port.inbox = end->inbox;
        if (link->direct) {
            end->port.window = sim_map_again(end->window_bytes, end->peer->inbox_fd);
        }
    }
}

void sim_link_fini(struct sim_link *link)
{
    if (link->has_chip) {
        link->end[0].world->chips->fini(link);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_end *end = &link->end[i];
        for (uint32_t k = 0; k < VIA_PORT_QUEUES; k++) {
            sim_posted_drop(&end->lanes[k]);
            free(end->lanes[k].wc);
            end->lanes[k].wc = NULL;
        }
        sim_engine_drop(end);
        free(end->shown);
        if (link->direct) {
            munmap(end->port.window, end->window_bytes);
            munmap(end->inbox, end->window_bytes);
            close(end->inbox_fd);
        } else {
            free(end->inbox);
        }
    }
}
