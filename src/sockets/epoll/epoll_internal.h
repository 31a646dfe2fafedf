/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shared by keeping epoll sets and waiting in them. */
#ifndef VIA_SOCKETS_EPOLL_INTERNAL_H
#define VIA_SOCKETS_EPOLL_INTERNAL_H

#include "sockets/epoll/epoll_set.h"
#include "sockets/process/pool.h"

extern struct via_pool via_ep_entries;
/* Their addresses are the data of our own descriptors in a set. */
extern const char via_ep_bell_mark;  /* bells */
extern const char via_ep_cold_mark;  /* bells for cold connections */
extern const char via_ep_calls_mark; /* calls of peers: steward.h */

/* The data that the kernel keeps for an entry: its address and, in the unused bits of addresses,
 * `arms`. */
#define VIA_EP_ADDRESS(data) ((data) & ((UINT64_C(1) << 48) - 1))
#define VIA_EP_ARMS(data) ((uint16_t)((data) >> 48))

/* One of the program's numbers for it: the one by which it is in the set, as long as that is open;
 * -1: none is left. */
int via_ep_number(const struct via_ep_entry *entry);

/* The record that the connection's reader expects next, without the token: a reader in another
 * thread may be taking it. */
static inline uint32_t via_ep_sequence(const struct via_ep_entry *entry)
{
    return entry->conn->side->rx.pipe.sequence;
}

/* [with the set's lock] */
struct via_op via_ep_op(const struct via_ep_entry *entry);
/* op: of epoll_ctl(). 0 or a negative errno. */
int via_ep_update_kernel(struct via_ep_entry *entry, int op);
/* Registers the set's bells before a thread sleeps in it, or a connection of it becomes cold. */
void via_ep_watch_bells(struct via_ep_set *set);
void via_ep_watch_bells_locked(struct via_ep_set *set);
/* With the set's lock: updates what the kernel watches. */
void via_ep_refresh(struct via_ep_entry *entry);

/* With the lock of the links: an entry that the program has taken out is not in the kernel's set
 * either. */
void via_ep_unpark_set(struct via_ep_set *set);

/* Which connection is in which set: the lock of all links. Before a set's. */
void via_ep_lock_links(void);
void via_ep_unlock_links(void);
/* With it: the set behind epfd, made at first use; held until put. */
struct via_ep_set *via_ep_set_get(int epfd);
/* The kernel is told by one of the set's numbers: from now on not by this one. */
void via_ep_give_up_number(struct via_ep_set *set, int fd);

/* No thread sleeps in the set: the kernel's set then has only connections of ours, no bells. */
void via_ep_unwatch_bells(struct via_ep_set *set);

/* See epoll_set.h; no lock is held. */
struct via_ep_stayed via_ep_check_stayed(struct via_ep_set *set);

/* With the set's lock: certainly no event for the program has happened. */
bool via_ep_is_quiet(const struct via_ep_entry *entry);

/* fd has become this connection, and the kernel has it in the set of that number, with these
 * events: its registration becomes an entry. 0, or a negative errno: nothing has changed. */
int via_ep_take_in(int epfd, struct via_conn *conn, int fd, const struct epoll_event *event);

/* --- epoll_note.c ---------------------------------------------------------------------------- */

/* epoll_ctl(2), ERRORS: what may not be combined with EPOLLEXCLUSIVE. */
bool via_ep_is_valid(int op, const struct epoll_event *event);
/* A one-shot registration in the kernel's set: 1 when it is armed, 0 when it has been reported, or
 * a negative errno. */
int via_ep_kernel_armed(int epfd, int fd);
/* With the set's lock. The connection has left the set, but its socket lives on, and with it the
 * kernel's registration: as the program made it. */
void via_ep_hand_back(struct via_ep_entry *entry);

/* --- epoll_edge.c; with the set's lock ------------------------------------------------------- */

/* The state before the bits to report were determined: later events are not among them, and are
 * reported with the next ones. */
struct via_ep_before {
    uint32_t full;
    uint32_t shuts;
    uint32_t sequence; /* the first record that was not there yet */
};

struct via_ep_before via_ep_before(const struct via_ep_entry *entry);

/* With the bits that have been determined since. */
struct via_edge_now via_ep_now(const struct via_ep_entry *entry, uint32_t bits,
                               const struct via_ep_before *before);

/* Edge-triggered: is there anything unreported? */
bool via_ep_is_news(const struct via_ep_entry *entry, const struct via_edge_now *now);
/* Edge-triggered: have unreported records come and been read? Then it is an edge that there is
 * room. */
bool via_ep_is_missed(const struct via_ep_entry *entry);
/* Its connection has left the pipes: from now on bytes of the kernel's are news, but not those that
 * were read before. */
void via_ep_left(struct via_ep_entry *entry);
/* Marks these as reported. */
void via_ep_note_reported(struct via_ep_entry *entry, const struct via_edge_now *now);

/* --- epoll_cold.c; with the set's lock ------------------------------------------------------- */

/* Behind all others of that place. */
void via_ep_move(struct via_ep_entry *entry, enum via_ep_place place);
/* A hot one was quiet when it was checked. */
void via_ep_cool(struct via_ep_entry *entry);
/* Its state has changed. */
void via_ep_make_hot(struct via_ep_entry *entry);
void via_ep_all_hot(struct via_ep_set *set);
/* Those of the next warm registrations that are not quiet become hot. */
void via_ep_check_warm(struct via_ep_set *set, unsigned most);
#define VIA_EP_ALL UINT32_MAX
void via_ep_check_cold(struct via_ep_set *set);

/* --- epoll_order.c; with the set's lock ------------------------------------------------------ */

/* At once; further ones come next time. */
#define VIA_EP_FOUND_MAX 256u

/* The result of a check: entries that may have something to report, by the time they became
 * ready. */
struct via_ep_found {
    uint64_t now;    /* when the check began, in ticks */
    uint64_t last;   /* when the last of them became ready */
    unsigned before; /* hot ones checked before that one */
    unsigned looks;  /* hot ones checked */
    unsigned count;
    unsigned next;
    bool others; /* a thread that wrote one of these has written to others, too */
    bool again;  /* those before the last one have been checked once more */
    struct via_ep_ready {
        uint64_t ticks;
        struct via_ep_entry *entry;
    } ready[VIA_EP_FOUND_MAX];
};

/* Among the hot ones, and warm ones that became ready before them; all: the warm ones have just
 * been checked. At least max if there are so many. */
void via_ep_find(struct via_ep_set *set, struct via_ep_found *found, unsigned max, bool all);
/* The first of the rest; told: another one has been reported. NULL: that is all for now. */
struct via_ep_entry *via_ep_next(struct via_ep_set *set, struct via_ep_found *found, bool told);
void via_ep_found_end(struct via_ep_found *found);

#endif
