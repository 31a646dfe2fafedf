/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sets with many connections of which few are busy. A check of a connection touches one or two
 * cache lines that no other check needs, on one or two pages. So a connection that has been quiet
 * for a while becomes warm: a spinning thread checks warm connections in turn, and all of them
 * every few microseconds and before a thread sleeps. If there are more than WARM_MAX warm
 * connections, some become cold, and no thread checks those. A word in the peer's memory informs
 * the peer that its connection is cold. When the peer writes the next record, it rings a separate
 * eventfd, whether a thread sleeps or not, and the thread that gets this event checks all cold
 * connections.
 *
 * This end stores the cold word, fences and checks the pipe; the peer stores its record, fences and
 * loads the word: so this end finds the record, or the peer finds the word. The peer rings once for
 * each value of the word, so this end publishes a new value when a record has come and the
 * connection is to stay cold. A writer may be killed before it has rung: so a connection is never
 * cold here while several processes hold the peer's end (shared.h).
 */
#include "sockets/epoll/epoll_internal.h"
#include "sockets/io/io_internal.h"

/* Checks that find nothing before an entry becomes warm. */
#define IDLE_POLLS 64u
/* With up to WARM_MAX warm entries a ring costs more than checking them. */
#define WARM_MAX 32u
/* Maximum of cold words that one check publishes: limits the time of a call. */
#define COLD_BATCH 8u

void via_ep_move(struct via_ep_entry *entry, enum via_ep_place place)
{
    struct via_ep_set *set = entry->set;
    set->warm_count -= entry->place == VIA_EP_WARM ? 1 : 0;
    set->warm_count += place == VIA_EP_WARM ? 1 : 0;
    entry->place = (uint8_t)place;
    via_list_remove(&entry->in_set);
    via_list_push_back(&set->entries[place], &entry->in_set);
}

/* True if the peer's ring may replace checks of the connection: if this is its only registration,
 * in one process, for reading only, and from a pipe. */
static bool is_cold_allowed(const struct via_ep_entry *entry)
{
    const struct via_conn *conn = entry->conn;
    const struct via_side *side = conn->side;
    return entry->piped && !entry->spent && !entry->reported.due && !entry->reported.recheck &&
           via_conn_is_local(conn) &&
           !atomic_load_explicit(&conn->peer_shared, memory_order_relaxed) &&
           (entry->events & (EPOLLOUT | EPOLLWRNORM | EPOLLPRI | EPOLLRDBAND)) == 0 &&
           side->rx.span == VIA_SPAN_PIPE && !side->ever_forked &&
           conn->entries.next == &entry->in_conn && conn->entries.prev == &entry->in_conn;
}

/* Informs the peer that its connection is cold. */
static void publish_cold(struct via_ep_entry *entry)
{
    struct via_side *side = entry->conn->side;
    if (via_unlikely(entry->set->bells != entry->set->watched)) {
        /* Threads that have never slept in the set have not registered its bells yet. */
        via_ep_watch_bells(entry->set);
    }
    entry->cold_sequence = via_ep_sequence(entry);
    via_side_publish_cold(side);
    /* Pairs with the fence in via_conn_posted_record(). */
    atomic_thread_fence(memory_order_seq_cst);
}

void via_ep_cool(struct via_ep_entry *entry)
{
    if (++entry->idle_polls >= IDLE_POLLS) {
        entry->idle_polls = 0;
        if (is_cold_allowed(entry)) {
            via_ep_move(entry, VIA_EP_WARM);
        }
    }
}

void via_ep_make_hot(struct via_ep_entry *entry)
{
    entry->idle_polls = 0;
    if (entry->place == VIA_EP_WARM || entry->place == VIA_EP_COLD) {
        via_ep_move(entry, VIA_EP_HOT);
    }
}

void via_ep_all_hot(struct via_ep_set *set)
{
    via_list_splice_back(&set->entries[VIA_EP_WARM], &set->entries[VIA_EP_COLD]);
    via_list_foreach_safe(it, &set->entries[VIA_EP_WARM]) {
        via_ep_make_hot(via_list_entry(it, struct via_ep_entry, in_set));
    }
}

/* A warm entry that was quiet goes to the end of the list, or becomes cold. */
static void cool_further(struct via_ep_entry *entry, unsigned *batch)
{
    if (*batch == 0 || entry->set->warm_count <= WARM_MAX || !is_cold_allowed(entry)) {
        via_ep_move(entry, VIA_EP_WARM);
        return;
    }
    (*batch)--;
    publish_cold(entry);
    /* If the pipe is not empty, the next check finds the record. */
    via_ep_move(entry, via_ep_is_quiet(entry) ? VIA_EP_COLD : VIA_EP_HOT);
}

void via_ep_check_warm(struct via_ep_set *set, unsigned most)
{
    unsigned batch = COLD_BATCH;
    for (unsigned polls = via_min(set->warm_count, most); polls > 0; polls--) {
        struct via_ep_entry *entry =
            via_list_entry(set->entries[VIA_EP_WARM].next, struct via_ep_entry, in_set);
        if (via_ep_is_quiet(entry)) {
            cool_further(entry, &batch);
        } else {
            via_ep_make_hot(entry);
        }
    }
}

void via_ep_check_cold(struct via_ep_set *set)
{
    set->cold_due = false;
    via_list_foreach_safe(it, &set->entries[VIA_EP_COLD]) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_set);
        if (via_ep_is_quiet(entry) && entry->cold_sequence != via_ep_sequence(entry)) {
            publish_cold(entry); /* the program has read the record without waiting in this set */
        }
        if (!via_ep_is_quiet(entry)) {
            via_ep_make_hot(entry);
        }
    }
}
