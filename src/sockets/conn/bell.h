/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_BELL_H
#define VIA_SOCKETS_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/types.h"

/*
 * A peer wakes this process by a bell: three eventfds (for rings, for rings of cold connections
 * (epoll_cold.c), for calls), and a word.
 *
 * An eventfd's count and its O_NONBLOCK belong to all holders, hostile peers among them. No holder
 * can block a peer that rings, or prevent a sleeper's wake-up: host/client_sys.h explains how.
 *
 * A sleeper registers the eventfd with VIA_BELL_EVENTS in an epoll set of its own, which reports
 * the eventfd once at the beginning. The word shows whether a thread sleeps: peers may only read
 * it. So a sleeper writes once that it sleeps, for all its connections, and a peer rings once per
 * sleep. Of the threads that sleep in one epoll set, a ring wakes one: that thread passes on what
 * it leaves (epoll_wait.c).
 *
 * A connection's bell is that of the thread that set up its pipes; each thread that waits for the
 * connection watches that bell, so threads that serve different connections do not wake each other.
 * A forked child makes bells of its own for later connections, and keeps its parent's bells for
 * inherited ones. An attachment to a host adds one more bell.
 */
#define VIA_BELLS_MAX 64u

/* Sets of bells are words of 64 bits. */
#define VIA_BELL_MASK(index) (UINT64_C(1) << (index))

#define VIA_BELL_WAITERS_MAX 4u

struct via_sock_bell_word {
    /* Bits 63..32: number of sleeps begun; bits 31..0: number of threads asleep. */
    _Atomic uint64_t value;
    /* Processes that wait in an epoll set which they share by fork(): bits 63..32: a random number
     * of the process, which has no other meaning in another pid namespace; bits 31..0: when it
     * waited last. 0: unused. Not for peers. */
    _Atomic uint64_t waiters[VIA_BELL_WAITERS_MAX];
} VIA_CACHELINE_ALIGNED;

/* The calling thread's bell, made at first use (a shared one if there are many): its index, or a
 * negative errno. */
int via_sock_bell_of_thread(void);

/* Adds a bell of another owner, which sleepers then watch, too; the fd must stay open. 0 or
 * -ENOSPC. */
int via_sock_bell_adopt(int fd);
/* The set of the adopted bells, and of those of the processes from which this one was forked. */
uint64_t via_sock_bells_adopted(void);

int via_sock_bell_fd(unsigned index);
/* The eventfd that peers ring for cold connections; -1: this bell has none. */
int via_sock_bell_cold_fd(unsigned index);
uint64_t via_sock_bell_id(unsigned index);
/* What a peer gets of a bell: the eventfds (for rings, for rings of cold connections, for calls),
 * the memfd of the word, which by now can only be mapped for reading, and the word's index in
 * it. */
#define VIA_BELL_EVENTFDS 3u
#define VIA_BELL_FDS (VIA_BELL_EVENTFDS + 1)
void via_sock_bell_fds(unsigned index, int *ret_fds);
uint32_t via_sock_bell_word_index(unsigned index);

/* A sleep on bells. */
struct via_bell_sleep {
    uint64_t bells;
    pid_t pid; /* the process that began it */
};

/*
 * Called before sleeping on bells, and after. Between enter and the sleep the caller checks again
 * for the awaited event: enter contains the full fence that pairs with the one in
 * via_peer_bell_needs_ring().
 *
 * A signal handler may fork during the sleep, and then both processes return from it. The words are
 * memory that they share, so the sleep ends once: leave does nothing in the child.
 */
void via_sock_bell_enter(struct via_bell_sleep *ret_sleep, uint64_t bells);
void via_sock_bell_leave(const struct via_bell_sleep *sleep);

/*
 * The same for the threads of an epoll set, which the set counts with its lock held: when a
 * connection brings a bell, the threads that already sleep there sleep on that bell, too. begin is
 * called without the lock, after the thread was added, and has enter's fence.
 */
void via_sock_bell_add_sleepers(uint64_t bells, uint32_t count);
void via_sock_bell_remove_sleeper(uint64_t bells);
void via_sock_bell_begin_sleep(uint64_t bells);

/* This process waits in an epoll set with these bells, which it shares with the processes that it
 * was forked from, or that it forked: records that, for VIA_BELL_WAITER_NS. True if another one has
 * done so, too; *ret_new: this process was not recorded. */
#define VIA_BELL_WAITER_NS (3 * VIA_SEC_NS)
bool via_sock_bell_share(uint64_t bells, bool *ret_new);

/* As if the threads that sleep on these bells had just begun to: peers ring once more. Contains the
 * same fence; the caller checks afterwards for events that no peer rings for. Not for adopted
 * bells. */
void via_sock_bell_rearm(uint64_t bells);

/* Wakes the sleepers of this process, because their connections have changed. */
void via_sock_bell_ring(unsigned index);

/*
 * A descriptor for epoll sets that has an event after a call, and once at the beginning; -1: there
 * is none. A call rings the third eventfd. No other thread watches that one, so threads that sleep
 * for something else can handle calls, too: steward.h.
 */
int via_sock_bell_calls(void);
/* Makes the process call itself once, after that time. */
void via_sock_bell_call_in(uint64_t ns);
/* Consumes the events of calls. True if only the process itself can have made the calls. */
bool via_sock_bell_calls_take(void);

void via_sock_bell_forked(void);

/* A bell of another process. */
struct via_peer_bell {
    _Atomic int fds[VIA_BELL_EVENTFDS];
    _Atomic uint32_t rung;                 /* the last sleep for which this process rang the bell */
    const struct via_sock_bell_word *word; /* in the peer's memory */
    void *page;                            /* its mapping */
    uint32_t refs;
    uint64_t id;
    uint64_t page_inode; /* of the file behind the mapping */
    pid_t pid;
    struct via_peer_bell *next;
};

/*
 * Takes over the fds, which are those of via_sock_bell_fds(). NULL: no memory, or invalid
 * descriptors.
 *
 * The same bell gives the same object. The id only says where to search: every peer of a process
 * knows the ids of that process's bells, and may present them with descriptors of its own. So the
 * descriptors must refer to the same files. Where the kernel does not compare files, the peer must
 * be the same process. pid: of the peer, from the kernel; 0 = unknown.
 */
struct via_peer_bell *via_peer_bell_get(uint64_t id, const int *fds, uint32_t word_index,
                                        pid_t pid);
void via_peer_bell_put(struct via_peer_bell *bell); /* NULL is fine */
/* cold: for a connection that no thread polls, see epoll_cold.c. Neither ring nor call blocks,
 * whatever descriptor the peer has given. */
void via_peer_bell_ring(struct via_peer_bell *bell, bool cold);
void via_peer_bell_call(struct via_peer_bell *bell);

/* Called after posting. True, once per sleep, if a thread of the peer sleeps and its bell has not
 * rung. */
static inline bool via_peer_bell_needs_ring(struct via_peer_bell *bell)
{
    /* Store the data, fence, load the word; the sleeper stores the word, fences, checks for
     * data. */
    atomic_thread_fence(memory_order_seq_cst);
    uint64_t word = atomic_load_explicit(&bell->word->value, memory_order_relaxed);
    if (via_likely((uint32_t)word == 0)) {
        return false;
    }
    uint32_t sleep = (uint32_t)(word >> 32);
    return atomic_exchange_explicit(&bell->rung, sleep, memory_order_relaxed) != sleep;
}

#endif
