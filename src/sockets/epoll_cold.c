/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sets with many connections of which few are busy. A look at each of them takes a cache line or
 * two, so one that has been quiet for a while goes to the cold ones, which nobody looks at. Its
 * peer is told, by a word in its memory, and rings in a way of its own when it writes the next
 * record, whether anybody sleeps or not; then all the cold ones are looked at.
 *
 * Store cold word, fence, look at the pipe; the peer stores its record, fences, looks at the word:
 * one of the two sees the other. The peer rings once for each value of the word, so it gets a new
 * one after a record has come that nobody here was told of.
 */
#include "sockets/epoll_internal.h"
#include "sockets/io_internal.h"

/* With fewer it is not worth it. */
#define HOT_MIN 32u
/* Looked at so often in vain: then it is cold. */
#define IDLE_LOOKS 64u
/* Told to their peers during one look: so that no call takes long. */
#define BATCH 8u

/* Could its next record be left to a ring? It must be the only registration, in one process, and
 * for nothing but reading by pipe. */
static bool may_be_cold(const struct via_ep_entry *entry)
{
    const struct via_conn *conn = entry->conn;
    const struct via_side *side = conn->side;
    return entry->piped && !entry->spent && !entry->edge && !entry->look && conn->fabric == NULL &&
           (entry->events & (EPOLLOUT | EPOLLWRNORM | EPOLLPRI | EPOLLRDBAND)) == 0 &&
           side->rx.span == VIA_SPAN_PIPE && !side->ever_forked &&
           conn->entries.next == &entry->in_conn && conn->entries.prev == &entry->in_conn;
}

static void tell_peer(struct via_ep_entry *entry)
{
    struct via_side *side = entry->conn->side;
    entry->cold_sequence = side->rx.pipe.sequence;
    via_side_say_cold(side);
    /* Pairs with the fence in via_conn_posted_record(). */
    atomic_thread_fence(memory_order_seq_cst);
}

unsigned via_ep_cold_batch(const struct via_ep_set *set)
{
    return set->piped_count - set->cold_count > HOT_MIN ? BATCH : 0;
}

bool via_ep_make_cold(struct via_ep_entry *entry)
{
    if (++entry->idle_looks < IDLE_LOOKS || !may_be_cold(entry)) {
        return false;
    }
    entry->idle_looks = 0;
    tell_peer(entry);
    if (!via_ep_is_quiet(entry)) {
        return false; /* it comes with the next look */
    }
    entry->cold = true;
    entry->set->cold_count++;
    via_list_remove(&entry->in_set);
    via_list_push_back(&entry->set->cold, &entry->in_set);
    return true;
}

void via_ep_make_hot(struct via_ep_entry *entry)
{
    entry->idle_looks = 0;
    if (entry->cold) {
        entry->cold = false;
        entry->set->cold_count--;
        via_list_remove(&entry->in_set);
        via_list_push_back(&entry->set->entries, &entry->in_set);
    }
}

void via_ep_all_hot(struct via_ep_set *set)
{
    via_list_foreach_safe(it, &set->cold) {
        via_ep_make_hot(via_list_entry(it, struct via_ep_entry, in_set));
    }
}

void via_ep_look_at_cold(struct via_ep_set *set)
{
    set->cold_due = false;
    via_list_foreach_safe(it, &set->cold) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_set);
        if (via_ep_is_quiet(entry) && entry->cold_sequence != entry->conn->side->rx.pipe.sequence) {
            tell_peer(entry); /* the program has read it without asking here */
        }
        if (!via_ep_is_quiet(entry)) {
            via_ep_make_hot(entry);
        }
    }
}
