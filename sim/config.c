/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/config.h"

#include <string.h>

#include "base/rng.h"
#include "base/types.h"

/* Limit of hosts in a star or a mesh that a seed draws. A larger fabric takes minutes (make
 * sim-mesh). */
#define WIDE_HOSTS_MAX 17u

const char *const sim_graph_names[] = {"any",    "ring",  "chain", "star", "mesh",
                                       "random", "torus", "tree",  "cube"};

const char *const sim_like_names[] = {"any",     "memory",     "pex", "ivshmem",
                                      "network", "pex-driver", "ofi"};

int sim_name_find(const char *const *names, unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static uint32_t between(struct via_rng *rng, uint32_t lo, uint32_t hi)
{
    return (uint32_t)via_rng_between(rng, lo, hi);
}

/* Small numbers are as likely as large ones: each power of two has the same share. */
static uint32_t by_magnitude(struct via_rng *rng, uint32_t lo, uint32_t hi)
{
    uint32_t top = hi;
    while (top / 2 >= lo && top > 1 && via_rng_chance(rng, 2, 3)) {
        top /= 2;
    }
    return between(rng, lo, top);
}

static void draw_graph(struct sim_config *config, struct via_rng *rng, enum sim_graph graph)
{
    uint32_t drawn = between(rng, SIM_GRAPH_RING, SIM_GRAPH_RANDOM);
    config->graph = graph != SIM_GRAPH_ANY ? graph : (enum sim_graph)drawn;
    config->hosts_count = between(rng, 2, 8);
    config->extra_links = between(rng, 0, config->hosts_count);
}

/* Every capacity down to 1: code that works only with room to spare fails here. */
static void draw_node(struct sim_config *config, struct via_rng *rng)
{
    struct via_node_config *node = &config->node;
    via_node_config_init(node);
    node->hosts_max = (uint16_t)(config->hosts_count + between(rng, 0, 2));
    node->channels_count = (uint8_t)between(rng, 1, 3);
    node->pipe_slots = 1u << between(rng, 0, 6);
    node->frame_bytes_max = 64 * by_magnitude(rng, 1, 64);
    node->bypass_count = by_magnitude(rng, 1, 8);
    node->ops_count = by_magnitude(rng, 2, 32);
    node->flows_count = between(rng, 1, 4);
    node->window_frames = by_magnitude(rng, 1, 16);
    node->segments_count = between(rng, 3, 6);
    node->batch_frames = by_magnitude(rng, 1, 16);
    node->epoch_first = via_rng_chance(rng, 1, 3) ? VIA_EPOCH_MAX - between(rng, 0, 3) : 0;
    if (via_rng_chance(rng, 1, 2)) {
        node->heartbeat_ns = between(rng, 1000, 4000) * VIA_USEC_NS;
        node->dead_ns = node->heartbeat_ns * between(rng, 4, 8);
        node->retry_ns_min = between(rng, 300, 3000) * VIA_USEC_NS;
        node->retry_ns_max = node->retry_ns_min * between(rng, 2, 16);
        node->stuck_ns = between(rng, 5, 30) * VIA_MSEC_NS;
    }
}

/* Some operations have a limited time; longer than a fabric without faults needs to come up,
 * though. */
static void draw_patience(struct sim_config *config, struct via_rng *rng)
{
    uint64_t heartbeat_ns = config->node.heartbeat_ns;
    if (via_rng_chance(rng, 1, 8)) {
        config->node.give_up_ns = (heartbeat_ns != 0 ? heartbeat_ns : 20 * VIA_MSEC_NS) * 20 +
                                  by_magnitude(rng, 1, 500) * VIA_MSEC_NS;
    }
}

static void draw_port(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_port *port = &config->port;
    port->direct_percent = via_rng_chance(rng, 1, 2) ? 0 : via_rng_chance(rng, 1, 2) ? 100 : 50;
    port->put_ns_min = between(rng, 150, 1000);
    port->put_ns_max = port->put_ns_min + by_magnitude(rng, 100, 20000);
    port->bell_ns_min = between(rng, 200, 2000);
    port->bell_ns_max = port->bell_ns_min + by_magnitude(rng, 100, 30000);
    port->linger_chance = via_rng_chance(rng, 1, 2) ? between(rng, 1, 300) : 0;
    port->linger_ns_max = by_magnitude(rng, 1000, 500000);
    port->show_chance = via_rng_chance(rng, 1, 2) ? between(rng, 1, 200) : 0;
    port->pump_chance = via_rng_chance(rng, 1, 2) ? between(rng, 1, 300) : 0;
    port->bell_late_chance = via_rng_chance(rng, 1, 3) ? between(rng, 1, 200) : 0;
    port->bell_late_ns_max = by_magnitude(rng, 10000, 5000000);
    port->bell_double_chance = via_rng_chance(rng, 1, 3) ? between(rng, 1, 300) : 0;
    port->bell_drop_chance = via_rng_chance(rng, 1, 5) ? between(rng, 1, 300) : 0;
    port->notice_ns = via_rng_chance(rng, 1, 2) ? by_magnitude(rng, 1, 3000000) : 0;
    port->bell_edge = via_rng_chance(rng, 1, 2);
}

static void draw_cpu(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_cpu *cpu = &config->cpu;
    cpu->turn_ns_min = between(rng, 100, 500);
    cpu->turn_ns_max = cpu->turn_ns_min + by_magnitude(rng, 10, 5000);
    cpu->wake_ns_min = between(rng, 500, 3000);
    cpu->wake_ns_max = cpu->wake_ns_min + by_magnitude(rng, 100, 50000);
    cpu->stall_chance = via_rng_chance(rng, 1, 2) ? by_magnitude(rng, 1, 300) : 0;
    /* Shorter than the time after which a link is declared dead: hosts that freeze are drawn
     * elsewhere. */
    uint64_t dead_ns = config->node.dead_ns != 0 ? config->node.dead_ns : 80 * VIA_MSEC_NS;
    cpu->stall_ns_max = by_magnitude(rng, 10000, (uint32_t)(dead_ns / 8));
    cpu->insurance_ns = config->port.bell_drop_chance != 0 ? 10 * VIA_MSEC_NS : 0;
}

/* One run in four has no faults: a failure there has another cause. */
static void draw_faults(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_faults *faults = &config->faults;
    uint32_t temper = between(rng, 0, 3);
    if (temper >= 1) {
        faults->cuts_count = by_magnitude(rng, 1, 12);
        faults->cut_ns_max = by_magnitude(rng, 20 * 1000, 300 * 1000 * 1000);
    }
    if (temper >= 2 && via_rng_chance(rng, 1, 2)) {
        faults->freezes_count = between(rng, 1, 3);
        faults->freeze_ns_max = by_magnitude(rng, 1000 * 1000, 3000u * 1000 * 1000);
    }
    if (temper >= 3) {
        faults->crashes_count = between(rng, 1, 4);
        faults->restart_ns_max = by_magnitude(rng, 100 * 1000, 500 * 1000 * 1000);
    }
}

static void draw_work(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_work *work = &config->work;
    uint32_t flows = config->hosts_count * config->node.channels_count * config->node.flows_count;
    work->ops_count = 40 + by_magnitude(rng, 20, 1000);
    work->burst_max = by_magnitude(rng, 1, 40);
    if (via_rng_chance(rng, 1, 4)) {
        work->shift = between(rng, 1, config->hosts_count - 1);
        work->burst_max = config->node.ops_count * 2;
    }
    work->message = between(rng, 1, 10);
    work->put = between(rng, 0, 6);
    work->put_signal = between(rng, 0, 4);
    work->get = between(rng, 0, 4);
    work->atomic = between(rng, 0, 4);
    work->wrong = via_rng_chance(rng, 1, 2);
    work->busy_chance = via_rng_chance(rng, 2, 3) ? between(rng, 1, 600) : 0;
    work->busy_ns_max = by_magnitude(rng, 1000, 20000000);
    work->cancels_count = via_rng_chance(rng, 1, 5) ? between(rng, 1, 4) : 0;
    work->barrier_groups = via_rng_chance(rng, 1, 2) ? between(rng, 1, 3) : 0;
    /* A host must be able to wait in all groups at once, or they may wait for each other. */
    work->barrier_groups = via_min(work->barrier_groups, config->node.ops_count - 1);
    work->barrier_rounds = between(rng, 1, 6);
    uint32_t region = 64 * by_magnitude(rng, 1, 16 * config->node.frame_bytes_max / 64);
    work->region_bytes = via_min(via_max(region, 128u), via_max(65536 / flows & ~63u, 512u));
    work->library_bytes = by_magnitude(rng, 8, 20000);
}

/* --- values that were added later ------------------------------------------------------------ */

/* Drawn from a separate stream, so that a seed keeps its history if nothing of it is drawn. */

static void draw_more_port(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_port *port = &config->port;
    if (via_rng_chance(rng, 1, 3)) {
        port->wc_percent = via_rng_chance(rng, 1, 2) ? 100 : 50;
        port->wc_buffers = between(rng, 1, SIM_WC_BUFFERS_MAX);
        port->wc_drain_ns_max = by_magnitude(rng, 1000, 100 * 1000 * 1000);
    }
    port->relaxed_chance = via_rng_chance(rng, 1, 3) ? between(rng, 1, 1000) : 0;
    port->forgets = via_rng_chance(rng, 1, 2);
    bool faults = config->faults.cuts_count != 0;
    port->ones_chance = faults && via_rng_chance(rng, 1, 4) ? by_magnitude(rng, 1, 60) : 0;
    port->blind_ns_max =
        faults && via_rng_chance(rng, 1, 2) ? by_magnitude(rng, 1000, 30000000) : 0;
}

/* Hosts with a port for each of the others. */
static bool is_wide(enum sim_graph graph)
{
    return graph == SIM_GRAPH_STAR || graph == SIM_GRAPH_MESH;
}

/* One fabric in thirty is larger than eight hosts, and then small in everything else. */
static void draw_more_hosts(struct sim_config *config, struct via_rng *rng, bool any_graph)
{
    static const uint8_t graphs[] = {SIM_GRAPH_RING,  SIM_GRAPH_CHAIN, SIM_GRAPH_TREE,
                                     SIM_GRAPH_TORUS, SIM_GRAPH_CUBE,  SIM_GRAPH_RANDOM};
    if (any_graph && via_rng_chance(rng, 1, 6)) {
        config->graph = (enum sim_graph)between(rng, SIM_GRAPH_TORUS, SIM_GRAPH_CUBE);
    }
    if (!via_rng_chance(rng, 1, 30)) {
        return;
    }
    config->hosts_count = by_magnitude(rng, 9, SIM_HOSTS_MAX);
    config->node.channels_count = (uint8_t)between(rng, 1, 2);
    config->node.flows_count = 1;
    config->extra_links = between(rng, 0, config->hosts_count);
    config->work.ops_count = via_min(config->work.ops_count, 400u);
    uint32_t flows = config->hosts_count * config->node.channels_count;
    config->work.region_bytes =
        via_min(config->work.region_bytes, via_max(65536 / flows & ~63u, 512u));
    if (any_graph) {
        config->graph = (enum sim_graph)graphs[between(rng, 0, VIA_ARRAY_COUNT(graphs) - 1)];
    }
    if (is_wide(config->graph)) {
        config->hosts_count = via_min(config->hosts_count, WIDE_HOSTS_MAX);
    }
}

/* Consumers that are busy for about as long as a retry takes, on flows with one operation at a
 * time, while links flap: messages about a flow that has just become empty get lost. */
static void draw_sparse(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_work *work = &config->work;
    config->hosts_count = between(rng, 2, 3);
    config->node.channels_count = 1;
    config->node.flows_count = 1;
    config->node.retry_ns_min = between(rng, 300, 1000) * VIA_USEC_NS;
    config->node.retry_ns_max = config->node.retry_ns_min * 4;
    work->ops_count = between(rng, 50, 400);
    work->burst_max = between(rng, 1, 2);
    work->message = 20;
    work->busy_chance = between(rng, 300, 900);
    work->busy_ns_max = (uint32_t)config->node.retry_ns_min * between(rng, 1, 4);
    work->cancels_count = between(rng, 0, 40);
    config->faults.cuts_count = between(rng, 10, 40);
    config->faults.cut_ns_max = between(rng, 1, 10) * 1000 * 1000;
    config->active_ns = between(rng, 50, 200) * VIA_MSEC_NS;
}

/* Lives that end before all hosts know of them, because links are down for long. */
static void draw_apart(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_faults *faults = &config->faults;
    config->hosts_count = between(rng, 3, 5);
    faults->crashes_count = between(rng, 4, 12);
    faults->restart_ns_max = by_magnitude(rng, 50 * 1000, 50 * 1000 * 1000);
    faults->cuts_count = between(rng, 4, 12);
    faults->cut_ns_max = between(rng, 50, 300) * 1000 * 1000;
    config->active_ns = between(rng, 50, 300) * VIA_MSEC_NS;
}

/* Pipes that are always full, because their readers take few records at a time. */
static void draw_tight(struct sim_config *config, struct via_rng *rng)
{
    struct via_node_config *node = &config->node;
    node->pipe_slots = 1u << between(rng, 2, 4);
    node->batch_frames = between(rng, 1, 2);
    node->window_frames = between(rng, 2, 32);
    node->ops_count = between(rng, 8, 64);
    node->frame_bytes_max = 64 * between(rng, 1, 4);
    config->port.direct_percent = 0;
    config->port.pump_chance = between(rng, 50, 500);
    config->port.bell_drop_chance = 0;
    config->work.burst_max = between(rng, 10, 60);
    config->work.ops_count = between(rng, 200, 800);
}

/* Combinations that a history with all kinds of events rarely has. */
static void draw_more_moods(struct sim_config *config, struct via_rng *rng)
{
    uint32_t drawn = SIM_MOOD_SPARSE + between(rng, 0, 11);
    uint32_t mood = config->mood != SIM_MOOD_ANY ? config->mood : drawn;
    if (mood == SIM_MOOD_SPARSE) {
        draw_sparse(config, rng);
    } else if (mood == SIM_MOOD_APART) {
        draw_apart(config, rng);
    } else if (mood == SIM_MOOD_TIGHT) {
        draw_tight(config, rng);
    }
}

static void draw_more(struct sim_config *config, bool any_graph)
{
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x6d6f7265));
    if (via_rng_chance(&rng, 1, 4) && config->mood == SIM_MOOD_ANY) {
        return;
    }
    draw_more_moods(config, &rng);
    draw_more_port(config, &rng);
    draw_more_hosts(config, &rng, any_graph);
    if (config->faults.crashes_count != 0 && via_rng_chance(&rng, 1, 3)) {
        config->faults.rogues_count = between(&rng, 1, 2);
        config->faults.rogue_ns_max = by_magnitude(&rng, 10 * 1000, 100 * 1000 * 1000);
    }
    if (via_rng_chance(&rng, 1, 3)) {
        config->node.pipe_first = 0u - by_magnitude(&rng, 1, 1000);
    }
}

/* In a third of the fabrics: hosts negotiate the slots of half of the links. */
static void draw_narrow(struct sim_config *config)
{
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x6e6172726f77));
    config->port.narrow_percent = via_rng_chance(&rng, 1, 3) ? 30 : 0;
}

static void draw_lies(struct sim_config *config)
{
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x6c696573));
    if (config->faults.rogues_count != 0 && via_rng_chance(&rng, 2, 3)) {
        config->faults.lies_chance = by_magnitude(&rng, 100, 1000);
    }
}

/* In a third of the fabrics threads poll before they sleep, unless the machine is crowded. */
static void draw_waits(struct sim_config *config)
{
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x7370696e));
    if (via_rng_chance(&rng, 1, 3)) {
        config->cpu.spin_ns_max = by_magnitude(&rng, 1000, 100000);
        config->cpu.crowded_chance = via_rng_chance(&rng, 1, 2) ? between(&rng, 0, 1000) : 0;
    }
}

static void draw_streams(struct sim_config *config)
{
    struct sim_config_streams *streams = &config->streams;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x73747265616d73));
    streams->count = between(&rng, 1, 3);
    streams->bytes_max = by_magnitude(&rng, 1, 60000);
    streams->slots = 4u << between(&rng, 0, 4);
    streams->body_bytes = 64 * by_magnitude(&rng, 1, 32);
    streams->spare_lines = between(&rng, 0, 30);
    streams->first = via_rng_chance(&rng, 1, 2) ? 0 : 0u - by_magnitude(&rng, 1, 300);
    streams->switch_chance = by_magnitude(&rng, 10, 1000);
    streams->kernel_bytes = by_magnitude(&rng, 1, 65536);
    streams->kernel_ns_max = by_magnitude(&rng, 100, 100000);
    streams->bell_ns_max = by_magnitude(&rng, 10, 100000);
    streams->stall_chance = via_rng_chance(&rng, 1, 2) ? by_magnitude(&rng, 1, 300) : 0;
    streams->stall_ns_max = by_magnitude(&rng, 1000, 10000000);
    streams->rogue_chance = via_rng_chance(&rng, 1, 4) ? 300 : 0;
    streams->avail_chance = via_rng_chance(&rng, 1, 2) ? by_magnitude(&rng, 10, 1000) : 0;
}

static void draw_streams_hosts(struct sim_config *config)
{
    struct sim_config_streams *streams = &config->streams;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x73747265616d6873));
    streams->hosts_count = between(&rng, 1, 3);
    streams->leave_chance = via_rng_chance(&rng, 1, 8) ? 0 : by_magnitude(&rng, 1, 300);
    streams->frames_max = by_magnitude(&rng, 1, 64);
    streams->frame_ns_max = by_magnitude(&rng, 1000, 1000000);
}

/* Programs at both ends send before they read, and their socket buffers hold only a part of the
 * data. In half of these runs steps take up to 100 ms, where 30 ms would be long. */
static void draw_streams_bursts(struct sim_config *config)
{
    struct sim_config_streams *streams = &config->streams;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x6275727374));
    if (!via_rng_chance(&rng, 1, 4)) {
        return;
    }
    streams->burst_chance = by_magnitude(&rng, 50, 1000);
    streams->bytes_max = via_max(streams->bytes_max, by_magnitude(&rng, 1000, 60000));
    streams->kernel_bytes = by_magnitude(&rng, 500, via_rng_chance(&rng, 1, 2) ? 4000 : 65536);
    if (via_rng_chance(&rng, 1, 2)) {
        streams->stall_chance = by_magnitude(&rng, 1, 300);
        streams->stall_ns_max = by_magnitude(&rng, 1000000, 100000000);
    }
}

/* Both ends send before they read, through pipes that soon are full, on a machine where threads
 * lose their CPU for longer than an end waits before it spills. The acceptor begins to write by its
 * pipe at any time. */
static void draw_streams_full(struct sim_config *config)
{
    struct sim_config_streams *streams = &config->streams;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x7072656d7074));
    streams->preempts = via_rng_chance(&rng, 1, 2);
    bool is_full = via_rng_chance(&rng, 1, 20) && config->mood == SIM_MOOD_ANY;
    if (!is_full && config->mood != SIM_MOOD_FULL) {
        return;
    }
    via_rng_init(&rng, config->seed ^ UINT64_C(0x66756c6c));
    streams->preempts = true;
    streams->burst_chance = 1000;
    streams->slots = 4u << between(&rng, 0, 1);
    streams->body_bytes = 64 * between(&rng, 1, 4);
    streams->spare_lines = between(&rng, 0, 4);
    streams->bytes_max = between(&rng, 4000, 20000);
    streams->kernel_bytes = by_magnitude(&rng, 500, 20000);
    streams->switch_chance = by_magnitude(&rng, 1, 1000);
    streams->stall_chance = between(&rng, 10, 200);
    streams->stall_ns_max = between(&rng, 30, 150) * 1000 * 1000;
}

static void draw_streams_lives(struct sim_config *config)
{
    struct sim_config_streams *streams = &config->streams;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x6c69766573));
    if (via_rng_chance(&rng, 1, 3)) {
        streams->kill_chance = via_rng_chance(&rng, 3, 4) ? by_magnitude(&rng, 50, 1000) : 0;
        streams->exec_chance = via_rng_chance(&rng, 1, 2) ? by_magnitude(&rng, 50, 1000) : 0;
    }
}

/* Every host sends as much as it can over a torus with next to no buffers and no faults: the rings
 * of both dimensions fill up, and frames turn from one into the other. */
static void draw_torus(struct sim_config *config)
{
    static const uint8_t hosts[] = {16, 20, 25, 36};
    struct via_node_config *node = &config->node;
    struct sim_config_work *work = &config->work;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x746f727573));
    if (!via_rng_chance(&rng, 1, 40) && config->mood != SIM_MOOD_TORUS) {
        return;
    }
    config->graph = SIM_GRAPH_TORUS;
    config->hosts_count = hosts[between(&rng, 0, VIA_ARRAY_COUNT(hosts) - 1)];
    config->faults = (struct sim_config_faults){0};
    config->cpu.stall_chance = 0;
    config->port.bell_late_chance = 0;
    config->port.bell_drop_chance = 0;
    config->port.ones_chance = 0;
    config->port.blind_ns_max = 0;
    node->channels_count = 1;
    node->flows_count = 1;
    node->pipe_slots = 1u << between(&rng, 0, 1);
    node->bypass_count = between(&rng, 1, 2);
    node->frame_bytes_max = 64;
    node->window_frames = by_magnitude(&rng, 1, 16);
    node->ops_count = between(&rng, 8, 32);
    node->stuck_ns = 0;
    node->give_up_ns = 0;
    work->shift = between(&rng, 1, config->hosts_count - 1);
    work->burst_max = node->ops_count * 2;
    work->ops_count = config->hosts_count * between(&rng, 10, 40);
    work->busy_chance = 0;
    work->cancels_count = 0;
    work->barrier_groups = 0;
    work->region_bytes = 512;
    work->library_bytes = 64;
    /* A route change turns frames round in mid-ring, which the bubble rule does not cover. */
    work->quiet_ns = 100 * VIA_MSEC_NS;
    config->active_ns = work->quiet_ns + between(&rng, 200, 2000) * VIA_USEC_NS;
}

static void draw_dma_faults(struct sim_config *config, struct via_rng *rng)
{
    struct sim_config_dma *dma = &config->dma;
    dma->fail_chance = via_rng_chance(rng, 1, 2) ? by_magnitude(rng, 1, 500) : 0;
    dma->lost_chance = via_rng_chance(rng, 1, 4) ? by_magnitude(rng, 1, 300) : 0;
    dma->abort_ns_max = by_magnitude(rng, 100, 2000 * 1000);
    uint32_t hang_chance = via_rng_chance(rng, 1, 2) ? by_magnitude(rng, 1, 200) : 0;
    dma->stubborn_chance = via_rng_chance(rng, 1, 2) ? by_magnitude(rng, 1, 500) : 0;
    bool calm = config->faults.cuts_count == 0;
    dma->hang_chance = calm ? 0 : hang_chance;
    dma->stubborn_chance = calm ? 0 : dma->stubborn_chance;
}

/* Half of the fabrics have engines. In about half of those every body is copied by DMA. */
static void draw_dma(struct sim_config *config)
{
    struct sim_config_dma *dma = &config->dma;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x646d61));
    if (via_rng_chance(&rng, 1, 2)) {
        return;
    }
    dma->percent = via_rng_chance(&rng, 1, 2) ? 100 : 50;
    dma->depth = by_magnitude(&rng, 1, 8);
    dma->ns_min = between(&rng, 200, 2000);
    dma->ns_max = dma->ns_min + by_magnitude(&rng, 100, 50000);
    dma->in_order = via_rng_chance(&rng, 1, 3);
    dma->busy_chance = via_rng_chance(&rng, 1, 3) ? by_magnitude(&rng, 1, 500) : 0;
    dma->show_chance = via_rng_chance(&rng, 1, 2) ? by_magnitude(&rng, 10, 1000) : 0;
    dma->trail_chance = via_rng_chance(&rng, 1, 2) ? by_magnitude(&rng, 10, 1000) : 0;
    draw_dma_faults(config, &rng);
    struct via_node_config *node = &config->node;
    dma->bytes_min = via_rng_chance(&rng, 1, 2) ? 1 : by_magnitude(&rng, 8, node->frame_bytes_max);
    node->dma_buffers = by_magnitude(&rng, 1, 8);
    node->dma_ns_max = by_magnitude(&rng, 200, 5000) * VIA_USEC_NS;
}

/* Where operations time out soon (give_up_ns), limit their total time as well, and let faults last
 * longer. */
static void draw_limits(struct sim_config *config)
{
    struct sim_config_faults *faults = &config->faults;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x6c696d697473));
    if (config->node.give_up_ns == 0 || via_rng_chance(&rng, 1, 4)) {
        return;
    }
    config->node.wait_ns_max = by_magnitude(&rng, 20, 600) * VIA_MSEC_NS;
    if (via_rng_chance(&rng, 1, 2)) {
        uint32_t longest_ns = by_magnitude(&rng, 500, 4000) * 1000 * 1000;
        faults->cut_ns_max = faults->cuts_count != 0 ? longest_ns : 0;
        faults->restart_ns_max = faults->crashes_count != 0 ? longest_ns : 0;
        faults->rogue_ns_max = faults->rogues_count != 0 ? longest_ns : 0;
        /* A consumer may still be busy when all faults are healed. Limit that time, so that
         * operations end. */
        config->work.busy_ns_max = via_min(longest_ns, 1000u * 1000 * 1000);
    }
}

static void draw_shmem(struct sim_config *config)
{
    struct sim_config_shmem *shmem = &config->shmem;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x73686d656d));
    shmem->pes = between(&rng, 2, via_rng_chance(&rng, 1, 6) ? 20 : 8);
    shmem->nodes = via_rng_chance(&rng, 1, 6) ? 1 : between(&rng, 2, 6);
    shmem->steps = by_magnitude(&rng, 3, 30);
    shmem->elements_max = by_magnitude(&rng, 1, 1200);
    bool fine = via_rng_chance(&rng, 1, 4);
    shmem->accesses_max = fine ? between(&rng, 50, 500) : by_magnitude(&rng, 1000, 40000);
    shmem->pes = fine ? via_min(shmem->pes, 5u) : shmem->pes;
    shmem->yield_ns_max = via_rng_chance(&rng, 1, 6) ? 900 : between(&rng, 5000, 50000);
    shmem->wake_ns_max = by_magnitude(&rng, 1000, 200000);
    shmem->stall_chance = via_rng_chance(&rng, 1, 2) ? by_magnitude(&rng, 1, 100) : 0;
    shmem->stall_ns_max = by_magnitude(&rng, 1000, 5000000);
    shmem->slots = 1u << between(&rng, 2, 6);
    shmem->reply_slots = 1u << between(&rng, 2, 6);
    shmem->body_bytes = 64 * by_magnitude(&rng, 1, 32);
    shmem->crashes = via_rng_chance(&rng, 1, 10);
}

/* The driver, and the model that it drives, determine the properties of its links. */
static void like_driver(struct sim_config *config)
{
    config->port.direct_percent = 0;
    config->port.wc_percent = 0;
    config->port.relaxed_chance = 0;
    config->port.narrow_percent = 0;
    config->port.blind_ns_max = 0;
    config->faults.rogues_count = 0;
    config->faults.lies_chance = 0;
}

/* The driver and the model determine the properties of links. Only times and faults remain to be
 * drawn. Each end has descriptors, so their number is limited. Rogues are tested by fuzz-pex. */
static void like_pex_driver(struct sim_config *config)
{
    config->hosts_count = via_min(config->hosts_count, 8u);
    config->extra_links = via_min(config->extra_links, 8u);
    like_driver(config);
    /* Without interrupts a hop takes up to 2 ms. A retry time shorter than all hops together only
     * fills pipes with repeated frames. */
    struct via_node_config *node = &config->node;
    node->retry_ns_max = node->retry_ns_max != 0 ? 100 * VIA_MSEC_NS : 0;
    node->stuck_ns = node->stuck_ns != 0 ? 50 * VIA_MSEC_NS : 0;
    /* The driver finds that a link is up by polls that are 20 to 100 ms apart. */
    node->give_up_ns += node->give_up_ns != 0 ? 300 * VIA_MSEC_NS : 0;
    node->wait_ns_max += node->wait_ns_max != 0 ? 300 * VIA_MSEC_NS : 0;
}

/* Latencies of a network. Nothing gets lost on a connection, and reads of scratchpads are the
 * port's own. Hosts that write garbage are the fuzzer's (fuzz-ofi). */
static void like_ofi(struct sim_config *config, struct via_rng *rng)
{
    struct via_node_config *node = &config->node;
    like_driver(config);
    config->port.put_ns_min = between(rng, 2000, 10000);
    config->port.put_ns_max = config->port.put_ns_min + by_magnitude(rng, 1000, 200000);
    config->port.bell_drop_chance = 0;
    config->port.ones_chance = 0;
    node->retry_ns_max = node->retry_ns_max != 0 ? 100 * VIA_MSEC_NS : 0;
    node->stuck_ns = node->stuck_ns != 0 ? 50 * VIA_MSEC_NS : 0;
    /* A peer counts as dead after 2 s of silence, and connecting takes time after that. */
    node->give_up_ns += node->give_up_ns != 0 ? 5 * VIA_SEC_NS : 0;
    node->wait_ns_max += node->wait_ns_max != 0 ? 5 * VIA_SEC_NS : 0;
}

void sim_config_like(struct sim_config *config, enum sim_like like)
{
    struct sim_config_port *port = &config->port;
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x6c696b65));
    config->like = like;
    if (like == SIM_LIKE_ANY) {
        return;
    }
    if (like == SIM_LIKE_PEX_DRIVER) {
        like_pex_driver(config);
        return;
    }
    if (like == SIM_LIKE_OFI) {
        like_ofi(config, &rng);
        return;
    }
    bool coherent = like == SIM_LIKE_MEMORY || like == SIM_LIKE_IVSHMEM;
    port->direct_percent = coherent ? 100 : 0;
    port->wc_percent = like == SIM_LIKE_PEX ? 100 : 0;
    port->wc_buffers = between(&rng, 1, SIM_WC_BUFFERS_MAX);
    port->wc_drain_ns_max = by_magnitude(&rng, 1000, 100 * 1000 * 1000);
    port->bell_edge = true;
    port->pads_survive = like == SIM_LIKE_PEX || like == SIM_LIKE_IVSHMEM;
    /* A bridge keeps the order of accepted writes; packets of a network have none. */
    port->relaxed_chance = like == SIM_LIKE_NETWORK ? between(&rng, 100, 1000) : 0;
    if (like == SIM_LIKE_NETWORK) {
        port->put_ns_min = between(&rng, 2000, 10000);
        port->put_ns_max = port->put_ns_min + by_magnitude(&rng, 1000, 200000);
        port->bell_ns_min = port->put_ns_min;
        port->bell_ns_max = port->put_ns_max;
        config->dma.percent = 0;
    }
}

/* Seconds pass until links are up again: thousands of them have the daemon's interval. */
static void mend_heartbeats(struct sim_config *config)
{
    if (config->like == SIM_LIKE_OFI && config->hosts_count > WIDE_HOSTS_MAX) {
        config->node.heartbeat_ns = 25 * VIA_MSEC_NS;
        config->node.dead_ns = 0;
    }
}

/* Restores the relations between values: some values may have been given instead of drawn. */
void sim_config_mend(struct sim_config *config)
{
    struct sim_config_work *work = &config->work;
    config->hosts_count = via_min(config->hosts_count, SIM_HOSTS_MAX);
    config->node.hosts_max = (uint16_t)via_max(config->node.hosts_max, config->hosts_count);
    work->shift = work->shift % config->hosts_count;
    work->barrier_groups = via_min(work->barrier_groups, config->node.ops_count - 1);
    config->cpu.insurance_ns = config->port.bell_drop_chance != 0 ? 10 * VIA_MSEC_NS : 0;
    mend_heartbeats(config);
    /* An engine that works correctly must not be considered hung. */
    struct sim_config_dma *dma = &config->dma;
    dma->depth = via_max(dma->depth, 1u);
    dma->ns_max = via_max(dma->ns_max, dma->ns_min);
    if (dma->percent != 0) {
        uint64_t least_ns = via_max(2 * (uint64_t)dma->ns_max * dma->depth, 100 * VIA_USEC_NS);
        /* The driver of PEX 87xx polls a silent engine every 200 us. Each body ahead of a body may
         * add such an interval. */
        bool with_driver = config->like == SIM_LIKE_PEX_DRIVER;
        least_ns += with_driver ? 250 * VIA_USEC_NS * (config->node.dma_buffers + 1) : 0;
        least_ns += config->like == SIM_LIKE_OFI ? 200 * VIA_MSEC_NS : 0;
        config->node.dma_ns_max = via_max(config->node.dma_ns_max, least_ns);
    } else {
        dma->bytes_min = 0;
    }
    if (work->message + work->put + work->put_signal + work->get + work->atomic == 0) {
        work->message = 1;
    }
}

void sim_config_from_old_seed(struct sim_config *config, uint64_t seed, enum sim_graph graph)
{
    struct via_rng rng;
    via_rng_init(&rng, seed);
    *config = (struct sim_config){.seed = seed};
    draw_graph(config, &rng, graph);
    draw_node(config, &rng);
    draw_port(config, &rng);
    draw_cpu(config, &rng);
    draw_faults(config, &rng);
    draw_work(config, &rng);
    draw_patience(config, &rng);
    config->cpu.crowded_chance = 1000; /* no polling: draw_waits() */
    config->active_ns = by_magnitude(&rng, 2000, 200000) * VIA_USEC_NS;
    config->classic = 1;
    sim_config_mend(config);
}

void sim_config_from_seed(struct sim_config *config, uint64_t seed, enum sim_graph graph)
{
    sim_config_from_mood(config, seed, graph, SIM_MOOD_ANY);
}

void sim_config_from_mood(struct sim_config *config, uint64_t seed, enum sim_graph graph,
                          enum sim_mood mood)
{
    sim_config_from_old_seed(config, seed, graph);
    config->classic = 0;
    config->mood = mood;
    draw_more(config, graph == SIM_GRAPH_ANY);
    draw_streams(config);
    if (graph == SIM_GRAPH_ANY && (mood == SIM_MOOD_ANY || mood == SIM_MOOD_TORUS)) {
        draw_torus(config);
    }
    draw_dma(config);
    draw_limits(config);
    draw_shmem(config);
    draw_streams_hosts(config);
    draw_streams_bursts(config);
    draw_streams_full(config);
    draw_streams_lives(config);
    draw_lies(config);
    draw_narrow(config);
    draw_waits(config);
    sim_config_mend(config);
}
