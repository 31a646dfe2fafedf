/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The users of a host: their resources and quotas. */
#include "host/tenant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/control_rights.h"
#include "host/host_private.h"

/* By default one user gets at most 1/SHARE of a table that all users share. */
#define SHARE 2u

static struct via_quota quota_of(const struct via_host *host)
{
    struct via_quota quota = host->options.quota;
    uint32_t channels = host->config.channels_count;
    uint64_t memory_bytes =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / SHARE;
    if (quota.segments == 0) {
        /* Each segment also needs a descriptor of this process. */
        struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
        getrlimit(RLIMIT_NOFILE, &limit);
        quota.segments = (uint32_t)via_min((rlim_t)host->config.segments_count,
                                           via_max(limit.rlim_cur / 2, (rlim_t)SHARE)) /
                         SHARE;
    }
    quota.memory_bytes = quota.memory_bytes != 0 ? quota.memory_bytes : memory_bytes;
    quota.pipes = quota.pipes != 0 ? quota.pipes
                                   : via_max(host->options.processes_max / SHARE, 1u) * channels;
    quota.notes = quota.notes != 0 ? quota.notes : VIA_BOARD_NOTES_MAX / SHARE;
    return quota;
}

void via_tenants_open(struct via_host *host)
{
    struct via_tenants *tenants = &host->tenants;
    via_list_init(&tenants->all);
    via_list_init(&tenants->leaving);
    tenants->quota = quota_of(host);
}

static void free_tenant(struct via_host *host, struct via_tenant *tenant)
{
    via_list_remove(&tenant->link);
    if (tenant->bells.base != NULL) {
        via_host_memory_close(&tenant->bells);
        host->tenants.count--;
    }
    free(tenant->flow_shares);
    free(tenant);
}

void via_tenants_close(struct via_host *host)
{
    struct via_tenants *tenants = &host->tenants;
    if (tenants->all.next == NULL) {
        return;
    }
    via_list_splice_back(&tenants->leaving, &tenants->all);
    via_list_foreach_safe(it, &tenants->leaving) {
        free_tenant(host, via_list_entry(it, struct via_tenant, link));
    }
}

uint64_t via_tenants_tick(struct via_host *host)
{
    via_list_foreach_safe(it, &host->tenants.leaving) {
        struct via_tenant *tenant = via_list_entry(it, struct via_tenant, link);
        if (via_host_is_synced(host, tenant->sync)) {
            free_tenant(host, tenant);
        }
    }
    return VIA_NEVER_NS; /* the threads poke this thread when they are synced */
}

/* --- users that arrive and leave -------------------------------------------------------------- */

static int open_bells(struct via_host *host, struct via_tenant *tenant, struct via_error *err)
{
    struct via_tenants *tenants = &host->tenants;
    uint32_t index = 0;
    while (index < VIA_TENANTS_MAX &&
           atomic_load_explicit(&tenants->bells[index], memory_order_relaxed) != NULL) {
        index++;
    }
    if (index == VIA_TENANTS_MAX || tenants->count == VIA_TENANTS_MAX) {
        return via_error_set(err, -EUSERS, "processes of %u users are attached already",
                             VIA_TENANTS_MAX);
    }
    int rc = via_host_memory_open(&tenant->bells, "viaduct-bells-of-user",
                                  VIA_BELL_LINES_MAX * sizeof(struct via_bell), false, err);
    if (rc != 0) {
        return rc;
    }
    tenants->count++;
    tenant->bells_index = index;
    /* Both stores pair with the acquires in bell_of() and bells_end(). */
    atomic_store_explicit(&tenants->bells[index], tenant->bells.base, memory_order_release);
    uint32_t end = atomic_load_explicit(&tenants->bells_end, memory_order_relaxed);
    atomic_store_explicit(&tenants->bells_end, via_max(end, index + 1), memory_order_release);
    return 0;
}

static struct via_tenant *find(const struct via_host *host, uid_t uid)
{
    via_list_foreach(it, &host->tenants.all) {
        struct via_tenant *tenant = via_list_entry(it, struct via_tenant, link);
        if (tenant->uid == uid) {
            return tenant;
        }
    }
    return NULL;
}

int via_tenant_hold(struct via_host *host, uid_t uid, struct via_tenant **ret_tenant,
                    struct via_error *err)
{
    struct via_tenant *tenant = find(host, uid);
    if (tenant == NULL) {
        tenant = calloc(1, sizeof(*tenant));
        struct via_flow_share *shares =
            calloc((size_t)host->config.channels_count * host->config.hosts_max, sizeof(*shares));
        if (tenant == NULL || shares == NULL) {
            free(tenant);
            free(shares);
            return via_error_set(err, -ENOMEM, "user %u: %s", (unsigned)uid, strerror(ENOMEM));
        }
        tenant->flow_shares = shares;
        tenant->uid = uid;
        tenant->exempt = via_rights_is_owner(uid);
        tenant->bells.fd = -1;
        int rc = tenant->exempt ? 0 : open_bells(host, tenant, err);
        if (rc != 0) {
            free(shares);
            free(tenant);
            return rc;
        }
        via_list_push_back(&host->tenants.all, &tenant->link);
    }
    tenant->holds_count++;
    *ret_tenant = tenant;
    return 0;
}

void via_tenant_release(struct via_host *host, struct via_tenant *tenant)
{
    if (--tenant->holds_count != 0) {
        return;
    }
    if (tenant->exempt) {
        free_tenant(host, tenant);
        return;
    }
    /* The next user at this index gets another page, because the processes of this user may keep
     * this page mapped. */
    atomic_store_explicit(&host->tenants.bells[tenant->bells_index], NULL, memory_order_relaxed);
    tenant->sync = via_host_sync(host);
    via_list_remove(&tenant->link);
    via_list_push_back(&host->tenants.leaving, &tenant->link);
}

int via_tenant_bells_fd(const struct via_host *host, const struct via_tenant *tenant)
{
    return tenant->bells.fd >= 0 ? tenant->bells.fd : host->bells.fd;
}

void via_tenants_requota(struct via_host *host)
{
    host->tenants.quota = quota_of(host);
}

/* --- quotas ---------------------------------------------------------------------------------- */

static int refuse_quota(const struct via_host *host, const struct via_tenant *tenant,
                        const char *what, uint64_t max, struct via_error *err)
{
    return via_error_set(err, -EDQUOT, "user %u is at its quota of %s on host %u: %llu",
                         (unsigned)tenant->uid, what, host->config.host, (unsigned long long)max);
}

int via_tenant_add_process(const struct via_host *host, struct via_tenant *tenant, uint32_t pipes,
                           struct via_error *err)
{
    uint32_t max = host->tenants.quota.pipes;
    if (!tenant->exempt && (tenant->pipes_count > max || pipes > max - tenant->pipes_count)) {
        return refuse_quota(host, tenant, "pipes", max, err);
    }
    tenant->pipes_count += pipes;
    tenant->processes_count++;
    return 0;
}

void via_tenant_remove_process(struct via_tenant *tenant, uint32_t pipes)
{
    tenant->pipes_count -= pipes;
    tenant->processes_count--;
}

int via_tenant_add_segment(const struct via_host *host, struct via_tenant *tenant, uint64_t bytes,
                           struct via_error *err)
{
    const struct via_quota *quota = &host->tenants.quota;
    /* Removed memory that is still in use has a quota of its own, of the same size. So a program
     * that frees a segment and makes another one of that size does not wait for its last
     * command. */
    if (!tenant->exempt &&
        (tenant->segments_count >= quota->segments || tenant->removed_count >= quota->segments)) {
        return refuse_quota(host, tenant, "segments", quota->segments, err);
    }
    if (!tenant->exempt &&
        (bytes > quota->memory_bytes || tenant->memory_bytes > quota->memory_bytes - bytes ||
         tenant->removed_bytes > quota->memory_bytes)) {
        return refuse_quota(host, tenant, "bytes of memory", quota->memory_bytes, err);
    }
    tenant->segments_count++;
    tenant->memory_bytes += bytes;
    return 0;
}

void via_tenant_remove_segment(struct via_tenant *tenant, uint64_t bytes)
{
    tenant->segments_count--;
    tenant->memory_bytes -= bytes;
    tenant->removed_count++;
    tenant->removed_bytes += bytes;
}

void via_tenant_free_segment(struct via_tenant *tenant, uint64_t bytes, bool removed)
{
    if (removed) {
        tenant->removed_count--;
        tenant->removed_bytes -= bytes;
    } else {
        tenant->segments_count--;
        tenant->memory_bytes -= bytes;
    }
}

bool via_tenant_is_take_allowed(const struct via_tenant *tenant, uint32_t count, uint32_t all_max)
{
    return tenant->exempt || count < all_max / SHARE;
}

uint32_t via_tenant_notes_max(const struct via_host *host, uid_t uid)
{
    return via_rights_is_owner(uid) ? UINT32_MAX : host->tenants.quota.notes;
}
