/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Hosts, switches and devices, the links between them, and the traffic on the links: posted writes,
 * reads and doorbells. Each direction of a link is a server whose jobs are trains of TLPs. Switches
 * cut through: a train leaves as soon as it can leave without a gap, so its bytes take time only
 * once, at the slowest link of the path, and each hop adds its latency. If a receiver has limited
 * posted credits, trains wait for them in order, and later trains wait behind them.
 */
#ifndef SIM_COST_NET_H
#define SIM_COST_NET_H

#include "base/error.h"
#include "sim/cost/cost.h"
#include "sim/cost/pcie.h"
#include "sim/cost/scenario.h"
#include "sim/memory.h"

#define SIM_HOPS_MAX 16

enum sim_node_kind { SIM_NODE_HOST, SIM_NODE_SWITCH, SIM_NODE_DEVICE };

struct sim_node {
    char name[32];
    enum sim_node_kind kind;
    uint64_t forward_ps; /* latency for a TLP that passes */
    uint64_t write_ps;   /* from the arrival of a posted write until it is visible */
    uint64_t read_ps;    /* from the arrival of a read request to its first completion */
    unsigned rcb_bytes;  /* completions are cut at this size, or at MPS if that is smaller */
    uint64_t credits;    /* posted TLPs that it buffers; 0: any number */
    uint64_t drain_ps;   /* time to handle each */
    struct sim_server drain;
};

/* One direction of a link: a cache line of what every train needs, then the rest. */
struct sim_way {
    struct sim_server wire;
    double bandwidth;   /* of the link: bytes per second of whole TLPs */
    uint64_t lag_ps;    /* of the link: propagation, converters of the medium included */
    uint64_t onward_ps; /* lag_ps, and the latency of a node that a train passes behind it */
    bool limited;       /* the receiver has credits */
    struct sim_pool credits;
};

struct sim_link {
    struct sim_way ways[2]; /* 0: a to b */
    struct sim_pcie_link pcie;
    unsigned a, b; /* nodes */
    char name[32];
};

struct sim_path {
    unsigned from, to; /* nodes */
    unsigned hops_count;
    struct {
        uint16_t link;
        uint8_t way;
    } hops[SIM_HOPS_MAX];
    unsigned mps_bytes; /* minimum over the path */
};

struct sim_train;

struct sim_net {
    struct sim_cost *cost; /* borrowed */
    struct sim_node *nodes;
    struct sim_link *links;
    unsigned nodes_count, links_count;
    bool dllp;
    unsigned write_header, request_header, completion_header; /* bytes of a TLP besides payload */
    struct sim_objects trains;                                /* struct sim_train */
};

void sim_net_init(struct sim_net *net, struct sim_cost *cost);
void sim_net_fini(struct sim_net *net);

/* Builds the net of a scenario, from [pcie], [host NAME], [switch NAME], [device NAME], [medium
 * NAME] and [link NAME]. net is initialised. */
void sim_net_build(struct sim_net *net, const struct sim_scenario *scenario);

/*
 * Adds single parts, for fabrics of any size: the node or link has the parameters of the scenario's
 * part of that name ("host a", "link cable"). Returns its number. All nodes come before the first
 * link.
 */
unsigned sim_net_add_node(struct sim_net *net, const struct sim_scenario *scenario,
                          const char *section, const char *name);
unsigned sim_net_add_link(struct sim_net *net, const struct sim_scenario *scenario,
                          const char *section, const char *name, unsigned a, unsigned b);
/* [pcie] only; sim_net_build does it, too. */
void sim_net_set_pcie(struct sim_net *net, const struct sim_scenario *scenario);

/* The node's number; -ENOENT. */
int sim_net_node(const struct sim_net *net, const char *name);
/* The path with the fewest hops, which passes through no host or device; -ENOLINK if there is none.
 * A path from a node to itself has no hops, only the node's latencies. */
int sim_net_path(const struct sim_net *net, unsigned from, unsigned to, struct sim_path *ret_path);
/* The same for a path that there is. */
void sim_net_way(const struct sim_net *net, unsigned from, unsigned to, struct sim_path *ret_path);

/* Hops `first` to `end` of a path, with its payload limit. */
void sim_net_part(const struct sim_net *net, const struct sim_path *path, unsigned first,
                  unsigned end, struct sim_path *ret_path);

/* --- traffic: the path is borrowed until the last call --------------------------------------- */

struct sim_post {
    const struct sim_path *path;
    uint64_t bytes;
    struct sim_call sent;    /* the first link has sent it: the sender's buffer is free */
    struct sim_call arrived; /* the last byte is visible at the far end */
};

/* A posted write, cut into TLPs of at most MPS. One call is one train; callers should split a long
 * transfer into pieces of a few KiB, so that other traffic gets its turn. */
void sim_net_post(struct sim_net *net, const struct sim_post *post);

/*
 * A read: the request goes along `there`, the completions return along `back`; `done` is called at
 * the last one. One call is one request: at most MRRS bytes.
 */
void sim_net_read(struct sim_net *net, const struct sim_path *there, const struct sim_path *back,
                  uint64_t bytes, struct sim_call done);

/*
 * A doorbell: 4 bytes along to_chip set the bit, the chip's MSI goes along from_chip; `arrived` is
 * called when the MSI has reached the host. The host's handling is not included.
 */
void sim_net_ring(struct sim_net *net, const struct sim_path *to_chip,
                  const struct sim_path *from_chip, struct sim_call arrived);

#endif
