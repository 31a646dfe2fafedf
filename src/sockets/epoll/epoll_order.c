/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The order in which epoll_wait() reports the connections of a set. The kernel reports its
 * descriptors in the order in which they became ready, and programs rely on it: a client writes to
 * one connection, then to another, and the server serves both in this order. This library checks
 * each entry, and a check does not show when the entry became ready. So each record holds the time
 * at which it was written (stream.h), and ready entries are sorted by that time; entries that were
 * reported before and are still ready are sorted by the time of that report.
 *
 * A check of many entries takes time. Suppose a client writes to an entry that was checked already,
 * and then to one that was not: the second would be reported first. So an entry that became ready
 * during the check is left for the next call, when all earlier records are visible. If that leaves
 * nothing to report, this call checks the entries again, and the warm ones (epoll_cold.c), which
 * other calls seldom check. It does both only if the thread that wrote has written to other
 * connections of the set in between, which a flag of its record indicates (VIA_STREAM_OTHERS); so
 * these checks cost nothing in a program with one busy connection among many.
 *
 * Not sorted: cold entries while no thread sleeps; warm entries to which another thread has
 * written, until the next check of all warm entries (WARM_US); connections to other hosts, whose
 * clocks differ; and connections with pipes relative to descriptors that the kernel reports.
 */
#include "base/bits.h"
#include "sockets/epoll/epoll_internal.h"
#include "sockets/io/io_internal.h"
#include "sockets/stream/stream_quick.h"

/* A record is visible to a check that begins 1/LATE_PART us after the record was written: a store
 * takes less time to become visible. */
#define LATE_PART 4u
/* Minimum of entries that are checked, even if enough ready ones have been found. */
#define POLLS_MIN 64u

/* Compares counters, which may start at any value. */
static bool is_later(uint64_t ticks, uint64_t other)
{
    return (int64_t)(ticks - other) > 0;
}

/* When the entry became ready, from the records that it has already read. */
static uint64_t became_ready(const struct via_ep_entry *entry, struct via_ep_found *found)
{
    const struct via_stream_rx *rx = &entry->conn->side->rx;
    uint32_t sequence = rx->pipe.sequence;
    uint64_t written;
    if ((entry->events & EPOLLET) != 0 &&
        via_seq_is_before_u32(sequence, entry->reported.sequence)) {
        sequence = entry->reported.sequence;
    }
    if (!via_conn_is_local(entry->conn) || rx->held ||
        !via_stream_rx_read_time(rx, sequence, found->now, &written, &found->others)) {
        return entry->reported_ticks;
    }
    return is_later(written, entry->reported_ticks) ? written : entry->reported_ticks;
}

/* Inserts the entry behind those that became ready before it. The search begins at the end, because
 * entries come in the order in which they were last reported. The caller has checked for room. */
static void insert(struct via_ep_found *found, struct via_ep_entry *entry, uint64_t ticks)
{
    unsigned place = found->count++;
    if (place == found->next || is_later(ticks, found->last)) {
        found->last = ticks;
        found->before = found->polls;
    }
    while (place > found->next && is_later(found->ready[place - 1].ticks, ticks)) {
        found->ready[place] = found->ready[place - 1];
        place--;
    }
    found->ready[place] = (struct via_ep_ready){.entry = entry, .ticks = ticks};
    entry->found = true;
}

/* Finds all ready entries among the hot ones; stops when it has found max and checked POLLS_MIN. */
static void find_ready_hot(struct via_ep_set *set, struct via_ep_found *found, unsigned max)
{
    via_list_foreach_safe(it, &set->entries[VIA_EP_HOT]) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_set);
        if (found->count == VIA_EP_FOUND_MAX ||
            (found->count >= max && found->polls >= POLLS_MIN)) {
            break;
        }
        if (via_ep_is_quiet(entry)) {
            via_ep_cool(entry);
        } else {
            insert(found, entry, became_ready(entry, found));
        }
        found->polls++;
    }
}

/* Checks the first `most` entries of a list again, and adds those that became ready before the last
 * one of the result did. */
static void find_ready_again(struct via_ep_set *set, enum via_ep_place place,
                             struct via_ep_found *found, unsigned most)
{
    uint64_t last = found->last;
    via_list_foreach_safe(it, &set->entries[place]) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_set);
        if (most-- == 0 || found->count == VIA_EP_FOUND_MAX) {
            break;
        }
        if (!entry->found && !via_ep_is_quiet(entry)) {
            uint64_t ticks = became_ready(entry, found);
            if (!is_later(ticks, last)) {
                via_ep_make_hot(entry);
                insert(found, entry, ticks);
            }
        }
    }
}

void via_ep_find(struct via_ep_set *set, struct via_ep_found *found, unsigned max, bool all)
{
    found->now = via_os_ticks();
    found->count = 0;
    found->next = 0;
    found->polls = 0;
    found->again = false;
    found->others = false;
    find_ready_hot(set, found, max);
    if (found->others && !all) {
        find_ready_again(set, VIA_EP_WARM, found, set->warm_count);
    }
}

struct via_ep_entry *via_ep_next(struct via_ep_set *set, struct via_ep_found *found, bool reported)
{
    uint64_t late = found->now - via_os_us_to_ticks(1) / LATE_PART;
    if (found->next == found->count) {
        return NULL;
    }
    if (!found->again && is_later(found->ready[found->next].ticks, late)) {
        if (reported) {
            return NULL;
        }
        found->again = true;
        if (found->others) {
            find_ready_again(set, VIA_EP_HOT, found, found->before);
            find_ready_again(set, VIA_EP_WARM, found, set->warm_count);
        }
    }
    return found->ready[found->next++].entry;
}

void via_ep_found_end(struct via_ep_found *found)
{
    for (unsigned i = 0; i < found->count; i++) {
        found->ready[i].entry->found = false;
    }
}
