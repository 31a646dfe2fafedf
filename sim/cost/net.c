/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Traffic on the links. net_build.c makes the links. */
#include "sim/cost/net.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"

/* TLPs that follow each other from one node to the last of a path. */
struct sim_train {
    struct sim_way *way; /* of the hop */
    struct sim_net *net;
    const struct sim_path *path;
    const struct sim_path *back; /* of the completions; NULL: not a read request */
    unsigned hop;
    unsigned header;
    bool posted;
    uint64_t tlps;
    uint64_t payload;
    uint64_t request_bytes; /* bytes a read request is for */
    uint64_t tail_at_ps;    /* when its last byte is where its first one is now */
    struct sim_call sent, arrived;
};

void sim_net_init(struct sim_net *net, struct sim_cost *cost)
{
    *net = (struct sim_net){.cost = cost, .trains = {.bytes = sizeof(struct sim_train)}};
}

void sim_net_fini(struct sim_net *net)
{
    sim_objects_fini(&net->trains);
    free(net->nodes);
    free(net->links);
    *net = (struct sim_net){.cost = net->cost};
}

int sim_net_node(const struct sim_net *net, const char *name)
{
    for (unsigned i = 0; i < net->nodes_count; i++) {
        if (strcmp(net->nodes[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -ENOENT;
}

/* --- paths ----------------------------------------------------------------------------------- */

/* Writes the way back from `to` along the links by which each node was reached. */
static int trace(const struct sim_net *net, const int *reached_by, struct sim_path *path)
{
    unsigned count = 0;
    for (unsigned node = path->to; node != path->from; count++) {
        const struct sim_link *link = &net->links[reached_by[node]];
        node = link->b == node ? link->a : link->b;
    }
    if (count > SIM_HOPS_MAX) {
        return -ENOLINK;
    }
    path->hops_count = count;
    path->mps_bytes = UINT32_MAX;
    for (unsigned node = path->to; count-- > 0;) {
        const struct sim_link *link = &net->links[reached_by[node]];
        path->hops[count].link = (uint16_t)reached_by[node];
        path->hops[count].way = link->b == node ? 0 : 1;
        path->mps_bytes = via_min(path->mps_bytes, link->pcie.mps_bytes);
        node = link->b == node ? link->a : link->b;
    }
    return 0;
}

int sim_net_path(const struct sim_net *net, unsigned from, unsigned to, struct sim_path *ret_path)
{
    assert(from < net->nodes_count && to < net->nodes_count);
    int *reached_by = sim_alloc(net->nodes_count * sizeof(*reached_by));
    unsigned *queue = sim_alloc(net->nodes_count * sizeof(*queue));
    memset(reached_by, 0xff, net->nodes_count * sizeof(*reached_by));
    unsigned queued = 0;
    queue[queued++] = from;
    for (unsigned next = 0; next < queued && reached_by[to] < 0; next++) {
        unsigned node = queue[next];
        if (node != from && net->nodes[node].kind != SIM_NODE_SWITCH) {
            continue;
        }
        for (unsigned i = 0; i < net->links_count; i++) {
            const struct sim_link *link = &net->links[i];
            unsigned other = link->a == node ? link->b : link->a;
            if ((link->a == node || link->b == node) && other != from && reached_by[other] < 0) {
                reached_by[other] = (int)i;
                queue[queued++] = other;
            }
        }
    }
    *ret_path = (struct sim_path){.from = from, .to = to, .mps_bytes = UINT32_MAX};
    int rc = from == to ? 0 : reached_by[to] < 0 ? -ENOLINK : trace(net, reached_by, ret_path);
    free(reached_by);
    free(queue);
    return rc;
}

/* The node that a hop leads to. */
static unsigned behind(const struct sim_net *net, const struct sim_path *path, unsigned hop)
{
    const struct sim_link *link = &net->links[path->hops[hop].link];
    return path->hops[hop].way == 0 ? link->b : link->a;
}

void sim_net_part(const struct sim_net *net, const struct sim_path *path, unsigned first,
                  unsigned end, struct sim_path *ret_path)
{
    *ret_path = (struct sim_path){.from = first == 0 ? path->from : behind(net, path, first - 1),
                                  .to = behind(net, path, end - 1),
                                  .hops_count = end - first,
                                  .mps_bytes = path->mps_bytes};
    memcpy(ret_path->hops, &path->hops[first], (end - first) * sizeof(path->hops[0]));
}

/* --- trains ---------------------------------------------------------------------------------- */

static struct sim_train *train_new(struct sim_net *net)
{
    struct sim_train *train = sim_objects_new(&net->trains);
    train->net = net;
    return train;
}

static void train_start(struct sim_train *train);
static void train_at_node(void *object, uint64_t arg);

static void set_hop(struct sim_train *train, unsigned hop)
{
    const struct sim_path *path = train->path;
    train->hop = hop;
    train->way = &train->net->links[path->hops[hop].link].ways[path->hops[hop].way];
}

static void credits_return(void *object, uint64_t count)
{
    sim_pool_give(object, count);
}

/* A posted train has arrived. Its credits return when the receiver has drained it and the UpdateFC
 * has crossed the last link. Returns that time. */
static uint64_t drain_train(struct sim_train *train, struct sim_node *node)
{
    uint64_t drained_ps =
        sim_server_add(&node->drain, train->tlps * node->drain_ps, 0, (struct sim_call){0});
    if (train->path->hops_count > 0 && node->credits > 0) {
        struct sim_way *way = train->way;
        sim_cost_at(train->net->cost, drained_ps + way->lag_ps,
                    (struct sim_call){credits_return, &way->credits,
                                      via_min(train->tlps, way->credits.total_count)});
    }
    return drained_ps;
}

/* The request becomes its completions. */
static void complete(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_train *train = object;
    unsigned unit = via_min(train->net->nodes[train->path->to].rcb_bytes, train->back->mps_bytes);
    train->path = train->back;
    train->back = NULL;
    train->header = train->net->completion_header;
    train->payload = train->request_bytes;
    train->tlps = sim_pcie_tlps(train->request_bytes, unit);
    train_start(train);
}

static void train_arrived(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_train *train = object;
    struct sim_net *net = train->net;
    struct sim_node *node = &net->nodes[train->path->to];
    if (train->back != NULL) {
        sim_cost_after(net->cost, node->read_ps, (struct sim_call){complete, train, 0});
        return;
    }
    if (train->posted) {
        sim_cost_at(net->cost, drain_train(train, node) + node->write_ps, train->arrived);
    } else {
        sim_cost_after(net->cost, 0, train->arrived);
    }
    sim_objects_free(&train->net->trains, train);
}

/* The link is free for this train. A train whose tail is still arriving starts so late that it has
 * no gap. */
static void transmit(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_train *train = object;
    struct sim_way *way = train->way;
    uint64_t service_ps = sim_pcie_ps(way->bandwidth, train->tlps, train->payload, train->header);
    uint64_t ready_ps = train->tail_at_ps - via_min(train->tail_at_ps, service_ps);
    uint64_t end_ps = sim_server_add_at(&way->wire, ready_ps, service_ps, 0,
                                        train->hop == 0 ? train->sent : (struct sim_call){0});
    if (train->hop + 1 == train->path->hops_count) {
        sim_cost_at(train->net->cost, end_ps + way->lag_ps,
                    (struct sim_call){train_arrived, train, 0});
        return;
    }
    set_hop(train, train->hop + 1);
    train->tail_at_ps = end_ps + way->onward_ps;
    sim_cost_at(train->net->cost, end_ps - service_ps + way->onward_ps,
                (struct sim_call){train_at_node, train, 0});
}

/* Its first byte may leave the node. */
static void train_at_node(void *object, uint64_t arg)
{
    struct sim_train *train = object;
    struct sim_way *way = train->way;
    if (!train->posted || !way->limited) {
        transmit(train, arg);
        return;
    }
    sim_pool_take(&way->credits, via_min(train->tlps, way->credits.total_count),
                  (struct sim_call){transmit, train, 0});
}

static void train_start(struct sim_train *train)
{
    train->tail_at_ps = train->net->cost->now_ps;
    if (train->path->hops_count == 0) {
        sim_cost_after(train->net->cost, 0, train->sent);
        sim_cost_after(train->net->cost, 0, (struct sim_call){train_arrived, train, 0});
        return;
    }
    set_hop(train, 0);
    train_at_node(train, 0);
}

void sim_net_post(struct sim_net *net, const struct sim_post *post)
{
    struct sim_train *train = train_new(net);
    train->path = post->path;
    train->posted = true;
    train->header = net->write_header;
    train->tlps = sim_pcie_tlps(post->bytes, post->path->mps_bytes);
    train->payload = post->bytes;
    train->sent = post->sent;
    train->arrived = post->arrived;
    train_start(train);
}

void sim_net_read(struct sim_net *net, const struct sim_path *there, const struct sim_path *back,
                  uint64_t bytes, struct sim_call done)
{
    struct sim_train *train = train_new(net);
    train->path = there;
    train->back = back;
    train->header = net->request_header;
    train->tlps = 1;
    train->request_bytes = bytes;
    train->arrived = done;
    train_start(train);
}

/* --- doorbells ------------------------------------------------------------------------------- */

/* A train without bytes carries the action that the chip has to perform. */
static void send_msi(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_train *train = object;
    train_start(train);
}

void sim_net_ring(struct sim_net *net, const struct sim_path *to_chip,
                  const struct sim_path *from_chip, struct sim_call arrived)
{
    struct sim_train *msi = train_new(net);
    msi->path = from_chip;
    msi->posted = true;
    msi->header = net->write_header;
    msi->tlps = 1;
    msi->payload = 4;
    msi->arrived = arrived;
    sim_net_post(net,
                 &(struct sim_post){.path = to_chip, .bytes = 4, .arrived = {send_msi, msi, 0}});
}
