/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * In which order a set's connections are told. The kernel's are told in the order in which they
 * became ready, and programs rely on it: a client writes to one connection, then to another, and
 * both are served in this order. Here each entry is looked at, which says nothing of when it became
 * ready. So each record tells when it was written (stream.h), and what is ready is sorted by that;
 * what has been told before and still is ready, by when it was told.
 *
 * A look at many is not of one moment: who was looked at, is written to, and then somebody who was
 * not looked at yet, would be told after that one. So who has become ready only now is left for the
 * next time, when all that was written before it is there for all to see, as its writer had stored
 * that before. When there is nobody else to tell, those that were looked at before are looked at
 * again instead. And warm ones (epoll_cold.c) are not looked at each time: they are now. Both only
 * if the thread that wrote has written to others in the set meanwhile, which its record tells; in
 * that way whoever has one busy connection among many does not pay.
 *
 * In no order: cold ones while nobody sleeps; warm ones if another thread has written to them, for
 * WARM_US; connections to other hosts, whose clocks are others; and ours among the kernel's.
 */
#include "base/bits.h"
#include "sockets/epoll/epoll_internal.h"
#include "sockets/io/io_internal.h"
#include "sockets/stream/stream_quick.h"

/* Written so long before a look begins, or longer, it was there for all to see: ticks of 1 us, a
 * part of it. A store takes less to be seen. */
#define LATE_PART 4u
/* When enough have been found, so many are looked at nevertheless. */
#define LOOKS_MIN 64u

/* Counters may begin anywhere. */
static bool is_later(uint64_t ticks, uint64_t other)
{
    return (int64_t)(ticks - other) > 0;
}

/* When it became ready, which it is, as far as is known. */
static uint64_t became_ready(const struct via_ep_entry *entry, struct via_ep_found *found)
{
    const struct via_stream_rx *rx = &entry->conn->side->rx;
    uint32_t sequence = rx->pipe.sequence;
    uint64_t written;
    if ((entry->events & EPOLLET) != 0 && via_seq_is_before_u32(sequence, entry->told.sequence)) {
        sequence = entry->told.sequence;
    }
    if (!via_conn_is_local(entry->conn) || rx->held ||
        !via_stream_rx_written(rx, sequence, found->now, &written, &found->others)) {
        return entry->told_ticks;
    }
    return is_later(written, entry->told_ticks) ? written : entry->told_ticks;
}

/* Behind those that became ready before it, which are most: entries come in the order in which they
 * were told last. There is room for it. */
static void put(struct via_ep_found *found, struct via_ep_entry *entry, uint64_t ticks)
{
    unsigned place = found->count++;
    if (place == found->next || is_later(ticks, found->last)) {
        found->last = ticks;
        found->before = found->looks;
    }
    while (place > found->next && is_later(found->ready[place - 1].ticks, ticks)) {
        found->ready[place] = found->ready[place - 1];
        place--;
    }
    found->ready[place] = (struct via_ep_ready){.entry = entry, .ticks = ticks};
    entry->found = true;
}

/* All that are ready among the hot ones; when there are max, of many. */
static void find_ready_hot(struct via_ep_set *set, struct via_ep_found *found, unsigned max)
{
    via_list_foreach_safe(it, &set->entries[VIA_EP_HOT]) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_set);
        if (found->count == VIA_EP_FOUND_MAX ||
            (found->count >= max && found->looks >= LOOKS_MIN)) {
            break;
        }
        if (via_ep_is_quiet(entry)) {
            via_ep_cool(entry);
        } else {
            put(found, entry, became_ready(entry, found));
        }
        found->looks++;
    }
}

/* Those of the first so many that have become ready meanwhile, and before others that are found. */
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
                put(found, entry, ticks);
            }
        }
    }
}

void via_ep_find(struct via_ep_set *set, struct via_ep_found *found, unsigned max, bool all)
{
    found->now = via_os_ticks();
    found->count = 0;
    found->next = 0;
    found->looks = 0;
    found->again = false;
    found->others = false;
    find_ready_hot(set, found, max);
    if (found->others && !all) {
        find_ready_again(set, VIA_EP_WARM, found, set->warm_count);
    }
}

struct via_ep_entry *via_ep_next(struct via_ep_set *set, struct via_ep_found *found, bool told)
{
    uint64_t late = found->now - via_os_us_to_ticks(1) / LATE_PART;
    if (found->next == found->count) {
        return NULL;
    }
    if (!found->again && is_later(found->ready[found->next].ticks, late)) {
        if (told) {
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
