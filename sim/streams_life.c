/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Processes that hold an end are forked and killed, at any step: during a spill, between the record
 * that ends the pipe's part and the kernel's first byte, asleep, about to fetch.
 *
 * The bytes that the last holder had sent arrive, once, in order; then the end of file. Its peer
 * does not sleep for ever, and gets EPIPE. While another process holds the end, the peer notices
 * nothing.
 *
 * One case is left out: if a holder is killed between a store and its wake-up of the peer, and
 * others hold the end, no process knows that the peer must be woken. The simulator kills it after
 * the wake-up. The library's peer checks again within a second (sockets/conn/shared.h); the check
 * killed_before_it_rings covers that.
 */
#include "base/types.h"
#include "sim/streams_internal.h"

static void draw_kill(struct streams *streams, struct thread *thread)
{
    thread->kill = fate_draw(&streams->fate, streams->config->kill_chance);
    thread->late_ns = via_rng_chance(&streams->fate, 1, 3)
                          ? via_rng_between(&streams->fate, 1, 3 * VIA_STREAM_STALL_NS)
                          : 0;
}

void sim_streams_draw_fate(struct streams *streams, struct connection *connection)
{
    for (unsigned e = 0; e < 2 && !connection->rogue; e++) {
        struct end *end = &connection->ends[e];
        draw_kill(streams, &end->threads[0]);
        end->fork_turns_left = fate_turns(&streams->fate, streams->config->fork_chance);
    }
}

/* A single thread forks: it is in no call. */
static bool is_fork_allowed(const struct end *end)
{
    return end->in_call == NULL && end->out->avail_bytes == 0 && !end->in->rx.avail.held &&
           !end->shared;
}

static void fork_now(struct streams *streams, unsigned connection, unsigned number)
{
    struct end *end = end_at(streams, connection, number);
    end->shared = true;
    end->threads[1].lives = true;
    draw_kill(streams, &end->threads[1]);
    sim_streams_trace(streams, connection, number, "forks");
    sim_streams_turn_after(streams, connection, number + 2,
                           via_rng_between(&streams->fate, 100, 100000));
}

static bool is_last(const struct end *end)
{
    return !end->threads[0].lives || !end->threads[1].lives;
}

/* Is there news that only this thread would signal? */
static bool is_ring_due(const struct end *end)
{
    return end->ring_reader || end->ring_writer || end->pulled;
}

static void end_dies(struct streams *streams, unsigned connection, struct end *end)
{
    end->dead = true;
    end->out->fin_at_death = end->out->fin_sent;
    /* The kernel closes its sockets. */
    sim_streams_kernel_send(streams, connection, end->out, NULL, 0);
}

void sim_streams_kill(struct streams *streams, unsigned connection, unsigned number)
{
    struct end *end = end_at(streams, connection, number);
    struct thread *thread = thread_at(streams, connection, number);
    if (!thread->lives) {
        return;
    }
    if (!is_last(end) && is_ring_due(end)) {
        sim_clock_after(&streams->clock, 100, SIM_EVENT_GUEST, connection, number, 0);
        return;
    }
    sim_streams_trace(streams, connection, number, "is killed");
    streams->result->kills++;
    thread->lives = false;
    if (end->in_call == thread) { /* the next one takes the token of a dead one */
        end->in_call = NULL;
        end->in_fetch = false;
        end->in_kernel = false;
    }
    if (!end->threads[0].lives && !end->threads[1].lives) {
        end_dies(streams, connection, end);
    } else if (streams->plant == SIM_PLANT_FORKED_END) {
        end->out->fin_sent = true;
        sim_streams_kernel_send(streams, connection, end->out, NULL, 0);
    } else {
        sim_streams_wake(streams, connection, number & 1); /* for example SIGCHLD */
    }
}

bool sim_streams_is_alive(struct streams *streams, unsigned connection, unsigned number)
{
    struct end *end = end_at(streams, connection, number);
    struct thread *thread = thread_at(streams, connection, number);
    if (end->fork_turns_left != 0 && !end->shared && is_fork_allowed(end) &&
        --end->fork_turns_left == 0) {
        fork_now(streams, connection, number);
    }
    if (!fate_is_due(&thread->kill, end->stall.spills)) {
        return true;
    }
    if (thread->late_ns != 0) {
        sim_clock_after(&streams->clock, thread->late_ns, SIM_EVENT_GUEST, connection, number, 0);
        return true;
    }
    sim_streams_kill(streams, connection, number);
    return thread->lives;
}

void sim_streams_give_up(struct end *end)
{
    struct direction *way = end->out;
    if (way->avail_bytes != 0) {
        via_stream_tx_avail_end(&way->tx);
        way->avail_bytes = 0;
    }
    way->fin_sent = true;
    end->burst.bytes = 0;
}

bool sim_streams_is_all(const struct connection *connection, const struct direction *way)
{
    const struct end *writer = writer_of(connection, way);
    return way->received == way->total ||
           (writer->dead && !way->fin_at_death && way->received >= way->sent &&
            way->received <= way->sent + way->avail_bytes);
}
