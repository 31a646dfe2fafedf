/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_BELL_H
#define VIA_SOCKETS_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/types.h"

/*
 * Bells: by which a peer wakes this process. A bell is an eventfd, another for cold connections
 * (epoll_cold.c), a third for calls, and a word beside them.
 *
 * An eventfd's count and its O_NONBLOCK belong to all holders, hostile peers among them. No holder
 * can block a peer that rings, or prevent a sleeper's wake-up: host/client_sys.h explains how.
 *
 * A sleeper registers it with VIA_BELL_EVENTS in an epoll set of its own, which reports it once at
 * the beginning. The word shows whether a thread sleeps: peers may only read it. So a sleeper
 * writes once that it sleeps, for all its connections, and a peer rings once per sleep.
 *
 * A connection's bell is that of the thread that set up its pipes; each thread that waits for the
 * connection watches that bell, so threads that serve different connections do not wake each other.
 * A forked child makes bells of its own for what comes after, and keeps its parent's for what it
 * inherited. An attachment to a host brings another.
 */
#define VIA_BELLS_MAX 64u

/* Sets of bells are words of 64 bits. */
#define VIA_BELL_MASK(index) (UINT64_C(1) << (index))

/* Bits 63..32: counts sleeps begun; bits 31..0: how many sleep. */
struct via_sock_bell_word {
    _Atomic uint64_t value;
} VIA_CACHELINE_ALIGNED;

/* The calling thread's bell, made at first use (a shared one if there are many): its index, or a
 * negative errno. */
int via_sock_bell_of_thread(void);

/* Adds a bell of another owner for sleepers to watch; the fd must stay open. 0 or -ENOSPC. */
int via_sock_bell_adopt(int fd);
/* Those, and those of the processes from which this one was forked. */
uint64_t via_sock_bells_adopted(void);

int via_sock_bell_fd(unsigned index);
/* Rung for cold connections; -1: this bell has none. */
int via_sock_bell_cold_fd(unsigned index);
uint64_t via_sock_bell_id(unsigned index);
/* The parts for a peer: the eventfds (of rings, of rings for cold connections, of calls), and the
 * place of the word: a memfd that can only be mapped for reading by now; and the index in it. */
#define VIA_BELL_EVENTFDS 3u
#define VIA_BELL_FDS (VIA_BELL_EVENTFDS + 1)
void via_sock_bell_fds(unsigned index, int *ret_fds);
uint32_t via_sock_bell_word_index(unsigned index);

/*
 * Called before sleeping on bells, and after. Between enter and the sleep the caller checks again
 * for the awaited event: enter contains the full fence that pairs with the one in
 * via_peer_bell_must_ring().
 */
void via_sock_bell_enter(uint64_t bells);
void via_sock_bell_leave(uint64_t bells);

/* Wakes this process's own sleepers, because their connections have changed. */
void via_sock_bell_ring(unsigned index);

/*
 * Calls are also handled by threads that sleep for something else: steward.h. A call rings the
 * third eventfd, which has no other watchers. A descriptor for epoll sets that has an event after a
 * call, and once at the beginning; -1: there is none.
 */
int via_sock_bell_calls(void);
/* The process calls itself after that time, once. */
void via_sock_bell_call_in(uint64_t ns);
/* A call has come: consumes the events. True if it can only have been the process's own call. */
bool via_sock_bell_calls_take(void);

void via_sock_bell_forked(void);

/* A bell of another process. */
struct via_peer_bell {
    _Atomic int fds[VIA_BELL_EVENTFDS];
    _Atomic uint32_t rung;                 /* the last sleep for which it was rung */
    const struct via_sock_bell_word *word; /* the peer's memory */
    void *page;                            /* its mapping */
    uint32_t refs;
    uint64_t id;
    uint64_t page_inode; /* of the file behind the mapping */
    pid_t pid;
    struct via_peer_bell *next;
};

/*
 * The fds, as of via_sock_bell_fds(), are given up. NULL: no memory, or invalid descriptors.
 *
 * The same bell gives the same object. The id says where to look, and no more: every peer of a
 * process knows the ids of its bells, and may show them with descriptors of its own. So these must
 * be the same files. Where the kernel does not compare files, the peer must be the same process.
 * pid: of the peer, from the kernel; 0 = unknown.
 */
struct via_peer_bell *via_peer_bell_get(uint64_t id, const int *fds, uint32_t word_index,
                                        pid_t pid);
void via_peer_bell_put(struct via_peer_bell *bell); /* NULL is fine */
/* cold: for a connection that no thread polls, see epoll_cold.c. Neither ring nor call waits,
 * whatever descriptor the peer has given. */
void via_peer_bell_ring(struct via_peer_bell *bell, bool cold);
void via_peer_bell_call(struct via_peer_bell *bell);

/* Called after posting: does a thread sleep whose bell has not rung? True once per sleep. */
static inline bool via_peer_bell_must_ring(struct via_peer_bell *bell)
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
