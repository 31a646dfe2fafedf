/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connections of the sockets library that are demoted in the middle of a stream, spill to the
 * kernel, are closed, and whose programs are killed. The library is the one that programs load,
 * compiled once more (CMakeLists.txt). A run starts with connections whose ends have already agreed
 * on pipes.
 *
 * Within a host both ends store into each other's segment, and ring bells, which take a while.
 * Between hosts an end puts into its peer's segment by frames: in order, late, and a limited number
 * at a time. The kernel's bytes, and its FIN above all, overtake them.
 *
 * The requirements: all bytes arrive, once and in order, and the end of file comes after them; no
 * end sleeps forever; a peer that writes garbage does not crash an end.
 */
#include "sim/sockets/run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/sockets/phase_names.h"
#include "sim/sockets/sockets.h"
#include "sockets/io/zcopy.h"
#include "sockets/process/real.h"

#define EVENTS_MAX 3000000u
/* More bytes only take time if a socket buffer holds a few bytes. */
#define BYTES_MAX 20000u
/* Fewest bytes that a call that waits may leave in its own memory for the receiver to fetch. */
#define LEFT_BYTES_MIN 64u
/* Turns after which the peer of a rogue closes. */
#define ROGUE_TURNS 2000u

struct sock_run *sock_run_now;

void sock_fail(struct sock_run *run, const char *format, ...)
{
    struct sim_streams_result *result = run->result;
    if (result->failed || run->is_lenient) {
        return;
    }
    result->failed = true;
    int length = snprintf(result->failure, sizeof(result->failure),
                          "streams, at %llu ns: ", (unsigned long long)run->clock.now_ns);
    va_list args;
    va_start(args, format);
    vsnprintf(result->failure + length, sizeof(result->failure) - (size_t)length, format, args);
    va_end(args);
}

void sock_trace(const struct sock_end *end, const char *what, uint64_t number)
{
    struct sock_run *run = end->run;
    uint64_t h = run->result->digest;
    h = (h ^ run->clock.now_ns ^ (uint64_t)end->number << 48) * UINT64_C(0x100000001b3);
    run->result->digest = (h ^ h >> 29 ^ number) * UINT64_C(0x100000001b3);
    if (run->trace != NULL) {
        fprintf(run->trace, "%6llu.%06llu stream %u end %u (%s): %s %llu\n",
                (unsigned long long)(run->clock.now_ns / VIA_MSEC_NS),
                (unsigned long long)(run->clock.now_ns % VIA_MSEC_NS), end->number / 2,
                end->number % 2, via_phase_name(via_phase_get(&end->conn.side->phase)), what,
                (unsigned long long)number);
    }
}

unsigned char sock_byte(uint64_t content, uint64_t at)
{
    return (unsigned char)(content + at * 167 + (at >> 8) * 13);
}

/* --- fibers ----------------------------------------------------------------------------------- */

struct sock_end *sock_running(void)
{
    for (unsigned i = 0; i < sock_run_now->ends_count; i++) {
        if (sock_run_now->ends[i].fiber.running) {
            return &sock_run_now->ends[i];
        }
    }
    return NULL;
}

static void resume(struct sock_end *end)
{
    struct sim_call call = sim_fiber_call(&end->fiber);
    call.run(call.object, call.arg);
}

static void turn_after(struct sock_end *end, uint64_t ns)
{
    sim_clock_after(&end->run->clock, ns, SIM_EVENT_TURN, end->number, ++end->ticket, 0);
}

void sock_pause(struct sock_end *end, uint64_t ns)
{
    do {
        end->pauses = true;
        turn_after(end, ns);
        sim_fiber_wait(&end->fiber);
        end->pauses = false;
    } while (sock_program_is_killed(end)); /* a killed program never runs on */
}

void sock_sleep(struct sock_end *end, uint64_t ns)
{
    if (end->bell) {
        return;
    }
    end->asleep = true;
    end->ticket++;
    if (ns != VIA_NEVER_NS) {
        turn_after(end, ns);
    }
    sim_fiber_wait(&end->fiber);
    end->asleep = false;
}

void sock_wake(struct sock_end *end)
{
    end->bell = true;
    if (end->asleep) {
        end->asleep = false;
        turn_after(end, sock_between(end->run, 500, 5000));
    }
}

static void take_turn(struct sock_end *end, uint32_t ticket)
{
    if (ticket == end->ticket && !end->dead && !end->closed) {
        end->run->is_lenient = end->rogue || end->peer->rogue;
        resume(end);
        end->run->is_lenient = false;
    }
}

/* --- the run ---------------------------------------------------------------------------------- */

static bool is_local(const struct sock_end *end)
{
    return end->number < 2 * end->run->config->count;
}

static void make_fabric(struct sock_end *end)
{
    struct via_fabric *fabric = &end->fabric;
    struct via_side *side = end->conn.side;
    uint32_t first = end->run->config->first;
    fabric->mirror = sim_alloc_lines(fabric->bytes);
    fabric->slot = -1;
    fabric->attach = via_fabric_attached();
    fabric->remote = &end->remote;
    fabric->remote_handle = end->peer->number;
    end->conn.carrier = &via_carrier_fabric;
    end->conn.fabric = fabric;
    via_side_attach(side, &fabric->geometry, end->segment, fabric->mirror);
    memcpy(end->segment + VIA_SEGMENT_SENT_OFF, &first, sizeof(first));
}

static void make_local(struct sock_end *end)
{
    struct via_conn *conn = &end->conn;
    conn->carrier = &via_carrier_local;
    conn->peer_bell = &end->peer_bell;
    end->peer_bell.word = &end->peer->word;
    via_side_attach(conn->side, &end->fabric.geometry, end->segment, end->peer->segment);
    conn->zcopy = (struct via_zcopy){
        .able = true, .own_pid = via_os_pid(), .peer_pid = (pid_t)end->peer->number + 1};
    via_side_allow_avail(conn->side);
    if (conn->side->connector) {
        conn->side->sent_flags |= VIA_FLAG_TAKEN;
        via_side_publish_flags(conn->side, conn->side->sent_flags);
    }
}

static void make_segment(struct sock_run *run, unsigned number)
{
    const struct sim_config_streams *config = run->config;
    struct sock_end *end = &run->ends[number];
    end->run = run;
    end->number = number;
    end->peer = &run->ends[number ^ 1];
    via_list_init(&end->line.frames);
    end->out.buffer_bytes = config->kernel_bytes;
    end->total = sock_between(run, 0, via_min(config->bytes_max, BYTES_MAX));
    end->content = via_rng_next(&run->rng);
    end->fabric.geometry = (struct via_pipe_geometry){
        .slots_count = config->slots,
        .data_bytes = 2 * config->body_bytes + 64 * config->spare_lines,
        .body_bytes_max = config->body_bytes,
    };
    end->fabric.bytes = VIA_SEGMENT_PIPE_OFF + via_pipe_memory_bytes(&end->fabric.geometry);
    end->segment = sim_alloc_lines(end->fabric.bytes);
}

static void make_end(struct sock_end *end)
{
    struct via_conn *conn = &end->conn;
    struct via_side *side = conn->side = via_side_new();
    if (side == NULL) {
        abort();
    }
    conn->stats = &conn->own_stats;
    conn->bell = -1;
    conn->fds = 1;
    conn->attached = true;
    via_list_init(&conn->entries);
    side->connector = end->number % 2 == 0;
    side->phase.phase = side->connector ? VIA_PHASE_LIVE : VIA_PHASE_OFFERED;
    side->nonblock = VIA_NONBLOCK_OFF; /* each call says whether it may block */
    side->options_known = true;
    (is_local(end) ? make_local : make_fabric)(end);
    via_pipe_writer_start_at(&side->tx.pipe, end->run->config->first);
    via_pipe_reader_start_at(&side->rx.pipe, end->run->config->first);
}

/* Draws the programs of a connection: they send and read in any order, or in rounds, or wait in
 * their calls, or one is a rogue. */
static void draw_programs(struct sock_run *run, struct sock_end *one)
{
    const struct sim_config_streams *config = run->config;
    struct sock_end *other = one->peer;
    if (sock_chance(run, config->burst_chance)) {
        burst_draw(&run->rng, &one->burst, &other->burst, one->total, other->total,
                   config->kernel_bytes);
    } else if (is_local(one) && sock_chance(run, config->rogue_chance)) {
        one->rogue = true;
        other->turns_left = ROGUE_TURNS;
    } else if (is_local(one) && sock_chance(run, config->avail_chance)) {
        one->waits_out = other->waits_in = true;
        other->total = 0;
    }
}

static void start(struct sock_run *run)
{
    const struct sim_config_streams *config = run->config;
    for (unsigned i = 0; i < run->ends_count; i++) {
        make_segment(run, i);
    }
    for (unsigned i = 0; i < run->ends_count; i++) {
        make_end(&run->ends[i]);
    }
    for (unsigned i = 0; i < run->ends_count; i += 2) {
        draw_programs(run, &run->ends[i]);
    }
    for (unsigned i = 0; i < run->ends_count; i++) {
        struct sock_end *end = &run->ends[i];
        end->kill = fate_draw(&run->fate, config->kill_chance);
        end->exec = fate_draw(&run->fate, config->exec_chance);
        sim_fiber_init(&end->fiber, end->rogue ? sock_rogue_main : sock_program_main, end);
        turn_after(end, sock_between(run, 20, 400));
    }
}

static void check_all_over(struct sock_run *run)
{
    for (unsigned i = 0; i < run->ends_count; i++) {
        const struct sock_end *end = &run->ends[i];
        if (!end->closed && !end->dead && !end->peer->rogue) {
            sock_fail(run,
                      "end %u: waits forever, phase %s, with %llu of %llu bytes sent, %llu of "
                      "%llu received",
                      i, via_phase_name(via_phase_get(&end->conn.side->phase)),
                      (unsigned long long)end->sent, (unsigned long long)end->total,
                      (unsigned long long)end->received, (unsigned long long)end->peer->total);
        }
    }
}

static void run_events(struct sock_run *run)
{
    struct sim_event event;
    while (!run->result->failed && sim_clock_take(&run->clock, &event)) {
        struct sock_end *end = &run->ends[event.a];
        switch (event.kind) {
        case SIM_EVENT_TURN:
            take_turn(end, event.b);
            break;
        case SIM_EVENT_GUEST:
            sock_frame_arrives(end);
            break;
        case SIM_EVENT_BELL:
            sock_wake(end);
            break;
        default:
            sock_kernel_arrives(end, event.b, event.c != 0);
            break;
        }
        if (run->clock.taken_count > EVENTS_MAX) {
            sock_fail(run, "no end after %u events", EVENTS_MAX);
        }
    }
    check_all_over(run);
}

static void free_end(struct sock_end *end)
{
    if (!is_local(end)) {
        via_fabric_stop_following(&end->conn);
    }
    sim_fiber_fini(&end->fiber);
    sock_line_free(&end->line);
    free(end->out.bytes);
    free(end->segment);
    free(end->fabric.mirror);
    via_side_free(end->conn.side);
}

void sim_sockets_run(const struct sim_config *config, int plant, FILE *trace,
                     struct sim_streams_result *ret_result)
{
    struct sock_run *run = sim_alloc(sizeof(*run));
    sim_plant_apply(plant);
    via_real_init();
    via_zcopy_least = LEFT_BYTES_MIN;
    *ret_result = (struct sim_streams_result){.digest = config->seed};
    sock_run_now = run;
    run->config = &config->streams;
    run->trace = trace;
    run->result = ret_result;
    run->plant = plant;
    run->ends_count = 2 * (config->streams.count + config->streams.hosts_count);
    run->ends = sim_alloc_lines(run->ends_count * sizeof(*run->ends));
    via_rng_init(&run->rng, config->seed ^ UINT64_C(0x686f737473747265));
    via_rng_init(&run->fate, config->seed ^ UINT64_C(0x686f737466617465));
    sim_clock_init(&run->clock);
    start(run);
    run_events(run);
    for (unsigned i = 0; i < run->ends_count; i++) {
        ret_result->bytes += run->ends[i].received;
        free_end(&run->ends[i]);
    }
    ret_result->events = run->clock.taken_count;
    sim_clock_fini(&run->clock);
    free(run->ends);
    free(run);
    sock_run_now = NULL;
}
