/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "fabric.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/types.h"

#define STEP_NS (10 * VIA_USEC_NS)

/* --- ports ----------------------------------------------------------------------------------- */

static struct fabric_port *of(struct via_port *port)
{
    return (struct fabric_port *)(void *)port;
}

static void port_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    struct fabric_port *self = of(port);
    assert_true(queue < VIA_PORT_QUEUES);
    assert_true(off + len <= port->caps.window_bytes);
    if (!self->link->up) {
        return;
    }
    memcpy(self->peer->port.inbox + off, src, len);
}

static void port_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                        size_t len)
{
    assert_true((len == 8 || len == 64) && off % len == 0);
    port_body(port, queue, off, src, len);
}

static void port_flush(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
}

static int port_fence_start(struct via_port *port, unsigned queue)
{
    struct fabric_port *self = of(port);
    assert_true(queue < VIA_PORT_QUEUES);
    self->fences[queue] = (struct fabric_fence){
        .under_way = self->link->up,
        .downs = self->link->downs_count,
        .due_ns = self->fabric->now_ns + self->fabric->fence_ns,
    };
    self->fences_count++;
    return self->link->up ? 0 : -ENOLINK;
}

static int port_fence_poll(struct via_port *port, unsigned queue)
{
    struct fabric_port *self = of(port);
    struct fabric_fence *fence = &self->fences[queue];
    if (!fence->under_way) {
        return -EINVAL;
    }
    bool same_link = self->link->up && fence->downs == self->link->downs_count;
    if (same_link && self->fabric->now_ns < fence->due_ns) {
        return 0;
    }
    fence->under_way = false;
    self->fences_lost += !same_link;
    return same_link ? 1 : -ENOLINK;
}

static void wake_for(struct fabric_port *port, unsigned bit)
{
    struct fabric_host *host = &port->fabric->hosts[port->host];
    unsigned channel = bit >= VIA_PORT_DATA_DOORBELLS ? 0 : bit;
    host->woken[channel] = true;
    if (channel == 0) {
        host->control_deadline = 0; /* announcements ring bell 0 */
    }
}

static int port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct fabric_port *self = of(port);
    (void)queue;
    if (!self->link->up) {
        return -ENOLINK;
    }
    self->peer->events |= VIA_PORT_EVENT_DOORBELL(bit);
    self->link->rings[bit]++;
    wake_for(self->peer, bit);
    return 0;
}

static uint64_t port_events(struct via_port *port, uint64_t mask)
{
    uint64_t events = of(port)->events & mask;
    of(port)->events &= ~mask;
    return events;
}

static bool port_link_is_up(struct via_port *port)
{
    return of(port)->link->up;
}

static uint32_t port_scratchpad_read(struct via_port *port, unsigned index)
{
    struct fabric_link *link = of(port)->link;
    link->reads++;
    if (link->up && link->late_reads != 0) {
        link->late_reads--;
        return UINT32_MAX;
    }
    return link->up ? link->scratchpads[index] : UINT32_MAX;
}

static void port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    assert_true(index / 4 == port->side);
    if (of(port)->link->up) {
        of(port)->link->scratchpads[index] = value;
    }
}

static void port_close(struct via_port *port)
{
    (void)port;
}

static const struct via_port_ops port_ops = {
    .body = port_body,
    .commit = port_commit,
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

static void port_init(struct fabric *fabric, struct fabric_link *link, unsigned side, int host)
{
    struct fabric_port *port = &link->ports[side];
    struct via_node_config config = fabric->config;
    config.session = 1;
    config.ports_count = 2;
    size_t bytes = via_align_up(via_node_inbox_bytes(&config), 4096);
    assert_true(bytes > 0);

    *port = (struct fabric_port){
        .port =
            {
                .ops = &port_ops,
                .caps =
                    {
                        .window_bytes = bytes,
                        .inbox_bytes = bytes,
                        .store_bytes_max = 64,
                        .coherent = fabric->direct,
                    },
                .inbox = aligned_alloc(4096, bytes),
                .side = side,
            },
        .fabric = fabric,
        .link = link,
        .peer = &link->ports[1 - side],
        .host = host,
    };
    assert_non_null(port->port.inbox);
    memset(port->port.inbox, 0xa5, bytes); /* arbitrary contents */
}

struct fabric_link *fabric_connect(struct fabric *fabric, int a, int b)
{
    struct fabric_link *link = &fabric->links[fabric->links_count++];

    assert_true(fabric->links_count <= FABRIC_LINKS_MAX);
    port_init(fabric, link, 0, a);
    port_init(fabric, link, 1, b);
    if (fabric->direct) {
        link->ports[0].port.window = link->ports[1].port.inbox;
        link->ports[1].port.window = link->ports[0].port.inbox;
    }
    link->up = true;
    fabric->hosts[a].ports_count++;
    fabric->hosts[b].ports_count++;
    return link;
}

static void link_event(struct fabric_link *link, uint64_t event)
{
    for (unsigned side = 0; side < 2; side++) {
        struct fabric_port *port = &link->ports[side];
        port->events |= event;
        port->fabric->hosts[port->host].control_deadline = 0;
    }
}

/* A mapped window discards stores while the link is down: it then maps other memory. */
static void point_windows(struct fabric_link *link)
{
    for (unsigned side = 0; side < 2; side++) {
        struct fabric_port *port = &link->ports[side];
        if (port->port.window != NULL) {
            memset(port->peer->port.inbox, 0x5a, 64); /* so that not even a heartbeat arrives */
        }
    }
}

void fabric_cut(struct fabric_link *link)
{
    link->up = false;
    link->downs_count++;
    memset(link->scratchpads, 0, sizeof(link->scratchpads));
    point_windows(link);
    link_event(link, VIA_PORT_EVENT_LINK_DOWN);
}

void fabric_mend(struct fabric_link *link)
{
    link->up = true;
    link_event(link, VIA_PORT_EVENT_LINK_UP);
}

/* --- hosts ----------------------------------------------------------------------------------- */

static int host_deliver(void *ctx, const struct via_delivery *delivery)
{
    struct fabric_host *host = ctx;

    if (host->deliver_answer != 0) {
        return host->deliver_answer;
    }
    assert_true(host->deliveries_count < FABRIC_RECORDS_MAX);
    struct fabric_delivery *to = &host->deliveries[host->deliveries_count++];
    *to = (struct fabric_delivery){
        .source = delivery->source,
        .flow = delivery->flow,
        .endpoint = delivery->endpoint,
        .source_endpoint = delivery->source_endpoint,
        .bytes = delivery->bytes,
        .channel = delivery->channel,
        .hash = via_hash64(VIA_HASH64_INIT, delivery->data, delivery->bytes),
    };
    if (delivery->bytes != 0) {
        memcpy(&to->first, delivery->data, via_min(delivery->bytes, 8u));
    }
    return 0;
}

static void host_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct fabric_host *host = ctx;

    assert_true(host->completions_count < FABRIC_RECORDS_MAX);
    host->completions[host->completions_count++] = (struct fabric_completion){
        .cookie = cookie,
        .status = status,
        .value = value,
        .channel = channel,
    };
    if (host->on_complete != NULL) {
        host->on_complete(host, cookie, status);
    }
}

static void host_notify(void *ctx, unsigned channel, uint64_t handle)
{
    struct fabric_host *host = ctx;
    (void)channel;
    host->notifies_count++;
    host->notified = handle;
}

static void host_wake(void *ctx, unsigned channel)
{
    struct fabric_host *host = ctx;
    host->woken[channel] = true;
}

void fabric_mac(uint64_t key, const void *data, size_t bytes, uint8_t ret_mac[VIA_MAC_BYTES])
{
    for (unsigned i = 0; i < VIA_MAC_BYTES; i += 8) {
        uint64_t hash = via_hash64(VIA_HASH64_INIT ^ key ^ i, data, bytes);
        memcpy(ret_mac + i, &hash, sizeof(hash));
    }
}

static void host_mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[VIA_MAC_BYTES])
{
    const struct fabric_host *host = ctx;
    fabric_mac(host->key, data, bytes, ret_mac);
}

static int host_random(void *ctx, void *ret_data, size_t bytes)
{
    struct fabric_host *host = ctx;
    memset(ret_data, (int)++host->fabric->nonces_count, bytes);
    return 0;
}

struct fabric *fabric_new(bool direct)
{
    struct fabric *fabric = calloc(1, sizeof(*fabric));
    assert_non_null(fabric);
    fabric->direct = direct;
    fabric->now_ns = 1000 * VIA_SEC_NS;
    fabric->next_session = 0x1000;
    via_node_config_init(&fabric->config);
    fabric->config.hosts_max = FABRIC_HOSTS_MAX;
    fabric->config.frame_bytes_max = 1024;
    fabric->config.pipe_slots = 8;
    fabric->config.segments_count = 4;
    fabric->config.ops_count = 32;
    fabric->config.flows_count = 3;
    fabric->config.window_frames = 8;
    return fabric;
}

int fabric_add_host(struct fabric *fabric)
{
    int index = (int)fabric->hosts_count++;
    assert_true(index < FABRIC_HOSTS_MAX);
    fabric->hosts[index].fabric = fabric;
    fabric->hosts[index].index = index;
    fabric->hosts[index].config = fabric->config;
    fabric->hosts[index].config.host = (uint16_t)index;
    return index;
}

void fabric_start(struct fabric *fabric, int index)
{
    struct fabric_host *host = &fabric->hosts[index];
    struct via_node_env env = {
        .ctx = host,
        .deliver = host_deliver,
        .complete = host_complete,
        .notify = host_notify,
        .wake = host_wake,
        .mac = host_mac,
        .random = host_random,
    };
    unsigned port = 0;

    assert_null(host->node);
    host->config.session = ++fabric->next_session * 7919u;
    host->config.ports_count = (uint16_t)host->ports_count;
    host->config.ports = host->ports;
    size_t bytes = via_node_bytes(&host->config);
    assert_true(bytes > 0);
    host->memory = aligned_alloc(64, via_align_up(bytes, 64));
    assert_non_null(host->memory);
    assert_int_equal(via_node_init(&host->node, host->memory, &host->config, &env), 0);
    for (unsigned l = 0; l < fabric->links_count; l++) {
        for (unsigned side = 0; side < 2; side++) {
            if (fabric->links[l].ports[side].host == index) {
                assert_int_equal(
                    via_node_port_set(host->node, port++, &fabric->links[l].ports[side].port), 0);
            }
        }
    }
    host->control_deadline = 0;
    for (unsigned k = 0; k < VIA_CHANNELS_MAX; k++) {
        host->asleep[k] = false;
    }
}

void fabric_crash(struct fabric *fabric, int index)
{
    struct fabric_host *host = &fabric->hosts[index];
    free(host->memory);
    host->memory = NULL;
    host->node = NULL;
}

struct fabric *fabric_pair(bool direct)
{
    struct fabric *fabric = fabric_new(direct);
    fabric_add_host(fabric);
    fabric_add_host(fabric);
    fabric_connect(fabric, 0, 1);
    return fabric;
}

void fabric_start_pair(struct fabric *fabric)
{
    fabric_start(fabric, 0);
    fabric_start(fabric, 1);
}

void fabric_chain(struct fabric *fabric, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        fabric_add_host(fabric);
    }
    for (unsigned i = 0; i + 1 < n; i++) {
        fabric_connect(fabric, (int)i, (int)i + 1);
    }
    for (unsigned i = 0; i < n; i++) {
        fabric_start(fabric, (int)i);
    }
}

void fabric_ring(struct fabric *fabric, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        fabric_add_host(fabric);
    }
    for (unsigned i = 0; i < n; i++) {
        fabric_connect(fabric, (int)i, (int)((i + 1) % n));
    }
    for (unsigned i = 0; i < n; i++) {
        fabric_start(fabric, (int)i);
    }
}

void fabric_free(struct fabric *fabric)
{
    for (unsigned h = 0; h < fabric->hosts_count; h++) {
        if (fabric->hosts[h].node != NULL) {
            via_node_fini(fabric->hosts[h].node);
            free(fabric->hosts[h].memory);
        }
    }
    for (unsigned l = 0; l < fabric->links_count; l++) {
        free(fabric->links[l].ports[0].port.inbox);
        free(fabric->links[l].ports[1].port.inbox);
    }
    free(fabric);
}

/* --- time ------------------------------------------------------------------------------------ */

static void turn_channel(struct fabric_host *host, unsigned channel, uint64_t now_ns)
{
    if (host->asleep[channel] && !host->woken[channel] && now_ns < host->poll_deadline[channel]) {
        return;
    }
    host->asleep[channel] = false;
    host->woken[channel] = false;
    unsigned work = via_node_poll(host->node, channel, now_ns, &host->poll_deadline[channel]);
    if (work == 0 && !via_node_arm(host->node, channel)) {
        host->asleep[channel] = true;
    }
}

static void turn_host(struct fabric_host *host, uint64_t now_ns)
{
    if (now_ns >= host->control_deadline) {
        via_node_control(host->node, now_ns, &host->control_deadline);
    }
    for (unsigned k = 0; k < host->config.channels_count; k++) {
        turn_channel(host, k, now_ns);
    }
}

static void step(struct fabric *fabric)
{
    for (unsigned h = 0; h < fabric->hosts_count; h++) {
        if (fabric->hosts[h].node != NULL && !fabric->hosts[h].frozen) {
            turn_host(&fabric->hosts[h], fabric->now_ns);
        }
    }
    fabric->now_ns += STEP_NS;
}

void fabric_run(struct fabric *fabric, uint64_t ns)
{
    for (uint64_t end = fabric->now_ns + ns; fabric->now_ns < end;) {
        step(fabric);
    }
}

bool fabric_is_settled(const struct fabric *fabric)
{
    for (unsigned a = 0; a < fabric->hosts_count; a++) {
        for (unsigned b = 0; b < fabric->hosts_count; b++) {
            struct via_route_status route;
            if (fabric->hosts[a].node == NULL || fabric->hosts[b].node == NULL) {
                continue;
            }
            assert_int_equal(via_node_route_status(fabric->hosts[a].node, (uint16_t)b, &route), 0);
            if (route.port == VIA_PORT_NONE || route.session != fabric->hosts[b].config.session) {
                return false;
            }
        }
    }
    return true;
}

void fabric_settle(struct fabric *fabric)
{
    for (unsigned i = 0; i < 2000; i++) {
        fabric_run(fabric, VIA_MSEC_NS);
        if (fabric_is_settled(fabric)) {
            fabric_run(fabric, VIA_MSEC_NS);
            return;
        }
    }
    fail_msg("hosts do not reach each other");
}

bool fabric_drain(struct fabric *fabric, uint64_t ns)
{
    for (uint64_t end = fabric->now_ns + ns; fabric->now_ns < end; step(fabric)) {
        unsigned pending = 0;
        for (unsigned h = 0; h < fabric->hosts_count; h++) {
            for (unsigned k = 0; fabric->hosts[h].node != NULL && k < fabric->config.channels_count;
                 k++) {
                pending += via_node_pending(fabric->hosts[h].node, k);
            }
        }
        if (pending == 0) {
            return true;
        }
    }
    return false;
}

/* --- events ----------------------------------------------------------------------------------- */

struct via_node *fabric_node(struct fabric *fabric, int host)
{
    assert_non_null(fabric->hosts[host].node);
    return fabric->hosts[host].node;
}

const struct fabric_completion *fabric_completion(const struct fabric *fabric, int index,
                                                  uint64_t cookie)
{
    const struct fabric_host *host = &fabric->hosts[index];
    const struct fabric_completion *found = NULL;

    for (unsigned i = 0; i < host->completions_count; i++) {
        if (host->completions[i].cookie == cookie) {
            assert_null(found);
            found = &host->completions[i];
        }
    }
    return found;
}

void fabric_submit(struct fabric *fabric, int host, const struct via_op *op)
{
    struct fabric_host *at = &fabric->hosts[host];
    for (unsigned i = 0; i < 100000; i++) {
        int rc = via_node_submit(at->node, 0, op);
        at->woken[0] = true; /* the submitting thread is awake */
        if (rc == 0) {
            return;
        }
        assert_int_equal(rc, -EAGAIN);
        step(fabric);
    }
    fail_msg("no operation slot for a second");
}

struct via_node_counters fabric_counters(const struct fabric *fabric, int host)
{
    struct via_node_counters counters;
    via_node_counters(fabric->hosts[host].node, &counters);
    return counters;
}

struct via_link_status fabric_link_status(const struct fabric *fabric, int host, unsigned port)
{
    struct via_link_status status;
    assert_int_equal(via_node_link_status(fabric->hosts[host].node, port, &status), 0);
    return status;
}
