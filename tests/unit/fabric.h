/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A small fabric in one thread, for unit tests of the node: links are memory, and the test advances
 * the time.
 *
 * Nodes are polled as by threads: a channel that has armed and found nothing is polled again only
 * when a bell rings, when it is woken, or at its deadline. So a lost wake-up causes a late message.
 */
#ifndef TESTS_UNIT_FABRIC_H
#define TESTS_UNIT_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/node.h"

#define FABRIC_HOSTS_MAX 8
#define FABRIC_LINKS_MAX 16
#define FABRIC_RECORDS_MAX 4096

struct fabric;

struct fabric_fence {
    bool under_way;
    unsigned downs; /* number of link-downs when it was started */
    uint64_t due_ns;
};

struct fabric_port {
    struct via_port port; /* first */
    struct fabric *fabric;
    struct fabric_link *link;
    struct fabric_port *peer;
    uint64_t events;
    int host;
    struct fabric_fence fences[VIA_PORT_QUEUES];
    unsigned fences_count; /* started */
    unsigned fences_lost;  /* polled after the link was down */
};

struct fabric_link {
    bool up;
    unsigned downs_count;
    unsigned late_reads; /* number of reads that return all-ones although it is up */
    unsigned reads;      /* of scratchpads */
    uint32_t scratchpads[VIA_PORT_SCRATCHPADS];
    struct fabric_port ports[2];
    uint64_t rings[VIA_PORT_DOORBELLS];
};

struct fabric_delivery {
    uint16_t source;
    uint16_t flow;
    uint32_t endpoint;
    uint32_t source_endpoint;
    uint32_t bytes;
    unsigned channel;
    uint64_t hash;
    uint64_t first; /* the first 8 bytes, or fewer */
};

struct fabric_completion {
    uint64_t cookie;
    int status;
    uint64_t value;
    unsigned channel;
    bool seen;
};

struct fabric_host {
    struct fabric *fabric;
    struct via_node *node;
    void *memory;
    struct via_node_config config;
    struct via_node_port_config ports[FABRIC_LINKS_MAX];
    int index;
    unsigned ports_count;
    bool asleep[VIA_CHANNELS_MAX];
    bool woken[VIA_CHANNELS_MAX];
    uint64_t poll_deadline[VIA_CHANNELS_MAX];
    uint64_t control_deadline;
    /* The result of deliver(): 0, which also records the message, or an error. */
    int deliver_answer;
    struct fabric_delivery deliveries[FABRIC_RECORDS_MAX];
    unsigned deliveries_count;
    struct fabric_completion completions[FABRIC_RECORDS_MAX];
    unsigned completions_count;
    unsigned notifies_count;
    uint64_t notified;
    bool frozen; /* its threads do not run */
    /* Of the fabric, with config.keyed: a simple hash of all bytes, not a secure one. */
    uint64_t key;
    /* Called from complete(), like code of a caller. */
    void (*on_complete)(struct fabric_host *host, uint64_t cookie, int status);
};

struct fabric {
    struct fabric_host hosts[FABRIC_HOSTS_MAX];
    struct fabric_link links[FABRIC_LINKS_MAX];
    unsigned hosts_count;
    unsigned links_count;
    uint64_t now_ns;
    bool direct;       /* windows are mapped and coherent; else put() and flush() */
    uint64_t fence_ns; /* duration of a fence */
    uint32_t next_session;
    unsigned nonces_count;
    struct via_node_config config; /* of all hosts, except host and session */
};

/* The code by which hosts with keys authenticate their hellos. */
void fabric_mac(uint64_t key, const void *data, size_t bytes, uint8_t ret_mac[VIA_MAC_BYTES]);

/* A fabric with default values, which a test may change before it adds hosts. */
struct fabric *fabric_new(bool direct);
void fabric_free(struct fabric *fabric);

/* Adds a host, not started. Returns its id. */
int fabric_add_host(struct fabric *fabric);
/* Adds a cable between two hosts, before they start. */
struct fabric_link *fabric_connect(struct fabric *fabric, int a, int b);
/* Starts a host (again): a new session, fresh node memory, old inboxes. */
void fabric_start(struct fabric *fabric, int host);
/* Hosts 0 and 1 with a cable between them, not started; starts both. */
struct fabric *fabric_pair(bool direct);
void fabric_start_pair(struct fabric *fabric);
/* The host stops without a message to other hosts. */
void fabric_crash(struct fabric *fabric, int host);
/* Hosts 0..n-1 in a ring (n > 2) or chain, all started. */
void fabric_ring(struct fabric *fabric, unsigned n);
void fabric_chain(struct fabric *fabric, unsigned n);

void fabric_cut(struct fabric_link *link);
void fabric_mend(struct fabric_link *link);

/* Lets ns nanoseconds pass. */
void fabric_run(struct fabric *fabric, uint64_t ns);
/* Runs until every started host reaches every other. Fails the test after two seconds. */
void fabric_settle(struct fabric *fabric);
bool fabric_is_settled(const struct fabric *fabric);
/* Runs until no started host has pending operations; false after ns. */
bool fabric_drain(struct fabric *fabric, uint64_t ns);

struct via_node *fabric_node(struct fabric *fabric, int host);
/* The completion with this cookie; NULL when there is none. Fails the test when there are two. */
const struct fabric_completion *fabric_completion(const struct fabric *fabric, int host,
                                                  uint64_t cookie);
/* Submits on channel 0, and runs the fabric while the pool is empty. */
void fabric_submit(struct fabric *fabric, int host, const struct via_op *op);
struct via_node_counters fabric_counters(const struct fabric *fabric, int host);
struct via_link_status fabric_link_status(const struct fabric *fabric, int host, unsigned port);

#endif
