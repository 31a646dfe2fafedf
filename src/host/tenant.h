/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_TENANT_H
#define VIA_HOST_TENANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"
#include "host/flow_share.h"
#include "host/host.h"
#include "host/host_memory.h"
#include "port/bell.h"

/*
 * The users whose processes are attached to a host: the resources, quotas and bell page of each.
 *
 * A process wakes the transfer threads by words that both sides change. The words of the host's own
 * page are shared with the neighbours and with processes of the owner and of root; every other user
 * gets a page of its own, so what its processes write there disturbs no other user.
 *
 * The owner and root have no quotas: they can stop the host.
 */
struct via_transfer;

/* With the host's own page as many as futex_waitv(2) takes. */
#define VIA_TENANTS_MAX 127u

struct via_tenant {
    struct via_list link; /* tenants.all or tenants.leaving */
    uid_t uid;
    bool exempt;
    uint32_t holds_count; /* processes and segments that reference it */
    uint32_t processes_count;
    uint32_t pipes_count; /* pairs of a command pipe and a reply pipe */
    uint32_t segments_count;
    uint64_t memory_bytes; /* of these segments */
    /* Removed, but a command still uses their memory. */
    uint32_t removed_count;
    uint64_t removed_bytes;
    uint32_t endpoints_count;
    uint32_t requests_count; /* requests to other hosts without an answer so far, notes included */
    uint32_t posts_count;
    uint32_t stranded_count;      /* ended processes with puts, see attach_server_process.c */
    struct via_host_memory bells; /* fd -1: the host's own page */
    uint32_t bells_index;         /* if it is not exempt */
    /* [transfer threads] By channel, then by host: each thread has its part. */
    struct via_flow_share *flow_shares;
    uint64_t sync; /* leaving: the grace period to wait for */
};

struct via_tenants {
    struct via_list all;
    struct via_list leaving; /* transfer threads may still load their bells */
    uint32_t count;          /* users with their own page, also those that leave */
    struct via_quota quota;  /* of each user, without zeros */
    /* [any] Bell pages by index; NULL = free. A page is unmapped a grace period after its removal
     * from this array. */
    _Atomic(struct via_bell *) bells[VIA_TENANTS_MAX];
    _Atomic uint32_t bells_end; /* [any] indices from here on were never used */
};

void via_tenants_open(struct via_host *host);
/* After the quota of the host's options has changed: users keep what exceeds the new quota. */
void via_tenants_requota(struct via_host *host);
void via_tenants_close(struct via_host *host);
/* Frees users that have left, once no thread uses their bells. Returns the next deadline. */
uint64_t via_tenants_tick(struct via_host *host);

/* Finds or makes the tenant of a user, and takes a reference. -EUSERS, -ENOMEM and errors of
 * via_host_memory_open(). */
int via_tenant_hold(struct via_host *host, uid_t uid, struct via_tenant **ret_tenant,
                    struct via_error *err);
void via_tenant_release(struct via_host *host, struct via_tenant *tenant);

/* The descriptor of the bell page that its processes get. */
int via_tenant_bells_fd(const struct via_host *host, const struct via_tenant *tenant);

/* Charges the resources of a process or a segment. -EDQUOT: more than the user may have; the text
 * names the user, the quota and its value. */
int via_tenant_add_process(const struct via_host *host, struct via_tenant *tenant, uint32_t pipes,
                           struct via_error *err);
void via_tenant_remove_process(struct via_tenant *tenant, uint32_t pipes);
int via_tenant_add_segment(const struct via_host *host, struct via_tenant *tenant, uint64_t bytes,
                           struct via_error *err);
/* A segment is removed from the table; commands may still use its memory. */
void via_tenant_remove_segment(struct via_tenant *tenant, uint64_t bytes);
void via_tenant_free_segment(struct via_tenant *tenant, uint64_t bytes, bool removed);

/* All users share `all_max` items: may this user, which has `count`, have one more? */
bool via_tenant_is_take_allowed(const struct via_tenant *tenant, uint32_t count, uint32_t all_max);

/* The limit of this user's notes on the host's board. */
uint32_t via_tenant_notes_max(const struct via_host *host, uid_t uid);

/* --- of a transfer thread: its bells, one in each page --------------------------------------- */

/* Has a bell been rung since via_tenant_bells_note()? */
bool via_tenant_bells_have_rung(struct via_transfer *transfer);
/* Stores the present counts of the bells. */
void via_tenant_bells_note(struct via_transfer *transfer);

/* Sleeps until a bell has rung since via_tenant_bells_note(), or until the deadline. */
void via_tenant_bells_sleep(struct via_transfer *transfer, uint64_t deadline_ns);

#endif
