/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connections of the sockets library between hosts that go back to the kernel in the middle of a
 * stream (src/sockets/conn/demote.h, fabric_carry.c), with the same stream state machine.
 *
 * An end posts into a mirror of its peer's memory, whose changes arrive as frames: in order, late,
 * and a limited number at a time. The kernel's bytes, and its FIN above all, overtake them. An end
 * leaves the pipes when the seed says so: it publishes DEMOTE and the byte at which it stopped, and
 * waits for the answer; its peer sends everything after that byte once more by the kernel, or
 * answers that it can not, because it has ended, and then the end returns to the pipes. Both may
 * leave at the same time.
 *
 * The requirements: all bytes arrive, once, in order, and then the end of file, not before.
 */
#include "sim/streams_hosts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"

#define EPOCH 9u
#define EVENTS_MAX 3000000u
/* More rounds only take time, if a socket buffer holds a few bytes. */
#define BYTES_MAX 20000u

void sim_hosts_fail(struct hosts *hosts, const char *format, ...)
{
    struct sim_streams_result *result = hosts->result;
    if (result->failed) {
        return;
    }
    result->failed = true;
    int length =
        snprintf(result->failure, sizeof(result->failure),
                 "streams between hosts, at %llu ns: ", (unsigned long long)hosts->clock.now_ns);
    va_list args;
    va_start(args, format);
    vsnprintf(result->failure + length, sizeof(result->failure) - (size_t)length, format, args);
    va_end(args);
}

void sim_hosts_trace(struct hosts *hosts, unsigned connection, unsigned end, const char *what,
                     uint64_t number)
{
    uint64_t h = hosts->result->digest;
    h = (h ^ hosts->clock.now_ns ^ (uint64_t)connection << 49 ^ (uint64_t)end << 48) *
        UINT64_C(0x100000001b3);
    hosts->result->digest = (h ^ h >> 29 ^ number) * UINT64_C(0x100000001b3);
    if (hosts->trace != NULL) {
        fprintf(hosts->trace, "%6llu.%06llu stream between hosts %u end %u: %s %llu\n",
                (unsigned long long)(hosts->clock.now_ns / VIA_MSEC_NS),
                (unsigned long long)(hosts->clock.now_ns % VIA_MSEC_NS), connection, end, what,
                (unsigned long long)number);
    }
}

void sim_hosts_event(struct hosts *hosts, unsigned number, unsigned which, enum via_event event)
{
    struct end *end = &hosts->connections[number].ends[which];
    int next = via_phase_next(end->phase, event);
    if (next < 0) {
        sim_hosts_fail(hosts, "%s in phase %s", via_event_name(event), via_phase_name(end->phase));
        return;
    }
    end->phase = (enum via_phase)next;
}

/* --- turns -------------------------------------------------------------------------------------
 */

static void turn_after(struct hosts *hosts, unsigned number, unsigned which, uint64_t delay_ns)
{
    struct end *end = &hosts->connections[number].ends[which];
    sim_clock_after(&hosts->clock, delay_ns, SIM_EVENT_TURN, number, which, ++end->ticket);
}

static void next_turn(struct hosts *hosts, unsigned number, unsigned which)
{
    uint64_t delay = between(hosts, 20, 400);
    if (chance(hosts, hosts->config->stall_chance)) {
        delay += between(hosts, 0, hosts->config->stall_ns_max);
    }
    turn_after(hosts, number, which, delay);
}

void sim_hosts_wake(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    if (end->asleep) {
        end->asleep = false;
        turn_after(hosts, number, which, between(hosts, 500, 5000));
    } else {
        end->bell = true;
    }
}

/* --- frames ------------------------------------------------------------------------------------
 */

static void send_frame(struct hosts *hosts, unsigned number, unsigned which, struct frame frame)
{
    struct line *line = &hosts->connections[number].ends[which].line;
    if (line->count == line->capacity) {
        struct frame *more = sim_alloc((2 * line->capacity + 16) * sizeof(*more));
        for (uint32_t i = 0; i < line->count; i++) {
            more[i] = line->frames[(line->head + i) % line->capacity];
        }
        free(line->frames);
        line->frames = more;
        line->capacity = 2 * line->capacity + 16;
        line->head = 0;
    }
    line->frames[(line->head + line->count++) % line->capacity] = frame;
    line->records += frame.kind == FRAME_RECORD ? 1 : 0;
    line->last_ns = via_max(line->last_ns,
                            hosts->clock.now_ns + between(hosts, 100, hosts->config->frame_ns_max));
    sim_clock_at(&hosts->clock, line->last_ns, SIM_EVENT_GUEST, number, which, 0);
}

/* Words that have changed, and the record that was written last if there is one. */
void sim_hosts_push(struct hosts *hosts, unsigned number, unsigned which, bool record)
{
    struct end *end = &hosts->connections[number].ends[which];
    uint64_t want;
    memcpy(&want, end->out->mirror, sizeof(want));
    if (want != end->out->want_pushed) {
        end->out->want_pushed = want;
        send_frame(hosts, number, which, (struct frame){.kind = FRAME_WANT, .word = want});
    }
    if (record) {
        send_frame(
            hosts, number, which,
            (struct frame){.kind = FRAME_RECORD, .word = end->out->tx.pipe.sequence - UINT32_C(1)});
    }
    if (end->in->credit_mirror != end->in->credit_pushed) {
        end->in->credit_pushed = end->in->credit_mirror;
        send_frame(hosts, number, which,
                   (struct frame){.kind = FRAME_CREDIT, .word = end->in->credit_pushed});
    }
}

void sim_hosts_send_flags(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    sim_hosts_push(hosts, number, which, false);
    send_frame(hosts, number, which, (struct frame){.kind = FRAME_SAID, .said = end->said});
}

/* Body first, then the line. The mirror has both until the record is given back. */
static void record_arrives(struct hosts *hosts, struct way *way, uint32_t sequence)
{
    struct via_pipe_reader probe = {.memory = way->mirror,
                                    .geometry = way->geometry,
                                    .sequence = sequence,
                                    .data_head = way->tx.pipe.data_tail,
                                    .epoch = EPOCH};
    const struct via_pipe_writer *writer = &way->tx.pipe;
    if (sequence != writer->released) {
        probe.data_head = writer->data_ends[(sequence - 1) & (way->geometry.slots_count - 1)];
    }
    struct via_pipe_record record;
    if (via_pipe_peek(&probe, &record) != 1) {
        sim_hosts_fail(hosts, "record %u is not in the mirror", sequence);
        return;
    }
    if (record.body_bytes != 0) {
        size_t off = (size_t)((const unsigned char *)record.body - way->mirror);
        memcpy(way->memory + off, way->mirror + off, record.body_bytes);
    }
    size_t off = VIA_RECORD_LINE_BYTES * (1 + (size_t)(sequence & (way->geometry.slots_count - 1)));
    memcpy(way->memory + off, way->mirror + off, VIA_RECORD_LINE_BYTES);
}

static void frame_arrives(struct hosts *hosts, unsigned number, unsigned from)
{
    struct end *end = &hosts->connections[number].ends[from];
    struct line *line = &end->line;
    struct frame frame = line->frames[line->head];
    line->head = (line->head + 1) % line->capacity;
    line->count--;
    switch (frame.kind) {
    case FRAME_RECORD:
        line->records--;
        /* An end that has left gives back records that are still on their way, as no thread reads
         * them. */
        if ((int32_t)((uint32_t)frame.word - end->out->tx.pipe.released) >= 0) {
            record_arrives(hosts, end->out, (uint32_t)frame.word);
        }
        break;
    case FRAME_WANT:
        memcpy(end->out->memory, &frame.word, sizeof(frame.word));
        break;
    case FRAME_CREDIT:
        end->in->credit = frame.word;
        break;
    case FRAME_SAID:
        hosts->connections[number].ends[1 - from].heard = frame.said;
        break;
    }
    sim_hosts_trace(hosts, number, from, "frame arrives, of kind", frame.kind);
    sim_hosts_wake(hosts, number, 1 - from);
    sim_hosts_wake(hosts, number, from); /* the way has room again */
}

/* --- the kernel --------------------------------------------------------------------------------
 */

/* 0 bytes: its FIN. */
void sim_hosts_kernel_send(struct hosts *hosts, unsigned number, unsigned which, const void *data,
                           uint32_t bytes)
{
    struct way *way = hosts->connections[number].ends[which].out;
    if (way->kernel_sent + bytes > way->total + way->again) {
        sim_hosts_fail(hosts, "more bytes are sent again than there were");
        return;
    }
    memcpy(way->kernel + way->kernel_sent, data, bytes);
    way->kernel_sent += bytes;
    way->kernel_last_ns =
        via_max(way->kernel_last_ns,
                hosts->clock.now_ns + between(hosts, 100, hosts->config->kernel_ns_max + 100));
    sim_clock_at(&hosts->clock, way->kernel_last_ns, SIM_EVENT_PUTS, number, which, bytes);
}

static void kernel_arrives(struct hosts *hosts, unsigned number, unsigned from, uint32_t bytes)
{
    struct way *way = hosts->connections[number].ends[from].out;
    way->kernel_arrived += bytes;
    way->fin_arrived |= bytes == 0;
    sim_hosts_wake(hosts, number, 1 - from);
}

/* --- the run -----------------------------------------------------------------------------------
 */

static bool is_over(const struct end *end)
{
    return end->out->fin_sent && end->in->ended &&
           !via_phase_is_in(end->phase, VIA_PHASES_REPLAY | VIA_PHASES_LEAVING);
}

/* Nothing to do: publishes the state that the peer may wait for, before the sleep. */
static void arm(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    if (!via_phase_is_in(end->phase, VIA_PHASES_GONE) &&
        !burst_has_to_send(&end->burst, end->out->sent, end->out->total)) {
        via_stream_rx_arm(&end->in->rx);
    }
    if (!end->out->fin_sent && end->out->tx.span == VIA_SPAN_PIPE) {
        via_pipe_ask_for_room(&end->out->tx.pipe);
    }
    sim_hosts_push(hosts, number, which, false);
}

static void run_turn(struct hosts *hosts, unsigned number, unsigned which, uint32_t ticket)
{
    struct end *end = &hosts->connections[number].ends[which];
    if (ticket != end->ticket || end->asleep || end->dead ||
        !sim_hosts_is_alive(hosts, number, which)) {
        return;
    }
    end->bell = false;
    if (sim_hosts_work(hosts, number, which)) {
        sim_hosts_push(hosts, number, which, false);
        next_turn(hosts, number, which);
        return;
    }
    arm(hosts, number, which);
    if (is_over(end) && !end->said.closed) {
        end->said.closed = true;
        sim_hosts_send_flags(hosts, number, which);
    }
    if (sim_hosts_watch_stall(hosts, number, which) || end->bell) {
        next_turn(hosts, number, which);
        return;
    }
    end->asleep = true;
    if (!is_over(end) && burst_is_check_allowed(&end->burst, end->out->sent + end->in->received,
                                                hosts->clock.now_ns)) {
        sim_clock_after(&hosts->clock, VIA_STREAM_STALL_NS, SIM_EVENT_RESUME, number, which,
                        end->ticket);
    }
}

/* It has slept so long that it checks again for a stall. */
static void sleep_ends(struct hosts *hosts, unsigned number, unsigned which, uint32_t ticket)
{
    if (hosts->connections[number].ends[which].ticket == ticket) {
        sim_hosts_wake(hosts, number, which);
    }
}

static void reader_init(const struct hosts *hosts, struct way *way)
{
    const struct via_pipe_target back = {.direct = (unsigned char *)&way->credit_mirror};
    via_pipe_reader_init(&way->rx.pipe, &way->geometry, way->memory, &back, EPOCH);
    via_pipe_reader_start_at(&way->rx.pipe, hosts->config->first);
    via_stream_rx_init(&way->rx);
}

static void way_init(struct hosts *hosts, struct way *way)
{
    const struct sim_config_streams *config = hosts->config;
    way->geometry = (struct via_pipe_geometry){
        .slots_count = config->slots,
        .data_bytes = 2 * config->body_bytes + 64 * config->spare_lines,
        .body_bytes_max = config->body_bytes,
    };
    way->memory = sim_alloc_lines(via_pipe_memory_bytes(&way->geometry));
    way->mirror = sim_alloc_lines(via_pipe_memory_bytes(&way->geometry));
    way->data_ends = sim_alloc(config->slots * sizeof(uint32_t));
    way->total = between(hosts, 0, via_min(config->bytes_max, BYTES_MAX));
    way->kernel = sim_alloc(2 * way->total);
    way->content = via_rng_next(&hosts->rng);
    const struct via_pipe_target out = {.direct = way->mirror};
    via_pipe_writer_init(&way->tx.pipe, &way->geometry, &out, &way->credit, way->data_ends, EPOCH);
    via_pipe_writer_start_at(&way->tx.pipe, config->first);
    via_stream_tx_init(&way->tx);
    reader_init(hosts, way);
}

static void start(struct hosts *hosts)
{
    for (unsigned i = 0; i < hosts->config->hosts_count; i++) {
        struct connection *connection = &hosts->connections[i];
        for (unsigned e = 0; e < 2; e++) {
            way_init(hosts, &connection->ways[e]);
            connection->ends[e].phase = VIA_PHASE_LIVE;
            connection->ends[e].out = &connection->ways[e];
            connection->ends[e].in = &connection->ways[1 - e];
        }
        if (chance(hosts, hosts->config->burst_chance)) {
            burst_draw(&hosts->rng, &connection->ends[0].burst, &connection->ends[1].burst,
                       connection->ways[0].total, connection->ways[1].total,
                       hosts->config->kernel_bytes);
        }
        for (unsigned e = 0; e < 2; e++) {
            sim_hosts_draw_fate(hosts, &connection->ends[e]);
            next_turn(hosts, i, e);
        }
    }
}

static void check_all_over(struct hosts *hosts)
{
    for (unsigned i = 0; i < hosts->config->hosts_count; i++) {
        for (unsigned e = 0; e < 2; e++) {
            const struct end *end = &hosts->connections[i].ends[e];
            if (!is_over(end) && !end->dead) {
                sim_hosts_fail(hosts,
                               "stream %u end %u: waits for ever, phase %s, with %llu of %llu "
                               "bytes sent, %llu of "
                               "%llu received",
                               i, e, via_phase_name(end->phase), (unsigned long long)end->out->sent,
                               (unsigned long long)end->out->total,
                               (unsigned long long)end->in->received,
                               (unsigned long long)end->in->total);
            }
        }
    }
}

static void run(struct hosts *hosts)
{
    struct sim_event event;
    while (!hosts->result->failed && sim_clock_take(&hosts->clock, &event)) {
        switch (event.kind) {
        case SIM_EVENT_TURN:
            run_turn(hosts, event.a, event.b, event.c);
            break;
        case SIM_EVENT_GUEST:
            frame_arrives(hosts, event.a, event.b);
            break;
        case SIM_EVENT_RESUME:
            sleep_ends(hosts, event.a, event.b, event.c);
            break;
        default:
            kernel_arrives(hosts, event.a, event.b, event.c);
            break;
        }
        if (hosts->clock.taken_count > EVENTS_MAX) {
            sim_hosts_fail(hosts, "no end after %u events", EVENTS_MAX);
        }
    }
    check_all_over(hosts);
}

void sim_streams_hosts_run(const struct sim_config *config, int plant, FILE *trace,
                           struct sim_streams_result *ret_result)
{
    struct hosts *hosts = sim_alloc(sizeof(*hosts));
    *ret_result = (struct sim_streams_result){.digest = config->seed};
    hosts->config = &config->streams;
    hosts->plant = plant;
    hosts->trace = trace;
    hosts->result = ret_result;
    hosts->connections = sim_alloc(config->streams.hosts_count * sizeof(*hosts->connections));
    via_rng_init(&hosts->rng, config->seed ^ UINT64_C(0x686f737473747265));
    via_rng_init(&hosts->fate, config->seed ^ UINT64_C(0x686f737466617465));
    sim_clock_init(&hosts->clock);
    start(hosts);
    run(hosts);
    for (unsigned i = 0; i < config->streams.hosts_count; i++) {
        for (unsigned e = 0; e < 2; e++) {
            struct way *way = &hosts->connections[i].ways[e];
            ret_result->bytes += way->received;
            free(way->memory);
            free(way->mirror);
            free(way->data_ends);
            free(way->kernel);
            free(hosts->connections[i].ends[e].line.frames);
        }
    }
    ret_result->events = hosts->clock.taken_count;
    sim_clock_fini(&hosts->clock);
    free(hosts->connections);
    free(hosts);
}
