/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The node with a control thread and a thread per channel, as a host runs it; two hosts in one
 * process, joined by memory. Mostly for the thread sanitizer: accesses to shared memory must be
 * ordered.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/types.h"
#include "core/node.h"

#define CHANNELS 2u
#define MESSAGES 12000u
#define SEGMENT_BYTES 65536u

struct cable {
    _Atomic bool up;
    _Atomic uint32_t scratchpads[VIA_PORT_SCRATCHPADS];
    _Atomic uint64_t events[2];
};

struct end {
    struct via_port port; /* first */
    struct cable *cable;
    struct end *peer;
};

struct host {
    struct via_node *node;
    struct end *end;
    pthread_t control, channels[CHANNELS];
    _Atomic bool stop;
    _Atomic unsigned unplugs_count;
    bool unplugging; /* control thread */
    uint64_t handle;
    unsigned char *segment;
    /* Per channel; only its thread accesses it. */
    struct {
        uint32_t sent, completed, taken;
        uint64_t number[MESSAGES];
    } at[CHANNELS];
    _Atomic uint32_t finished; /* channels that have sent and received everything */
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * VIA_SEC_NS + (uint64_t)ts.tv_nsec;
}

/* --- port ------------------------------------------------------------------------------------ */

static struct end *of(struct via_port *port)
{
    return (struct end *)(void *)port;
}

static void port_post(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    (void)queue;
    memcpy(port->window + off, src, len);
}

static void port_flush(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
}

static int port_fence_start(struct via_port *port, unsigned queue)
{
    (void)queue;
    return atomic_load(&of(port)->cable->up) ? 0 : -ENOLINK;
}

static int port_fence_poll(struct via_port *port, unsigned queue)
{
    (void)queue;
    return atomic_load(&of(port)->cable->up) ? 1 : -ENOLINK;
}

static int port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    (void)queue;
    atomic_fetch_or(&of(port)->cable->events[1 - port->side], VIA_PORT_EVENT_DOORBELL(bit));
    return 0;
}

static uint64_t port_events(struct via_port *port, uint64_t mask)
{
    return atomic_fetch_and(&of(port)->cable->events[port->side], ~mask) & mask;
}

static bool port_link_is_up(struct via_port *port)
{
    return atomic_load(&of(port)->cable->up);
}

static uint32_t port_scratchpad_read(struct via_port *port, unsigned index)
{
    struct cable *cable = of(port)->cable;
    return atomic_load(&cable->up) ? atomic_load(&cable->scratchpads[index]) : UINT32_MAX;
}

static void port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct cable *cable = of(port)->cable;
    if (atomic_load(&cable->up)) {
        atomic_store(&cable->scratchpads[index], value);
    }
}

static void port_close(struct via_port *port)
{
    (void)port;
}

static const struct via_port_ops port_ops = {
    .body = port_post,
    .commit = port_post,
    .flush = port_flush,
    .fence_start = port_fence_start,
    .fence_poll = port_fence_poll,
    .ring = port_ring,
    .events = port_events,
    .link_is_up = port_link_is_up,
    .scratchpad_read = port_scratchpad_read,
    .scratchpad_write = port_scratchpad_write,
    .close = port_close,
};

static void cut_and_mend(struct cable *cable)
{
    atomic_store(&cable->up, false);
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        atomic_store(&cable->scratchpads[i], 0);
    }
    atomic_fetch_or(&cable->events[0], VIA_PORT_EVENT_LINK_DOWN);
    atomic_fetch_or(&cable->events[1], VIA_PORT_EVENT_LINK_DOWN);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    atomic_store(&cable->up, true);
    atomic_fetch_or(&cable->events[0], VIA_PORT_EVENT_LINK_UP);
    atomic_fetch_or(&cable->events[1], VIA_PORT_EVENT_LINK_UP);
}

/* --- host ------------------------------------------------------------------------------------ */

static int deliver(void *ctx, const struct via_delivery *delivery)
{
    struct host *host = ctx;
    uint64_t number;
    assert_int_equal(delivery->bytes, sizeof(number));
    memcpy(&number, delivery->data, sizeof(number));
    assert_int_equal(number, host->at[delivery->channel].taken);
    host->at[delivery->channel].taken++;
    return 0;
}

static void complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct host *host = ctx;
    (void)value;
    (void)cookie;
    assert_int_equal(status, 0);
    host->at[channel].completed++;
}

static void notify(void *ctx, unsigned channel, uint64_t handle)
{
    (void)ctx;
    (void)channel;
    (void)handle;
}

static void wake(void *ctx, unsigned channel)
{
    (void)ctx;
    (void)channel;
}

/* Sends messages to the peer, with some puts and atomics in between. True when all are complete. */
static bool work(struct host *host, struct host *peer, unsigned k)
{
    unsigned turn = host->at[k].sent;
    if (turn < MESSAGES) {
        struct via_op op = {.kind = VIA_OP_MESSAGE, .bytes = 8, .cookie = turn};
        op.destination = host < peer ? 1 : 0;
        host->at[k].number[turn] = turn;
        op.source = &host->at[k].number[turn];
        if (via_node_submit(host->node, k, &op) == 0) {
            host->at[k].sent++;
        }
        if (turn % 16 == 0 && peer->handle != 0) {
            op.kind = turn % 32 == 0 ? VIA_OP_PUT : VIA_OP_ATOMIC;
            op.atomic = VIA_ATOMIC_ADD;
            op.segment = peer->handle;
            op.offset = 4096 * (k + 1);
            op.source = peer->segment; /* any memory to which no thread writes */
            op.bytes = op.kind == VIA_OP_PUT ? 3000 : 0;
            op.operand = 1;
            if (via_node_submit(host->node, k, &op) == 0) {
                host->at[k].completed--;
            }
        }
    }
    return host->at[k].completed == MESSAGES && host->at[k].taken == MESSAGES;
}

struct channel_thread {
    struct host *host, *peer;
    unsigned k;
};

static void *run_channel(void *arg)
{
    struct channel_thread *self = arg;
    bool reported = false;
    while (!atomic_load_explicit(&self->host->stop, memory_order_acquire)) {
        uint64_t deadline;
        bool done = work(self->host, self->peer, self->k);
        if (via_node_poll(self->host->node, self->k, now_ns(), &deadline) == 0 &&
            !via_node_arm(self->host->node, self->k)) {
            sched_yield();
        }
        if (done && !reported) {
            reported = true;
            atomic_fetch_add(&self->host->finished, 1);
        }
    }
    return NULL;
}

/* Removes the port, and adds it again when no thread uses it: any use in between would be a
 * race. */
static void unplug_now_and_then(struct host *host, unsigned turn)
{
    struct via_port *port = &host->end->port;
    bool begin = port->side == 0 && turn < 400 && turn % 20 == 15;
    if (!begin && !host->unplugging) {
        return;
    }
    int rc = via_node_port_clear(host->node, 0);
    host->unplugging = rc == -EAGAIN;
    if (rc == 0) {
        const struct via_port saved = *port;
        memset(port, 0xff, sizeof(*port));
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        *port = saved;
        assert_int_equal(via_node_port_set(host->node, 0, port), 0);
        host->unplugs_count++;
    } else {
        assert_int_equal(rc, -EAGAIN);
    }
}

static void *run_control(void *arg)
{
    struct host *host = arg;
    unsigned turn = 0;
    while (!atomic_load_explicit(&host->stop, memory_order_acquire)) {
        uint64_t deadline, handle;
        via_node_control(host->node, now_ns(), &deadline);
        unplug_now_and_then(host, turn);
        /* Segments are added and removed while channels look others up. */
        if (via_node_segment_add(host->node, host->segment, 4096, VIA_SEGMENT_READ, 77 + turn,
                                 &handle) == 0) {
            assert_int_equal(via_node_segment_remove(host->node, handle), 0);
            (void)via_node_segment_is_idle(host->node, handle);
        }
        struct via_link_status status;
        struct via_node_counters counters;
        uint16_t neighbour;
        (void)via_node_link_status(host->node, 0, &status);
        (void)via_node_neighbours(host->node, 0, &neighbour, 1);
        via_node_counters(host->node, &counters);
        turn++;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

static void host_init(struct host *host, uint16_t id, struct end *end)
{
    struct via_node_config config;
    struct via_node_env env = {
        .ctx = host, .deliver = deliver, .complete = complete, .notify = notify, .wake = wake};
    via_node_config_init(&config);
    config.host = id;
    config.session = 1000u + id;
    config.ports_count = 1;
    config.channels_count = CHANNELS;
    config.hosts_max = 2;
    config.frame_bytes_max = 1024;
    config.pipe_slots = 8;
    config.heartbeat_ns = 5 * VIA_MSEC_NS;
    config.dead_ns = 5 * VIA_SEC_NS; /* the sanitizer is slow */
    memset(host, 0, sizeof(*host));
    host->end = end;
    host->segment = aligned_alloc(64, SEGMENT_BYTES);
    memset(host->segment, 0, SEGMENT_BYTES);
    void *memory = aligned_alloc(64, via_align_up(via_node_bytes(&config), 64));
    assert_non_null(memory);
    assert_int_equal(via_node_init(&host->node, memory, &config, &env), 0);

    size_t bytes = via_align_up(via_node_inbox_bytes(&config), 64);
    end->port.ops = &port_ops;
    end->port.inbox = aligned_alloc(64, bytes);
    memset(end->port.inbox, 0, bytes);
    end->port.caps = (struct via_port_caps){
        .window_bytes = bytes, .inbox_bytes = bytes, .store_bytes_max = 64, .coherent = true};
}

static void threads_share_a_node(void **state)
{
    (void)state;
    static struct host hosts[2];
    static struct cable cable;
    static struct end ends[2];
    struct channel_thread threads[2][CHANNELS];

    atomic_store(&cable.up, true);
    for (unsigned h = 0; h < 2; h++) {
        ends[h].cable = &cable;
        ends[h].port.side = h;
        ends[h].peer = &ends[1 - h];
        host_init(&hosts[h], (uint16_t)h, &ends[h]);
    }
    for (unsigned h = 0; h < 2; h++) {
        ends[h].port.window = ends[1 - h].port.inbox;
        assert_int_equal(via_node_port_set(hosts[h].node, 0, &ends[h].port), 0);
        assert_int_equal(
            via_node_segment_add(hosts[h].node, hosts[h].segment + 4096, SEGMENT_BYTES - 4096,
                                 VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 9 + h, &hosts[h].handle),
            0);
    }
    for (unsigned h = 0; h < 2; h++) {
        pthread_create(&hosts[h].control, NULL, run_control, &hosts[h]);
        for (unsigned k = 0; k < CHANNELS; k++) {
            threads[h][k] = (struct channel_thread){&hosts[h], &hosts[1 - h], k};
            pthread_create(&hosts[h].channels[k], NULL, run_channel, &threads[h][k]);
        }
    }
    for (unsigned i = 0; i < 6000; i++) {
        if (atomic_load(&hosts[0].unplugs_count) > 5 &&
            atomic_load(&hosts[0].finished) == CHANNELS &&
            atomic_load(&hosts[1].finished) == CHANNELS) {
            break;
        }
        if (i < 60 && i % 3 == 2) {
            cut_and_mend(&cable);
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    for (unsigned h = 0; h < 2; h++) {
        atomic_store_explicit(&hosts[h].stop, true, memory_order_release);
    }
    for (unsigned h = 0; h < 2; h++) {
        pthread_join(hosts[h].control, NULL);
        for (unsigned k = 0; k < CHANNELS; k++) {
            pthread_join(hosts[h].channels[k], NULL);
        }
    }
    assert_true(atomic_load(&hosts[0].unplugs_count) > 5);
    for (unsigned h = 0; h < 2; h++) {
        assert_int_equal(atomic_load(&hosts[h].finished), CHANNELS);
        via_node_fini(hosts[h].node);
        free(hosts[h].node);
        free(hosts[h].segment);
        free(ends[h].port.inbox);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
