/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_DIRECT_H
#define VIA_HOST_HOST_DIRECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"
#include "host/client_tcp.h"
#include "host/host_message.h"

/*
 * Direct connections to a host (docs/adr/0073-direct-connections-to-hosts.md): a process of a
 * neighbour by a link over TCP puts to, gets from and updates the segments of this host's processes
 * by a TCP connection of its own. The neighbour's host asks for it, over the link; this one answers
 * with a card, whose token is good for one connection within TOKEN_NS. A request reaches what a
 * frame with the same handle reaches.
 *
 * One thread for each address of this host at which there are such links (client_tcp_serve.c). It
 * reads the table of segments as transfer threads do: via_host_is_synced() knows of it.
 */
struct via_host;
struct via_process;
struct via_attach_request;
struct via_attach_pending;

#define VIA_DIRECT_LISTENERS_MAX 4u /* addresses of this host */
/* Of a neighbour: connections, and tokens that were given out for one. */
#define VIA_DIRECT_CONNS_OF_HOST_MAX 128u

/* Little-endian, as all messages between hosts. */
enum via_direct_type {
    VIA_DIRECT_ASK = 1,
    VIA_DIRECT_ANSWER = 2,
    VIA_DIRECT_ASK_POSITION = 3,
    VIA_DIRECT_POSITION = 4,
};

/* Of ASK: the process can go on without the connection, and asks for the position then. Of ANSWER:
 * the host knows positions. */
#define VIA_DIRECT_KEEPS UINT32_C(0x80000000)
#define VIA_DIRECT_UID_MASK UINT32_C(0x7fffffff)

struct via_direct_message {
    uint32_t type;
    uint32_t id;    /* of the question */
    int32_t status; /* ANSWER, POSITION: 0, or negative errno */
    uint32_t whose; /* ASK: the user of the process, and VIA_DIRECT_KEEPS */
    union {
        struct via_tcp_card card; /* ANSWER; of ASK_POSITION, the token */
        struct {
            uint64_t position; /* bytes of requests that were applied */
            int32_t refusal;   /* the failure of one of them that no answer has reported */
        } end;                 /* POSITION */
    };
};
_Static_assert(sizeof(struct via_direct_message) == 64, "no gaps");

enum via_direct_state {
    VIA_DIRECT_FREE,
    VIA_DIRECT_OFFERED, /* its token was given out, and is good until slot.at_ns */
    VIA_DIRECT_OPEN,
    VIA_DIRECT_ENDED, /* at slot.at_ns; the position stays until the slot is used again */
};

/* A connection of a neighbour, from its token to its end. */
struct via_direct_slot {
    uint8_t token[VIA_TCP_TOKEN_BYTES];
    uint32_t uid; /* of the process, as its host tells */
    uint16_t era;
    uint8_t state; /* enum via_direct_state */
    bool
        keeps; /* the process goes on without it: it is ended when it is idle and others want one */
    bool unwanted; /* its process asks for the position: it ends now */
    bool idle;     /* it ends if it is idle */
    int32_t refusal;
    uint64_t at_ns;
    uint64_t position;
};

struct via_direct_listener {
    struct via_host *host;
    char address[64];
    struct via_client_serve_calls calls;
    struct via_client_serve *serve;
    _Atomic bool inside;      /* its thread is in a turn, which began when ... */
    _Atomic uint64_t entered; /* ... host->sync_target was this */
};

/* Of a neighbour. */
struct via_direct_neighbour {
    uint32_t session;              /* [control] in which it last got a card */
    uint16_t era;                  /* under lock: connections of earlier eras end */
    struct via_direct_slot *slots; /* under lock: VIA_DIRECT_CONNS_OF_HOST_MAX, or NULL */
};

struct via_host_direct {
    struct via_direct_listener listeners[VIA_DIRECT_LISTENERS_MAX];
    unsigned listeners_count; /* control thread */
    pthread_mutex_t lock;
    _Atomic uint32_t conns_count;
    struct via_direct_neighbour neighbours[VIA_HOSTS_MAX];
    _Atomic uint64_t refused_count; /* accesses with a wrong handle, or outside of the segment */
};

extern const struct via_host_service via_host_direct_service;

void via_host_direct_open(struct via_host *host);
void via_host_direct_close(struct via_host *host); /* ends the threads */

/* A process wants a connection to request->host. 0: it is answered later; else the status. */
int via_host_direct_request(struct via_process *process, const struct via_attach_request *request);
int via_host_direct_ask(struct via_host *host, const struct via_attach_pending *pending,
                        const struct via_attach_request *request);

/* Links have changed: connections of hosts that may have none any more are ended. */
void via_host_direct_changed(struct via_host *host);
/* Is no thread in a turn that began before the grace period? See via_host_sync(). */
bool via_host_direct_is_synced(const struct via_host *host, uint64_t target);
unsigned via_host_direct_conns(const struct via_host *host);

#endif
