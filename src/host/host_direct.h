/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_DIRECT_H
#define VIA_HOST_HOST_DIRECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"
#include "host/attach_wire.h"
#include "host/client_tcp.h"
#include "host/host_message.h"

/*
 * Direct connections to a host (docs/adr/0073-direct-connections-to-hosts.md). If two hosts have a
 * link over TCP, a process of one host can put to, get from and update the segments of the other
 * host's processes by a TCP connection of its own. The process's host requests the connection over
 * the link; the other host answers with a card, whose token is valid for one connection within
 * TOKEN_NS. A request has access to the same segments as a frame with the same handle.
 *
 * Each address of this host with such links has one thread (client_tcp_serve.c). The thread reads
 * the table of segments as transfer threads do, so via_host_is_synced() also waits for it.
 */
struct via_host;
struct via_process;
struct via_attach_request;
struct via_attach_pending;

#define VIA_DIRECT_LISTENERS_MAX 4u /* addresses of this host */
/* Limit for each neighbour: connections and unused tokens. */
#define VIA_DIRECT_CONNS_OF_HOST_MAX 128u

/* Little-endian, as all messages between hosts. */
enum via_direct_type {
    VIA_DIRECT_REQUEST_CARD = 1,
    VIA_DIRECT_ANSWER = 2,
    VIA_DIRECT_REQUEST_POSITION = 3,
    VIA_DIRECT_POSITION = 4,
};

/* In REQUEST_CARD: the process keeps its puts, and requests the position when the connection has
 * ended. In ANSWER: the host knows positions. */
#define VIA_DIRECT_KEEPS UINT32_C(0x80000000)
#define VIA_DIRECT_UID_MASK UINT32_C(0x7fffffff)

struct via_direct_message {
    uint32_t type;
    uint32_t id;    /* of the request; its answer has the same */
    int32_t status; /* ANSWER, POSITION: 0, or negative errno */
    uint32_t whose; /* REQUEST_CARD: uid of the process, and VIA_DIRECT_KEEPS */
    union {
        struct via_tcp_card card; /* ANSWER; of REQUEST_POSITION, the token */
        struct {
            uint64_t position; /* bytes of requests that this host has applied */
            int32_t refusal;   /* as in struct via_attach_position; hosts of older versions
                                  report no refusal that an answer reports */
            uint32_t answered_bytes;
        } end; /* POSITION */
    };
};
_Static_assert(sizeof(struct via_direct_message) == 64, "no gaps");

enum via_direct_state {
    VIA_DIRECT_FREE,
    VIA_DIRECT_OFFERED, /* its token was sent, and is valid until slot.at_ns */
    VIA_DIRECT_OPEN,
    VIA_DIRECT_ENDED, /* at slot.at_ns; the position stays valid until the slot is reused */
};

/* A connection of a neighbour, from its token to its end. */
struct via_direct_slot {
    uint8_t token[VIA_TCP_TOKEN_BYTES];
    uint32_t uid; /* of the process, as its host has reported */
    uint16_t era;
    uint8_t state; /* enum via_direct_state */
    bool keeps;    /* the process keeps its puts: this host may end the idle connection when another
                      process wants one */
    bool unwanted; /* the process has requested the position: the connection ends now */
    bool idle;     /* the connection ends if it is idle */
    uint64_t at_ns;
    struct via_attach_position end;
};

struct via_direct_listener {
    struct via_host *host;
    char address[64];
    struct via_client_serve_calls calls;
    struct via_client_serve *serve;
    _Atomic bool inside;      /* its thread is in a turn ... */
    _Atomic uint64_t entered; /* ... and this was host->sync_target at the start of the turn */
};

/* State for one neighbour. */
struct via_direct_neighbour {
    uint32_t session;              /* [control] the neighbour's session that last got a card */
    uint16_t era;                  /* under lock: connections of earlier eras end */
    struct via_direct_slot *slots; /* under lock: VIA_DIRECT_CONNS_OF_HOST_MAX, or NULL */
};

struct via_host_direct {
    struct via_direct_listener listeners[VIA_DIRECT_LISTENERS_MAX];
    unsigned listeners_count; /* control thread */
    pthread_mutex_t lock;
    _Atomic uint32_t conns_count;
    struct via_direct_neighbour neighbours[VIA_HOSTS_MAX];
    _Atomic uint64_t refused_count; /* accesses with an invalid handle, or outside of the segment */
};

extern const struct via_host_service via_host_direct_service;

void via_host_direct_open(struct via_host *host);
void via_host_direct_close(struct via_host *host); /* ends the threads */

/* A process requests a connection to request->host. 0: the answer follows later; else the status
 * for the answer. */
int via_host_direct_request(struct via_process *process, const struct via_attach_request *request);
int via_host_direct_send_request(struct via_host *host, const struct via_attach_pending *pending,
                                 const struct via_attach_request *request);

/* Links have changed: ends connections of hosts that have no link over TCP any more. */
void via_host_direct_changed(struct via_host *host);
/* True if no thread is in a turn that began before the grace period. See via_host_sync(). */
bool via_host_direct_is_synced(const struct via_host *host, uint64_t target);
unsigned via_host_direct_conns(const struct via_host *host);

#endif
