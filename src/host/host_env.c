/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The node's callbacks: deliveries, completions, notifications. Transfer threads call them, except
 * `changed`. */
#include <errno.h>
#include <sys/random.h>

#include "base/log.h"
#include "host/host_private.h"
#include "port/bell.h"

static struct via_process *find_endpoint(struct via_host *host, uint32_t number)
{
    /* Pairs with the release in publish_table(). Retired tables, and the processes in them, live
     * until this turn has ended. */
    const struct via_endpoint_table *table =
        atomic_load_explicit(&host->attach.endpoints, memory_order_acquire);
    const struct via_endpoint *entry = via_endpoint_find(table, number);
    return entry != NULL ? entry->process : NULL;
}

static int deliver(void *ctx, const struct via_delivery *delivery)
{
    struct via_host *host = ctx;
    struct via_transfer *transfer = &host->transfers[delivery->channel];
    if (delivery->endpoint >= VIA_HOST_ENDPOINT_FIRST) {
        return via_host_message_deliver(host, delivery);
    }
    struct via_process *process = find_endpoint(host, delivery->endpoint);
    if (process == NULL) {
        return -ENOENT;
    }
    return via_process_channel_deliver(transfer, &process->channels[delivery->channel], delivery);
}

static void complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct via_host *host = ctx;
    struct via_transfer *transfer = &host->transfers[channel];
    uint32_t owner = (uint32_t)(cookie >> 32);
    if (owner == VIA_HOST_OWNER) {
        via_host_message_complete(host, cookie, status);
        return;
    }
    /* A process stays in the table until all its operations have ended. */
    via_process_channel_complete(transfer, transfer->by_slot[owner & 0xffff], (uint32_t)cookie,
                                 status, value);
}

static void notify(void *ctx, unsigned channel, uint64_t handle)
{
    struct via_host *host = ctx;
    uint16_t index = via_segment_handle_index(handle);
    if (index >= host->config.segments_count) {
        return;
    }
    /* Pairs with the release in publish_segment(). The segment lives for the same grace period as
     * in find_segment(). */
    struct via_host_segment *segment =
        atomic_load_explicit(&host->attach.segments[index], memory_order_acquire);
    if (segment == NULL || segment->handle != handle) {
        return;
    }
    struct via_process_channel *pc = &segment->process->channels[channel];
    if (!pc->ending) {
        pc->ring = true;
        via_process_channel_touch(&host->transfers[channel], pc);
    }
}

static void wake(void *ctx, unsigned channel)
{
    struct via_host *host = ctx;
    via_bell_ring(host->transfers[channel].bell);
}

static void changed(void *ctx)
{
    struct via_host *host = ctx;
    /* At once, so that processes stop storing into a peer's memory as early as possible. */
    via_host_aperture_changed(host);
    via_host_status_update(host);
    host->changed = true;
}

static void compute_mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[VIA_MAC_BYTES])
{
    const struct via_host *host = ctx;
    const struct via_host_key *key = host->options.key;
    key->mac(key->ctx, data, bytes, ret_mac);
}

static int fill_random(void *ctx, void *ret_data, size_t bytes)
{
    (void)ctx;
    return getrandom(ret_data, bytes, 0) == (ssize_t)bytes ? 0 : -EIO;
}

static void trace(void *ctx, const char *text)
{
    const struct via_host *host = ctx;
    via_log(VIA_LOG_DEBUG, "host %u: %s", host->config.host, text);
}

void via_host_env_init(struct via_host *host, struct via_node_env *ret_env)
{
    *ret_env = (struct via_node_env){
        .ctx = host,
        .deliver = deliver,
        .complete = complete,
        .notify = notify,
        .wake = wake,
        .changed = changed,
        .mac = compute_mac,
        .random = fill_random,
        .trace = trace,
    };
}
