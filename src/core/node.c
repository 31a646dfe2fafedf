/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The node as a whole: its configuration, its memory, initialization and end, and its counters. */
#include <errno.h>

#include "core/channel.h"
#include "wire/handshake.h"

_Static_assert(VIA_PORTS_MAX < VIA_PORT_NONE, "a port has a number");
_Static_assert(VIA_HOSTS_MAX <= 1024 && VIA_CHANNELS_MAX <= 16, "what R1 of the handshake holds");

/* a cookie has 20 bits for the slot, and internal operations need slots, too */
#define OPS_MAX (1u << 19)
#define WINDOW_MAX (1u << 20)
#define DMA_BUFFERS_MAX 4096u
/* Longer than the minimum that RFC 1122 demands of TCP (100 s), and than a person needs to plug a
 * cable in again; shorter than a person would wait. */
#define GIVE_UP_NS (120 * VIA_SEC_NS)
/* A small give_up_ns does not shorten time-outs below this value. */
#define RETRY_NS_FLOOR (100 * VIA_USEC_NS)
/* Long, because programs compute between barriers. */
#define WAIT_NS_MAX (600 * VIA_SEC_NS)

void via_node_config_init(struct via_node_config *config)
{
    *config = (struct via_node_config){
        .hosts_max = 64,
        .channels_count = 1,
        .pipe_slots = 32,
        .frame_bytes_max = 32768,
        .bypass_count = 8,
        .ops_count = 256,
        .flows_count = 8,
        .window_frames = 128,
        .segments_count = 256,
        .batch_frames = 32,
        .dma_buffers = 8,
    };
}

static void set_config_defaults(struct via_node_config *config)
{
    if (config->protocol_version == 0) {
        config->protocol_version = VIA_PROTOCOL_VERSION;
    }
    if (config->hops_max == 0) {
        config->hops_max = (uint16_t)via_max(config->hosts_max - 1, 1);
    }
    if (config->heartbeat_ns == 0) {
        config->heartbeat_ns = 20 * VIA_MSEC_NS;
    }
    if (config->retry_ns_min == 0) {
        config->retry_ns_min = 5 * VIA_MSEC_NS;
    }
    if (config->retry_ns_max == 0) {
        config->retry_ns_max = 100 * VIA_MSEC_NS;
    }
    if (config->retry_ns_max < config->retry_ns_min) {
        config->retry_ns_max = config->retry_ns_min;
    }
    if (config->ack_ns_max == 0) {
        config->ack_ns_max = 4 * VIA_MSEC_NS;
    }
    if (config->give_up_ns == 0) {
        config->give_up_ns = GIVE_UP_NS;
    }
    if (config->wait_ns_max == 0) {
        config->wait_ns_max = WAIT_NS_MAX;
    }
    /* A frame is sent several times before its host is given up. */
    config->retry_ns_max =
        via_min(config->retry_ns_max, via_max(config->give_up_ns / 4, RETRY_NS_FLOOR));
    config->retry_ns_min = via_min(config->retry_ns_min, config->retry_ns_max);
    if (config->stuck_ns == 0) {
        config->stuck_ns = 50 * VIA_MSEC_NS;
    }
    if (config->dma_ns_max == 0) {
        config->dma_ns_max = 20 * VIA_MSEC_NS;
    }
    /* A session is sent in a register, and a read from a dead link returns all-ones. */
    if (config->session == VIA_HANDSHAKE_ALL_ONES) {
        config->session--;
    }
}

static void compute_pipe_geometry(const struct via_node_config *config,
                                  struct via_pipe_geometry *ret)
{
    via_geometry_of_channels(config->pipe_slots, config->frame_bytes_max, ret);
}

static bool ports_are_valid(const struct via_node_config *config)
{
    for (unsigned p = 0; config->ports != NULL && p < config->ports_count; p++) {
        if (config->ports[p].dimension >= VIA_DIMENSIONS_MAX) {
            return false;
        }
    }
    return true;
}

static uint32_t dma_bytes_min(const struct via_node_config *config, unsigned port)
{
    return config->ports != NULL ? config->ports[port].dma_bytes_min : 0;
}

static bool config_is_valid(const struct via_node_config *config)
{
    struct via_pipe_geometry geometry;

    if (config->session == 0 || config->hosts_max == 0 || config->hosts_max > VIA_HOSTS_MAX ||
        config->host >= config->hosts_max || config->ports_count > VIA_PORTS_MAX ||
        config->channels_count == 0 || config->channels_count > VIA_CHANNELS_MAX ||
        !ports_are_valid(config)) {
        return false;
    }
    if (config->frame_bytes_max < VIA_HANDSHAKE_FRAME_UNIT ||
        config->frame_bytes_max % VIA_HANDSHAKE_FRAME_UNIT != 0 ||
        config->frame_bytes_max > VIA_RECORD_BODY_BYTES_MAX ||
        (uint64_t)config->frame_bytes_max * ((uint64_t)config->pipe_slots + 1) > (1u << 30)) {
        return false;
    }
    compute_pipe_geometry(config, &geometry);
    if (via_pipe_geometry_check(&geometry) != 0) {
        return false;
    }
    return config->bypass_count >= 1 && config->bypass_count <= 65536 && config->ops_count >= 2 &&
           config->ops_count <= OPS_MAX && config->flows_count >= 1 &&
           config->flows_count < UINT16_MAX && config->window_frames >= 1 &&
           config->window_frames <= WINDOW_MAX && config->segments_count <= UINT16_MAX &&
           config->batch_frames >= 1 && config->epoch_first <= VIA_EPOCH_MAX &&
           config->dma_buffers >= 1 && config->dma_buffers <= DMA_BUFFERS_MAX;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Divides the node's memory. With base NULL it only counts bytes. */
struct carver {
    unsigned char *base;
    size_t used;
};

static void *carve(struct carver *carver, size_t count, size_t each)
{
    size_t off = carver->used;
    carver->used = via_align_up(off + count * each, VIA_CACHELINE);
    return carver->base != NULL ? carver->base + off : NULL;
}

/* All memory of a port's DMA except the bodies. NULL while counting, or for a port that never has
 * DMA. */
static struct via_dma *carve_dma(struct carver *carver, const struct via_node_config *config,
                                 unsigned port)
{
    if (dma_bytes_min(config, port) == 0) {
        return NULL;
    }
    struct via_dma *dma = carve(carver, 1, sizeof(struct via_dma));
    void *stages = carve(carver, config->dma_buffers, sizeof(struct via_dma_stage));
    void *records = carve(carver, config->pipe_slots, sizeof(struct via_dma_record));
    if (dma != NULL) {
        dma->bytes_min = dma_bytes_min(config, port);
        dma->stages = stages;
        dma->records = records;
    }
    return dma;
}

static struct via_way *carve_ways(struct carver *carver, const struct via_node_config *config)
{
    struct via_way *ways = carve(carver, config->ports_count, sizeof(struct via_way));
    for (unsigned p = 0; p < config->ports_count; p++) {
        uint32_t *data_ends = carve(carver, config->pipe_slots, sizeof(uint32_t));
        struct via_dma *dma = carve_dma(carver, config, p);
        if (ways != NULL) {
            ways[p].data_ends = data_ends;
            ways[p].dma = dma;
        }
    }
    return ways;
}

static struct via_flows *carve_flows(struct carver *carver, const struct via_node_config *config)
{
    size_t count = (size_t)config->hosts_max * (config->flows_count + 1);
    struct via_flows *flows = carve(carver, 1, sizeof(struct via_flows));
    void *tx = carve(carver, count, sizeof(struct via_tx_flow));
    void *rx = carve(carver, count, sizeof(struct via_rx_flow));
    void *acks_soon_counts = carve(carver, config->hosts_max, sizeof(uint16_t));
    if (flows != NULL) {
        flows->tx = tx;
        flows->rx = rx;
        flows->acks_soon_counts = acks_soon_counts;
    }
    return flows;
}

static struct via_ops *carve_ops(struct carver *carver, const struct via_node_config *config)
{
    struct via_ops *ops = carve(carver, 1, sizeof(struct via_ops));
    void *slots = carve(carver, 2 * (size_t)config->ops_count, sizeof(struct via_op_slot));
    void *answers_of = carve(carver, config->hosts_max, sizeof(uint32_t));
    if (ops != NULL) {
        ops->slots = slots;
        ops->answers_of = answers_of;
    }
    return ops;
}

static struct via_barriers *carve_barriers(struct carver *carver,
                                           const struct via_node_config *config)
{
    struct via_barriers *barriers = carve(carver, 1, sizeof(struct via_barriers));
    struct via_barrier_host *hosts =
        carve(carver, config->hosts_max, sizeof(struct via_barrier_host));
    struct via_barrier_arrival *arrivals =
        carve(carver, (size_t)config->hosts_max * VIA_BARRIER_ARRIVALS_MAX,
              sizeof(struct via_barrier_arrival));
    for (unsigned h = 0; barriers != NULL && h < config->hosts_max; h++) {
        hosts[h].arrivals = arrivals + (size_t)h * VIA_BARRIER_ARRIVALS_MAX;
        barriers->hosts = hosts;
    }
    return barriers;
}

static struct via_relay *carve_relay(struct carver *carver, const struct via_node_config *config)
{
    size_t count = (size_t)config->ports_count * config->bypass_count;
    struct via_relay *relay = carve(carver, 1, sizeof(struct via_relay));
    void *frames = carve(carver, count, sizeof(struct via_bypass_frame));
    if (relay != NULL) {
        relay->frames = frames;
    }
    return relay;
}

/* Divides the memory of a channel. While counting, `channel` and all results are NULL. */
static void carve_channel(struct carver *carver, const struct via_node_config *config,
                          unsigned index, struct via_channel *channel)
{
    void *ways = carve_ways(carver, config);
    void *hosts = carve(carver, config->hosts_max, sizeof(struct via_channel_host));
    void *flows = carve_flows(carver, config);
    void *ops = carve_ops(carver, config);
    void *relay = carve_relay(carver, config);
    void *barriers = index == 0 ? carve_barriers(carver, config) : NULL;
    if (channel != NULL) {
        channel->ways = ways;
        channel->hosts = hosts;
        channel->flows = flows;
        channel->ops = ops;
        channel->relay = relay;
        channel->barriers = barriers;
    }
}

static void carve_bodies(struct carver *carver, const struct via_node_config *config,
                         struct via_channel *channel)
{
    size_t count = (size_t)config->ports_count * config->bypass_count;
    unsigned char *bodies = carve(carver, count, config->frame_bytes_max);
    for (size_t i = 0; channel != NULL && i < count; i++) {
        channel->relay->frames[i].body = bodies + i * config->frame_bytes_max;
    }
    for (unsigned p = 0; p < config->ports_count; p++) {
        if (dma_bytes_min(config, p) == 0) {
            continue;
        }
        unsigned char *stages = carve(carver, config->dma_buffers, config->frame_bytes_max);
        for (size_t i = 0; channel != NULL && i < config->dma_buffers; i++) {
            channel->ways[p].dma->stages[i].data = stages + i * config->frame_bytes_max;
        }
    }
}

static size_t dirty_words(const struct via_node_config *config)
{
    return (config->hosts_max + 63u) / 64;
}

static struct via_link *carve_links(struct carver *carver, const struct via_node_config *config)
{
    struct via_link *links = carve(carver, config->ports_count, sizeof(struct via_link));
    for (unsigned p = 0; p < config->ports_count; p++) {
        uint64_t *dirty = carve(carver, dirty_words(config), sizeof(uint64_t));
        uint64_t *whole = carve(carver, dirty_words(config), sizeof(uint64_t));
        if (links != NULL) {
            links[p].lsdb.dirty = dirty;
            links[p].lsdb.whole = whole;
            links[p].dimension = config->ports != NULL ? config->ports[p].dimension : 0;
        }
    }
    return links;
}

static struct via_lsdb *carve_lsdb(struct carver *carver, const struct via_node_config *config)
{
    struct via_lsdb *lsdb = carve(carver, 1, sizeof(struct via_lsdb));
    void *lsas = carve(carver, config->hosts_max, sizeof(struct via_lsa));
    void *local = carve(carver, config->hosts_max, sizeof(uint16_t));
    void *by_rank =
        carve(carver, (size_t)config->ports_count * VIA_DIMENSIONS_MAX, sizeof(uint16_t));
    void *labels = carve(carver, config->hosts_max, sizeof(uint32_t));
    void *heap = carve(carver, config->hosts_max, sizeof(uint16_t));
    void *heap_at = carve(carver, config->hosts_max, sizeof(uint16_t));
    void *keys = carve(carver, config->hosts_max, sizeof(uint32_t));
    void *touched = carve(carver, config->hosts_max, sizeof(uint16_t));
    void *is_touched = carve(carver, config->hosts_max, sizeof(uint8_t));
    if (lsdb != NULL) {
        lsdb->lsas = lsas;
        lsdb->local = local;
        lsdb->by_rank = by_rank;
        lsdb->labels = labels;
        lsdb->heap = heap;
        lsdb->heap_at = heap_at;
        lsdb->keys = keys;
        lsdb->touched = touched;
        lsdb->is_touched = is_touched;
    }
    return lsdb;
}

/* Not zeroed, so the pages of the unused part are never touched. */
static void carve_chunks(struct carver *carver, const struct via_node_config *config,
                         struct via_lsdb *lsdb)
{
    size_t count = via_lsa_chunks_count(config->hosts_max, config->ports_count);
    struct via_lsa_chunk *chunks = carve(carver, count, sizeof(struct via_lsa_chunk));
    void *changes = carve(carver, config->hosts_max, sizeof(struct via_lsa_change));
    if (lsdb != NULL) {
        lsdb->chunks = chunks;
        lsdb->changes = changes;
        lsdb->chunks_count = (uint32_t)count;
    }
}

/* All memory except chunks and bodies, which need not be zero. */
static void carve_node(struct carver *carver, const struct via_node_config *config,
                       struct via_node *node)
{
    carve(carver, 1, sizeof(struct via_node));
    void *links = carve_links(carver, config);
    void *lsdb = carve_lsdb(carver, config);
    void *routes = carve(carver, config->hosts_max, sizeof(uint32_t));
    void *sessions = carve(carver, config->hosts_max, sizeof(uint32_t));
    struct via_segment_slot *segments =
        carve(carver, config->segments_count, sizeof(struct via_segment_slot));
    for (unsigned s = 0; s < config->segments_count; s++) {
        uint32_t *turns = carve(carver, config->channels_count, sizeof(uint32_t));
        if (segments != NULL) {
            segments[s].turns = turns;
        }
    }
    struct via_channel *channels =
        carve(carver, config->channels_count, sizeof(struct via_channel));
    for (unsigned k = 0; k < config->channels_count; k++) {
        carve_channel(carver, config, k, channels != NULL ? &channels[k] : NULL);
    }
    if (node != NULL) {
        node->links = links;
        node->lsdb = lsdb;
        node->routes = routes;
        node->sessions = sessions;
        node->segments = segments;
        node->channels = channels;
    }
}

size_t via_node_bytes(const struct via_node_config *config)
{
    struct carver carver = {0};

    if (!config_is_valid(config)) {
        return 0;
    }
    carve_node(&carver, config, NULL);
    carve_chunks(&carver, config, NULL);
    for (unsigned k = 0; k < config->channels_count; k++) {
        carve_bodies(&carver, config, NULL);
    }
    return carver.used;
}

size_t via_node_inbox_bytes(const struct via_node_config *config)
{
    struct via_pipe_geometry geometry;

    if (!config_is_valid(config)) {
        return 0;
    }
    compute_pipe_geometry(config, &geometry);
    return via_inbox_bytes(&geometry, config->channels_count);
}

/* --- initialization and end ------------------------------------------------------------------- */

static uint16_t first_epoch(const struct via_node_config *config)
{
    if (config->epoch_first != 0) {
        return (uint16_t)config->epoch_first;
    }
    return (uint16_t)(config->session % VIA_EPOCH_MAX + VIA_EPOCH_MIN);
}

int via_node_init(struct via_node **ret_node, void *memory, const struct via_node_config *config,
                  const struct via_node_env *env)
{
    struct carver carver = {.base = memory};

    if (!config_is_valid(config) || env->deliver == NULL || env->complete == NULL ||
        env->notify == NULL || env->wake == NULL ||
        (config->keyed && (env->mac == NULL || env->random == NULL)) ||
        (uintptr_t)memory % VIA_CACHELINE != 0) {
        return -EINVAL;
    }
    struct carver measure = {0};
    carve_node(&measure, config, NULL);
    memset(memory, 0, measure.used);

    /* The memory is divided twice, because the pointers in the tables exist only the second
     * time. */
    struct via_node *node = memory;
    carve_node(&carver, config, node);
    carve_chunks(&carver, config, node->lsdb);
    node->config = *config;
    node->config.ports = NULL; /* the caller owns the array */
    set_config_defaults(&node->config);
    node->env = *env;
    compute_pipe_geometry(config, &node->geometry);
    node->inbox_bytes = via_node_inbox_bytes(config);
    node->flows_each = config->flows_count + 1;
    node->answers_count = config->ops_count;
    uint64_t get_bytes = (uint64_t)config->frame_bytes_max * (config->window_frames / 2 + 1);
    node->get_bytes_max = (uint32_t)via_min(get_bytes, (uint64_t)1 << 24);

    for (unsigned p = 0; p < config->ports_count; p++) {
        struct via_link *link = &node->links[p];
        link->index = p;
        link->rx_epoch = first_epoch(config);
    }
    for (unsigned k = 0; k < config->channels_count; k++) {
        struct via_channel *channel = &node->channels[k];
        carve_bodies(&carver, config, channel);
        channel->node = node;
        channel->index = k;
        via_channel_init(channel);
    }
    via_lsdb_init(node);
    *ret_node = node;
    return 0;
}

int via_node_port_set(struct via_node *node, unsigned index, struct via_port *port)
{
    if (index >= node->config.ports_count || port == NULL ||
        (uintptr_t)port->inbox % VIA_CACHELINE != 0) {
        return -EINVAL;
    }
    struct via_link *link = &node->links[index];
    if (link->phase != VIA_PHASE_NO_PORT) {
        return -EBUSY;
    }
    link->phase = VIA_PHASE_DOWN;
    /* Pairs with the acquire in clear_events(): the port is complete. */
    atomic_store_explicit(&link->port, port, memory_order_release);
    return 0;
}

int via_node_port_clear(struct via_node *node, unsigned index)
{
    if (index >= node->config.ports_count) {
        return -EINVAL;
    }
    struct via_link *link = &node->links[index];
    return link->phase != VIA_PHASE_NO_PORT ? via_link_leave(node, link) : -ENOENT;
}

int via_node_port_dimension(struct via_node *node, unsigned index, uint8_t dimension)
{
    if (index >= node->config.ports_count || dimension >= VIA_DIMENSIONS_MAX) {
        return -EINVAL;
    }
    struct via_link *link = &node->links[index];
    if (link->phase != VIA_PHASE_NO_PORT) {
        return -EBUSY;
    }
    link->dimension = dimension;
    via_routes_rank(node, link);
    return 0;
}

int via_node_port_dma(struct via_node *node, unsigned index, uint32_t bytes_min)
{
    if (index >= node->config.ports_count || bytes_min == 0 ||
        node->channels[0].ways[index].dma == NULL) {
        return -EINVAL;
    }
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        atomic_store_explicit(&node->channels[k].ways[index].dma->bytes_min, bytes_min,
                              memory_order_relaxed);
    }
    return 0;
}

/* True if the index has a port that is not being removed. */
static bool is_in_use(const struct via_link *link)
{
    return link->phase != VIA_PHASE_NO_PORT && !via_link_is_leaving(link);
}

void via_node_control(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    *ret_deadline_ns = VIA_NEVER_NS;
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        if (is_in_use(&node->links[p])) {
            via_link_control(node, &node->links[p], now_ns, ret_deadline_ns);
        }
    }
    via_lsdb_update(node, now_ns, ret_deadline_ns);
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        via_link_finish(node, &node->links[p], now_ns, ret_deadline_ns);
    }
    if (node->changed) {
        node->changed = false;
        if (node->env.changed != NULL) {
            node->env.changed(node->env.ctx);
        }
    }
}

void via_node_fini(struct via_node *node)
{
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        via_node_cancel(node, k, 0, 0);
    }
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        if (is_in_use(&node->links[p])) {
            via_link_close(node, &node->links[p]);
        }
    }
}

/* --- counters and state ---------------------------------------------------------------------- */

int via_node_link_status(const struct via_node *node, unsigned port,
                         struct via_link_status *ret_status)
{
    if (port >= node->config.ports_count) {
        return -EINVAL;
    }
    const struct via_link *link = &node->links[port];
    struct via_link_status status = {
        .state = atomic_load_explicit(&link->state, memory_order_relaxed),
        .peer = atomic_load_explicit(&link->peer, memory_order_relaxed),
        .peer_session = atomic_load_explicit(&link->peer_session, memory_order_relaxed),
        .peer_version = atomic_load_explicit(&link->peer_version, memory_order_relaxed),
        .peer_link = atomic_load_explicit(&link->peer_link, memory_order_relaxed),
        .ups_count = atomic_load_explicit(&link->ups_count, memory_order_relaxed),
        .downs_count = atomic_load_explicit(&link->downs_count, memory_order_relaxed),
        .heartbeats = atomic_load_explicit(&link->heartbeats, memory_order_relaxed),
        .down_why = atomic_load_explicit(&link->down_why, memory_order_relaxed),
        .silence_max_ns = atomic_load_explicit(&link->silence_max_ns, memory_order_relaxed),
        .errors = via_counted(&link->errors),
        .pipe_slots = atomic_load_explicit(&link->pipe_slots, memory_order_relaxed),
        .refusal =
            {
                .cause = atomic_load_explicit(&link->refusal_cause, memory_order_relaxed),
                .mine = atomic_load_explicit(&link->refusal_mine, memory_order_relaxed),
                .peers = atomic_load_explicit(&link->refusal_peers, memory_order_relaxed),
            },
    };
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        const struct via_way *way = &node->channels[k].ways[port];
        status.frames_sent += via_counted(&way->frames_sent);
        status.frames_received += via_counted(&way->frames_received);
        status.bytes_sent += via_counted(&way->bytes_sent);
        status.bytes_received += via_counted(&way->bytes_received);
        status.relayed_frames += via_counted(&way->frames_relayed);
        status.bypassed_frames += via_counted(&way->frames_bypassed);
        status.dma_frames += via_counted(&way->dma_frames);
        status.dma_bytes += via_counted(&way->dma_bytes);
        status.dma_busy += via_counted(&way->dma_busy);
        status.dma_fallbacks += via_counted(&way->dma_fallbacks);
        status.dma_hangs += via_counted(&way->dma_hangs);
    }
    *ret_status = status;
    return 0;
}

int via_node_route_status(const struct via_node *node, uint16_t host,
                          struct via_route_status *ret_status)
{
    if (host >= node->config.hosts_max) {
        return -EINVAL;
    }
    uint32_t route = atomic_load_explicit(&node->routes[host], memory_order_relaxed);
    *ret_status = (struct via_route_status){
        .port = via_route_port(route),
        .hops = via_route_hops(route),
        .session = atomic_load_explicit(&node->sessions[host], memory_order_relaxed),
    };
    return 0;
}

void via_node_counters(const struct via_node *node, struct via_node_counters *ret_counters)
{
    struct via_node_counters sum = {0};
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        const struct via_channel_counters *c = &node->channels[k].counters;
        sum.frames_delivered += via_counted(&c->delivered);
        sum.frames_duplicate += via_counted(&c->duplicate);
        sum.frames_gap += via_counted(&c->gap);
        sum.frames_resent += via_counted(&c->resent);
        sum.frames_dropped_stuck += via_counted(&c->dropped_stuck);
        sum.frames_dropped_hops += via_counted(&c->dropped_hops);
        sum.frames_dropped_session += via_counted(&c->dropped_session);
        sum.frames_dropped_unroutable += via_counted(&c->dropped_unroutable);
        sum.frames_dropped_malformed += via_counted(&c->dropped_malformed);
        sum.frames_dropped_forged += via_counted(&c->dropped_forged);
        sum.refused_key += via_counted(&c->refused_key);
        sum.refused_range += via_counted(&c->refused_range);
        sum.refused_endpoint += via_counted(&c->refused_endpoint);
        sum.ops_completed += via_counted(&c->ops_completed);
        sum.ops_failed += via_counted(&c->ops_failed);
    }
    sum.announcements_sent = via_counted(&node->lsdb->announcements_sent);
    sum.announcements_received = via_counted(&node->lsdb->announcements_received);
    sum.announcement_bytes_sent = via_counted(&node->lsdb->announcement_bytes_sent);
    sum.routes_changed = via_counted(&node->lsdb->routes_changed);
    sum.routes_examined = via_counted(&node->lsdb->routes_examined);
    *ret_counters = sum;
}
