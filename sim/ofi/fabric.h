/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A libfabric whose wire is the simulator's clock. It does what libfabric's manual pages allow a
 * provider of connected endpoints to do: writes arrive in parts, in any order, some parts twice;
 * messages of a connection stay in order, and pass writes where the provider keeps no order between
 * the two; completions come late and in any order; queues are full; connections break. Misuse by
 * the port fails the run: memory that is not registered, a key or an address that is wrong, an
 * object that is closed while another one needs it.
 *
 *   fabric.c   objects: fabric, domain, memory, queues      endpoint.c   connections, operations
 *   wire.c     what is under way                            ofi.c        links, lives, hubs' turns
 */
#ifndef SIM_OFI_FABRIC_H
#define SIM_OFI_FABRIC_H

#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "base/list.h"
#include "base/rng.h"
#include "port/driver.h"
#include "port/ofi/system.h"
#include "sim/world.h"

#define SIM_OFI_DATA_MAX 64u /* that comes with a connection */
#define SIM_OFI_PORT 7471u
#define SIM_OFI_NODES_MAX 8u /* of a host: one for each link to the same other host */

enum sim_ofi_event { SIM_OFI_WIRE, SIM_OFI_TURN };

/* What a world's provider is like. Chances are per mille. */
struct sim_ofi {
    struct sim_world *world;
    struct via_rng rng;
    unsigned links_count; /* open */
    bool keeps_order;     /* messages come after the writes before them (FI_ORDER_SAW) */
    uint64_t mr_mode;
    size_t inject_bytes;
    uint32_t queue_depth;
    uint32_t full_chance, again_chance, duplicate_chance;
    uint32_t error_chance; /* per 100,000 operations */
    uint32_t errors_left;
    uint32_t complete_ns_max;
    struct sim_ofi_node *nodes[SIM_HOSTS_MAX][SIM_OFI_NODES_MAX];
};

/* A process as libfabric and the port see it: the system under its hub, and its objects. */
struct sim_ofi_node {
    struct via_ofi_system system; /* first */
    struct sim_ofi *ofi;
    struct sim_host *host;
    struct sim_end *any;     /* one of the ends, for events */
    struct via_ofi_hub *hub; /* NULL: none is open */
    uint64_t turn_ns;        /* of the hub, by the simulator's clock; VIA_NEVER_NS: none */
    bool is_dead;            /* the process is killed */
    bool is_silent;          /* with its machine: no peer gets an event */
    struct sockaddr_in address;
    struct fid_fabric fabric;
    struct fid_domain domain;
    struct fid_eq eq;
    struct fid_pep pep;
    bool is_listening;
    uint64_t receive_order; /* that the listener asked for */
    unsigned cqs_count;
    struct via_list endpoints, memories, events;
    struct via_list closed;   /* memories: a caller may still hold their descriptors */
    struct via_list requests; /* of connections: neither accepted nor rejected */
};

struct sim_ofi_memory {
    struct fid_mr mr; /* first */
    struct via_list link;
    struct sim_ofi_node *node; /* NULL: closed */
    const unsigned char *at;
    size_t bytes;
    uint64_t access;
};

struct sim_ofi_cq {
    struct fid_cq cq; /* first */
    struct sim_ofi_node *node;
    struct via_list entries;
    size_t count, size;
    bool watched;
};

struct sim_ofi_side {
    struct sim_ofi_link *link;
    struct sim_end *end;
    struct sim_ofi_node *node;
    struct via_driver_host host;
    struct via_port *port; /* NULL: the host is down */
    bool wants_service, is_cut;
};

/* The wire between two hosts. */
struct sim_ofi_link {
    struct sim_ofi *ofi;
    struct sim_link *link;
    struct sim_ofi_side sides[2];
    unsigned ordinal; /* among the links between the same hosts */
    unsigned mends_count;
    bool encrypted, has_key, is_wire_up;
    struct via_list packets; /* by time */
    uint64_t due_ns;         /* of the event that is asked for; 0: none */
};

struct sim_ofi_endpoint {
    struct fid_ep ep; /* first */
    struct via_list link;
    struct sim_ofi_node *node;
    struct sim_ofi_link *wire; /* NULL: not connecting yet */
    struct sim_ofi_endpoint *peer;
    struct sim_ofi_cq *cq;
    struct sim_ofi_request *request; /* that it was made for */
    bool is_enabled, is_connected, is_broken;
    bool
        is_deaf; /* something of the peer's was lost: what the peer sent after that never arrives */
    bool receives_in_order;
    struct via_list receives; /* posted */
    struct via_list unread;   /* operations that found no receive */
    struct via_list ops;      /* not completed */
    uint32_t ops_count;
    uint64_t ops_number;
    uint64_t message_ns, write_ns; /* when the last one arrives */
};

/* A caller that waits for an answer. The caller's endpoint may be gone. */
struct sim_ofi_request {
    struct fid fid;
    struct via_list link;
    struct sim_ofi_endpoint *caller;
    struct sim_ofi_link *wire;
};

struct sim_ofi_op {
    struct via_list link;              /* endpoint->ops, or ->unread of the peer */
    struct sim_ofi_endpoint *endpoint; /* NULL: closed */
    bool is_write, is_completed, is_arrived, wants_completion, on_delivery;
    unsigned packets_count; /* that name it */
    unsigned parts_count;   /* not arrived */
    bool is_linked, is_waiting;
    void *context;
    uint64_t number, serial;
    const unsigned char *source; /* the port's, until it is completed */
    unsigned char *data;         /* a copy, from then on */
    size_t bytes;
    uint64_t remote, key;
};

enum sim_ofi_packet_kind {
    SIM_OFI_CONNECT,
    SIM_OFI_ACCEPT,
    SIM_OFI_REJECT,
    SIM_OFI_ESTABLISHED, /* of this end: the caller knows */
    SIM_OFI_SHUTDOWN,
    SIM_OFI_MESSAGE,
    SIM_OFI_PART,
    SIM_OFI_COMPLETE, /* of this end */
};

struct sim_ofi_packet {
    struct via_list link;
    enum sim_ofi_packet_kind kind;
    uint64_t due_ns;
    struct sim_ofi_endpoint *from, *to; /* NULL: closed meanwhile */
    struct sim_ofi_node *node;          /* CONNECT: that is called */
    struct sim_ofi_op *op;
    size_t at, bytes; /* PART */
    unsigned char data[SIM_OFI_DATA_MAX];
    size_t data_bytes;
    int error;
};

static inline bool sim_ofi_chance(struct sim_ofi *ofi, uint32_t per_mille)
{
    return per_mille != 0 && via_rng_chance(&ofi->rng, per_mille, 1000);
}

static inline void sim_ofi_count(struct sim_ofi *ofi, enum sim_ofi_count what)
{
    ofi->world->counts.ofi[what]++;
}

/* --- fabric.c --- */
extern const struct via_ofi_library sim_ofi_library;
/* The next fabric is this process's. */
void sim_ofi_select_node(struct sim_ofi_node *node);
struct fi_info *sim_ofi_info(const struct sim_ofi *ofi, const struct sockaddr_in *source,
                             const struct sockaddr_in *destination);
void sim_ofi_free_info(struct fi_info *info);
/* The memory that a key opens; NULL. */
const struct sim_ofi_memory *sim_ofi_memory_by_key(const struct sim_ofi_node *node, uint64_t key);
/* Frees the memories that were closed. */
void sim_ofi_free_closed(struct sim_ofi_node *node);
/* Fails the run unless the memory is registered, if the provider wants that. */
void sim_ofi_check_memory(const struct sim_ofi_node *node, const void *at, size_t bytes,
                          const void *desc, uint64_t access);
void sim_ofi_complete(struct sim_ofi_endpoint *endpoint, void *context, uint64_t serial,
                      size_t bytes, int error, bool in_order);
void sim_ofi_report(struct sim_ofi_node *node, uint32_t event, struct fid *fid,
                    struct fi_info *info, const void *data, size_t bytes, int error);
/* Events that name an object which is closed. */
void sim_ofi_forget_events(struct sim_ofi_node *node, const struct fid *fid);

/* --- endpoint.c --- */
int sim_ofi_endpoint_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ret_ep,
                          void *context);
int sim_ofi_listen_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **ret_pep,
                        void *context);
/* The connection is over for this end; its pending operations fail. */
void sim_ofi_break(struct sim_ofi_endpoint *endpoint, int error);
void sim_ofi_op_release(struct sim_ofi_op *op);
/* The next message that has arrived goes into the next receive. */
void sim_ofi_deliver(struct sim_ofi_endpoint *to);

/* --- wire.c --- */
struct sim_ofi_packet *sim_ofi_send(struct sim_ofi_link *wire, enum sim_ofi_packet_kind kind,
                                    struct sim_ofi_endpoint *from, struct sim_ofi_endpoint *to,
                                    uint64_t due_ns);
void sim_ofi_send_op(struct sim_ofi_op *op);
uint64_t sim_ofi_latency(struct sim_ofi *ofi);
/* Delivers the messages and writes that are due by then. */
void sim_ofi_run(struct sim_ofi_link *wire, uint64_t until_ns);
void sim_ofi_drop(struct sim_ofi_link *wire);
/* An endpoint is closed: the wire loses its messages and writes behind a drawn point. */
void sim_ofi_close(struct sim_ofi_endpoint *endpoint);

/* --- ofi.c --- */
void sim_ofi_turn_at(struct sim_ofi_node *node, uint64_t time_ns);
void sim_ofi_wake(struct sim_ofi_node *node);
void sim_ofi_audit(const struct sim_ofi_node *node);
/* The wire between two processes; NULL: none. */
struct sim_ofi_link *sim_ofi_find_wire(const struct sim_ofi_node *from,
                                       const struct sim_ofi_node *to);
struct sim_ofi_node *sim_ofi_find_node(struct sim_ofi *ofi, const struct sockaddr_in *address);

#endif
