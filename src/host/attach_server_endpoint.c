/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Endpoints: which process receives the messages for a number. Transfer threads read the table
 * without a lock, so a table never changes: each change makes a new table, and the old one lives
 * for a grace period. Endpoints are opened and closed rarely. */
#include <errno.h>
#include <stdlib.h>

#include "host/host_private.h"

#define ENTRIES_MIN 16u
#define ENDPOINTS_MAX 16384u

static uint32_t home_of(const struct via_endpoint_table *table, uint32_t number)
{
    return (number * UINT32_C(2654435769)) >> 7 & table->mask; /* Knuth's multiplicative hash */
}

const struct via_endpoint *via_endpoint_find(const struct via_endpoint_table *table,
                                             uint32_t number)
{
    /* At most half of the entries are used, so the search ends. */
    for (uint32_t i = home_of(table, number);; i = (i + 1) & table->mask) {
        if (table->entries[i].number == number) {
            return number != 0 ? &table->entries[i] : NULL;
        }
        if (table->entries[i].number == 0) {
            return NULL;
        }
    }
}

struct via_endpoint_table *via_endpoint_table_new(uint32_t count)
{
    uint32_t entries = ENTRIES_MIN;
    while (entries < 2 * count + 2) {
        entries *= 2;
    }
    struct via_endpoint_table *table =
        calloc(1, sizeof(*table) + entries * sizeof(struct via_endpoint));
    if (table != NULL) {
        table->mask = entries - 1;
    }
    return table;
}

static void insert(struct via_endpoint_table *table, uint32_t number, struct via_process *process)
{
    uint32_t i = home_of(table, number);
    while (table->entries[i].number != 0) {
        i = (i + 1) & table->mask;
    }
    table->entries[i] = (struct via_endpoint){.number = number, .process = process};
    table->count++;
}

static struct via_endpoint_table *current(const struct via_attach_server *server)
{
    return atomic_load_explicit(&server->endpoints, memory_order_relaxed);
}

static void publish_table(struct via_host *host, struct via_endpoint_table *table)
{
    struct via_attach_server *server = &host->attach;
    /* Release pairs with the acquire in find_endpoint(). */
    struct via_endpoint_table *old =
        atomic_exchange_explicit(&server->endpoints, table, memory_order_acq_rel);
    old->sync = via_host_sync(host);
    via_list_push_back(&server->retired, &old->retired);
}

/* A copy of the table without the endpoint `number` of `process`, or (number 0) without all its
 * endpoints. NULL: out of memory. */
static struct via_endpoint_table *copy_without(const struct via_endpoint_table *old,
                                               const struct via_process *process, uint32_t number)
{
    struct via_endpoint_table *table = via_endpoint_table_new(old->count + 1);
    for (uint32_t i = 0; table != NULL && i <= old->mask; i++) {
        const struct via_endpoint *entry = &old->entries[i];
        bool gone = entry->process == process && (number == 0 || entry->number == number);
        if (entry->number != 0 && !gone) {
            insert(table, entry->number, entry->process);
        }
    }
    return table;
}

int via_endpoint_open_for(struct via_process *process, uint32_t number)
{
    const struct via_endpoint_table *old = current(&process->host->attach);
    if (via_endpoint_find(old, number) != NULL) {
        return -EADDRINUSE;
    }
    if (old->count >= ENDPOINTS_MAX ||
        !via_tenant_is_take_allowed(process->tenant, process->tenant->endpoints_count,
                                    ENDPOINTS_MAX)) {
        return -ENOSPC;
    }
    struct via_endpoint_table *table = copy_without(old, NULL, 0);
    if (table == NULL) {
        return -ENOMEM;
    }
    insert(table, number, process);
    process->tenant->endpoints_count++;
    publish_table(process->host, table);
    return 0;
}

int via_endpoint_close_for(struct via_process *process, uint32_t number)
{
    const struct via_endpoint_table *old = current(&process->host->attach);
    const struct via_endpoint *entry = via_endpoint_find(old, number);
    if (entry == NULL || entry->process != process) {
        return -ENOENT;
    }
    struct via_endpoint_table *table = copy_without(old, process, number);
    if (table == NULL) {
        return -ENOMEM;
    }
    process->tenant->endpoints_count--;
    publish_table(process->host, table);
    return 0;
}

static bool has_any(const struct via_endpoint_table *table, const struct via_process *process)
{
    for (uint32_t i = 0; table->count != 0 && i <= table->mask; i++) {
        if (table->entries[i].number != 0 && table->entries[i].process == process) {
            return true;
        }
    }
    return false;
}

int via_endpoint_close_all_for(struct via_process *process)
{
    const struct via_endpoint_table *old = current(&process->host->attach);
    if (!has_any(old, process)) {
        return 0;
    }
    struct via_endpoint_table *table = copy_without(old, process, 0);
    if (table == NULL) {
        return -ENOMEM;
    }
    process->tenant->endpoints_count -= old->count - table->count;
    publish_table(process->host, table);
    return 0;
}

void via_endpoint_tables_reap(struct via_host *host)
{
    via_list_foreach_safe(it, &host->attach.retired) {
        struct via_endpoint_table *table = via_list_entry(it, struct via_endpoint_table, retired);
        if (!via_host_is_synced(host, table->sync)) {
            break; /* those after it were retired later */
        }
        via_list_remove(&table->retired);
        free(table);
    }
}

void via_endpoint_tables_free(struct via_attach_server *server)
{
    for (struct via_list *link; (link = via_list_pop_front(&server->retired)) != NULL;) {
        free(via_list_entry(link, struct via_endpoint_table, retired));
    }
    free(current(server));
    atomic_store_explicit(&server->endpoints, NULL, memory_order_relaxed);
}
