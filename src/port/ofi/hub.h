/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A hub: the objects that all ofi links of a process with the same provider and listening address
 * share, which are libfabric's fabric, domain and event queue, the endpoint that listens, and a
 * thread. That thread connects, accepts, and makes progress for ports whose transfer threads sleep.
 *
 * Locks, outermost first: hub->lock, port->rx_lock, port->tx_lock. The hub's thread holds
 * hub->lock for a bounded turn and never while it sleeps.
 */
#ifndef VIA_PORT_OFI_HUB_H
#define VIA_PORT_OFI_HUB_H

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "base/log_limit.h"
#include "port/ofi/library.h"
#include "port/ofi/strangers.h"
#include "port/ofi/system.h"

#define VIA_OFI_PROVIDER_BYTES 24u
#define VIA_OFI_HOST_BYTES 96u
#define VIA_OFI_PORT_DEFAULT 7471u

/* HOST[:PORT] of a description. The text has brackets around an IPv6 address; `host` has none. */
struct via_ofi_place {
    char host[VIA_OFI_HOST_BYTES];
    uint16_t port;
};

struct via_ofi_hub {
    struct via_list link; /* in the table of hubs; hubs_lock guards it and `users` */
    unsigned users;

    /* --- constant --- */
    const struct via_ofi_library *library;
    char provider[VIA_OFI_PROVIDER_BYTES];
    struct via_ofi_place listen;
    struct fi_info *info; /* the provider's attributes */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    const struct via_ofi_system *system; /* borrowed */
    void *waiter;                        /* owned by the system */
    bool ordered;                        /* messages arrive after the writes before them */
    bool local_keys;                     /* memory is registered before it is sent from */
    size_t inject_bytes;

    pthread_mutex_t
        lock; /* guards all fields below, and those of ports and connections marked as the hub's */
    struct fid_pep *pep; /* NULL: this end is the connector of all links */
    struct via_list ports;
    struct via_list conns;
    uint64_t conns_made; /* number of the last connection */
    struct via_log_limit strangers;
    struct via_ofi_strangers silent; /* belongs to the hub's thread */
};

static inline uint64_t via_ofi_hub_now_ns(const struct via_ofi_hub *hub)
{
    return hub->system->now_ns(hub->system);
}

/* Finds or makes the hub, and adds a user. listens: peers connect to the caller. 0, or negative
 * errno and the reason in err. */
VIA_MUST_CHECK int via_ofi_hub_get(const struct via_ofi_system *system, const char *provider,
                                   const struct via_ofi_place *listen, bool listens,
                                   struct via_ofi_hub **ret_hub, struct via_error *err);
/* Removes a user, whose ports and connections are closed. */
void via_ofi_hub_put(struct via_ofi_hub *hub);

/* A turn of the hub's thread. Returns the time of the next turn; 0 = at once, VIA_NEVER_NS =
 * none. */
uint64_t via_ofi_hub_turn(struct via_ofi_hub *hub);

/* [any thread] Wakes the hub's thread for a turn. */
static inline void via_ofi_hub_kick(struct via_ofi_hub *hub)
{
    hub->system->kick(hub);
}

struct via_ofi_port;

/* [transfer thread] Called when the last thread stops polling a port whose connection the hub's
 * thread does not watch: makes the hub's thread watch the connection. Usually this needs no wake-up
 * of that thread. */
void via_ofi_hub_rest(struct via_ofi_port *port);

/* The libfabric info for a connection to address:port. 0, or negative errno. Free it. */
VIA_MUST_CHECK int via_ofi_hub_info(struct via_ofi_hub *hub, const char *address, uint16_t port,
                                    bool listens, struct fi_info **ret_info);

/* Registers memory under a new random key, or the provider's. 0, or negative errno. */
VIA_MUST_CHECK int via_ofi_hub_register(struct via_ofi_hub *hub, void *memory, size_t bytes,
                                        uint64_t access, struct fid_mr **ret_mr);

/* "ADDRESS:PORT" of a socket address; "" when it is none. */
void via_ofi_address_text(const void *address, size_t address_bytes, char *ret_text, size_t bytes);

#endif
