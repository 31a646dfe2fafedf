/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The configuration of a run: it follows from the seed alone. */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"

#define SIM_HOSTS_MAX 64u
#define SIM_LINKS_MAX 2016u /* 64 hosts, each joined to all others */
#define SIM_PORTS_MAX 63u

enum sim_graph {
    SIM_GRAPH_ANY = 0, /* the seed chooses */
    SIM_GRAPH_RING,
    SIM_GRAPH_CHAIN,
    SIM_GRAPH_STAR,
    SIM_GRAPH_MESH,
    SIM_GRAPH_RANDOM, /* connected, degrees differ, two hosts may have two links */
    SIM_GRAPH_TORUS,  /* of two dimensions */
    SIM_GRAPH_TREE,   /* each host has up to four below it */
    SIM_GRAPH_CUBE,   /* a hypercube, without the corners that exceed the number of hosts */
};

/* Classes of links, as of the emulated port (docs/emulated-port.md), with the same names. */
enum sim_like {
    SIM_LIKE_ANY = 0, /* as the seed draws them: links of several kinds */
    SIM_LIKE_MEMORY,
    SIM_LIKE_PEX,
    SIM_LIKE_IVSHMEM,
    SIM_LIKE_NETWORK,
    SIM_LIKE_PEX_DRIVER, /* src/port/pex itself, on the register model (sim/pex) */
    SIM_LIKE_OFI,        /* src/port/ofi itself, on a simulated libfabric (sim/ofi) */
    SIM_LIKES,
};

static inline bool sim_like_has_driver(enum sim_like like)
{
    return like >= SIM_LIKE_PEX_DRIVER;
}

/* How long things take, and how the hardware misbehaves within its rules. Chances are per mille. */
struct sim_config_port {
    uint32_t direct_percent; /* links whose window is mapped and coherent */
    uint32_t put_ns_min, put_ns_max;
    uint32_t bell_ns_min, bell_ns_max;
    uint32_t linger_chance, linger_ns_max; /* write-combining buffers not drained until flushed */
    uint32_t show_chance; /* words of a posted write become visible before the rest */
    uint32_t pump_chance; /* posted writes arrive during their receiver's turn */
    uint32_t bell_late_chance, bell_late_ns_max;
    uint32_t bell_drop_chance; /* not 0: insurance_ns is not 0 */
    uint32_t bell_double_chance;
    bool bell_edge;           /* an interrupt only when the bit goes from 0 to 1 */
    uint32_t notice_ns;       /* from a change of the link to its event */
    uint32_t wc_percent;      /* links whose window is write-combining; never direct links */
    uint32_t wc_buffers;      /* of each initiator, 1 to SIM_WC_BUFFERS_MAX */
    uint32_t wc_drain_ns_max; /* time after which a buffer drains by itself; other buffers drain
                                 only when flushed */
    uint32_t relaxed_chance;  /* a body passes earlier posted writes: relaxed ordering */
    uint32_t ones_chance;     /* a scratchpad reads all-ones although the link is up */
    uint32_t blind_ns_max;    /* time for which the port does not report that the link is down */
    uint32_t
        narrow_percent; /* ends of links whose window has room for fewer slots than the peer's */
    bool forgets;       /* pending doorbells are lost with the link */
    bool pads_survive;  /* scratchpads keep their values while the link is down */
};
#define SIM_WC_BUFFERS_MAX 10u

/* DMA engines of ports, and how they misbehave. Chances are per mille, for each DMA. The node's own
 * settings for engines are in struct via_node_config. */
struct sim_config_dma {
    uint32_t percent;   /* links whose ports have an engine */
    uint32_t bytes_min; /* struct via_node_port_config.dma_bytes_min, of all ports */
    uint32_t depth;
    uint32_t ns_min,
        ns_max; /* duration of a DMA, from its start or, in_order, from the end of the last one */
    bool in_order;
    uint32_t busy_chance;  /* it reports no room, although it has some */
    uint32_t show_chance;  /* some bytes become visible long before the end */
    uint32_t trail_chance; /* it reports the end while its bytes are under way */
    uint32_t fail_chance;
    uint32_t hang_chance;
    uint32_t lost_chance;     /* the interrupt at its end is lost */
    uint32_t abort_ns_max;    /* an abort takes up to this time */
    uint32_t stubborn_chance; /* or up to this time more */
};

struct sim_config_cpu {
    uint32_t turn_ns_min, turn_ns_max;   /* a turn of a transfer thread */
    uint32_t wake_ns_min, wake_ns_max;   /* from interrupt to running */
    uint32_t stall_chance, stall_ns_max; /* a thread is preempted between two turns */
    uint32_t spin_ns_max;    /* upper limit of the time for which a thread polls before it sleeps */
    uint32_t crowded_chance; /* it does not poll, because other threads need the CPU */
    uint64_t insurance_ns; /* longest sleep of a transfer thread; 0 = no limit: a lost wake-up then
                              hangs */
};

struct sim_config_faults {
    uint32_t cuts_count, cut_ns_max;
    uint32_t freezes_count, freeze_ns_max;
    uint32_t crashes_count, restart_ns_max;
    uint32_t rogues_count, rogue_ns_max; /* hosts that write garbage, then restart */
    uint32_t lies_chance;  /* chance that such a host's announcement is about another host */
    uint32_t names_chance; /* chance that the forged frame names a host as its source to which the
                              reader has a link. 0 unless set, and only for runs without cuts: such
                              a link must not end before the frame is read */
};

/* Weights: how often each kind of operation is drawn. */
struct sim_config_work {
    uint32_t ops_count;
    uint32_t burst_max;
    uint32_t shift; /* not 0: host i sends to host i + shift, all hosts at the same time */
    uint32_t message, put, put_signal, get, atomic, wrong;
    uint32_t busy_chance, busy_ns_max; /* consumers that answer -EAGAIN */
    uint32_t cancels_count;
    uint32_t barrier_groups, barrier_rounds;
    uint32_t region_bytes; /* of each flow at each host */
    uint32_t library_bytes;
    uint64_t quiet_ns; /* delay before the first send: links come up, and routes converge */
};

/* Connections of the sockets library (sockets/). */
struct sim_config_streams {
    uint32_t count;
    uint32_t bytes_max;                      /* bytes that a program sends in each direction */
    uint32_t slots, body_bytes, spare_lines; /* of a pipe */
    uint32_t first;                          /* number of the first record */
    uint32_t switch_chance; /* chance that the acceptor notices that its offer was taken */
    /* Size of a socket buffer; time for which bytes are under way. */
    uint32_t kernel_bytes, kernel_ns_max;
    uint32_t bell_ns_max;
    uint32_t stall_chance, stall_ns_max;
    uint32_t rogue_chance;
    uint32_t avail_chance; /* chance that both programs wait in their calls, so that the receiver
                              fetches bytes from the sender's memory */
    uint32_t hosts_count;  /* connections between hosts, beside those within one */
    uint32_t leave_chance; /* chance that an end returns to the kernel connection */
    uint32_t frames_max, frame_ns_max; /* records under way, and how long they are */
    uint32_t burst_chance;             /* the programs at both ends of one send before they read */
    uint32_t kill_chance;              /* chance that a process that holds an end is killed */
    uint32_t exec_chance;              /* chance that its program calls exec() */
    bool preempts; /* threads lose their CPU before system calls, too, and for up to stall_ns_max */
};

/* Which of the planned faults or bursts of work happen: all but the masked ones. Those beyond the
 * mask always happen. */
#define SIM_MASK_BITS 4096u
struct sim_mask {
    uint64_t left_out[SIM_MASK_BITS / 64];
};

static inline bool sim_mask_is_kept(const struct sim_mask *mask, uint32_t index)
{
    return index >= SIM_MASK_BITS || (mask->left_out[index / 64] >> (index % 64) & 1) == 0;
}

/* Programs of the OpenSHMEM library (sim/shmem/). */
struct sim_config_shmem {
    uint32_t pes;          /* 0 = no program */
    uint32_t nodes;        /* hosts that have PEs */
    uint32_t steps;        /* of the program */
    uint32_t elements_max; /* of the data of one step */
    uint32_t accesses_max; /* accesses of a PE to memory, until another PE may run */
    uint32_t yield_ns_max, wake_ns_max;
    uint32_t stall_chance, stall_ns_max;
    uint32_t slots, body_bytes, reply_slots; /* of the pipes between a PE and its host */
    uint32_t crashes;                        /* 1: a host's daemon dies, and so the job ends */
};

struct sim_config {
    uint64_t seed;
    enum sim_graph graph;
    uint32_t hosts_count;
    uint32_t extra_links;        /* random graph: links more than a tree needs */
    uint64_t active_ns;          /* work and faults happen before */
    struct via_node_config node; /* host, session and ports_count are per host */
    struct sim_mask faults_mask, work_mask;
    struct sim_config_port port;
    struct sim_config_cpu cpu;
    struct sim_config_faults faults;
    struct sim_config_work work;
    struct sim_config_streams streams;
    struct sim_config_dma dma;
    struct sim_config_shmem shmem;
    uint32_t classic; /* 1: without the draws that were added later */
    uint32_t mood;    /* requested enum sim_mood */
    uint32_t like;    /* requested enum sim_like */
};

/* Settings that make a coincidence likely; one seed in five has one of them. */
enum sim_mood {
    SIM_MOOD_ANY = 0, /* or none: chosen by the seed */
    SIM_MOOD_SPARSE,
    SIM_MOOD_APART,
    SIM_MOOD_TIGHT,
    SIM_MOOD_TORUS,
    SIM_MOOD_FULL,
    SIM_MOODS,
};

/* graph: SIM_GRAPH_ANY or the graph to use instead of the seed's choice. */
void sim_config_from_seed(struct sim_config *config, uint64_t seed, enum sim_graph graph);
/* The same with a mood to use. */
void sim_config_from_mood(struct sim_config *config, uint64_t seed, enum sim_graph graph,
                          enum sim_mood mood);
/* The same without draws that were added later: seeds that were found before keep their
 * histories. */
void sim_config_from_old_seed(struct sim_config *config, uint64_t seed, enum sim_graph graph);

/* Makes all links members of a class; values that the class leaves open stay as drawn. */
void sim_config_like(struct sim_config *config, enum sim_like like);

/* Restores the relations between values after some were changed. */
void sim_config_mend(struct sim_config *config);

/* By enum sim_graph, up to SIM_GRAPH_CUBE, and by enum sim_like. */
extern const char *const sim_graph_names[], *const sim_like_names[];
/* The place of a name; -1 for an unknown one. */
int sim_name_find(const char *const *names, unsigned count, const char *name);

#endif
