/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_TRANSFER_H
#define VIA_HOST_HOST_TRANSFER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/list.h"
#include "base/types.h"
#include "core/node.h"
#include "host/attach_wire.h"
#include "host/host_wait.h"
#include "host/tenant.h"

/*
 * The transfer thread of a channel: polls the node, serves the command pipes of the processes, and
 * sleeps on its bell.
 * The pipes of a process are in one of two lists. `active`: polled in every turn. `idle`: armed, so
 * the process rings when it writes; polled only after the bell has rung. Both lists and their
 * entries belong to the thread; other threads send mail.
 */
struct via_host;
struct via_transfer;
struct via_process_channel;

/* A task for a transfer thread between two turns. The sender keeps the memory until it is
 * handled. */
struct via_mail {
    struct via_list link;
    void (*handle)(struct via_transfer *transfer, struct via_mail *mail);
};

struct via_transfer {
    struct via_host *host;
    unsigned channel;
    struct via_bell *bell;
    pthread_t thread;
    bool started;

    pthread_mutex_t mail_lock;
    struct via_list mail;    /* under mail_lock */
    _Atomic bool mail_there; /* hint; the sender rings the bell after setting it */
    _Atomic uint64_t synced; /* newest via_host.sync_target that this thread has passed */

    /* Only the thread uses the following fields. */
    struct via_list active;
    struct via_list idle;
    struct via_list
        touched; /* have replies to send or commands to release at the end of the turn */
    struct via_list starved;              /* wait for room in their reply pipe */
    struct via_process_channel **by_slot; /* processes_max; by slot in the owner bits of a cookie */
    uint32_t *flows_taken;                /* flows that users have, by host: host/flow_share.h */
    struct via_list sends;                /* messages of the host itself not yet submitted */
    uint32_t parked_count;                /* commands, of all processes */
    /* By tenant.bells_index: parked commands. */
    uint32_t tenant_parked_counts[VIA_TENANTS_MAX];
    uint32_t bell_seen; /* count of the bell at the last load */
    uint32_t tenant_bells_seen[VIA_TENANTS_MAX];
    struct via_host_wait wait;
    bool polls_unrung; /* the last sleep ended without a bell */
    bool unannounced;  /* after such a sleep the thread found work, and no bell has rung since */
    _Atomic uint64_t bells_missed;
};

int via_transfer_init(struct via_transfer *transfer, struct via_host *host, unsigned channel,
                      struct via_error *err);
int via_transfer_start(struct via_transfer *transfer, struct via_error *err);
void via_transfer_join(struct via_transfer *transfer); /* after via_host.stopping is set */
void via_transfer_fini(struct via_transfer *transfer);

/* [any] Handled in order; wakes the thread. */
void via_transfer_post(struct via_transfer *transfer, struct via_mail *mail);
/* [any] Number of times that polling after a sleep without a bell found records or commands. */
uint64_t via_host_bells_missed(const struct via_host *host);

#endif
