/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* All flows of a channel, both ends: initialization, and changes of ways, routes and hosts. */
#include <errno.h>

#include "core/flow.h"

void via_flows_init(struct via_channel *channel, const struct via_flow_calls *calls)
{
    const struct via_node *node = channel->node;
    struct via_flows *flows = channel->flows;

    flows->calls = *calls;
    flows->next_timer_ns = VIA_NEVER_NS;
    via_list_init(&flows->busy);
    via_list_init(&flows->parked);
    via_list_init(&flows->local);
    via_list_init(&flows->parked_acks);
    via_list_init(&flows->answer_waiters);
    via_list_init(&flows->acks_soon);
    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        for (unsigned f = 0; f < node->flows_each; f++) {
            uint16_t host = (uint16_t)h, number = (uint16_t)f;
            via_tx_init(channel, via_channel_tx(channel, host, number), host, number);
            via_rx_init(via_channel_rx(channel, host, number), host, number);
        }
    }
}

static void sort_flow(struct via_channel *channel, struct via_tx_flow *flow)
{
    via_list_remove(&flow->ready);
    via_tx_update(channel, flow);
}

static void sort_ack(struct via_channel *channel, struct via_rx_flow *flow)
{
    via_list_remove(&flow->ack);
    via_rx_update(channel, flow);
}

void via_flows_sort(struct via_channel *channel, struct via_way *way)
{
    struct via_list flows, acks;

    via_list_init(&flows);
    via_list_init(&acks);
    via_list_splice_back(&flows, &way->flows);
    via_list_splice_back(&acks, &way->acks);
    if (way->up) {
        via_list_splice_back(&flows, &channel->flows->parked);
        via_list_splice_back(&acks, &channel->flows->parked_acks);
    }
    while (!via_list_is_empty(&flows)) {
        sort_flow(channel, via_list_entry(flows.next, struct via_tx_flow, ready));
    }
    while (!via_list_is_empty(&acks)) {
        sort_ack(channel, via_list_entry(acks.next, struct via_rx_flow, ack));
    }
}

void via_flows_request_acks(struct via_channel *channel, unsigned port)
{
    via_list_foreach(it, &channel->flows->busy) {
        struct via_tx_flow *flow = via_list_entry(it, struct via_tx_flow, busy);
        if (channel->hosts[flow->host].port == port) {
            via_tx_rerouted(channel, flow);
        }
    }
}

/* Moves the acknowledgements for hosts whose route has changed. */
static void take_acks_rerouted(const struct via_channel *channel, struct via_list *acks,
                               struct via_list *to)
{
    via_list_foreach_safe(it, acks) {
        if (channel->hosts[via_list_entry(it, struct via_rx_flow, ack)->host].rerouted) {
            via_list_remove(it);
            via_list_push_back(to, it);
        }
    }
}

void via_flows_rerouted(struct via_channel *channel)
{
    /* Only busy flows have operations that wait to be sent. */
    via_list_foreach_safe(it, &channel->flows->busy) {
        struct via_tx_flow *flow = via_list_entry(it, struct via_tx_flow, busy);
        if (channel->hosts[flow->host].rerouted) {
            via_tx_rerouted(channel, flow);
            sort_flow(channel, flow);
        }
    }
    struct via_list acks;
    via_list_init(&acks);
    take_acks_rerouted(channel, &channel->flows->parked_acks, &acks);
    via_list_foreach(watched, &channel->watched) {
        take_acks_rerouted(channel, &via_list_entry(watched, struct via_way, watched)->acks, &acks);
    }
    while (!via_list_is_empty(&acks)) {
        sort_ack(channel, via_list_entry(acks.next, struct via_rx_flow, ack));
    }
}

void via_flows_host_reset(struct via_channel *channel, uint16_t host)
{
    for (unsigned f = 0; f < channel->node->flows_each; f++) {
        via_tx_reset(channel, via_channel_tx(channel, host, (uint16_t)f), -ECONNRESET);
        via_rx_reset(channel, via_channel_rx(channel, host, (uint16_t)f));
    }
}

void via_node_resume(struct via_node *node, unsigned index, uint16_t source, uint16_t number)
{
    struct via_channel *channel = &node->channels[index];

    if (source >= node->config.hosts_max || number >= node->config.flows_count) {
        return;
    }
    if (source == node->config.host) {
        struct via_tx_flow *flow = via_channel_tx(channel, source, number);
        flow->held = false;
        via_tx_update(channel, flow);
    } else {
        via_rx_resume(channel, via_channel_rx(channel, source, number));
    }
}
