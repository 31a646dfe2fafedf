/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Links: bring-up through scratchpads, heartbeats, and the end of a link. Control thread.
 *
 * Each side chooses the epoch of records into its own inbox, a new one for each bring-up, and
 * echoes the peer's epoch. Side 1, the follower, publishes (epoch, 0), and does not change its
 * epoch until it has been up. Side 0, the leader, answers with (epoch, echo). The follower echoes
 * the leader's epoch, and its registers are complete; the leader then finds its own epoch echoed.
 * After that the hosts greet each other over the control pipe (greet.c). The link is up when the
 * greeting is complete.
 *
 * Only the leader may choose a new epoch while it waits. It does so when the follower's epoch
 * changes, because the follower may have been up with the leader's old epoch. Two leaders would
 * both do that forever.
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/link.h"
#include "wire/handshake.h"

/* Polls of the peer's registers per heartbeat while bring-up makes progress. */
#define POLLS_PER_HEARTBEAT 8
#define DEAD_NS (80 * VIA_MSEC_NS)
#define BEATS_PER_SILENCE 8

static void set_state(struct via_node *node, struct via_link *link, enum via_link_state state)
{
    uint8_t old = atomic_load_explicit(&link->state, memory_order_relaxed);
    if (old != state) {
        atomic_store_explicit(&link->state, (uint8_t)state, memory_order_relaxed);
        node->changed = true;
        via_node_trace(node, "host %u: port %u: state %u -> %u (peer %u)", node->config.host,
                       link->index, old, state,
                       atomic_load_explicit(&link->peer, memory_order_relaxed));
    }
}

static struct via_port *port_of(const struct via_link *link)
{
    return atomic_load_explicit(&link->port, memory_order_relaxed);
}

static uint32_t generation_of(const struct via_link *link)
{
    return atomic_load_explicit(&link->generation, memory_order_relaxed);
}

/* Notifies the channels of stored changes of a link. */
static void notify_channels(struct via_node *node)
{
    uint32_t version = atomic_load_explicit(&node->links_version, memory_order_relaxed);
    /* Pairs with the acquire in watch_links(): via_link.present. */
    atomic_store_explicit(&node->links_version, version + 1, memory_order_release);
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        node->env.wake(node->env.ctx, k);
    }
}

static void advance_generation(struct via_node *node, struct via_link *link)
{
    /* Pairs with the acquire in take_generation(): the epochs are stored before an odd
     * generation. */
    atomic_store_explicit(&link->generation, generation_of(link) + 1, memory_order_release);
    notify_channels(node);
}

/* Channels continue to watch the link until they have released its pipes. */
static void set_phase_down(struct via_link *link)
{
    link->phase = VIA_PHASE_DOWN;
    atomic_store_explicit(&link->present, false, memory_order_relaxed);
}

/* The physical link is up. */
static void set_phase_quiesce(struct via_node *node, struct via_link *link)
{
    link->phase = VIA_PHASE_QUIESCE;
    atomic_store_explicit(&link->present, true, memory_order_relaxed);
    notify_channels(node);
}

static bool channels_have_released(const struct via_node *node, const struct via_link *link)
{
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        const struct via_way *way = &node->channels[k].ways[link->index];
        /* Pairs with the release in take_generation(), which follows the channel's last use of the
         * pipes. */
        if (atomic_load_explicit(&way->seen_generation, memory_order_acquire) !=
            generation_of(link)) {
            return false;
        }
    }
    return true;
}

/* --- scratchpads ----------------------------------------------------------------------------- */

static void publish_register(struct via_link *link, unsigned index, uint32_t value)
{
    struct via_port *port = port_of(link);
    port->ops->scratchpad_write(port, VIA_HANDSHAKE_REGISTERS * port->side + index, value);
}

/* Writes R0 last: a peer that finds the magic for the first time finds the other registers, too. */
static void publish(const struct via_node *node, struct via_link *link, uint8_t state)
{
    uint32_t registers[VIA_HANDSHAKE_REGISTERS];
    struct via_handshake mine = {
        .magic = VIA_HANDSHAKE_MAGIC,
        .version = node->config.protocol_version,
        .state = state,
        .host = node->config.host,
        .session = node->config.session,
        .epoch = link->rx_epoch,
        .echo = link->echo,
    };
    via_handshake_pack(&mine, registers);
    publish_register(link, 1, registers[1]);
    publish_register(link, 2, registers[2]);
    publish_register(link, 3, registers[3]);
    publish_register(link, 0, registers[0]);
    link->published_state = state;
}

/*
 * Reads a register. All-ones is no value of any register. It means that the link is down, or that
 * the completion of the read was late and the root complex made up a value. A late completion is no
 * reason to take a link down, so the register is read again.
 */
static uint32_t read_register(struct via_port *port, unsigned index)
{
    uint32_t value = port->ops->scratchpad_read(port, index);
    if (value == VIA_HANDSHAKE_ALL_ONES && port->ops->link_is_up(port)) {
        value = port->ops->scratchpad_read(port, index);
    }
    return value;
}

/* False: the link is down, or the peer wrote its registers meanwhile; read them later. */
static bool read_peer(const struct via_link *link, struct via_handshake *ret_peer)
{
    struct via_port *port = port_of(link);
    unsigned first = VIA_HANDSHAKE_REGISTERS * (1 - port->side);
    uint32_t registers[VIA_HANDSHAKE_REGISTERS];

    for (unsigned i = 0; i < VIA_HANDSHAKE_REGISTERS; i++) {
        registers[i] = read_register(port, first + i);
        if (registers[i] == VIA_HANDSHAKE_ALL_ONES) {
            return false;
        }
    }
    for (unsigned i = 0; i < VIA_HANDSHAKE_REGISTERS; i++) {
        if (read_register(port, first + i) != registers[i]) {
            return false;
        }
    }
    via_handshake_unpack(registers, ret_peer);
    return true;
}

/* False: the link went down and up again unnoticed, because that zeroes all registers, including
 * this side's R0. */
static bool registers_are_mine(const struct via_node *node, const struct via_link *link)
{
    struct via_port *port = port_of(link);
    uint32_t value = read_register(port, VIA_HANDSHAKE_REGISTERS * port->side);
    return value == ((uint32_t)VIA_HANDSHAKE_MAGIC << 16 |
                     (uint32_t)node->config.protocol_version << 8 | link->published_state);
}

/* --- inbox ----------------------------------------------------------------------------------- */

/* True if both memories have room for a greeting, which negotiates the rest. */
static bool has_control_room(const struct via_port *port, struct via_link_refusal *ret_refusal)
{
    uint64_t need = via_inbox_bytes(via_control_geometry(), 0);
    uint64_t inbox = port->caps.inbox_bytes;
    uint64_t window = port->caps.window_bytes;

    *ret_refusal = (struct via_link_refusal){
        .cause = inbox < need ? VIA_CAUSE_MY_INBOX : VIA_CAUSE_MY_WINDOW,
        .mine = need,
        .peers = inbox < need ? inbox : window,
    };
    return inbox >= need && window >= need;
}

/*
 * Chooses a new epoch for this host's inbox, and clears its words, because epochs repeat after
 * 65,534 bring-ups. No side posts now: the peer greets only after it has read this epoch. The
 * function skips the epoch that the peer shows as its echo, which may be that of an earlier session
 * of this host.
 */
static void choose_epoch(struct via_link *link)
{
    struct via_port *port = port_of(link);
    struct via_handshake peer;
    struct via_link_refusal refusal;
    uint16_t shown = read_peer(link, &peer) ? peer.echo : 0;

    do {
        link->rx_epoch = via_epoch_next(link->rx_epoch);
    } while (link->rx_epoch == shown);
    link->echo = 0;
    if (!has_control_room(port, &refusal) || VIA_MUTANT(NO_EPOCH)) {
        return; /* this link will not come up */
    }
    /* The cell of the peer's heartbeats. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)port->inbox, 0, memory_order_relaxed);
    via_inbox_clear(port, via_control_geometry(), 0);
}

/* --- up and down ----------------------------------------------------------------------------- */

static void set_up(struct via_node *node, struct via_link *link)
{
    link->phase = VIA_PHASE_UP;
    atomic_store_explicit(&link->broken, false, memory_order_relaxed);
    atomic_store_explicit(&link->lost, false, memory_order_relaxed);
    atomic_store_explicit(&link->pipe_slots, link->geometry.slots_count, memory_order_relaxed);
    atomic_fetch_add_explicit(&link->ups_count, 1, memory_order_relaxed);
    set_state(node, link, VIA_LINK_UP);
    via_lsdb_link_up(node, link);
    advance_generation(node, link);
}

static bool has_greeted(const struct via_link *link)
{
    return link->phase == VIA_PHASE_GREETING || link->phase == VIA_PHASE_REFUSED ||
           link->phase == VIA_PHASE_UP;
}

static void set_down(struct via_node *node, struct via_link *link, int why)
{
    bool had_greeted = has_greeted(link);
    bool was_up = link->phase == VIA_PHASE_UP;

    link->phase = VIA_PHASE_QUIESCE;
    link->echo = 0;
    set_state(node, link, VIA_LINK_WAITING);
    if (!had_greeted) {
        return;
    }
    via_control_pipe_close(link);
    if (was_up) {
        atomic_fetch_add_explicit(&link->downs_count, 1, memory_order_relaxed);
        atomic_store_explicit(&link->down_why, why, memory_order_relaxed);
        atomic_store_explicit(&link->pipe_slots, 0, memory_order_relaxed);
        via_lsdb_link_down(node, link);
        advance_generation(node, link);
    }
    publish_register(link, 3, 0); /* the peer will notice that heartbeats stop */
}

/* The registers agree: starts the greeting. */
static void start_greeting(struct via_node *node, struct via_link *link,
                           const struct via_handshake *peer, uint64_t now_ns)
{
    link->tx_epoch = peer->epoch;
    link->phase = VIA_PHASE_GREETING;
    link->last_received_ns = now_ns;
    link->next_beat_ns = now_ns;
    link->heartbeat_seen = 0;
    link->heartbeat_checked = 0;
    atomic_store_explicit(&link->heartbeats, 0, memory_order_relaxed);
    atomic_store_explicit(&link->silence_max_ns, 0, memory_order_relaxed);
    via_control_pipe_open(link);
    int rc = via_greet_start(node, link, now_ns);
    if (rc != 0) {
        set_down(node, link, rc);
    }
}

/* The two hosts can not work together. Nothing changes before one of them restarts. */
static void set_refused(struct via_node *node, struct via_link *link, enum via_link_state state)
{
    link->phase = VIA_PHASE_REFUSED;
    publish(node, link, (uint8_t)(VIA_HANDSHAKE_REFUSED + state));
    set_state(node, link, state);
}

/* --- bring-up -------------------------------------------------------------------------------- */

/* The error in the peer's registers, as a BAD_* state; WAITING: they are empty; HANDSHAKE: they are
 * valid. */
static enum via_link_state check_registers(const struct via_node *node, struct via_link *link,
                                           const struct via_handshake *peer)
{
    const struct via_node_config *config = &node->config;
    struct via_link_refusal refusal;

    if (peer->magic != VIA_HANDSHAKE_MAGIC) {
        return peer->magic == 0 && peer->version == 0 && peer->state == 0 ? VIA_LINK_WAITING
                                                                          : VIA_LINK_BAD_MAGIC;
    }
    if (peer->version != config->protocol_version) {
        return VIA_LINK_BAD_VERSION;
    }
    if (peer->host == config->host || peer->host >= config->hosts_max || peer->session == 0) {
        return VIA_LINK_BAD_HOST;
    }
    if (!has_control_room(port_of(link), &refusal)) {
        via_greet_show_refusal(link, &refusal);
        return VIA_LINK_BAD_GEOMETRY;
    }
    return VIA_LINK_HANDSHAKE;
}

static bool is_bad(enum via_link_state state)
{
    return state >= VIA_LINK_BAD_MAGIC && state <= VIA_LINK_BAD_KEY;
}

/* The peer's objection, which may have a reason that this host can not detect. HANDSHAKE: none. */
static enum via_link_state read_refusal(const struct via_handshake *peer)
{
    enum via_link_state state = (enum via_link_state)(peer->state - VIA_HANDSHAKE_REFUSED);
    return peer->state > VIA_HANDSHAKE_REFUSED && is_bad(state) ? state : VIA_LINK_HANDSHAKE;
}

/* Stores the fields of the registers that this version can interpret. */
static void remember_peer(const struct via_node *node, struct via_link *link,
                          const struct via_handshake *peer)
{
    if (peer->magic != VIA_HANDSHAKE_MAGIC) {
        return;
    }
    atomic_store_explicit(&link->peer_version, peer->version, memory_order_relaxed);
    if (peer->version == node->config.protocol_version) {
        atomic_store_explicit(&link->peer, peer->host, memory_order_relaxed);
        atomic_store_explicit(&link->peer_session, peer->session, memory_order_relaxed);
    }
}

/* One step of the bring-up, with valid registers on both sides. */
static void handshake(struct via_node *node, struct via_link *link,
                      const struct via_handshake *peer, uint64_t now_ns)
{
    bool leader = port_of(link)->side == 0;

    if (!via_epoch_is_valid(peer->epoch)) {
        return;
    }
    if (leader && (link->echo != peer->epoch || link->peer_seen_session != peer->session)) {
        if (link->echo != 0) {
            choose_epoch(link); /* the peer may have been up with the old epoch */
        }
        link->echo = peer->epoch;
        link->peer_seen_session = peer->session;
        publish(node, link, VIA_HANDSHAKE_READY);
        return;
    }
    if (peer->echo != link->rx_epoch) {
        return;
    }
    link->echo = peer->epoch;
    link->peer_seen_session = peer->session;
    publish(node, link, VIA_HANDSHAKE_UP);
    start_greeting(node, link, peer, now_ns);
}

static void check_peer(struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    struct via_handshake peer;

    if (!registers_are_mine(node, link)) {
        publish(node, link, link->published_state);
    }
    if (!read_peer(link, &peer)) {
        if (!port_of(link)->ops->link_is_up(port_of(link))) {
            set_phase_down(link);
            set_state(node, link, VIA_LINK_DOWN);
        }
        return;
    }
    enum via_link_state state = check_registers(node, link, &peer);
    remember_peer(node, link, &peer);
    if (is_bad(state)) {
        if (link->echo != 0) {
            choose_epoch(link); /* the peer may have been up with the old epoch */
        }
        if (link->published_state != VIA_HANDSHAKE_REFUSED + state) {
            publish(node, link, (uint8_t)(VIA_HANDSHAKE_REFUSED + state));
        }
    } else if (link->published_state >= VIA_HANDSHAKE_REFUSED) {
        publish(node, link, VIA_HANDSHAKE_INIT);
    }
    if (state != VIA_LINK_HANDSHAKE) {
        set_state(node, link, state);
        return;
    }
    set_state(node, link, read_refusal(&peer));
    handshake(node, link, &peer, now_ns);
}

static uint64_t check_interval(const struct via_node *node, const struct via_link *link)
{
    uint64_t beat = node->config.heartbeat_ns;
    uint8_t state = atomic_load_explicit(&link->state, memory_order_relaxed);
    bool quick = link->phase == VIA_PHASE_QUIESCE || state == VIA_LINK_HANDSHAKE;
    return quick ? beat / POLLS_PER_HEARTBEAT + 1 : beat;
}

static void bring_up(struct via_node *node, struct via_link *link, uint64_t now_ns,
                     uint64_t *ret_deadline_ns)
{
    struct via_port *port = port_of(link);

    if (link->phase == VIA_PHASE_DOWN) {
        if (!port->ops->link_is_up(port)) {
            set_state(node, link, VIA_LINK_DOWN);
            link->next_poll_ns = now_ns + node->config.heartbeat_ns;
            *ret_deadline_ns = via_min(*ret_deadline_ns, link->next_poll_ns);
            return;
        }
        set_phase_quiesce(node, link);
        set_state(node, link, VIA_LINK_WAITING);
    }
    if (link->phase == VIA_PHASE_QUIESCE && channels_have_released(node, link)) {
        choose_epoch(link);
        link->phase = VIA_PHASE_HANDSHAKE;
        publish(node, link, VIA_HANDSHAKE_INIT);
        link->next_poll_ns = now_ns;
    }
    if (link->phase == VIA_PHASE_HANDSHAKE && now_ns >= link->next_poll_ns) {
        check_peer(node, link, now_ns);
        link->next_poll_ns = now_ns + check_interval(node, link);
    }
    uint64_t next = link->phase == VIA_PHASE_HANDSHAKE ? link->next_poll_ns
                                                       : now_ns + check_interval(node, link);
    *ret_deadline_ns = via_min(*ret_deadline_ns, next);
}

/* --- while the link is up --------------------------------------------------------------------- */

static uint64_t frames_received(const struct via_node *node, const struct via_link *link)
{
    uint64_t sum = 0;
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        sum += via_counted(&node->channels[k].ways[link->index].frames_received);
    }
    return sum;
}

/* Checks for signs of life. Frames count, too, because the peer's control thread may be its slowest
 * thread. */
static void listen(const struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    const _Atomic uint64_t *cell = (const _Atomic uint64_t *)(const void *)port_of(link)->inbox;
    uint64_t word = atomic_load_explicit(cell, memory_order_relaxed);
    uint64_t activity = frames_received(node, link);
    uint64_t silence_ns = now_ns - link->last_received_ns;

    if (silence_ns > atomic_load_explicit(&link->silence_max_ns, memory_order_relaxed)) {
        atomic_store_explicit(&link->silence_max_ns, silence_ns, memory_order_relaxed);
    }
    if (word >> 48 == link->rx_epoch && word != link->heartbeat_seen) {
        link->heartbeat_seen = word;
        link->last_received_ns = now_ns;
        atomic_store_explicit(&link->heartbeats, word & VIA_HEARTBEAT_COUNTER_MASK,
                              memory_order_relaxed);
    }
    if (activity != link->activity_seen) {
        link->activity_seen = activity;
        link->last_received_ns = now_ns;
    }
}

static void beat(struct via_link *link)
{
    struct via_port *port = port_of(link);
    struct via_pipe_target target;
    uint64_t word = via_heartbeat_word(link->tx_epoch, ++link->heartbeat_sent);

    via_link_target(port, VIA_PORT_QUEUE_CONTROL, 0, &target);
    if (target.direct != NULL) {
        atomic_store_explicit((_Atomic uint64_t *)(void *)target.direct, word,
                              memory_order_relaxed);
    } else {
        port->ops->commit(port, VIA_PORT_QUEUE_CONTROL, 0, &word, sizeof(word));
        port->ops->flush(port, VIA_PORT_QUEUE_CONTROL);
    }
}

/* True if the peer still shows the registers with which the link came up. */
static bool peer_is_the_same(const struct via_link *link)
{
    struct via_port *port = port_of(link);
    unsigned first = VIA_HANDSHAKE_REGISTERS * (1 - port->side);

    return read_register(port, first + 3) == ((uint32_t)link->tx_epoch << 16 | link->rx_epoch) &&
           read_register(port, first + 2) == link->peer_seen_session;
}

#define BEATS_PER_READ 8u

/* True if the peer's registers must be read. A read across a link takes microseconds. A peer that
 * has sent a heartbeat since the last call is still in the epoch of its registers. Nevertheless
 * this host reads them at every BEATS_PER_READ-th heartbeat, because a peer that has restarted at
 * once might have chosen the same epoch again. */
static bool is_peer_to_be_read(struct via_link *link)
{
    bool beaten = link->heartbeat_seen != link->heartbeat_checked;
    link->heartbeat_checked = link->heartbeat_seen;
    return !beaten || link->heartbeat_sent % BEATS_PER_READ == 0;
}

static int receive(struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    int rc = via_lsdb_receive(node, link, now_ns);
    if (rc == 0 && !atomic_load_explicit(&link->broken, memory_order_relaxed) &&
        !link->control_tx.broken) {
        return 0;
    }
    via_count(&link->errors, 1);
    return -EPROTO;
}

/* Continues the greeting. 0; or a negative errno: it must start again. */
static int greet(struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    enum via_link_state state;
    int rc = via_greet_poll(node, link, now_ns, &state);

    if (rc == 1) {
        set_up(node, link);
        return receive(node, link, now_ns); /* announcements may follow the greeting in the pipe */
    }
    if (rc == -ECONNREFUSED) {
        set_refused(node, link, state);
        return 0;
    }
    if (rc == -EPROTO || link->control_tx.broken) {
        via_count(&link->errors, 1);
        return -EPROTO;
    }
    return rc;
}

/* Sends waiting announcements. Arms the pipe, then checks it again, as before each sleep. */
static void send_and_arm(struct via_node *node, struct via_link *link, uint64_t now_ns,
                         uint64_t *ret_deadline_ns)
{
    struct via_port *port = port_of(link);
    bool up = link->phase == VIA_PHASE_UP;

    if (up) {
        via_lsdb_send(node, link);
    }
    bool waits = up && via_lsdb_has_to_send(&link->lsdb);
    /* Records wake the thread on such a port without a request. Credits are words, and do not. */
    bool armed = port->caps.lines_wake && !waits;
    if (!armed) {
        bool posted = via_pipe_arm(&link->control_rx);
        if (waits) {
            posted |= via_pipe_request_room(&link->control_tx);
        }
        /* A dead link is detected by its silence. */
        armed = via_arm_poll(&link->control_arm, port, VIA_PORT_QUEUE_CONTROL, posted);
    }
    /* The peer may have begun to wait for room after this turn's poll, and before its credit
     * arrived. */
    via_control_pipe_taken(link);
    if (via_pipe_is_ready(&link->control_rx) ||
        (waits && via_pipe_writer_room(&link->control_tx) != 0)) {
        *ret_deadline_ns = now_ns;
    } else if (!armed) {
        /* Polling all links of a host takes long in comparison with a fence that wakes the
         * thread. */
        uint64_t pause_ns = port->caps.fence_wakes ? node->config.heartbeat_ns : 0;
        *ret_deadline_ns = via_min(*ret_deadline_ns, now_ns + pause_ns);
    }
}

/* The peer may have an objection that this host can not detect. It has sent HELLO before it
 * objects. */
static void check_objection(struct via_node *node, struct via_link *link)
{
    struct via_handshake peer;
    if (link->phase == VIA_PHASE_GREETING && link->greet.peer_known && read_peer(link, &peer) &&
        read_refusal(&peer) != VIA_LINK_HANDSHAKE) {
        struct via_link_refusal none = {.cause = VIA_CAUSE_NONE};
        via_greet_show_refusal(link, &none);
        link->phase = VIA_PHASE_REFUSED;
        set_state(node, link, read_refusal(&peer));
    }
}

static uint64_t dead_ns(const struct via_node *node, const struct via_link *link)
{
    uint64_t configured = node->config.dead_ns;
    return configured != 0 ? configured : via_max(DEAD_NS, port_of(link)->caps.silence_ns);
}

/* The interval of heartbeats. If a live peer may be silent for long, frequent heartbeats carry no
 * information, and a host with 63 such links would use a whole CPU for them. */
static uint64_t beat_interval(const struct via_node *node, const struct via_link *link)
{
    uint64_t silence = port_of(link)->caps.silence_ns;
    uint64_t interval = via_min(silence, dead_ns(node, link)) / BEATS_PER_SILENCE;
    return via_max(node->config.heartbeat_ns, interval);
}

/* The work of a link after the registers have agreed. 0; or a negative errno: the link must go
 * down. */
static int serve_up(struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    listen(node, link, now_ns);
    if (now_ns - link->last_received_ns >= dead_ns(node, link)) {
        return -ETIMEDOUT;
    }
    if (link->phase == VIA_PHASE_UP && atomic_load_explicit(&link->lost, memory_order_relaxed)) {
        return -EIO;
    }
    if (now_ns >= link->next_beat_ns) {
        if (is_peer_to_be_read(link) && !peer_is_the_same(link)) {
            return -ECONNRESET;
        }
        if (!registers_are_mine(node, link)) {
            return -ECONNRESET;
        }
        beat(link);
        check_objection(node, link);
        /* At multiples of the interval, so that the hosts of a machine send heartbeats together and
         * wake it once. */
        uint64_t interval = beat_interval(node, link);
        link->next_beat_ns = now_ns - now_ns % interval + interval;
    }
    switch (link->phase) {
    case VIA_PHASE_GREETING:
        return greet(node, link, now_ns);
    case VIA_PHASE_UP:
        return receive(node, link, now_ns);
    default:
        return 0;
    }
}

void via_link_control(struct via_node *node, struct via_link *link, uint64_t now_ns,
                      uint64_t *ret_deadline_ns)
{
    struct via_port *port = port_of(link);
    uint64_t events = port->ops->events(port, VIA_PORT_EVENT_CONTROL);

    if ((events & VIA_PORT_EVENT_LINK_DOWN) != 0 && link->phase != VIA_PHASE_DOWN) {
        set_down(node, link, -ENOLINK);
        set_phase_down(link);
    }
    if (has_greeted(link)) {
        int rc = serve_up(node, link, now_ns);
        if (rc != 0) {
            via_node_trace(node, "host %u: port %u: link lost: %d", node->config.host, link->index,
                           rc);
            bool is_up = port->ops->link_is_up(port);
            set_down(node, link, is_up ? rc : -ENOLINK);
            if (!is_up) {
                set_phase_down(link);
            }
        }
    }
    if (!has_greeted(link)) {
        bring_up(node, link, now_ns, ret_deadline_ns);
    }
}

void via_link_finish(struct via_node *node, struct via_link *link, uint64_t now_ns,
                     uint64_t *ret_deadline_ns)
{
    if (!has_greeted(link)) {
        return;
    }
    uint64_t next = via_min(link->next_beat_ns, link->last_received_ns + dead_ns(node, link));
    if (link->phase == VIA_PHASE_GREETING) {
        next = via_min(next, now_ns + check_interval(node, link));
    }
    *ret_deadline_ns = via_min(*ret_deadline_ns, next);
    if (link->phase != VIA_PHASE_REFUSED) {
        send_and_arm(node, link, now_ns, ret_deadline_ns);
    }
}

/* --- the end --------------------------------------------------------------------------------- */

void via_link_close(struct via_node *node, struct via_link *link)
{
    if (has_greeted(link)) {
        set_down(node, link, 0);
    }
    for (unsigned i = VIA_HANDSHAKE_REGISTERS; i-- > 0;) {
        publish_register(link, i, 0);
    }
}

static bool channels_have_seen(const struct via_node *node, uint32_t version)
{
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        /* Pairs with the release in watch_links(). */
        uint32_t seen = atomic_load_explicit(&node->channels[k].links_seen, memory_order_acquire);
        if ((int32_t)(seen - version) < 0) {
            return false;
        }
    }
    return true;
}

/* Resets the link for the next port at this index; only the epoch continues. No channel uses the
 * link. */
static void forget(struct via_node *node, struct via_link *link)
{
    atomic_store_explicit(&link->peer, 0, memory_order_relaxed);
    atomic_store_explicit(&link->peer_session, 0, memory_order_relaxed);
    atomic_store_explicit(&link->peer_version, 0, memory_order_relaxed);
    atomic_store_explicit(&link->peer_link, 0, memory_order_relaxed);
    atomic_store_explicit(&link->down_why, 0, memory_order_relaxed);
    atomic_store_explicit(&link->ups_count, 0, memory_order_relaxed);
    atomic_store_explicit(&link->downs_count, 0, memory_order_relaxed);
    atomic_store_explicit(&link->errors, 0, memory_order_relaxed);
    atomic_store_explicit(&link->heartbeats, 0, memory_order_relaxed);
    atomic_store_explicit(&link->silence_max_ns, 0, memory_order_relaxed);
    struct via_link_refusal none = {.cause = VIA_CAUSE_NONE};
    via_greet_show_refusal(link, &none);
    link->peer_seen_session = 0;
    link->echo = 0;
    link->published_state = 0;
    link->next_poll_ns = 0;
    link->activity_seen = 0;
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        struct via_way *way = &node->channels[k].ways[link->index];
        _Atomic uint64_t *counts[] = {
            &way->frames_sent,    &way->frames_received, &way->bytes_sent, &way->bytes_received,
            &way->frames_relayed, &way->frames_bypassed, &way->dma_frames, &way->dma_bytes,
            &way->dma_busy,       &way->dma_fallbacks,   &way->dma_hangs,
        };
        for (unsigned i = 0; i < VIA_ARRAY_COUNT(counts); i++) {
            atomic_store_explicit(counts[i], 0, memory_order_relaxed);
        }
    }
}

/*
 * Removes a port in two grace periods. First the channels release the pipes and finish DMA, as when
 * a link goes down. Then the port is removed from the table. A channel may just then be reading its
 * events, so the port is in use until each channel has begun a turn in which it did not find the
 * port.
 */
int via_link_leave(struct via_node *node, struct via_link *link)
{
    if (!via_link_is_leaving(link)) {
        via_link_close(node, link);
        set_phase_down(link);
        link->phase = VIA_PHASE_LEAVING;
        set_state(node, link, VIA_LINK_DOWN);
        notify_channels(node);
    }
    if (link->phase == VIA_PHASE_LEAVING && channels_have_released(node, link)) {
        atomic_store_explicit(&link->port, NULL, memory_order_relaxed);
        notify_channels(node);
        link->left_version = atomic_load_explicit(&node->links_version, memory_order_relaxed);
        link->phase = VIA_PHASE_LEFT;
    }
    if (link->phase != VIA_PHASE_LEFT || !channels_have_seen(node, link->left_version)) {
        return -EAGAIN;
    }
    forget(node, link);
    link->phase = VIA_PHASE_NO_PORT;
    return 0;
}
