/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* One channel's turn: takes the control thread's changes, receives frames, runs time-outs, sends
 * frames, rings doorbells. */
#include <errno.h>

#include "base/mutant.h"
#include "core/channel.h"

void via_channel_init(struct via_channel *channel)
{
    const struct via_node_config *config = &channel->node->config;

    via_list_init(&channel->watched);
    for (unsigned p = 0; p < config->ports_count; p++) {
        struct via_way *way = &channel->ways[p];
        way->link = &channel->node->links[p];
        way->queue = (uint8_t)channel->index;
        way->dimension = way->link->dimension;
        via_list_init(&way->watched);
        via_list_init(&way->bypass);
        via_list_init(&way->flows);
        via_list_init(&way->acks);
        if (way->dma != NULL) {
            via_dma_init(channel, way);
        }
    }
    for (unsigned h = 0; h < config->hosts_max; h++) {
        channel->hosts[h].port = VIA_PORT_NONE;
    }
    channel->hosts[config->host].session = config->session;
    via_ops_init(channel);
    via_relay_init(channel);
}

/* --- changes by the control thread ------------------------------------------------------------ */

static void release_pipes(struct via_way *way)
{
    if (!way->up) {
        return;
    }
    way->up = false;
    way->blocked = false;
    way->sent = false;
    way->released = false;
    way->bells = 0;
    way->arm = VIA_ARM_PHASE_IDLE;
    if (way->dma != NULL) {
        via_dma_release(way);
    }
    /* No write of this epoch may still be under way when the next epoch begins. */
    way->port->ops->flush(way->port, way->queue);
}

static void take_up(struct via_channel *channel, struct via_way *way)
{
    const struct via_node *node = channel->node;
    struct via_link *link = way->link;
    struct via_port *port = atomic_load_explicit(&link->port, memory_order_relaxed);
    struct via_inbox_place place;
    struct via_pipe_target target;

    via_inbox_place(&link->geometry, 1 + channel->index, &place);
    via_link_target(port, channel->index, place.memory_off, &target);
    via_pipe_writer_init(&way->tx, &link->geometry, &target,
                         (const _Atomic uint64_t *)(const void *)(port->inbox + place.credit_off),
                         way->data_ends, link->tx_epoch);
    via_link_target(port, channel->index, place.credit_off, &target);
    via_pipe_reader_init(&way->rx, &link->geometry, port->inbox + place.memory_off, &target,
                         link->rx_epoch);
    via_pipe_writer_start_at(&way->tx, node->config.pipe_first);
    via_pipe_reader_start_at(&way->rx, node->config.pipe_first);
    way->port = port;
    way->dimension = link->dimension;
    way->blocked_since_ns = 0;
    via_dma_take_up(way);
    way->up = true;
    via_flows_request_acks(channel, link->index);
}

static void take_generation(struct via_channel *channel, struct via_way *way)
{
    /* Pairs with the release in next_generation(). */
    uint32_t generation = atomic_load_explicit(&way->link->generation, memory_order_acquire);
    if (generation == way->seen) {
        return;
    }
    bool was_up = way->up;
    release_pipes(way);
    if (via_dma_is_busy(way) && !VIA_MUTANT(DMA_LET_GO)) {
        /* The engine may still write for the old epoch. The generation is acknowledged when it has
         * ended. */
        if (was_up) {
            via_flows_sort(channel, way);
        }
        return;
    }
    if (generation % 2 == 1) {
        take_up(channel, way);
    }
    way->seen = generation;
    via_flows_sort(channel, way);
    channel->work++;
    /* Pairs with the acquire in channels_have_released(). */
    atomic_store_explicit(&way->seen_generation, generation, memory_order_release);
}

/* --- the ways that need work ------------------------------------------------------------------ */

/* In the order of ports, which is as fair as any other order and the same in each run. */
static void watch(struct via_channel *channel, struct via_way *way)
{
    struct via_list *before = &channel->watched;
    via_list_foreach(it, &channel->watched) {
        if (via_list_entry(it, struct via_way, watched) > way) {
            break;
        }
        before = it;
    }
    via_list_insert_after(before, &way->watched);
}

static void watch_links(struct via_channel *channel)
{
    const struct via_node *node = channel->node;
    /* Pairs with the release in notify_channels(). */
    uint32_t version = atomic_load_explicit(&node->links_version, memory_order_acquire);
    if (version == atomic_load_explicit(&channel->links_seen, memory_order_relaxed)) {
        return;
    }
    /* Pairs with the acquire in channels_have_seen(). It follows this channel's last use of a port
     * that is being removed; from here on the channel does not find that port. */
    atomic_store_explicit(&channel->links_seen, version, memory_order_release);
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        struct via_way *way = &channel->ways[p];
        /* A link may have come up and gone down between two turns. The control thread then waits
         * until this channel acknowledges the generation. */
        if (!via_list_is_linked(&way->watched) &&
            (atomic_load_explicit(&way->link->present, memory_order_relaxed) ||
             atomic_load_explicit(&way->link->generation, memory_order_relaxed) != way->seen)) {
            watch(channel, way);
        }
    }
}

/* True if nothing can arrive through the way and nothing waits for it. */
static bool is_over(const struct via_way *way)
{
    return !way->up && way->bypass_used == 0 && !via_dma_is_busy(way) &&
           !atomic_load_explicit(&way->link->present, memory_order_relaxed) &&
           atomic_load_explicit(&way->link->generation, memory_order_relaxed) == way->seen;
}

/* --- routes ---------------------------------------------------------------------------------- */

static void handle_restarted_host(struct via_channel *channel, uint16_t host)
{
    if (channel->barriers != NULL) {
        via_barrier_host_reset(channel, host);
    }
    via_flows_host_reset(channel, host);
}

/* Copies the control thread's route and session of a host. Returns whether anything has changed. */
static bool take_route(struct via_channel *channel, uint16_t h)
{
    struct via_node *node = channel->node;
    struct via_channel_host *host = &channel->hosts[h];
    /* Pairs with the release in publish(). */
    uint32_t route = atomic_load_explicit(&node->routes[h], memory_order_acquire);
    uint32_t session = atomic_load_explicit(&node->sessions[h], memory_order_relaxed);
    uint16_t port = h == node->config.host ? VIA_PORT_NONE : via_route_port(route);
    uint32_t old_session = host->session;

    if (host->port == port && host->session == session) {
        return false;
    }
    host->rerouted |= host->port != port;
    if (host->port != port && port == VIA_PORT_NONE) {
        host->lost_ns = channel->now_ns;
    }
    host->port = port;
    host->session = session;
    if (old_session != 0 && old_session != session) {
        handle_restarted_host(channel, h);
    }
    return true;
}

/* Takes the hosts that have changed since the last turn, or all hosts if too many have. */
static void take_routes(struct via_channel *channel)
{
    uint16_t hosts[VIA_ROUTE_CHANGES_MAX];
    int changes = via_node_route_changes(channel->node, &channel->routes_seen, hosts);
    bool all = changes < 0;
    unsigned count = all ? channel->node->config.hosts_max : (unsigned)changes;
    bool changed = false;

    for (unsigned i = 0; i < count; i++) {
        changed |= take_route(channel, all ? (uint16_t)i : hosts[i]);
    }
    if (!changed) {
        return;
    }
    via_flows_rerouted(channel);
    via_relay_reroute(channel);
    if (channel->barriers != NULL) {
        via_barrier_rerouted(channel);
    }
    for (unsigned i = 0; i < count; i++) {
        struct via_channel_host *host = &channel->hosts[all ? i : hosts[i]];
        if (host->rerouted && channel->barriers != NULL) {
            via_barrier_host_rerouted(channel, (uint16_t)(host - channel->hosts));
        }
        host->rerouted = false;
    }
    channel->work++;
}

/* --- receiving frames ------------------------------------------------------------------------- */

/* True if payload and kind fit together. A relay checks the frames that it forwards as well: the
 * next host could not distinguish an invalid one from a fault of the relay. */
static bool is_well_formed(const struct via_node *node, const struct via_frame_header *header,
                           uint32_t body_bytes)
{
    if (header->kind < VIA_FRAME_MESSAGE || header->kind >= VIA_FRAME_KINDS ||
        header->source >= node->config.hosts_max || header->destination >= node->config.hosts_max ||
        header->source == header->destination ||
        (header->flow >= node->flows_each && !VIA_MUTANT(NODE_FLOW))) {
        return false;
    }
    return header->inline_bytes == 0 ||
           (header->inline_bytes <= via_frame_inline_max(header->kind) && body_bytes == 0);
}

/*
 * True if the frame names a source whose frames the neighbour may not send. No other host sends
 * frames with this host as the source, and frames of a host that has a link to this host are
 * accepted on no other link. While routes change honest frames may violate both rules. They are
 * lost like any dropped frame, and their source sends them again.
 */
static bool is_forged(const struct via_channel *channel, const struct via_way *way, uint16_t source)
{
    const struct via_node *node = channel->node;
    uint16_t port = channel->hosts[source].port;
    if (source == node->config.host) {
        return true;
    }
    return port != VIA_PORT_NONE &&
           atomic_load_explicit(&node->links[port].peer, memory_order_relaxed) == source &&
           atomic_load_explicit(&way->link->peer, memory_order_relaxed) != source;
}

/* Handles one frame. 0: it may be released. -EAGAIN: it stays. */
static int take_frame(struct via_channel *channel, struct via_way *way,
                      const struct via_pipe_record *record)
{
    struct via_frame_header header;
    const struct via_node *node = channel->node;

    memcpy(&header, record->head, sizeof(header));
    if (!is_well_formed(node, &header, record->body_bytes)) {
        via_count(&channel->counters.dropped_malformed, 1);
        return 0;
    }
    if (is_forged(channel, way, header.source)) {
        via_count(&channel->counters.dropped_forged, 1);
        return 0;
    }
    if (header.destination == node->config.host) {
        via_flows_frame(channel, &header, record->body, record->body_bytes);
        return 0;
    }
    return via_relay_frame(channel, way, &header, record->body, record->body_bytes);
}

/* The frame at the head can not be handled now. True: it has waited for stuck_ns and is dropped. */
static bool give_up_head(struct via_channel *channel, struct via_way *way)
{
    if (!way->blocked) {
        way->blocked = true;
        way->blocked_since_ns = channel->now_ns;
        return false;
    }
    if (channel->now_ns - way->blocked_since_ns < channel->node->config.stuck_ns) {
        return false;
    }
    via_count(&channel->counters.dropped_stuck, 1);
    return true;
}

/* why: via_link.broken or .lost, which the control thread polls. */
static void break_link(struct via_channel *channel, struct via_way *way, _Atomic bool *why)
{
    atomic_store_explicit(why, true, memory_order_relaxed);
    release_pipes(way);
    via_flows_sort(channel, way);
}

static void receive(struct via_channel *channel, struct via_way *way)
{
    for (uint32_t n = 0; n < channel->node->config.batch_frames; n++) {
        struct via_pipe_record record;
        int rc = via_pipe_peek(&way->rx, &record);
        if (rc == 0) {
            /* The frame that waited may no longer exist, because a hostile writer has erased it. If
             * `blocked` stayed set, this thread would stay awake forever for the time-out of that
             * frame. */
            way->blocked = false;
            return;
        }
        if (rc < 0) {
            break_link(channel, way, &way->link->broken);
            return;
        }
        if (VIA_MUTANT(CREDIT_FIRST) && !way->blocked) {
            via_pipe_release(&way->rx, 1);
        }
        if (take_frame(channel, way, &record) == -EAGAIN && !give_up_head(channel, way)) {
            return;
        }
        way->blocked = false;
        via_pipe_advance(&way->rx, &record);
        if (!VIA_MUTANT(CREDIT_FIRST)) {
            via_pipe_release(&way->rx, 1);
        }
        way->released = true;
        if (way->rx.posted == way->rx.released && via_pipe_writer_is_waiting(&way->rx)) {
            /* the writer can continue while this thread copies the rest of the turn */
            via_way_ring(way);
        }
        channel->work++;
        via_count(&way->frames_received, 1);
        via_count(&way->bytes_received, record.body_bytes);
    }
}

static void clear_events(struct via_channel *channel, struct via_way *way)
{
    /* Pairs with the release in via_node_port_set(). */
    struct via_port *port = atomic_load_explicit(&way->link->port, memory_order_acquire);
    uint64_t mask = VIA_PORT_EVENT_DOORBELL(channel->index);
    if (channel->index == 0) {
        mask |= VIA_PORT_EVENT_DOORBELL(VIA_PORT_DOORBELL_BARRIER_START) |
                VIA_PORT_EVENT_DOORBELL(VIA_PORT_DOORBELL_BARRIER_END);
    }
    if (via_dma_is_busy(way)) {
        mask |= VIA_PORT_EVENT_DMA_DONE(channel->index);
    }
    if (port != NULL) {
        /* Events are only hints: the thread checks the pipes afterwards. */
        (void)port->ops->events(port, mask);
    }
}

/* Called after take_generation(): a published record needs a ring, and a released link gets
 * none. */
static void take_dma(struct via_channel *channel, struct via_way *way)
{
    if (!via_dma_poll(way)) {
        break_link(channel, way, &way->link->lost);
    }
    take_generation(channel, way); /* it may have waited for the engine */
}

/* --- the turn -------------------------------------------------------------------------------- */

static uint64_t deadline(const struct via_channel *channel)
{
    uint64_t stuck_ns = channel->node->config.stuck_ns;
    uint64_t next = via_min(channel->flows->next_timer_ns, via_rx_deadline_ns(channel));

    via_list_foreach(it, &channel->watched) {
        const struct via_way *way = via_list_entry(it, struct via_way, watched);
        if (way->blocked) {
            next = via_min(next, way->blocked_since_ns + stuck_ns);
        }
        if (way->bypass_used != 0) {
            next = via_min(next, via_relay_deadline_ns(channel, way));
        }
        if (via_dma_is_busy(way)) {
            next = via_min(next, via_dma_deadline_ns(way));
        }
    }
    if (channel->barriers != NULL) {
        next = via_min(next, via_barrier_deadline_ns(channel));
    }
    return next;
}

/* Takes changes by the control thread, and completions of the engines. */
static void catch_up(struct via_channel *channel)
{
    watch_links(channel);
    via_list_foreach_safe(it, &channel->watched) {
        struct via_way *way = via_list_entry(it, struct via_way, watched);
        clear_events(channel, way);
        take_generation(channel, way);
        if (via_dma_is_busy(way)) {
            take_dma(channel, way);
        }
        if (is_over(way)) {
            via_list_remove(&way->watched);
        }
    }
    take_routes(channel);
}

static void run_turn(struct via_channel *channel)
{
    catch_up(channel);
    via_list_foreach(it, &channel->watched) {
        struct via_way *way = via_list_entry(it, struct via_way, watched);
        if (way->bypass_used != 0 && !VIA_MUTANT(NO_BUBBLE)) {
            via_relay_drain(channel, way);
        }
        way->room_requested = false;
        way->turn_requested = false;
    }
    via_list_foreach(it, &channel->watched) {
        struct via_way *way = via_list_entry(it, struct via_way, watched);
        if (way->up) {
            receive(channel, way);
        }
    }
    if (channel->now_ns >= channel->flows->next_timer_ns) {
        via_tx_timers(channel);
    }
    if (!via_list_is_empty(&channel->flows->acks_soon)) {
        via_rx_timers(channel);
    }
    if (channel->barriers != NULL && channel->now_ns >= via_barrier_deadline_ns(channel)) {
        via_barrier_timers(channel);
    }
    if (!via_list_is_empty(&channel->flows->local)) {
        via_ops_run_local(channel);
    }
    via_ops_report(channel);
    if (channel->barriers != NULL) {
        via_barrier_pump(channel);
    }
    via_list_foreach(it, &channel->watched) {
        struct via_way *way = via_list_entry(it, struct via_way, watched);
        if (way->up) {
            via_tx_pump(channel, way);
            if (VIA_MUTANT(NO_BUBBLE)) {
                via_relay_drain(channel, way);
            }
            via_way_ring(way);
        }
        if (way->up && way->tx.broken) {
            break_link(channel, way, &way->link->broken);
        }
    }
}

unsigned via_node_poll(struct via_node *node, unsigned index, uint64_t now_ns,
                       uint64_t *ret_deadline_ns)
{
    struct via_channel *channel = &node->channels[index];
    uint32_t count = atomic_load_explicit(&channel->turn, memory_order_relaxed);

    /* Sequentially consistent, before any load of a segment's handle. Pairs with
     * via_node_segment_retire(). */
    atomic_store_explicit(&channel->turn, count + 1, memory_order_seq_cst);
    channel->now_ns = now_ns;
    channel->work = 0;
    run_turn(channel);
    *ret_deadline_ns = deadline(channel);
    /* Pairs with the acquire in slot_is_idle(). */
    atomic_store_explicit(&channel->turn, count + 2, memory_order_release);
    return channel->work;
}

/* --- before sleeping ------------------------------------------------------------------------- */

static bool is_room_wanted(const struct via_way *way)
{
    return way->bypass_used != 0 || way->room_requested || way->turn_requested ||
           !via_list_is_empty(&way->flows) || !via_list_is_empty(&way->acks);
}

/* True if the next turn could send a frame that waits for this link. */
static bool has_something_to_send(struct via_channel *channel, struct via_way *way)
{
    if ((way->bypass_used != 0 || way->room_requested) && via_way_has_room(way)) {
        return true;
    }
    if (way->turn_requested && via_way_is_turn_allowed(channel, way)) {
        return true;
    }
    return (!via_list_is_empty(&way->flows) || !via_list_is_empty(&way->acks)) &&
           via_way_is_inject_allowed(way);
}

/* Requests the wake-ups that this thread needs. True: something was posted. */
static bool announce(struct via_way *way)
{
    bool posted = false;

    if (!way->blocked) {
        posted = via_pipe_arm(&way->rx);
    } else if (way->rx.posted != way->rx.released) {
        via_pipe_post_credit(&way->rx);
        posted = true;
    }
    if (is_room_wanted(way)) {
        posted |= via_pipe_request_room(&way->tx);
    }
    return posted;
}

/* True if this thread waits only for records of the peer, and the port itself wakes it for them.
 * Credits are words, and wake no thread without a request. */
static bool is_woken_by_port(const struct via_way *way)
{
    return way->port->caps.lines_wake && !way->blocked && !is_room_wanted(way);
}

/* True: the peer has this thread's requests, and the peer's earlier writes are visible here. */
static bool arm_way(const struct via_channel *channel, struct via_way *way)
{
    struct via_port *port = way->port;
    bool armed =
        is_woken_by_port(way) || via_arm_poll(&way->arm, port, channel->index, announce(way));

    /* Arming may have returned credits. The writer may have begun to wait for them after the turn
     * that released them. */
    if (!VIA_MUTANT(NO_WANT) && via_pipe_take_writer_ring(&way->rx)) {
        port->ops->flush(port, channel->index);
        (void)port->ops->ring(port, channel->index, channel->index);
    }
    return armed;
}

/* True if there is work for which no event would wake this thread. */
static bool has_work(struct via_channel *channel)
{
    struct via_node *node = channel->node;

    if (!via_list_is_empty(&channel->flows->local) || !via_list_is_empty(&channel->ops->reports) ||
        (channel->barriers != NULL && via_barrier_is_due(channel)) ||
        atomic_load_explicit(&node->links_version, memory_order_acquire) !=
            atomic_load_explicit(&channel->links_seen, memory_order_relaxed) ||
        atomic_load_explicit(&node->route_log.version, memory_order_acquire) !=
            channel->routes_seen) {
        return true;
    }
    via_list_foreach(it, &channel->watched) {
        struct via_way *way = via_list_entry(it, struct via_way, watched);
        bool changed =
            atomic_load_explicit(&way->link->generation, memory_order_acquire) != way->seen;
        if ((changed && (way->up || !via_dma_is_busy(way))) ||
            (way->up && ((!way->blocked && via_pipe_is_ready(&way->rx)) ||
                         has_something_to_send(channel, way)))) {
            return true;
        }
    }
    return false;
}

/* True if an announcement has arrived since the control thread's last poll. */
static bool control_is_ready(const struct via_link *link)
{
    const struct via_port *port = atomic_load_explicit(&link->port, memory_order_acquire);
    uint64_t next = atomic_load_explicit(&link->control_word, memory_order_relaxed);
    struct via_inbox_place place;

    if (port == NULL || next == 0) {
        return false;
    }
    via_inbox_place(via_control_geometry(), 0, &place);
    uint32_t slot = via_record_word_sequence(next) & (VIA_CONTROL_PIPE_SLOTS - 1);
    const unsigned char *line =
        port->inbox + place.memory_off + (size_t)(slot + 1) * VIA_RECORD_LINE_BYTES;
    const _Atomic uint64_t *word =
        (const _Atomic uint64_t *)(const void *)(line + offsetof(struct via_record_line, word));
    uint64_t found = atomic_load_explicit(word, memory_order_relaxed);
    return via_record_word_epoch(found) == via_record_word_epoch(next) &&
           via_record_word_sequence(found) == via_record_word_sequence(next);
}

static bool is_any_control_ready(struct via_channel *channel)
{
    via_list_foreach(it, &channel->watched) {
        if (control_is_ready(via_list_entry(it, struct via_way, watched)->link)) {
            return true;
        }
    }
    return false;
}

/* From now on the ports make progress without this thread. */
static void release_ports(struct via_channel *channel)
{
    via_list_foreach(it, &channel->watched) {
        struct via_way *way = via_list_entry(it, struct via_way, watched);
        if (way->up && way->port->ops->rest != NULL) {
            way->port->ops->rest(way->port, channel->index);
        }
    }
}

bool via_node_release_ports(struct via_node *node, unsigned index)
{
    struct via_channel *channel = &node->channels[index];
    via_list_foreach(it, &channel->watched) {
        const struct via_way *way = via_list_entry(it, struct via_way, watched);
        if (way->up && way->arm == VIA_ARM_PHASE_FENCING && !way->port->caps.fence_wakes) {
            return false;
        }
    }
    release_ports(channel);
    return true;
}

enum via_arm via_node_arm(struct via_node *node, unsigned index)
{
    struct via_channel *channel = &node->channels[index];
    bool armed = true;

    if (has_work(channel)) {
        return VIA_ARM_BUSY;
    }
    /* The fences of all links are under way at the same time. */
    via_list_foreach(it, &channel->watched) {
        struct via_way *way = via_list_entry(it, struct via_way, watched);
        if (way->up) {
            armed &= arm_way(channel, way);
        }
    }
    if (VIA_MUTANT(NO_SECOND_CHECK)) {
        return VIA_ARM_SLEEP;
    }
    /* Only the check after the last fence matters for correctness; earlier checks find work
     * earlier. */
    if (has_work(channel) || (index == 0 && is_any_control_ready(channel))) {
        return VIA_ARM_BUSY;
    }
    if (armed) {
        release_ports(channel);
    }
    return armed ? VIA_ARM_SLEEP : VIA_ARM_FENCING;
}
