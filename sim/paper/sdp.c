/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/sdp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"

/* Maximum that the adapters move in one piece. Then other transfers get their turn. */
#define PIECE_BYTES 4096u
/* Size of a work request and of the messages SrcAvail and RdmaRdCompl: one packet. */
#define CONTROL_BYTES 64u

struct sdp_host {
    struct sdp *sdp;
    struct sim_cpu cpu;
    struct sim_call *completions; /* owned; in the completion queue, and not yet handled */
    size_t completions_count, completions_capacity;
    bool handling; /* the completion handler runs, or is about to */
    struct sim_memory memory;
    struct sim_server reads, writes; /* of the adapter, on its PCIe link */
    struct sim_server wire;          /* leaving */
};

struct connection {
    struct sdp *sdp;
    struct sim_actor sender, receiver;
    struct sim_pool grants; /* buffered: buffers the receiver has free */
    uint64_t arrived;       /* buffers, or advertisements, not taken yet */
    uint64_t to_grant;
    bool read_done, released;
};

struct sdp {
    const struct sim_scenario *scenario;
    struct sim_cost cost;
    struct sim_pcie_link pcie;
    struct sdp_host hosts[2]; /* 0 sends */
    struct connection *connections;
    unsigned connections_count;
    struct sim_objects moves;
    bool zero_copy;
    unsigned write_header, completion_header;
    double link_rate;
    uint64_t mtu_bytes, packet_header, lag_ps;
    uint64_t message_bytes, buffer_bytes, buffers_count;
    uint64_t syscall_ps, post_ps, interrupt_ps, complete_ps, segment_ps, pin_ps, page_bytes,
        register_ps;
    uint64_t received_bytes;
};

/* --- adapters and the link ------------------------------------------------------------------- */

/* A transfer from the memory of one host to that of the other. */
struct move {
    struct sdp *sdp;
    unsigned from;
    uint64_t left, missing; /* not begun, not arrived */
    bool user_data;         /* into the program's buffer: counts where it arrives */
    struct connection *connection;
    /* The adapter that it has reached goes on without its CPU; or its host is interrupted, and then
     * notices it. */
    void (*answered)(struct connection *connection);
    void (*noticed)(void *connection, uint64_t arg);
};

static uint64_t wire_ps(const struct sdp *sdp, uint64_t bytes)
{
    uint64_t packets = sim_pcie_tlps(bytes, (unsigned)sdp->mtu_bytes);
    return (uint64_t)sim_ps_of(bytes + packets * sdp->packet_header, sdp->link_rate);
}

static uint64_t pcie_ps(const struct sdp *sdp, uint64_t bytes, unsigned header)
{
    return sim_pcie_ps(sim_pcie_tlp_bandwidth(&sdp->pcie),
                       sim_pcie_tlps(bytes, sdp->pcie.mps_bytes), bytes, header);
}

static void interrupt(struct sdp *sdp, unsigned host_index, struct sim_call then);

static void move_arrived(void *object, uint64_t arg)
{
    struct move *move = object;
    (void)arg;
    if (move->answered != NULL) {
        move->answered(move->connection);
    } else {
        interrupt(move->sdp, 1 - move->from,
                  (struct sim_call){.run = move->noticed, .object = move->connection});
    }
    sim_objects_free(&move->sdp->moves, move);
}

static void move_written(void *object, uint64_t piece)
{
    struct move *move = object;
    struct sdp *sdp = move->sdp;
    move->missing -= piece;
    if (move->user_data) {
        sdp->received_bytes += piece;
    }
    if (move->missing == 0) {
        sim_cost_after(&sdp->cost, 0, (struct sim_call){.run = move_arrived, .object = move});
    }
}

static void move_crossed(void *object, uint64_t piece)
{
    struct move *move = object;
    struct sdp *sdp = move->sdp;
    struct sdp_host *to = &sdp->hosts[1 - move->from];
    sim_memory_traffic(&to->memory, piece);
    sim_server_add(&to->writes, pcie_ps(sdp, piece, sdp->write_header), 0,
                   (struct sim_call){.run = move_written, .object = move, .arg = piece});
}

static void move_next(struct move *move);

static void move_read(void *object, uint64_t piece)
{
    struct move *move = object;
    struct sdp *sdp = move->sdp;
    sim_server_add(&sdp->hosts[move->from].wire, wire_ps(sdp, piece), sdp->lag_ps,
                   (struct sim_call){.run = move_crossed, .object = move, .arg = piece});
    move_next(move);
}

static void move_next(struct move *move)
{
    struct sdp *sdp = move->sdp;
    struct sdp_host *from = &sdp->hosts[move->from];
    uint64_t piece = via_min(move->left, (uint64_t)PIECE_BYTES);
    if (piece == 0) {
        return;
    }
    move->left -= piece;
    sim_memory_traffic(&from->memory, piece);
    sim_server_add(&from->reads, pcie_ps(sdp, piece, sdp->completion_header), 0,
                   (struct sim_call){.run = move_read, .object = move, .arg = piece});
}

static struct move *start_move(struct connection *connection, unsigned from, uint64_t bytes,
                               void (*noticed)(void *connection, uint64_t arg))
{
    struct sdp *sdp = connection->sdp;
    struct move *move = sim_objects_new(&sdp->moves);
    *move = (struct move){.sdp = sdp,
                          .from = from,
                          .left = bytes,
                          .missing = bytes,
                          .user_data = sdp->zero_copy && bytes == sdp->message_bytes,
                          .connection = connection,
                          .noticed = noticed};
    move_next(move);
    return move;
}

static void handle_completions(void *object, uint64_t count);

/* The handler goes on until the queue is empty, so that under load few interrupts are needed. */
static void start_handler(struct sdp_host *host, uint64_t before_ps)
{
    uint64_t count = host->completions_count;
    host->handling = count > 0;
    if (count > 0) {
        sim_cpu_interrupt(
            &host->cpu, 0, before_ps + count * host->sdp->complete_ps,
            (struct sim_call){.run = handle_completions, .object = host, .arg = count});
    }
}

static void handle_completions(void *object, uint64_t count)
{
    struct sdp_host *host = object;
    for (uint64_t i = 0; i < count; i++) {
        host->completions[i].run(host->completions[i].object, 0);
    }
    host->completions_count -= count;
    memmove(host->completions, host->completions + count,
            host->completions_count * sizeof(*host->completions));
    start_handler(host, 0);
}

/* A completion on a host: its first hardware thread is interrupted, then `then` runs. */
static void interrupt(struct sdp *sdp, unsigned host_index, struct sim_call then)
{
    struct sdp_host *host = &sdp->hosts[host_index];
    if (host->completions_count == host->completions_capacity) {
        host->completions_capacity = via_max(2 * host->completions_capacity, (size_t)64);
        host->completions =
            sim_realloc(host->completions, host->completions_capacity * sizeof(*host->completions));
    }
    host->completions[host->completions_count++] = then;
    if (!host->handling) {
        start_handler(host, sdp->interrupt_ps);
    }
}

/* --- buffered copy --------------------------------------------------------------------------- */

static void buffer_noticed(void *object, uint64_t arg)
{
    struct connection *connection = object;
    (void)arg;
    connection->arrived++;
    sim_actor_wake(&connection->receiver);
}

static void buffered_send(struct connection *connection)
{
    struct sdp *sdp = connection->sdp;
    struct sim_actor *actor = &connection->sender;
    sim_actor_work(actor, sdp->syscall_ps);
    for (uint64_t left = sdp->message_bytes; left > 0;) {
        uint64_t bytes = via_min(left, sdp->buffer_bytes);
        sim_actor_take(actor, &connection->grants);
        sim_actor_copy(actor, &sdp->hosts[0].memory, bytes);
        sim_actor_work(actor, sdp->segment_ps + sdp->post_ps);
        start_move(connection, 0, bytes, buffer_noticed);
        left -= bytes;
    }
}

static void grant_noticed(void *object, uint64_t arg)
{
    struct connection *connection = object;
    (void)arg;
    sim_pool_give(&connection->grants, connection->sdp->buffers_count / 2);
}

static void buffered_receive(struct connection *connection)
{
    struct sdp *sdp = connection->sdp;
    struct sim_actor *actor = &connection->receiver;
    sim_actor_work(actor, sdp->syscall_ps);
    for (uint64_t left = sdp->message_bytes; left > 0;) {
        uint64_t bytes = via_min(left, sdp->buffer_bytes);
        while (connection->arrived == 0) {
            sim_actor_sleep(actor);
        }
        connection->arrived--;
        sim_actor_work(actor, sdp->segment_ps);
        sim_actor_copy(actor, &sdp->hosts[1].memory, bytes);
        sdp->received_bytes += bytes;
        left -= bytes;
        /* Grants go back half of the buffers at a time. */
        if (++connection->to_grant == sdp->buffers_count / 2) {
            connection->to_grant = 0;
            sim_actor_work(actor, sdp->post_ps);
            start_move(connection, 1, CONTROL_BYTES, grant_noticed);
        }
    }
}

/* --- zero copy ------------------------------------------------------------------------------- */

static uint64_t pin_ps(const struct sdp *sdp)
{
    return (sdp->message_bytes + sdp->page_bytes - 1) / sdp->page_bytes * sdp->pin_ps;
}

static void zero_copy_send(struct connection *connection)
{
    struct sdp *sdp = connection->sdp;
    struct sim_actor *actor = &connection->sender;
    sim_actor_work(actor, sdp->syscall_ps + pin_ps(sdp) + sdp->register_ps + sdp->post_ps);
    start_move(connection, 0, CONTROL_BYTES, buffer_noticed);
    while (!connection->released) {
        sim_actor_sleep(actor);
    }
    connection->released = false;
}

static void read_noticed(void *object, uint64_t arg)
{
    struct connection *connection = object;
    (void)arg;
    connection->read_done = true;
    sim_actor_wake(&connection->receiver);
}

/* The request is at the sender's adapter, which needs no CPU to answer it. */
static void read_requested(struct connection *connection)
{
    start_move(connection, 0, connection->sdp->message_bytes, read_noticed);
}

static void release_noticed(void *object, uint64_t arg)
{
    struct connection *connection = object;
    (void)arg;
    connection->released = true;
    sim_actor_wake(&connection->sender);
}

static void zero_copy_receive(struct connection *connection)
{
    struct sdp *sdp = connection->sdp;
    struct sim_actor *actor = &connection->receiver;
    sim_actor_work(actor, sdp->syscall_ps);
    while (connection->arrived == 0) {
        sim_actor_sleep(actor);
    }
    connection->arrived--;
    sim_actor_work(actor, pin_ps(sdp) + sdp->register_ps + sdp->post_ps);
    start_move(connection, 1, CONTROL_BYTES, NULL)->answered = read_requested;
    while (!connection->read_done) {
        sim_actor_sleep(actor);
    }
    connection->read_done = false;
    sim_actor_work(actor, sdp->post_ps);
    start_move(connection, 1, CONTROL_BYTES, release_noticed);
}

/* --- the whole ------------------------------------------------------------------------------- */

static void sender_main(void *arg)
{
    struct connection *connection = arg;
    for (;;) {
        if (connection->sdp->zero_copy) {
            zero_copy_send(connection);
        } else {
            buffered_send(connection);
        }
    }
}

static void receiver_main(void *arg)
{
    struct connection *connection = arg;
    for (;;) {
        if (connection->sdp->zero_copy) {
            zero_copy_receive(connection);
        } else {
            buffered_receive(connection);
        }
    }
}

static void read_parameters(struct sdp *sdp)
{
    const struct sim_scenario *scenario = sdp->scenario;
    sdp->pcie = (struct sim_pcie_link){
        .generation = (unsigned)sim_scenario_count(scenario, "sdp", "generation"),
        .lanes = (unsigned)sim_scenario_count(scenario, "sdp", "lanes"),
        .mps_bytes = (unsigned)sim_scenario_count(scenario, "sdp", "payload"),
        .dllp = true,
    };
    sdp->write_header = (unsigned)sim_scenario_count(scenario, "sdp", "write_header");
    sdp->completion_header = (unsigned)sim_scenario_count(scenario, "sdp", "completion_header");
    sdp->link_rate = sim_scenario_number(scenario, "sdp", "link");
    sdp->mtu_bytes = sim_scenario_count(scenario, "sdp", "mtu");
    sdp->packet_header = sim_scenario_count(scenario, "sdp", "packet_header");
    sdp->lag_ps = sim_scenario_ps(scenario, "sdp", "lag");
    sdp->message_bytes = sim_scenario_count(scenario, "sdp", "message");
    sdp->buffer_bytes = sim_scenario_count(scenario, "sdp", "buffer");
    sdp->buffers_count = sim_scenario_count(scenario, "sdp", "buffers");
    sdp->syscall_ps = sim_scenario_ps(scenario, "sdp", "syscall");
    sdp->post_ps = sim_scenario_ps(scenario, "sdp", "post");
    sdp->interrupt_ps = sim_scenario_ps(scenario, "sdp", "interrupt");
    sdp->complete_ps = sim_scenario_ps(scenario, "sdp", "complete");
    sdp->segment_ps = sim_scenario_ps(scenario, "sdp", "segment");
    sdp->pin_ps = sim_scenario_ps(scenario, "sdp", "pin");
    sdp->page_bytes = sim_scenario_count(scenario, "sdp", "page");
    sdp->register_ps = sim_scenario_ps(scenario, "sdp", "register");
}

static void build(struct sdp *sdp)
{
    struct sim_cpu_config cpu;
    uint64_t seed = sim_scenario_count(sdp->scenario, "sdp", "seed");
    read_parameters(sdp);
    sim_cost_init(&sdp->cost);
    sim_cpu_config_read(sdp->scenario, "cpu", &cpu);
    for (unsigned i = 0; i < 2; i++) {
        struct sdp_host *host = &sdp->hosts[i];
        host->sdp = sdp;
        sim_cpu_init(&host->cpu, &sdp->cost, &cpu, seed + i);
        sim_memory_init(&host->memory, &sdp->cost, sdp->scenario);
        sim_server_init(&host->reads, &sdp->cost);
        sim_server_init(&host->writes, &sdp->cost);
        sim_server_init(&host->wire, &sdp->cost);
    }
    sdp->connections = sim_alloc(sdp->connections_count * sizeof(*sdp->connections));
    for (unsigned i = 0; i < sdp->connections_count; i++) {
        struct connection *connection = &sdp->connections[i];
        connection->sdp = sdp;
        sim_pool_init(&connection->grants, &sdp->cost, sdp->buffers_count);
        sim_actor_start(&connection->receiver, &sdp->hosts[1].cpu, receiver_main, connection);
        sim_actor_start(&connection->sender, &sdp->hosts[0].cpu, sender_main, connection);
    }
}

void sim_sdp_run(const struct sim_scenario *scenario, unsigned connections_count, bool zero_copy,
                 struct sim_sdp_result *ret_result)
{
    assert(connections_count >= 1 && connections_count <= SIM_SDP_CONNECTIONS_MAX);
    struct sdp *sdp = sim_alloc(sizeof(*sdp));
    *sdp = (struct sdp){.scenario = scenario,
                        .connections_count = connections_count,
                        .moves = {.bytes = sizeof(struct move)},
                        .zero_copy = zero_copy};
    build(sdp);
    uint64_t time_ps = sim_scenario_ps(scenario, "sdp", "time");
    while (sim_cost_step_until(&sdp->cost, time_ps / 4)) {
    }
    uint64_t from_ps = sdp->cost.now_ps;
    uint64_t bytes = sdp->received_bytes;
    uint64_t busy_ps[2] = {sim_cpu_busy_ps(&sdp->hosts[0].cpu),
                           sim_cpu_busy_ps(&sdp->hosts[1].cpu)};
    while (sim_cost_step_until(&sdp->cost, time_ps)) {
    }
    double took_ps = (double)(sdp->cost.now_ps - from_ps);
    *ret_result = (struct sim_sdp_result){
        .bytes_per_s = (double)(sdp->received_bytes - bytes) / took_ps * (double)SIM_SEC_PS,
        .sender_cpu_percent =
            100 * (double)(sim_cpu_busy_ps(&sdp->hosts[0].cpu) - busy_ps[0]) / took_ps,
        .receiver_cpu_percent =
            100 * (double)(sim_cpu_busy_ps(&sdp->hosts[1].cpu) - busy_ps[1]) / took_ps,
    };
    for (unsigned i = 0; i < connections_count; i++) {
        struct connection *connection = &sdp->connections[i];
        sim_actor_fini(&connection->sender);
        sim_actor_fini(&connection->receiver);
    }
    free(sdp->hosts[0].completions);
    free(sdp->hosts[1].completions);
    free(sdp->connections);
    sim_objects_fini(&sdp->moves);
    sim_cost_fini(&sdp->cost);
    free(sdp);
}
