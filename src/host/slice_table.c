/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/slice_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Shortest interval between two polls of busy words. */
#define SAMPLE_NS VIA_MSEC_NS

int via_slice_table_init(struct via_slice_table *table, uint32_t count, bool detaches,
                         _Atomic uint64_t *words)
{
    *table = (struct via_slice_table){.detaches = detaches, .words = words};
    table->entries = calloc(count != 0 ? count : 1, sizeof(*table->entries));
    if (table->entries == NULL) {
        return -ENOMEM;
    }
    table->count = count;
    for (uint32_t i = 0; i < count; i++) {
        via_list_init(&table->entries[i].users);
    }
    return 0;
}

void via_slice_table_fini(struct via_slice_table *table)
{
    free(table->entries);
    table->entries = NULL;
    table->count = 0;
}

void via_slice_user_init(struct via_slice_user *user, uid_t uid, const _Atomic uint64_t *busy)
{
    *user = (struct via_slice_user){.slice = VIA_SLICE_NONE, .uid = uid, .busy = busy};
    via_list_init(&user->link);
}

uint32_t via_slice_table_find(const struct via_slice_table *table,
                              const struct via_slice_piece *piece)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct via_slice_entry *entry = &table->entries[i];
        if ((entry->state == VIA_SLICE_OPEN || entry->state == VIA_SLICE_REQUESTED) &&
            entry->piece.handle == piece->handle && entry->piece.index == piece->index) {
            return i;
        }
    }
    return VIA_SLICE_NONE;
}

uint32_t via_slice_table_open_count(const struct via_slice_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        count += table->entries[i].state == VIA_SLICE_OPEN;
    }
    return count;
}

uint32_t via_slice_table_requested_count(const struct via_slice_table *table, uid_t uid)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct via_slice_entry *entry = &table->entries[i];
        count += entry->state == VIA_SLICE_REQUESTED && entry->requested_uid == uid;
    }
    return count;
}

/* --- users ------------------------------------------------------------------------------------ */

static uint64_t busy_word(const struct via_slice_user *user)
{
    /* Sequentially consistent, like the store to the slice's word before it: see slice_table.h. */
    return atomic_load_explicit(user->busy, memory_order_seq_cst);
}

static bool is_in_burst(const struct via_slice_user *user)
{
    return (busy_word(user) & 0xffff) != 0;
}

static bool is_any_in_burst(const struct via_slice_entry *entry)
{
    via_list_foreach(it, &entry->users) {
        if (is_in_burst(via_list_entry(it, struct via_slice_user, link))) {
            return true;
        }
    }
    return false;
}

static void drop_users(struct via_slice_entry *entry)
{
    via_list_foreach_safe(it, &entry->users) {
        struct via_slice_user *user = via_list_entry(it, struct via_slice_user, link);
        via_list_remove(&user->link);
        user->slice = VIA_SLICE_NONE;
    }
}

static void set_free(struct via_slice_entry *entry)
{
    drop_users(entry);
    entry->state = VIA_SLICE_FREE;
}

static void free_if_quiet(struct via_slice_entry *entry)
{
    if (entry->state == VIA_SLICE_LEAVING && !is_any_in_burst(entry)) {
        set_free(entry);
    }
}

static void settle_entry(const struct via_slice_table *table, struct via_slice_entry *entry,
                         uint64_t now_ns)
{
    free_if_quiet(entry);
    if (entry->state != VIA_SLICE_LEAVING) {
        return;
    }
    if (entry->busy_ns == 0) {
        entry->busy_ns = now_ns;
    } else if (table->detaches && now_ns - entry->busy_ns >= VIA_SLICE_GRACE_NS) {
        set_free(entry);
    }
}

uint32_t via_slice_table_settle(struct via_slice_table *table, uint64_t now_ns)
{
    uint32_t leaving = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        settle_entry(table, &table->entries[i], now_ns);
        leaving += table->entries[i].state == VIA_SLICE_LEAVING;
    }
    return leaving;
}

void via_slice_table_join(struct via_slice_table *table, uint32_t slice,
                          struct via_slice_user *user)
{
    struct via_slice_entry *entry = &table->entries[slice];
    assert(entry->state == VIA_SLICE_OPEN && user->slice == VIA_SLICE_NONE);
    user->slice = slice;
    user->bursts_seen = busy_word(user) >> 16;
    via_list_push_back(&entry->users, &user->link);
}

void via_slice_table_leave(struct via_slice_table *table, struct via_slice_user *user)
{
    if (user->slice != VIA_SLICE_NONE) {
        struct via_slice_entry *entry = &table->entries[user->slice];
        via_list_remove(&user->link);
        user->slice = VIA_SLICE_NONE;
        free_if_quiet(entry);
    }
}

/* --- opening and revoking --------------------------------------------------------------------- */

static void set_word(struct via_slice_table *table, uint32_t slice, uint64_t word)
{
    /* Sequentially consistent: before the load of busy words. Pairs with the acquire of
     * processes. */
    atomic_store_explicit(&table->words[slice], word, memory_order_seq_cst);
}

void via_slice_table_open(struct via_slice_table *table, uint32_t slice, uint64_t life,
                          uint64_t now_ns)
{
    struct via_slice_entry *entry = &table->entries[slice];
    assert(entry->state == VIA_SLICE_REQUESTED && life != 0);
    entry->state = VIA_SLICE_OPEN;
    entry->used_ns = now_ns;
    set_word(table, slice, life);
}

void via_slice_table_revoke(struct via_slice_table *table, uint32_t slice, bool gone)
{
    struct via_slice_entry *entry = &table->entries[slice];
    if (entry->state == VIA_SLICE_FREE || entry->state == VIA_SLICE_LEAVING) {
        return;
    }
    uint64_t life = entry->state == VIA_SLICE_OPEN
                        ? atomic_load_explicit(&table->words[slice], memory_order_relaxed)
                        : 0;
    set_word(table, slice, gone && life != 0 ? life | VIA_SLICE_GONE : 0);
    entry->state = VIA_SLICE_LEAVING;
    entry->busy_ns = 0;
    free_if_quiet(entry);
}

void via_slice_table_revoke_all(struct via_slice_table *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        via_slice_table_revoke(table, i, false);
    }
}

/* --- making room ------------------------------------------------------------------------------ */

/* Marks the slices that were used since the last call. */
static void sample(struct via_slice_table *table, uint64_t now_ns)
{
    if (table->sampled_ns != 0 && now_ns - table->sampled_ns < SAMPLE_NS) {
        return;
    }
    table->sampled_ns = now_ns;
    for (uint32_t i = 0; i < table->count; i++) {
        struct via_slice_entry *entry = &table->entries[i];
        if (entry->state != VIA_SLICE_OPEN) {
            continue;
        }
        via_list_foreach(it, &entry->users) {
            struct via_slice_user *user = via_list_entry(it, struct via_slice_user, link);
            uint64_t bursts = busy_word(user) >> 16;
            if (bursts != user->bursts_seen) {
                user->bursts_seen = bursts;
                entry->used_ns = now_ns;
            }
        }
    }
}

static bool has_user_of(const struct via_slice_entry *entry, uid_t uid)
{
    via_list_foreach(it, &entry->users) {
        if (via_list_entry(it, struct via_slice_user, link)->uid == uid) {
            return true;
        }
    }
    return false;
}

static bool is_kept_for(const struct via_slice_entry *entry, uid_t uid, uint64_t now_ns)
{
    return entry->kept_uid == uid && entry->kept_until_ns > now_ns;
}

/* Number of slices through which processes of this uid may store, or that they have requested, or
 * that are kept for them until other users have left. If the last kind did not count, a user who
 * keeps requesting slices without getting them would have no share, and would take all but one
 * slice from all other users. */
static uint32_t share_of(const struct via_slice_table *table, uid_t uid, uint64_t now_ns)
{
    uint32_t share = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct via_slice_entry *entry = &table->entries[i];
        switch (entry->state) {
        case VIA_SLICE_REQUESTED:
            share += entry->requested_uid == uid;
            break;
        case VIA_SLICE_OPEN:
            share += has_user_of(entry, uid);
            break;
        default:
            share += is_kept_for(entry, uid, now_ns);
        }
    }
    return share;
}

/* The uid that all users of the slice have. False: the slice has no users, or users with several
 * uids. */
static bool find_holder(const struct via_slice_entry *entry, uid_t *ret_uid)
{
    struct via_list *first = via_list_first(&entry->users);
    if (first == NULL) {
        return false;
    }
    *ret_uid = via_list_entry(first, struct via_slice_user, link)->uid;
    via_list_foreach(it, &entry->users) {
        if (via_list_entry(it, struct via_slice_user, link)->uid != *ret_uid) {
            return false;
        }
    }
    return true;
}

bool via_slice_table_is_only_of(const struct via_slice_table *table, uint32_t slice, uid_t uid)
{
    uid_t holder;
    return find_holder(&table->entries[slice], &holder) && holder == uid;
}

static bool is_older(const struct via_slice_table *table, uint32_t slice, uint32_t than)
{
    return than == VIA_SLICE_NONE || table->entries[slice].used_ns < table->entries[than].used_ns;
}

/* The least recently used slice that is not in use. VIA_SLICE_NONE: all are in use. */
static uint32_t find_idle(const struct via_slice_table *table, uint64_t now_ns)
{
    uint32_t victim = VIA_SLICE_NONE;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct via_slice_entry *entry = &table->entries[i];
        bool rests =
            via_list_is_empty(&entry->users) || now_ns - entry->used_ns >= VIA_SLICE_REST_NS;
        if (entry->state == VIA_SLICE_OPEN && rests && !is_any_in_burst(entry) &&
            is_older(table, i, victim)) {
            victim = i;
        }
    }
    return victim;
}

/* The least recently used slice of another uid whose share exceeds the share of this uid by at
 * least two. */
static uint32_t find_unfair(const struct via_slice_table *table, uid_t uid, uint64_t now_ns)
{
    uint32_t victim = VIA_SLICE_NONE;
    uint32_t share = share_of(table, uid, now_ns);
    uid_t known = uid; /* the uid whose share was counted last */
    uint32_t known_share = share;
    for (uint32_t i = 0; i < table->count; i++) {
        uid_t holder;
        if (table->entries[i].state != VIA_SLICE_OPEN ||
            !find_holder(&table->entries[i], &holder)) {
            continue;
        }
        if (holder != known) {
            known = holder;
            known_share = share_of(table, holder, now_ns);
        }
        if (known_share > share + 1 && is_older(table, i, victim)) {
            victim = i;
        }
    }
    return victim;
}

static uint32_t find_free(const struct via_slice_table *table, uid_t uid, uint64_t now_ns)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct via_slice_entry *entry = &table->entries[i];
        if (entry->state == VIA_SLICE_FREE &&
            (entry->kept_uid == uid || entry->kept_until_ns <= now_ns)) {
            return i;
        }
    }
    return VIA_SLICE_NONE;
}

int via_slice_table_take(struct via_slice_table *table, const struct via_slice_piece *piece,
                         uid_t uid, uint64_t now_ns, uint32_t *ret_slice)
{
    (void)via_slice_table_settle(table, now_ns);
    uint32_t slice = find_free(table, uid, now_ns);
    if (slice == VIA_SLICE_NONE) {
        sample(table, now_ns);
        uint32_t victim = find_idle(table, now_ns);
        if (victim == VIA_SLICE_NONE) {
            victim = find_unfair(table, uid, now_ns);
            if (victim != VIA_SLICE_NONE) {
                table->entries[victim].kept_uid = uid;
                table->entries[victim].kept_until_ns = now_ns + VIA_SLICE_KEEP_NS;
            }
        }
        if (victim != VIA_SLICE_NONE) {
            table->evicted_count++;
            via_slice_table_revoke(table, victim, false);
        }
        slice = find_free(table, uid, now_ns); /* none if the victim's users are in a burst */
    }
    if (slice == VIA_SLICE_NONE) {
        table->refused_count++;
        return -EAGAIN;
    }
    struct via_slice_entry *entry = &table->entries[slice];
    entry->state = VIA_SLICE_REQUESTED;
    entry->piece = *piece;
    entry->requested_uid = uid;
    entry->kept_until_ns = 0;
    *ret_slice = slice;
    return 0;
}
