/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The steps of an end of a stream between hosts: it reads, writes, and returns to the kernel. */
#include <errno.h>
#include <string.h>

#include "sim/streams_hosts.h"

/* --- reading -----------------------------------------------------------------------------------
 */

static bool kernel_is_through(const struct way *way)
{
    return way->fin_arrived && way->kernel_read == way->kernel_sent;
}

static void take(struct hosts *hosts, struct way *way, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (hosts->chunk[i] != sim_streams_byte(way->content, way->received + i)) {
            sim_hosts_fail(hosts, "byte %llu is not what was sent",
                           (unsigned long long)(way->received + i));
            return;
        }
    }
    way->received += bytes;
}

static bool read_kernel(struct hosts *hosts, unsigned number, unsigned which, uint64_t most)
{
    struct way *way = hosts->connections[number].ends[which].in;
    uint64_t bytes = via_min(way->kernel_arrived - way->kernel_read, most);
    memcpy(hosts->chunk, way->kernel + way->kernel_read, bytes);
    way->kernel_read += bytes;
    take(hosts, way, bytes);
    if (bytes != 0) {
        sim_hosts_wake(hosts, number, 1 - which); /* there is room in the socket buffer */
    }
    if (way->rx.span == VIA_SPAN_KERNEL_UNTIL) {
        via_stream_rx_kernel_read(&way->rx, bytes);
    }
    return bytes != 0;
}

/* Of the kernel's bytes that arrive again, discards at most so many: how many were discarded. */
static uint64_t drop(struct way *way, uint64_t most)
{
    uint64_t bytes = via_min(way->kernel_arrived - way->kernel_read, most);
    way->kernel_read += bytes;
    return bytes;
}

/* The pipe has delivered them already. */
static bool drop_again(struct hosts *hosts, unsigned number, unsigned which)
{
    struct way *way = hosts->connections[number].ends[which].in;
    uint64_t bytes =
        hosts->plant == SIM_PLANT_KEPT_AGAIN ? way->rx.again : drop(way, way->rx.again);
    via_stream_rx_dropped(&way->rx, bytes);
    if (bytes != 0) {
        sim_hosts_wake(hosts, number, 1 - which);
    }
    return bytes != 0;
}

static bool is_ending(struct hosts *hosts, unsigned number, unsigned which)
{
    const struct connection *connection = &hosts->connections[number];
    struct way *way = connection->ends[which].in;
    way->ended = true;
    if (!sim_hosts_is_all(connection, which)) {
        sim_hosts_fail(hosts, "the stream ends after %llu of %llu bytes",
                       (unsigned long long)way->received, (unsigned long long)way->total);
    }
    return true;
}

/* The next step, when it is known how far it has read the kernel's bytes. */
static int next_of(struct way *way)
{
    int next = via_stream_rx_next(&way->rx);
    if (next == VIA_NEXT_KERNEL_UNTIL && !way->rx.kernel_known) {
        int rc = via_stream_rx_kernel_total(&way->rx, way->kernel_read);
        next = rc == 0 ? via_stream_rx_next(&way->rx) : rc;
    }
    return next;
}

/* The kernel's stream has ended. May records with another end be on their way? */
static bool is_follow_possible(const struct hosts *hosts, unsigned number, unsigned which)
{
    const struct connection *connection = &hosts->connections[number];
    const struct end *end = &connection->ends[which];
    if (sim_hosts_all_is_there(connection, which)) {
        return false;
    }
    bool left = end->heard.demote || end->heard.closed || end->heard.kernel_end || end->heard.stays;
    return hosts->plant != SIM_PLANT_EARLY_END && !left;
}

static bool read_piped(struct hosts *hosts, unsigned number, unsigned which, uint64_t most)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *way = end->in;
    struct iovec iov = {hosts->chunk, most};
    struct via_iov cursor;
    int next = next_of(way);
    switch (next) {
    case VIA_NEXT_KERNEL:
        return read_kernel(hosts, number, which, most) ||
               (kernel_is_through(way) && !is_follow_possible(hosts, number, which) &&
                is_ending(hosts, number, which));
    case VIA_NEXT_KERNEL_UNTIL:
        return read_kernel(hosts, number, which,
                           via_min(most, via_stream_rx_kernel_left(&way->rx)));
    case VIA_NEXT_DATA:
        if (via_iov_init(&cursor, &iov, 1) == 0) {
            ssize_t bytes = via_stream_rx_read(&way->rx, &cursor);
            take(hosts, way, (uint64_t)via_max(bytes, (ssize_t)0));
        }
        return true;
    case VIA_NEXT_AGAIN:
        return drop_again(hosts, number, which);
    case VIA_NEXT_FIN:
        return is_ending(hosts, number, which);
    case VIA_NEXT_EMPTY:
        return kernel_is_through(way) &&
               (hosts->plant == SIM_PLANT_EARLY_END ||
                sim_hosts_all_is_there(&hosts->connections[number], which)) &&
               is_ending(hosts, number, which);
    default:
        sim_hosts_fail(hosts, "read: %d", next);
        return false;
    }
}

static bool read_some(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    uint64_t most = between(hosts, 1, via_rng_chance(&hosts->rng, 1, 2) ? CHUNK_MAX : 100);
    if (end->in->ended || via_phase_is_in(end->phase, VIA_PHASES_LEAVING) ||
        !burst_is_read_allowed(&end->burst, &hosts->rng, end->out->sent, end->out->total)) {
        return false;
    }
    bool gone = via_phase_is_in(end->phase, VIA_PHASES_GONE);
    if (gone && end->drops != 0) {
        uint64_t bytes = drop(end->in, end->drops);
        end->drops -= bytes;
        return bytes != 0;
    }
    if (gone) {
        return read_kernel(hosts, number, which, most) ||
               (kernel_is_through(end->in) && is_ending(hosts, number, which));
    }
    uint32_t released = end->in->rx.pipe.released;
    bool done = read_piped(hosts, number, which, most);
    return done || released != end->in->rx.pipe.released;
}

/* EPIPE, as soon as the kernel knows. */
static bool is_refused(const struct hosts *hosts, unsigned number, unsigned which)
{
    const struct connection *connection = &hosts->connections[number];
    return connection->ends[1 - which].dead && connection->ends[which].in->fin_arrived &&
           hosts->plant != SIM_PLANT_UNSEEN_DEATH;
}

/* --- writing -----------------------------------------------------------------------------------
 */

static bool is_switch_allowed(const struct end *end)
{
    return via_phase_is_in(end->phase, VIA_PHASES_MAY_SWITCH) && !end->heard.demote;
}

static bool switch_now(struct hosts *hosts, unsigned number, unsigned which)
{
    struct way *way = hosts->connections[number].ends[which].out;
    int rc = via_stream_tx_switch(&way->tx, way->kernel_sent);
    if (rc != 0 && rc != -EAGAIN) {
        sim_hosts_fail(hosts, "switch: %d", rc);
    }
    if (rc == 0) {
        way->switched = true;
        sim_hosts_push(hosts, number, which, true);
    }
    return rc == 0;
}

/* The end of a direction: announced in the pipe, if that is used or may still be, and by the
 * kernel. Without room for the announcement, the bytes in the pipe are the last ones. */
static bool finish(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *way = end->out;
    if (way->tx.span == VIA_SPAN_KERNEL && is_switch_allowed(end) &&
        !switch_now(hosts, number, which) && hosts->plant != SIM_PLANT_UNTOLD_END) {
        end->said.kernel_end = true;
        sim_hosts_send_flags(hosts, number, which);
    }
    bool piped = way->tx.span == VIA_SPAN_PIPE;
    int rc = via_stream_tx_fin(&way->tx, 0);
    if (rc != 0) {
        sim_hosts_fail(hosts, "fin: %d, although a slot is kept for it", rc);
    }
    sim_hosts_push(hosts, number, which, piped);
    way->fin_sent = true;
    sim_hosts_kernel_send(hosts, number, which, "", 0);
    return true;
}

static uint32_t fill_chunk(struct hosts *hosts, const struct way *way)
{
    uint64_t most = via_rng_chance(&hosts->rng, 1, 3) ? CHUNK_MAX : 60;
    uint32_t bytes = (uint32_t)via_min(way->total - way->sent, between(hosts, 1, most));
    for (uint32_t i = 0; i < bytes; i++) {
        hosts->chunk[i] = sim_streams_byte(way->content, way->sent + i);
    }
    return bytes;
}

static bool write_pipe(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *way = end->out;
    struct iovec iov = {hosts->chunk, fill_chunk(hosts, way)};
    struct via_iov cursor;
    if (!line_has_room(hosts, end) || via_iov_init(&cursor, &iov, 1) != 0) {
        return false;
    }
    ssize_t rc = via_stream_tx_write(&way->tx, &cursor);
    if (rc < 0 && rc != -EAGAIN) {
        sim_hosts_fail(hosts, "write: %zd", rc);
    }
    if (rc <= 0) {
        return false;
    }
    way->sent += (uint64_t)rc;
    sim_hosts_push(hosts, number, which, true);
    return true;
}

static bool write_kernel(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *way = end->out;
    if (is_switch_allowed(end) && via_stream_stall_is_over(&end->stall, &way->tx) &&
        chance(hosts, hosts->config->switch_chance)) {
        return switch_now(hosts, number, which);
    }
    uint64_t room = kernel_room(hosts, way);
    uint32_t bytes = (uint32_t)via_min((uint64_t)fill_chunk(hosts, way), room);
    if (bytes != 0) {
        sim_hosts_kernel_send(hosts, number, which, hosts->chunk, bytes);
        way->sent += bytes;
    }
    return bytes != 0;
}

static bool write_some(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *way = end->out;
    if (!way->fin_sent && is_refused(hosts, number, which)) {
        sim_hosts_give_up(hosts, number, which);
        return true;
    }
    if (way->fin_sent || via_phase_is_in(end->phase, VIA_PHASES_REPLAY | VIA_PHASES_LEAVING) ||
        !burst_is_write_allowed(&end->burst, way->sent, way->total)) {
        return false;
    }
    if (way->sent == way->total) {
        return finish(hosts, number, which);
    }
    return way->tx.span == VIA_SPAN_PIPE ? write_pipe(hosts, number, which)
                                         : write_kernel(hosts, number, which);
}

/* --- returning to the kernel
 * ------------------------------------------------------------------- */

static bool has_unread(struct way *way, int next)
{
    return next == VIA_NEXT_DATA ||
           (next == VIA_NEXT_KERNEL_UNTIL && via_pipe_is_ready(&way->rx.pipe));
}

/* Could the peer still send what it has written and this end has not read? */
static bool is_leave_possible(struct end *end)
{
    struct way *way = end->in;
    int next = next_of(way);
    if (way->fin_arrived && next == VIA_NEXT_EMPTY && !way->rx.ended) {
        return false; /* the end may be on its way: wait for it */
    }
    if (next == VIA_NEXT_AGAIN) {
        return false; /* and for bytes that are to be discarded */
    }
    if (!has_unread(way, next)) {
        return next > 0;
    }
    return !via_phase_is_in(end->phase, VIA_PHASES_FOLLOW) && !via_stream_rx_is_ending(&way->rx) &&
           !(way->fin_arrived && end->out->fin_sent);
}

/* Sends the bytes in the pipe once more by the kernel, as far as it has room. How many bytes. */
static uint64_t send_again(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *out = end->out;
    const void *data;
    size_t bytes;
    uint64_t room = kernel_room(hosts, out);
    via_stream_replay_begin(&end->replay, &out->tx, 0);
    out->tx.span = VIA_SPAN_PIPE;
    end->sent_whole = false;
    if (end->heard.closed ||
        (!via_stream_tx_has_begun(&out->tx) && hosts->plant != SIM_PLANT_EARLY_AGAIN)) {
        end->sent_whole = !end->heard.closed && via_stream_replay_next(&end->replay, &data) == 0;
        return 0;
    }
    while ((bytes = via_stream_replay_next(&end->replay, &data)) != 0) {
        bytes = via_min(bytes, room);
        if (bytes == 0) {
            return end->replay.sent;
        }
        room -= bytes;
        out->again += bytes;
        sim_hosts_kernel_send(hosts, number, which, data, (uint32_t)bytes);
        via_stream_replay_sent(&end->replay, bytes);
    }
    end->sent_whole = true;
    return end->replay.sent;
}

static bool leave(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *out = end->out;
    if (!via_phase_is_in(end->phase, VIA_PHASES_PIPED) || end->phase == VIA_PHASE_STAYS ||
        !line_has_room(hosts, end) || !is_leave_possible(end)) {
        return false;
    }
    if (out->tx.span == VIA_SPAN_KERNEL && !out->tx.ended && is_switch_allowed(end) &&
        via_stream_stall_is_over(&end->stall, &out->tx)) {
        switch_now(hosts, number, which);
    }
    if (out->tx.span == VIA_SPAN_PIPE && !out->tx.ended) {
        uint64_t again = send_again(hosts, number, which);
        int rc = via_stream_tx_demote_again(&out->tx, again, end->sent_whole);
        if (rc != 0) {
            sim_hosts_fail(hosts, "demote: %d, although a slot is kept for it", rc);
        }
        end->sent_again = end->sent_whole || again != 0;
        sim_hosts_push(hosts, number, which, true);
    }
    end->in->rx_left = end->in->rx;
    end->said.skip = via_stream_rx_leave(&end->in->rx);
    end->said.released = end->in->rx.pipe.released;
    end->said.demote = true;
    sim_hosts_event(hosts, number, which, VIA_EVENT_LEAVE);
    sim_hosts_send_flags(hosts, number, which);
    sim_hosts_trace(hosts, number, which, "leaves, skip", end->said.skip);
    return true;
}

/* The peer has left: its unread bytes go by the kernel. */
static bool follow_demotion(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    const void *data;
    if (!end->heard.demote || !via_phase_is_in(end->phase, VIA_PHASES_MAY_FOLLOW)) {
        return false;
    }
    if (end->sent_again) {
        /* Both have left, and this end was the first: the peer finds the announcement in the
         * pipe. */
        end->said.followed = end->sent_whole;
        end->said.stays = !end->sent_whole;
        sim_hosts_event(hosts, number, which, end->sent_whole ? VIA_EVENT_FOLLOW : VIA_EVENT_STAY);
        if (end->sent_whole) {
            sim_hosts_event(hosts, number, which, VIA_EVENT_REPLAY);
        }
        sim_hosts_send_flags(hosts, number, which);
        return true;
    }
    via_stream_tx_left(&end->out->tx, end->heard.released);
    via_stream_replay_begin(&end->replay, &end->out->tx,
                            hosts->plant == SIM_PLANT_NO_SKIP ? 0 : end->heard.skip);
    if (via_stream_stall_must_stay(&end->stall, &end->out->tx) &&
        via_stream_replay_next(&end->replay, &data) != 0) {
        end->said.stays = true;
    } else {
        end->said.followed = true;
    }
    sim_hosts_event(hosts, number, which, end->said.followed ? VIA_EVENT_FOLLOW : VIA_EVENT_STAY);
    sim_hosts_send_flags(hosts, number, which);
    sim_hosts_trace(hosts, number, which, end->said.followed ? "follows" : "stays",
                    end->heard.skip);
    return true;
}

static bool replay(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    const void *data;
    uint64_t room = kernel_room(hosts, end->out);
    if (!via_phase_is_in(end->phase, VIA_PHASES_REPLAY)) {
        return false;
    }
    size_t bytes = via_stream_replay_next(&end->replay, &data);
    if (bytes == 0 || is_refused(hosts, number, which)) {
        sim_hosts_event(hosts, number, which, VIA_EVENT_REPLAY);
        return true;
    }
    bytes = via_min(bytes, room);
    if (bytes != 0) {
        sim_hosts_kernel_send(hosts, number, which, data, (uint32_t)bytes);
        via_stream_replay_sent(&end->replay, bytes);
    }
    return bytes != 0;
}

/* The peer has left, and this end follows: the bytes in its pipe come by the kernel, too. */
static bool skip(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    if (end->phase != VIA_PHASE_FOLLOWING) {
        return false;
    }
    if (next_of(end->in) == VIA_NEXT_KERNEL && !via_pipe_is_ready(&end->in->rx.pipe)) {
        sim_hosts_event(hosts, number, which, VIA_EVENT_FINISH);
        return true;
    }
    if (!chance(hosts, 500) || !via_stream_rx_skip(&end->in->rx)) {
        return false;
    }
    sim_hosts_trace(hosts, number, which, "skips the pipe, again", end->in->rx.again);
    return true;
}

/* Has the peer left, too, if only for a while, and sent this end's unread bytes by the kernel? */
static bool has_come_again(struct end *end)
{
    struct via_stream_rx left = end->in->rx_left;
    left.probe = true;
    bool again = via_stream_rx_skip(&left);
    end->drops = again ? left.again : 0;
    return again;
}

/* The peer has ended before it received the request: are there bytes in the pipe that this end has
 * not read? Then the pipe is used again. False: that is not known yet. */
static bool meet_ended_peer(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct way *in = end->in;
    bool again = has_come_again(end);
    bool bytes = !again && via_stream_rx_left_bytes(&in->rx_left);
    /* The peer's state arrives after its records: once it is here, all of them are. */
    if (!bytes && !again && !via_stream_rx_is_ending(&in->rx_left) && !in->ended &&
        !end->heard.stays && !sim_hosts_all_is_there(&hosts->connections[number], which)) {
        return false;
    }
    sim_hosts_event(hosts, number, which, bytes ? VIA_EVENT_TAKE_BACK : VIA_EVENT_ANSWER);
    if (bytes) {
        in->rx = in->rx_left;
        end->said.demote = false;
        end->said.kernel_end |= !end->out->tx.ended;
        sim_hosts_send_flags(hosts, number, which);
    }
    sim_hosts_trace(hosts, number, which, "has its pipe back", bytes);
    return true;
}

static bool poll_for_answer(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    if (!via_phase_is_in(end->phase, VIA_PHASES_LEAVING)) {
        return false;
    }
    if (!end->heard.followed && (end->heard.stays || end->heard.closed ||
                                 sim_hosts_all_is_there(&hosts->connections[number], which))) {
        return meet_ended_peer(hosts, number, which);
    }
    /* An end that has left, too, reads nothing of the pipe, and must not be told where it began. */
    bool seen = !end->out->switched || via_stream_tx_is_demoted(&end->out->tx) ||
                end->out->tx.ended || end->heard.demote ||
                hosts->connections[number].ends[1 - which].dead;
    bool again = has_come_again(end) && end->heard.demote;
    if ((end->heard.followed && seen) || again || hosts->plant == SIM_PLANT_EARLY_LEAVER) {
        sim_hosts_event(hosts, number, which, VIA_EVENT_ANSWER);
        return true;
    }
    return false;
}

/* --- both programs send, and neither reads
 * ----------------------------------------------------- */

bool sim_hosts_watch_stall(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    struct via_stream_tx *tx = &end->out->tx;
    bool full = via_stream_stall_is_full(tx);
    bool hides =
        via_stream_stall_is_hidden(tx, &end->in->rx) && hosts->plant != SIM_PLANT_HIDDEN_BEGIN;
    if (via_phase_is_in(end->phase, VIA_PHASES_GONE) || (!full && !hides)) {
        return false;
    }
    next_of(end->in);
    sim_hosts_push(hosts, number, which, false);
    if (!full) {
        return false;
    }
    if (!via_stream_stall_is_due(&end->stall, tx, &end->in->rx,
                                 end->in->kernel_arrived != end->in->kernel_read,
                                 hosts->clock.now_ns) ||
        end->heard.demote || !line_has_room(hosts, end)) {
        return false;
    }
    int rc = via_stream_tx_demote(tx);
    if (rc != 0) {
        sim_hosts_fail(hosts, "demote: %d, although a slot is kept for it", rc);
    }
    sim_hosts_push(hosts, number, which, true);
    end->stall.spills = true;
    hosts->result->spills++;
    sim_hosts_trace(hosts, number, which, "spills, sent", end->out->sent);
    return true;
}

bool sim_hosts_work(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    burst_step(&end->burst, end->out->sent, end->out->total, end->in->received, end->in->total);
    if (follow_demotion(hosts, number, which) || poll_for_answer(hosts, number, which) ||
        replay(hosts, number, which) || skip(hosts, number, which)) {
        return true;
    }
    if ((end->execs || chance(hosts, hosts->config->leave_chance)) && leave(hosts, number, which)) {
        end->execs = false;
        return true;
    }
    end->execs = end->execs && !line_has_room(hosts, end); /* else it can not: it keeps its pipes */
    if (end->execs) {
        return false;
    }
    bool reads_first = via_rng_chance(&hosts->rng, 1, 2);
    bool done = reads_first ? read_some(hosts, number, which) : write_some(hosts, number, which);
    if (!done) {
        done = reads_first ? write_some(hosts, number, which) : read_some(hosts, number, which);
    }
    sim_hosts_trace(hosts, number, which, done ? "works, received" : "finds nothing, received",
                    end->in->received);
    return done;
}
