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
 * An eventfd's count and its O_NONBLOCK belong to all holders, and hostile peers are among them. No
 * holder can block a peer that rings, or prevent a sleeper's wake-up: host/client_sys.h explains
 * how.
 *
 * A thread that sleeps registers the eventfd with VIA_BELL_EVENTS in an epoll set of its own, which
 * reports the eventfd once at the beginning. The word shows whether a thread sleeps; peers can only
 * read it. So a thread announces its sleep by one store for all its connections, and a peer rings
 * once for each sleep. If several threads sleep in one epoll set, a ring wakes one of them, and
 * that thread wakes the next if it leaves events (epoll_wait.c).
 *
 * The bell of a connection is that of the thread that set up its pipes, and each thread that waits
 * for the connection watches that bell: so threads that serve different connections do not wake
 * each other. A forked child makes bells of its own for later connections, and keeps its parent's
 * bells for inherited ones. An attachment to a host adds one more bell.
 */
#define VIA_BELLS_MAX 64u

/* Sets of bells are words of 64 bits. */
#define VIA_BELL_MASK(index) (UINT64_C(1) << (index))

struct via_sock_bell_word {
    /* Bits 63..32: number of sleeps begun; bits 31..0: number of threads asleep, in all processes
     * that share the bell by fork(). */
    _Atomic uint64_t value;
} VIA_CACHELINE_ALIGNED;

/* Returns the index of the calling thread's bell, which is made at first use; beyond a limit
 * threads share bells. Or a negative errno. */
int via_sock_bell_of_thread(void);

/* Adds the eventfd of an attachment to a host as a bell, which threads that sleep then watch, too;
 * the fd must stay open. 0 or -ENOSPC. */
int via_sock_bell_adopt(int fd);
/* The set of the adopted bells, of this process and of those from which it was forked. */
uint64_t via_sock_bells_adopted(void);

int via_sock_bell_fd(unsigned index);
/* The eventfd that peers ring for cold connections; -1: this bell has none. */
int via_sock_bell_cold_fd(unsigned index);
/* The descriptors of a bell for a peer: the eventfds (for rings, for rings of cold connections, for
 * calls), and the memfd with the word, which can only be mapped for reading by now. The word's
 * index in it. */
#define VIA_BELL_EVENTFDS 3u
#define VIA_BELL_FDS (VIA_BELL_EVENTFDS + 1)
void via_sock_bell_fds(unsigned index, int *ret_fds);
uint32_t via_sock_bell_word_index(unsigned index);

/* A thread's sleep on bells. */
struct via_bell_sleep {
    uint64_t bells;
    pid_t pid; /* the process that began it */
};

/*
 * Called before sleeping on bells, and after. Between enter and the sleep the caller checks again
 * for the awaited event: enter contains the full fence that pairs with the one in
 * via_peer_bell_take_ring().
 *
 * A signal handler may fork during the sleep; then both processes return from it. They share the
 * words, so the sleep must end once: in the child leave does nothing.
 */
void via_sock_bell_enter(struct via_bell_sleep *ret_sleep, uint64_t bells);
void via_sock_bell_leave(const struct via_bell_sleep *sleep);

/*
 * The same for the threads of an epoll set, which the set counts with its lock held. When a
 * connection brings a bell, the threads that already sleep in the set sleep on that bell, too.
 * begin_sleep is called without the lock, after the thread was added, and has enter's fence.
 */
void via_sock_bell_add_sleepers(uint64_t bells, uint32_t count);
void via_sock_bell_remove_sleeper(uint64_t bells);
void via_sock_bell_begin_sleep(uint64_t bells);

/* True if a thread sleeps on one of these bells, in any process that shares it. */
bool via_sock_bell_has_sleepers(uint64_t bells);

/* Lets peers ring once more, as if the threads that sleep on these bells had just begun to sleep.
 * Contains the same fence; afterwards the caller checks for events that no peer rings for. Not for
 * adopted bells. */
void via_sock_bell_rearm(uint64_t bells);

/* Wakes this process's threads that sleep on the bell, because their connections have changed. */
void via_sock_bell_ring(unsigned index);

/*
 * A descriptor for epoll sets, which has an event after a call, and once at the beginning; -1:
 * there is none. A call is a ring of the third eventfd of any of this process's bells. No thread
 * watches that one for connections, so threads that sleep for other events can handle calls:
 * steward.h.
 */
int via_sock_bell_calls(void);
/* Makes this process call itself once, after `ns`. */
void via_sock_bell_call_in(uint64_t ns);
/* Consumes the events of calls. True if they are only this process's own. */
bool via_sock_bell_calls_take(void);

void via_sock_bell_forked(void);

/* A bell of another process. */
struct via_peer_bell {
    _Atomic int fds[VIA_BELL_EVENTFDS];
    _Atomic uint32_t rung; /* number of the last sleep for which this process rang */
    const struct via_sock_bell_word *word; /* in the peer's memory */
    void *page;                            /* its mapping */
    uint32_t refs;
    uint64_t page_inode; /* of the file behind the mapping */
    pid_t pid;
    struct via_peer_bell *next;
};

/*
 * Takes ownership of the fds, which are those of via_sock_bell_fds(). NULL: no memory, or invalid
 * descriptors.
 *
 * The same bell gives the same object. The page and the word's index only help to find it: every
 * peer of a process has the page, and may present it with eventfds of its own. So these must refer
 * to the same files (kcmp(2)). If the kernel does not compare files, the peer must be the same
 * process. pid: of the peer, from the kernel; 0 = unknown.
 */
struct via_peer_bell *via_peer_bell_get(const int *fds, uint32_t word_index, pid_t pid);
void via_peer_bell_put(struct via_peer_bell *bell); /* NULL is allowed */
/* cold: for a connection that no thread polls, see epoll_cold.c. Neither ring nor call blocks, even
 * if the peer has passed a full eventfd or another file. */
void via_peer_bell_ring(struct via_peer_bell *bell, bool cold);
void via_peer_bell_call(struct via_peer_bell *bell);

/* Called after a store into the peer's memory. True, once per sleep, if a thread of the peer sleeps
 * and its bell has not rung. */
static inline bool via_peer_bell_take_ring(struct via_peer_bell *bell)
{
    /* Store the data, fence, load the word; the sleeping thread stores the word, fences, checks for
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
