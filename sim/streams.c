/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connections of the sockets library: the same stream state machine, with a virtual clock in the
 * place of threads, counters in the place of the kernel's TCP, and bells with a latency. Each end
 * is a thread that makes one step at a time: write, read, ring, arm, check again, sleep; between
 * any two steps the other end may get its turn. Bytes go by the kernel and by the pipe, and back,
 * as often as the seed says.
 *
 * The requirements: all bytes arrive, once, in order, then the end of file; no thread sleeps while
 * it has work; a peer that writes garbage harms only its own connection.
 */
#include "sim/streams_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"

#define EVENTS_MAX 3000000u

void sim_streams_fail(struct streams *streams, const char *format, ...)
{
    struct sim_streams_result *result = streams->result;
    if (result->failed) {
        return;
    }
    result->failed = true;
    int length = snprintf(result->failure, sizeof(result->failure),
                          "streams, at %llu ns: ", (unsigned long long)streams->clock.now_ns);
    va_list args;
    va_start(args, format);
    vsnprintf(result->failure + length, sizeof(result->failure) - (size_t)length, format, args);
    va_end(args);
}

void sim_streams_trace(struct streams *streams, unsigned connection, unsigned number,
                       const char *format, ...)
{
    if (streams->trace == NULL) {
        return;
    }
    fprintf(streams->trace, "%6llu.%06llu stream %u end %u%s: ",
            (unsigned long long)(streams->clock.now_ns / VIA_MSEC_NS),
            (unsigned long long)(streams->clock.now_ns % VIA_MSEC_NS), connection, number & 1,
            number > 1 ? " (forked)" : "");
    va_list args;
    va_start(args, format);
    vfprintf(streams->trace, format, args);
    va_end(args);
    fputc('\n', streams->trace);
}

static void mark(struct streams *streams, uint64_t a, uint64_t b)
{
    uint64_t h = streams->result->digest;
    h = (h ^ streams->clock.now_ns ^ a << 48) * UINT64_C(0x100000001b3);
    streams->result->digest = (h ^ h >> 29 ^ b) * UINT64_C(0x100000001b3);
}

/* --- turns and bells ------------------------------------------------------------------------- */

void sim_streams_turn_after(struct streams *streams, unsigned connection, unsigned number,
                            uint64_t delay_ns)
{
    struct thread *thread = thread_at(streams, connection, number);
    sim_clock_after(&streams->clock, delay_ns, SIM_EVENT_TURN, connection, number,
                    ++thread->ticket);
}

/* Most of the time a step takes little; sometimes its thread is not scheduled for long. */
static void next_turn(struct streams *streams, unsigned connection, unsigned number)
{
    const struct end *end = end_at(streams, connection, number);
    uint64_t delay = between(streams, 20, 400);
    if (end->in_kernel && end->burst.bytes != 0 && via_rng_chance(&streams->rng, 1, 8)) {
        delay += between(streams, 0, 5 * VIA_STREAM_STALL_NS);
    }
    if (chance(streams, streams->config->stall_chance)) {
        delay += between(streams, 0, streams->config->stall_ns_max);
    }
    sim_streams_turn_after(streams, connection, number, delay);
}

static void wake(struct streams *streams, unsigned connection, unsigned number)
{
    struct thread *thread = thread_at(streams, connection, number);
    if (thread->asleep && thread->lives) {
        thread->asleep = false;
        thread->bell = false;
        thread->listens = false;
        thread->step = STEP_WORK;
        sim_streams_turn_after(streams, connection, number, between(streams, 500, 5000));
    }
}

void sim_streams_wake(struct streams *streams, unsigned connection, unsigned end)
{
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        wake(streams, connection, end + 2 * i);
    }
}

/* An eventfd: a signal that comes before the sleep prevents it. */
static void bell_arrives(struct streams *streams, unsigned connection, unsigned end)
{
    unsigned hear = streams->plant == SIM_PLANT_ONE_HEARS ? 1 : THREADS_MAX;
    for (unsigned i = 0; i < hear; i++) {
        struct thread *thread = thread_at(streams, connection, end + 2 * i);
        if (thread->asleep) {
            wake(streams, connection, end + 2 * i);
        } else {
            thread->bell = true;
        }
    }
}

static void ring(struct streams *streams, unsigned connection, unsigned to)
{
    streams->result->bells++;
    if (streams->plant == SIM_PLANT_LOST_BELL && via_rng_chance(&streams->rng, 1, 20)) {
        return;
    }
    sim_clock_after(&streams->clock, between(streams, 0, streams->config->bell_ns_max),
                    SIM_EVENT_BELL, connection, to, 0);
}

/* --- the kernel's path
 * ------------------------------------------------------------------------- */

static uint64_t kernel_room(const struct streams *streams, const struct direction *way)
{
    return streams->config->kernel_bytes - (way->kernel_sent - way->kernel_read);
}

static unsigned reader_of(const struct connection *connection, const struct direction *way)
{
    return way == &connection->directions[0] ? 1 : 0;
}

static void kernel_arrives(struct streams *streams, unsigned number, unsigned direction,
                           uint32_t bytes)
{
    struct connection *connection = &streams->connections[number];
    struct direction *way = &connection->directions[direction];
    unsigned reader = reader_of(connection, way);
    way->kernel_arrived += bytes;
    way->kernel_fin_arrived |= bytes == 0;
    connection->ends[reader].peer_gone |= bytes == 0 && connection->ends[1 - reader].dead;
    sim_streams_wake(streams, number, reader);
}

void sim_streams_kernel_send(struct streams *streams, unsigned number, struct direction *way,
                             const void *data, uint32_t bytes)
{
    const struct connection *connection = &streams->connections[number];
    uint32_t direction = way == &connection->directions[0] ? 0 : 1;
    if (bytes != 0) {
        memcpy(way->kernel + way->kernel_sent, data, bytes);
        way->kernel_sent += bytes;
    }
    sim_clock_after(&streams->clock, between(streams, 100, streams->config->kernel_ns_max + 100),
                    SIM_EVENT_PUTS, number, direction, bytes);
}

static bool has_kernel_bytes(const struct direction *way)
{
    return way->kernel_arrived != way->kernel_read;
}

/* TCP does not reorder: bytes with a shorter delay wait for earlier ones. */
static uint32_t kernel_take(struct direction *way, unsigned char *data, uint64_t max)
{
    uint64_t bytes = via_min(way->kernel_arrived - way->kernel_read, max);
    memcpy(data, way->kernel + way->kernel_read, bytes);
    way->kernel_read += bytes;
    return (uint32_t)bytes;
}

/* --- writing --------------------------------------------------------------------------------- */

/* May the kernel be used, now that the span is the kernel's? */
static bool kernel_is_free(const struct streams *streams, struct direction *way)
{
    return !way->switched || streams->plant == SIM_PLANT_EARLY_KERNEL ||
           via_stream_tx_is_demoted(&way->tx);
}

static uint32_t fill_chunk(struct streams *streams, const struct direction *way)
{
    uint64_t left = way->total - way->sent;
    uint64_t most = via_rng_chance(&streams->rng, 1, 3) ? CHUNK_MAX : 60;
    uint32_t bytes = (uint32_t)via_min(left, between(streams, 1, most));
    for (uint32_t i = 0; i < bytes; i++) {
        streams->chunk[i] = sim_streams_byte(way->content, way->sent + i);
    }
    return bytes;
}

/* False if nothing can be written now. */
static bool write_kernel(struct streams *streams, unsigned number, struct end *end)
{
    struct direction *way = end->out;
    if (!end->stall.spills && !kernel_is_free(streams, way)) {
        return false;
    }
    if (chance(streams, streams->config->switch_chance) && way->sent < way->total &&
        via_stream_stall_is_over(&end->stall, &way->tx)) {
        int rc = via_stream_tx_switch(&way->tx, way->kernel_sent);
        if (rc == 0) {
            way->switched = true;
            return true;
        }
        if (rc != -EAGAIN) {
            sim_streams_fail(streams, "switch: %d", rc);
        }
    }
    uint64_t room = kernel_room(streams, way);
    if (way->sent == way->total) {
        way->fin_sent = true;
        int rc = via_stream_tx_fin(&way->tx, 0);
        sim_streams_kernel_send(streams, number, way, NULL, 0);
        return rc == 0;
    }
    uint32_t bytes = (uint32_t)via_min((uint64_t)fill_chunk(streams, way), room);
    if (bytes == 0) {
        return false;
    }
    sim_streams_kernel_send(streams, number, way, streams->chunk, bytes);
    way->sent += bytes;
    return true;
}

/* If both programs only write for long, only the bytes that the reader has begun to read are left
 * at the writer. */
static bool is_demotion_allowed(struct streams *streams, const struct end *end)
{
    const struct via_stream_tx *tx = &end->out->tx;
    return chance(streams, streams->config->demote_chance) &&
           (end->burst.bytes == 0 || (int32_t)(tx->pipe.released - tx->switch_end) >= 0);
}

static bool write_pipe(struct streams *streams, struct end *end)
{
    struct direction *way = end->out;
    if (way->avail_bytes != 0) {
        return sim_streams_avail_check(streams, end);
    }
    if (way->sent < way->total && !end->shared && via_stream_tx_sink(&way->tx) != 0 &&
        chance(streams, streams->config->avail_chance) && !end->late) {
        return sim_streams_avail_open(streams, end);
    }
    if (is_demotion_allowed(streams, end)) {
        int rc = via_stream_tx_demote(&way->tx);
        if (rc != 0) {
            sim_streams_fail(streams, "demote: %d, although a slot is kept for it", rc);
        }
        end->stall.spills = end->burst.bytes != 0;
        end->ring_reader = true;
        return true;
    }
    if (way->sent == way->total) {
        way->fin_sent = true;
        int rc = via_stream_tx_fin(&way->tx, VIA_STREAM_FIN_CLOSED);
        if (rc != 0) {
            sim_streams_fail(streams, "fin: %d, although a slot is kept for it", rc);
        }
        end->ring_reader = true;
        return true;
    }
    struct iovec iov = {streams->chunk, fill_chunk(streams, way)};
    struct via_iov cursor;
    ssize_t rc = via_iov_init(&cursor, &iov, 1);
    if (rc == 0) {
        rc = via_stream_tx_write(&way->tx, &cursor);
    }
    if (rc > 0) {
        way->sent += (uint64_t)rc;
        end->ring_reader = true;
        end->late = false;
    } else if (rc != -EAGAIN) {
        sim_streams_fail(streams, "write: %zd", rc);
    }
    return rc > 0;
}

static bool write_some(struct streams *streams, unsigned number, struct end *end)
{
    struct direction *way = end->out;
    if (end->peer_gone && !way->fin_sent && streams->plant != SIM_PLANT_UNSEEN_DEATH) {
        sim_streams_give_up(end);
        return true;
    }
    if (way->fin_sent || !burst_is_write_allowed(&end->burst, way->sent, way->total)) {
        return false;
    }
    if (way->tx.span == VIA_SPAN_PIPE) {
        return write_pipe(streams, end);
    }
    bool done = write_kernel(streams, number, end);
    /* The call may have switched to the pipe: the switch is a record. */
    end->ring_reader = end->ring_reader || way->tx.span == VIA_SPAN_PIPE;
    return done;
}

/* --- reading --------------------------------------------------------------------------------- */

void sim_streams_check_chunk(struct streams *streams, struct direction *way, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (streams->chunk[i] != sim_streams_byte(way->content, way->received + i)) {
            sim_streams_fail(streams, "byte %llu is not what was sent",
                             (unsigned long long)(way->received + i));
            return;
        }
    }
    way->received += bytes;
    if (way->received > way->sent + way->avail_bytes) {
        sim_streams_fail(streams, "%llu bytes came, of %llu that were sent",
                         (unsigned long long)way->received, (unsigned long long)way->sent);
    }
}

static void ended(struct streams *streams, const struct end *end)
{
    const struct connection *connection = &streams->connections[end->connection];
    struct direction *way = end->in;
    way->ended = true;
    if (!sim_streams_is_all(connection, way)) {
        sim_streams_fail(streams, "the stream ends after %llu of %llu bytes",
                         (unsigned long long)way->received, (unsigned long long)way->total);
    }
}

static bool read_kernel(struct streams *streams, const struct end *end, uint64_t max)
{
    struct direction *way = end->in;
    uint32_t bytes = kernel_take(way, streams->chunk, max);
    sim_streams_check_chunk(streams, way, bytes);
    if (way->rx.span == VIA_SPAN_KERNEL_UNTIL) {
        via_stream_rx_kernel_read(&way->rx, bytes);
    } else if (bytes == 0 && way->kernel_fin_arrived && way->kernel_read == way->kernel_sent) {
        ended(streams, end);
        return true;
    }
    return bytes != 0;
}

/* False if there is nothing to read now. */
static bool read_some(struct streams *streams, struct end *end)
{
    struct direction *way = end->in;
    uint64_t max = between(streams, 1, via_rng_chance(&streams->rng, 1, 2) ? CHUNK_MAX : 100);
    struct iovec iov = {streams->chunk, max};
    struct via_iov cursor;
    uint32_t released = way->rx.pipe.released;
    bool done = false;
    bool in_call = end->in_fetch || end->in_kernel;
    if (streams->plant == SIM_PLANT_DEATH_FIRST && end->peer_gone && !way->ended) {
        ended(streams, end);
        return true;
    }
    if (way->ended || (!in_call && !burst_is_read_allowed(&end->burst, &streams->rng,
                                                          end->out->sent, end->out->total))) {
        return false;
    }
    if (end->in_fetch) {
        sim_streams_avail_fetch(streams, end, max);
        return true;
    }
    if (end->in_kernel) {
        end->in_kernel = false;
        return read_kernel(streams, end, max);
    }
    int next = via_stream_rx_next(&way->rx);
    if (next == VIA_NEXT_KERNEL_UNTIL && !way->rx.kernel_known) {
        next = via_stream_rx_kernel_total(&way->rx, way->kernel_read);
        next = next == 0 ? via_stream_rx_next(&way->rx) : next;
    }
    if (next == VIA_NEXT_KERNEL) {
        /* The next step: between the check of the pipe and the read the writer may do anything. */
        end->in_kernel = way->kernel_arrived != way->kernel_read ||
                         (way->kernel_fin_arrived && way->kernel_read == way->kernel_sent);
        done = end->in_kernel;
    } else if (next == VIA_NEXT_KERNEL_UNTIL) {
        done = read_kernel(streams, end, via_min(max, via_stream_rx_kernel_left(&way->rx)));
    } else if (next == VIA_NEXT_DATA && via_iov_init(&cursor, &iov, 1) == 0) {
        ssize_t bytes = via_stream_rx_read(&way->rx, &cursor);
        done = bytes > 0;
        sim_streams_check_chunk(streams, way, (uint64_t)via_max(bytes, (ssize_t)0));
    } else if (next == VIA_NEXT_FIN || (next == VIA_NEXT_EMPTY && end->peer_gone)) {
        ended(streams, end);
        done = true;
    } else if (next == VIA_NEXT_AVAIL) {
        sim_streams_avail_meet(streams, end);
        done = true;
    } else if (next < 0) {
        sim_streams_fail(streams, "read: %d", next);
    }
    end->ring_writer |= way->rx.posted;
    return done || released != way->rx.pipe.released;
}

/* --- turns ----------------------------------------------------------------------------------- */

static bool is_over(const struct end *end)
{
    return end->out->fin_sent && end->in->ended;
}

static bool is_listening(const struct end *end)
{
    return end->threads[0].listens || end->threads[1].listens;
}

static void ring_peer(struct streams *streams, unsigned number, unsigned thread_number)
{
    struct end *end = end_at(streams, number, thread_number);
    unsigned peer_number = 1 - (thread_number & 1);
    const struct end *peer = end_at(streams, number, peer_number);
    bool bell = end->ring_reader && (via_pipe_must_ring(&end->out->tx.pipe) || is_listening(peer));
    if (end->ring_writer && via_stream_rx_must_ring(&end->in->rx)) {
        bell = true;
    }
    bell |= end->pulled;
    /* It is unknown which of several threads sleeps: all are woken. */
    bell |= (end->shared || peer->shared) && (end->ring_reader || end->ring_writer);
    end->pulled = false;
    end->ring_reader = false;
    end->ring_writer = false;
    if (bell) {
        sim_streams_trace(streams, number, thread_number, "rings");
        ring(streams, number, peer_number);
    }
}

static void sleep_now(struct streams *streams, unsigned number, unsigned thread_number)
{
    struct end *end = end_at(streams, number, thread_number);
    struct thread *thread = thread_at(streams, number, thread_number);
    thread->step = STEP_WORK;
    if (thread->bell) {
        thread->bell = false;
        next_turn(streams, number, thread_number);
    } else {
        sim_streams_trace(
            streams, number, thread_number,
            "sleeps; writes to the %s, records %u to %u not given back; reads from the %s",
            end->out->tx.span == VIA_SPAN_PIPE ? "pipe" : "kernel", end->out->tx.pipe.released,
            end->out->tx.pipe.sequence, end->in->rx.span == VIA_SPAN_PIPE ? "pipe" : "kernel");
        thread->asleep = true;
        if (burst_is_check_allowed(&end->burst, end->out->sent + end->in->received,
                                   streams->clock.now_ns)) {
            sim_clock_after(&streams->clock, VIA_STREAM_STALL_NS, SIM_EVENT_RESUME, number,
                            thread_number, thread->ticket);
        }
    }
}

/* It has slept so long that it checks again for a stall. */
static void sleep_ends(struct streams *streams, unsigned number, unsigned thread_number,
                       uint32_t ticket)
{
    if (thread_at(streams, number, thread_number)->ticket == ticket) {
        wake(streams, number, thread_number);
    }
}

static void take_in(struct end *end)
{
    struct via_stream_rx *rx = &end->in->rx;
    if (via_stream_rx_next(rx) == VIA_NEXT_KERNEL_UNTIL && !rx->kernel_known) {
        via_stream_rx_kernel_total(rx, end->in->kernel_read);
    }
    end->pulled |= via_stream_stall_give_back(rx);
}

/* Called before a thread sleeps for room: true if it must not sleep. */
static bool watch_stall(struct streams *streams, struct end *end)
{
    struct via_stream_tx *tx = &end->out->tx;
    struct via_stream_rx *rx = &end->in->rx;
    if (via_stream_stall_is_hidden(tx, rx) && streams->plant != SIM_PLANT_HIDDEN_BEGIN) {
        take_in(end);
    }
    if (end->out->avail_bytes != 0 || !via_stream_stall_is_full(tx) ||
        !via_stream_stall_is_possible(rx)) {
        return false;
    }
    take_in(end);
    if (!via_stream_stall_is_due(&end->stall, tx, rx, has_kernel_bytes(end->in),
                                 streams->clock.now_ns)) {
        return false;
    }
    int rc = via_stream_tx_demote(tx);
    if (rc != 0) {
        sim_streams_fail(streams, "demote: %d, although a slot is kept for it", rc);
    }
    end->stall.spills = true;
    end->ring_reader = true;
    streams->result->spills++;
    return true;
}

static bool work(struct streams *streams, unsigned number, unsigned thread_number)
{
    struct end *end = end_at(streams, number, thread_number);
    uint64_t sent = end->out->sent;
    uint64_t received = end->in->received;
    uint64_t read = end->in->kernel_read;
    burst_step(&end->burst, sent, end->out->total, received, end->in->total);
    bool reads_first = via_rng_chance(&streams->rng, 1, 2);
    bool done = reads_first ? read_some(streams, end) : write_some(streams, number, end);
    if (!done) {
        done = reads_first ? write_some(streams, number, end) : read_some(streams, end);
    }
    if (read != end->in->kernel_read) {
        /* There is room in the socket buffer. */
        sim_streams_wake(streams, number, 1 - (thread_number & 1));
    }
    end->in_call =
        end->in_fetch || end->in_kernel ? thread_at(streams, number, thread_number) : NULL;
    mark(streams, (uint64_t)number << 8 | thread_number, end->out->sent << 32 ^ end->in->received);
    sim_streams_trace(
        streams, number, thread_number, "%s, sent %llu (+%llu), received %llu (+%llu)",
        done ? "works" : "finds nothing to do", (unsigned long long)end->out->sent,
        (unsigned long long)(end->out->sent - sent), (unsigned long long)end->in->received,
        (unsigned long long)(end->in->received - received));
    return done;
}

static void arm(struct streams *streams, struct end *end, struct thread *thread)
{
    if (burst_has_to_send(&end->burst, end->out->sent, end->out->total)) {
        thread->listens = true;
        if (end->out->tx.span == VIA_SPAN_PIPE) {
            via_pipe_ask_for_room(&end->out->tx.pipe);
        }
        return;
    }
    if (streams->config->avail_chance != 0) {
        via_stream_rx_sink(&end->in->rx, via_rng_chance(&streams->rng, 1, 2) ? CHUNK_MAX : 0);
    }
    via_stream_rx_arm(&end->in->rx);
    end->ring_writer = true;
    if (!end->out->fin_sent) {
        via_pipe_ask_for_room(&end->out->tx.pipe);
    }
}

static void turn_of_rogue(struct streams *streams, unsigned number, unsigned end_number)
{
    struct connection *connection = &streams->connections[number];
    if (sim_streams_rogue_turn(streams, connection, &connection->ends[end_number])) {
        next_turn(streams, number, end_number);
    }
}

/* The next step of a thread; false: it sleeps, or has nothing more to do. */
static bool run_step(struct streams *streams, unsigned number, unsigned thread_number)
{
    struct end *end = end_at(streams, number, thread_number);
    struct thread *thread = thread_at(streams, number, thread_number);
    switch (thread->step) {
    case STEP_WORK:
    case STEP_CHECK:
        if (work(streams, number, thread_number)) {
            thread->step = STEP_RING;
        } else if (thread->step == STEP_WORK) {
            thread->bell = false; /* its check came after it */
            ring_peer(streams, number, thread_number);
            thread->step = is_over(end) ? STEP_RING : STEP_ARM;
        } else if (watch_stall(streams, end)) {
            sim_streams_trace(streams, number, thread_number, "spills");
            thread->step = STEP_RING;
        } else {
            ring_peer(streams, number, thread_number);
            sleep_now(streams, number, thread_number);
            return false;
        }
        return true;
    case STEP_RING:
        ring_peer(streams, number, thread_number);
        thread->step = STEP_WORK;
        return !is_over(end);
    case STEP_ARM:
        arm(streams, end, thread);
        ring_peer(streams, number, thread_number);
        thread->step = STEP_CHECK;
        return true;
    }
    return true;
}

static void run_turn(struct streams *streams, unsigned number, unsigned thread_number,
                     uint32_t ticket)
{
    const struct end *end = end_at(streams, number, thread_number);
    const struct thread *thread = thread_at(streams, number, thread_number);
    if (ticket != thread->ticket || thread->asleep || !thread->lives) {
        return;
    }
    if (streams->connections[number].rogue) {
        turn_of_rogue(streams, number, thread_number);
    } else if (!sim_streams_is_alive(streams, number, thread_number)) {
        return;
    } else if (end->in_call != NULL && end->in_call != thread) {
        /* Another thread has the token. */
        sim_streams_turn_after(streams, number, thread_number, between(streams, 1000, 100000));
    } else if (run_step(streams, number, thread_number)) {
        next_turn(streams, number, thread_number);
    }
}

/* --- the run --------------------------------------------------------------------------------- */

void sim_streams_reader_init(struct streams *streams, struct direction *way)
{
    const struct via_pipe_target back = {.direct = (unsigned char *)&way->credit};
    via_pipe_reader_init(&way->rx.pipe, &way->geometry, way->memory, &back, EPOCH);
    via_pipe_reader_start_at(&way->rx.pipe, streams->config->first);
    via_stream_rx_init(&way->rx);
    via_stream_rx_allow_avail(&way->rx, &way->at_reader, &way->at_writer);
}

static void direction_init(struct streams *streams, struct direction *way)
{
    const struct sim_config_streams *config = streams->config;
    way->geometry = (struct via_pipe_geometry){
        .slots_count = config->slots,
        .data_bytes = 2 * config->body_bytes + 64 * config->spare_lines,
        .body_bytes_max = config->body_bytes,
    };
    way->memory = sim_alloc_lines(via_pipe_memory_bytes(&way->geometry));
    way->data_ends = sim_alloc(config->slots * sizeof(uint32_t));
    way->total = between(streams, 0, config->bytes_max);
    way->kernel = sim_alloc(way->total);
    way->content = via_rng_next(&streams->rng);
    const struct via_pipe_target out = {.direct = way->memory};
    via_pipe_writer_init(&way->tx.pipe, &way->geometry, &out, &way->credit, way->data_ends, EPOCH);
    via_pipe_writer_start_at(&way->tx.pipe, config->first);
    via_stream_tx_init(&way->tx);
    via_stream_tx_allow_avail(&way->tx, &way->at_writer, &way->at_reader);
    sim_streams_reader_init(streams, way);
}

static void start(struct streams *streams)
{
    for (unsigned i = 0; i < streams->config->count; i++) {
        struct connection *connection = &streams->connections[i];
        connection->rogue = chance(streams, streams->config->rogue_chance);
        for (unsigned e = 0; e < 2; e++) {
            direction_init(streams, &connection->directions[e]);
            connection->ends[e].out = &connection->directions[e];
            connection->ends[e].in = &connection->directions[1 - e];
            connection->ends[e].connection = i;
            connection->ends[e].threads[0].lives = true;
        }
        if (!connection->rogue && chance(streams, streams->config->burst_chance)) {
            burst_draw(&streams->rng, &connection->ends[0].burst, &connection->ends[1].burst,
                       connection->directions[0].total, connection->directions[1].total,
                       streams->config->kernel_bytes);
        }
        connection->ends[0].rogue = connection->rogue;
        sim_streams_draw_fate(streams, connection);
        for (unsigned e = 0; e < 2; e++) {
            next_turn(streams, i, e);
        }
    }
}

static void check_all_over(struct streams *streams)
{
    for (unsigned i = 0; i < streams->config->count; i++) {
        const struct connection *connection = &streams->connections[i];
        for (unsigned e = 0; e < 2 && !connection->rogue; e++) {
            const struct end *end = &connection->ends[e];
            if (!is_over(end) && !end->dead) {
                sim_streams_fail(
                    streams,
                    "stream %u end %u: %s for ever, with %llu of %llu bytes sent, %llu of %llu "
                    "received (lost wake-up)",
                    i, e, end->threads[0].asleep ? "sleeps" : "waits",
                    (unsigned long long)end->out->sent, (unsigned long long)end->out->total,
                    (unsigned long long)end->in->received, (unsigned long long)end->in->total);
            }
        }
    }
}

static void run(struct streams *streams)
{
    struct sim_event event;
    while (!streams->result->failed && sim_clock_take(&streams->clock, &event)) {
        switch (event.kind) {
        case SIM_EVENT_TURN:
            run_turn(streams, event.a, event.b, event.c);
            break;
        case SIM_EVENT_BELL:
            bell_arrives(streams, event.a, event.b);
            break;
        case SIM_EVENT_GUEST:
            sim_streams_kill(streams, event.a, event.b);
            break;
        case SIM_EVENT_RESUME:
            sleep_ends(streams, event.a, event.b, event.c);
            break;
        default:
            kernel_arrives(streams, event.a, event.b, event.c);
            break;
        }
        if (streams->clock.taken_count > EVENTS_MAX) {
            sim_streams_fail(streams, "no end after %u events", EVENTS_MAX);
        }
    }
    check_all_over(streams);
}

unsigned char sim_streams_byte(uint64_t content, uint64_t at)
{
    return (unsigned char)(content + at * 167 + (at >> 8) * 13);
}

void sim_streams_run(const struct sim_config *config, int plant, FILE *trace,
                     struct sim_streams_result *ret_result)
{
    struct streams *streams = sim_alloc(sizeof(*streams));
    *ret_result = (struct sim_streams_result){.digest = config->seed};
    streams->config = &config->streams;
    streams->plant = plant;
    streams->trace = trace;
    streams->result = ret_result;
    streams->connections = sim_alloc(config->streams.count * sizeof(*streams->connections));
    via_rng_init(&streams->rng, config->seed ^ UINT64_C(0x73747265616d));
    via_rng_init(&streams->fate, config->seed ^ UINT64_C(0x66617465));
    sim_clock_init(&streams->clock);
    start(streams);
    run(streams);
    for (unsigned i = 0; i < config->streams.count; i++) {
        for (unsigned e = 0; e < 2; e++) {
            struct direction *way = &streams->connections[i].directions[e];
            ret_result->bytes += way->received;
            free(way->memory);
            free(way->data_ends);
            free(way->kernel);
        }
    }
    ret_result->events = streams->clock.taken_count;
    sim_clock_fini(&streams->clock);
    free(streams->connections);
    free(streams);
}
