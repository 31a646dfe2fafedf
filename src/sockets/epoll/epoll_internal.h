/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shared by the files that keep epoll sets and those that wait in them. */
#ifndef VIA_SOCKETS_EPOLL_INTERNAL_H
#define VIA_SOCKETS_EPOLL_INTERNAL_H

#include "sockets/epoll/epoll_set.h"
#include "sockets/process/pool.h"

extern struct via_pool via_ep_entries;
/* The addresses of these variables are the epoll data of the library's own descriptors in a set. */
extern const char via_ep_bell_mark;  /* bells */
extern const char via_ep_cold_mark;  /* bells for cold connections */
extern const char via_ep_calls_mark; /* calls of peers: steward.h */

/* The data that the kernel keeps for an entry: its address and, in the unused bits of addresses,
 * `arms`. */
#define VIA_EP_ADDRESS(data) ((data) & ((UINT64_C(1) << 48) - 1))
#define VIA_EP_ARMS(data) ((uint16_t)((data) >> 48))

/* A thread gets an event from the kernel before it takes the set's lock. Meanwhile the entry may
 * have been freed, and reused for another connection. True if the event belongs to the present
 * connection. */
static inline bool via_ep_is_own_event(const struct via_ep_entry *entry, uint16_t arms)
{
    return (uint16_t)(arms - entry->first_arms) <= (uint16_t)(entry->arms - entry->first_arms);
}

/* One of the program's descriptors of the connection: the registered one as long as it is open; -1:
 * none is left. */
int via_ep_fd(const struct via_ep_entry *entry);

/* The record that the connection's reader expects next, without the token: another thread may be
 * reading that record. */
static inline uint32_t via_ep_sequence(const struct via_ep_entry *entry)
{
    return entry->conn->side->rx.pipe.sequence;
}

/* [with the set's lock] */
struct via_op via_ep_op(const struct via_ep_entry *entry);
/* op: of epoll_ctl(). 0 or a negative errno. */
int via_ep_update_kernel(struct via_ep_entry *entry, int op);
/* Registers the set's bells before a thread sleeps in the set, or a connection of the set becomes
 * cold. */
void via_ep_watch_bells(struct via_ep_set *set);
/* Updates the counts, and the events that the kernel watches. */
void via_ep_refresh(struct via_ep_entry *entry);

/* With both locks: removes parked entries, which the program has taken out, from the kernel's set,
 * too. */
void via_ep_unpark_members(struct via_ep_set *set);

/* The lock of all links, that is, of which connection is in which set. Taken before the lock of a
 * set. */
extern struct via_mutex via_ep_links;
/* With that lock: the set behind epfd, made at first use; the caller holds it until via_file_put()
 * with the same `alone`. NULL: no memory, or epfd refers to something else. */
struct via_ep_set *via_ep_set_get(int epfd, bool alone);
/* The library calls epoll_ctl() with one of the set's descriptors. fd is closed: if it was that
 * one, chooses another. */
void via_ep_replace_fd(struct via_ep_set *set, int fd);

/* Removes the bells from the kernel's set if no thread sleeps there; the kernel's set then has only
 * the program's descriptors. */
void via_ep_unwatch_bells(struct via_ep_set *set);

/* True if a thread sleeps in the set, or may do so in another process that shares the set. Contains
 * the fence that pairs with the increment in begin_sleep() (epoll_wait.c): the sleeper sees what
 * this thread has changed, or this thread sees the sleeper. */
bool via_ep_has_sleepers(struct via_ep_set *set);
/* Wakes one of them, which then checks the set again. */
void via_ep_wake(struct via_ep_set *set);

/* See struct via_ep_stayed. No lock is held. */
struct via_ep_stayed via_ep_check_stayed(struct via_ep_set *set);

/* With the set's lock: true if the entry certainly has no event for the program. */
bool via_ep_is_quiet(const struct via_ep_entry *entry);

/* fd has become this connection, and the kernel has it in the set epfd, with these events: makes an
 * entry of the registration. 0, or a negative errno: nothing has changed. */
int via_ep_add_connected(int epfd, struct via_conn *conn, int fd, const struct epoll_event *event);

/* What happens to the kernel's registration when an entry is removed. */
enum via_ep_fate {
    VIA_EP_ENDS, /* it ends with the last descriptor, or with the set */
    VIA_EP_IS_HANDED_BACK,
    VIA_EP_IS_REMOVED,
};
/* Removes the entry. With the lock of the links. */
void via_ep_remove(struct via_ep_entry *entry, enum via_ep_fate fate);

/* --- epoll_note.c ---------------------------------------------------------------------------- */

/* With the set's lock. The connection has left the set, but its socket is still open, and so is the
 * kernel's registration: restores it as the program made it. */
void via_ep_hand_back(struct via_ep_entry *entry);

/* --- epoll_edge.c; with the set's lock ------------------------------------------------------- */

/* The state before the bits to report are determined: events after this are not reported with these
 * bits, but with the next ones. */
struct via_edge_now via_ep_begin_edge(const struct via_ep_entry *entry);
/* Adds the bits that have been determined since. */
void via_ep_end_edge(const struct via_ep_entry *entry, struct via_edge_now *now, uint32_t bits);

/* Edge-triggered: true if records have arrived and been read that were never reported. The kernel's
 * edge for them would have reported EPOLLOUT, too. */
bool via_ep_is_missed(const struct via_ep_entry *entry);

/* --- epoll_cold.c; with the set's lock ------------------------------------------------------- */

/* Moves the entry to the end of a list. */
void via_ep_move(struct via_ep_entry *entry, enum via_ep_place place);
/* Called for a hot entry that was quiet when it was checked. */
void via_ep_cool(struct via_ep_entry *entry);
/* Called when the entry's state has changed. */
void via_ep_make_hot(struct via_ep_entry *entry);
void via_ep_all_hot(struct via_ep_set *set);
/* Checks the next warm entries, at most `most`: those that are not quiet become hot. */
void via_ep_check_warm(struct via_ep_set *set, unsigned most);
#define VIA_EP_ALL UINT32_MAX
void via_ep_check_cold(struct via_ep_set *set);

/* --- epoll_order.c; with the set's lock ------------------------------------------------------ */

/* Maximum of entries that one check finds; the next check finds further ones. */
#define VIA_EP_FOUND_MAX 256u

/* The result of a check: entries that may have something to report, by the time they became
 * ready. */
struct via_ep_found {
    uint64_t now;    /* time when the check began, in ticks */
    uint64_t last;   /* time when the last of these entries became ready */
    unsigned before; /* number of hot entries checked before that one */
    unsigned polls;  /* number of hot entries checked */
    unsigned count;
    unsigned next;
    bool others; /* a thread that wrote one of these has written to others, too */
    bool again;  /* the entries before the last one have been checked once more */
    struct via_ep_ready {
        uint64_t ticks;
        struct via_ep_entry *entry;
    } ready[VIA_EP_FOUND_MAX];
};

/* Finds ready entries among the hot ones, and warm ones that became ready before these; all: the
 * warm ones have just been checked. Finds at least max entries (or VIA_EP_FOUND_MAX, if that is
 * less), or all if fewer are ready. */
void via_ep_find(struct via_ep_set *set, struct via_ep_found *found, unsigned max, bool all);
/* The next entry to report; reported: this call of epoll_wait() has reported another one. NULL: the
 * call returns what it has. */
struct via_ep_entry *via_ep_next(struct via_ep_set *set, struct via_ep_found *found, bool reported);
void via_ep_found_end(struct via_ep_found *found);

#endif
