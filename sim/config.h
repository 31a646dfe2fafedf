/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What a run is like: all of it follows from the seed, and from nothing else. */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"

#define SIM_HOSTS_MAX 16u
#define SIM_LINKS_MAX 64u

enum sim_graph {
    SIM_GRAPH_ANY = 0, /* chosen by the seed */
    SIM_GRAPH_RING,
    SIM_GRAPH_CHAIN,
    SIM_GRAPH_STAR,
    SIM_GRAPH_MESH,
    SIM_GRAPH_RANDOM, /* connected, degrees differ, two hosts may have two links */
};

/* The time things take, and how the hardware misbehaves within its rules. Chances are per mille. */
struct sim_config_port {
    uint32_t direct_percent; /* links whose window is mapped and coherent */
    uint32_t put_ns_min, put_ns_max;
    uint32_t bell_ns_min, bell_ns_max;
    uint32_t linger_chance, linger_ns_max; /* write-combining buffers not drained until flushed */
    uint32_t show_chance;                  /* words of a posted write are seen before the rest */
    uint32_t pump_chance; /* posted writes arrive while their receiver is at work */
    uint32_t bell_late_chance, bell_late_ns_max;
    uint32_t bell_drop_chance; /* not 0: insurance_ns is not 0 */
    uint32_t bell_double_chance;
    bool bell_edge;     /* an interrupt only when the bit goes from 0 to 1 */
    uint32_t notice_ns; /* from a change of the link to the event that tells */
};

struct sim_config_cpu {
    uint32_t turn_ns_min, turn_ns_max;   /* a turn of a transfer thread */
    uint32_t wake_ns_min, wake_ns_max;   /* from interrupt to running */
    uint32_t stall_chance, stall_ns_max; /* a thread is preempted between two turns */
    uint64_t insurance_ns; /* longest sleep of a transfer thread; 0 = no limit: a lost wake-up is
                              for ever */
};

struct sim_config_faults {
    uint32_t cuts_count, cut_ns_max;
    uint32_t freezes_count, freeze_ns_max;
    uint32_t crashes_count, restart_ns_max;
};

/* Weights: how often each kind of operation is drawn. */
struct sim_config_work {
    uint32_t ops_count;
    uint32_t burst_max;
    uint32_t shift; /* not 0: everybody sends to the host so many further on, all at once */
    uint32_t message, put, put_signal, get, atomic, wrong;
    uint32_t busy_chance, busy_ns_max; /* consumers that answer "not now" */
    uint32_t cancels_count;
    uint32_t barrier_groups, barrier_rounds;
    uint32_t region_bytes; /* of each flow at each host */
    uint32_t library_bytes;
};

struct sim_config {
    uint64_t seed;
    enum sim_graph graph;
    uint32_t hosts_count;
    uint32_t extra_links;        /* random graph: links more than a tree needs */
    uint64_t active_ns;          /* work and faults happen before */
    struct via_node_config node; /* host, session and ports_count are per host */
    struct sim_config_port port;
    struct sim_config_cpu cpu;
    struct sim_config_faults faults;
    struct sim_config_work work;
};

/* graph: SIM_GRAPH_ANY or the one to use whatever the seed says. */
void sim_config_from_seed(struct sim_config *config, uint64_t seed, enum sim_graph graph);

/* -1 for a name that is none. */
int sim_graph_parse(const char *name);
const char *sim_graph_name(enum sim_graph graph);

/* A few lines for people. Returns the length. */
int sim_config_text(const struct sim_config *config, char *text, unsigned bytes);

#endif
