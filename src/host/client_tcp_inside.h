/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_TCP_INSIDE_H
#define VIA_HOST_CLIENT_TCP_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "host/client.h"
#include "host/client_tcp.h"

#define VIA_CLIENT_TCP_OUT_BYTES (64u << 10)
#define VIA_CLIENT_TCP_IN_BYTES (32u << 10)
#define VIA_CLIENT_TCP_EXPECTED_MAX 1024u /* answers under way: a power of two */

#define VIA_CLIENT_TCP_PENDING 1
/* The connection is over; frames carry the puts that it keeps. */
#define VIA_CLIENT_TCP_OVER 2

/* An answer that is to come. */
struct expected {
    void *to; /* NULL: not wanted */
    uint64_t bytes;
    int *done; /* a thread waits: VIA_CLIENT_TCP_PENDING until then, and the status. Or NULL */
    uint64_t issued, counted; /* of the connection, when it was asked for ... */
    uint64_t position;        /* ... and bytes of requests before it */
};

struct via_client_tcp {
    struct via_attach *attach;
    uint8_t token[VIA_TCP_TOKEN_BYTES];
    uint16_t host;
    bool to_host;      /* the other end is the host, for all of its processes; else the process */
    _Atomic bool told; /* to_host: its end was reported by a quiet */
    int fd;
    pthread_mutex_t lock;
    _Atomic int error;   /* it is over; first failure */
    _Atomic int refused; /* a request without a waiting thread: the next quiet reports it */
    /* Requests without an answer so far, of all and of those that a quiet waits for; and how many
     * have been applied, as far as answers told. */
    _Atomic uint64_t issued, applied;
    _Atomic uint64_t counted, counted_applied;
    uint64_t sent_ns; /* the last time */
    unsigned char *out, *in;
    size_t out_begin, in_begin, in_end;
    _Atomic size_t out_end;    /* also read without the lock: is anything held back? */
    struct expected *expected; /* VIA_CLIENT_TCP_EXPECTED_MAX */
    unsigned expected_first;
    _Atomic unsigned expected_count;
    uint64_t left;            /* of the payload of the first expected one */
    uint64_t answer_at;       /* how much of it has come */
    _Atomic unsigned remotes; /* to_host: open ones that use it */
    uint64_t position;        /* bytes of requests, sent and gathered */
    /* Of a connection that the library opens by itself (client_auto.c); else NULL and 0. */
    struct via_kept *kept;
    struct via_segment *segment; /* where it keeps them */
    /* [lock] It is over: a thread hands over to frames what was kept, and has held the remotes; the
     * thread of the library that does so if no call may wait. */
    bool hands_over, holds;
    bool helps, has_helper;
    pthread_t helper;
    _Atomic uint64_t way; /* of the host, when it was opened: it is used as long as that holds */
};

/* --- client_tcp.c ---------------------------------------------------------------------------- */

/* [lock] It is over, with this error; not again if it is over already. */
void via_client_tcp_end(struct via_client_tcp *tcp, int error);
bool via_client_tcp_is_over(const struct via_client_tcp *tcp);
/* Of one that is over, or whose request was refused: the error with its text. */
int via_client_tcp_tell_end(const struct via_client_tcp *tcp);
int via_client_tcp_tell_refusal(const struct via_client_tcp *tcp);
/* Are requests gathered that have not been sent? */
bool via_client_tcp_is_held_back(const struct via_client_tcp *tcp);
/* [lock] Sends them. 0; -EAGAIN: the socket takes no more now; or it is over. */
int via_client_tcp_flush(struct via_client_tcp *tcp);
/* [lock] Takes received answers. */
void via_client_tcp_take(struct via_client_tcp *tcp);
/* [lock] Of a connection that keeps what it puts. 0: it is on its way, or was applied if it is
 * long. Else the connection is over: *ret_kept tells whether it is among what is kept. */
int via_client_tcp_put_kept(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                            const void *src, size_t bytes, bool *ret_kept);
/* [lock] Until all has been applied. 0, a refusal of the host, or it is over. */
int via_client_tcp_fence(struct via_client_tcp *tcp);
/* [lock] Asks, without waiting, for the answer that all has been applied. */
void via_client_tcp_fence_soon(struct via_client_tcp *tcp);

/* --- client_tcp_dial.c ----------------------------------------------------------------------- */

/* A connection to the host that keeps what it puts. *tcp: NULL, or one that is over and is used
 * again. -EXDEV: there can be none now. */
VIA_MUST_CHECK int via_client_tcp_dial_kept(struct via_attach *attach, uint16_t host, uint64_t way,
                                            struct via_client_tcp **tcp);
/* [tcp->lock] Asks the host how much of the connection, which is over, it has applied. -EAGAIN: to
 * be asked again; -ENOENT: it does not know. */
VIA_MUST_CHECK int via_client_tcp_ask_position(struct via_client_tcp *tcp,
                                               struct via_attach_position *ret_position);

/* --- client_tcp_way.c ------------------------------------------------------------------------ */

/* A connection to a host has ended, and nothing of it may be lost. */
bool via_client_tcp_is_harmless_end(const struct via_client_tcp *tcp);
/* Has the other end not closed it, as far as this machine knows? */
bool via_client_tcp_is_alive(struct via_client_tcp *tcp);
/* Is the attachment being closed, and has it waited for long enough? */
bool via_client_tcp_is_time_over(const struct via_attach *attach);

/* The state of the way to a neighbour; 0: no direct link leads there now. */
static inline uint64_t via_client_tcp_way_to(const struct via_attach *attach, unsigned host)
{
    uint64_t word = via_client_status(attach, host);
    return via_status_is_reachable(word) && via_status_hops(word) == 1 ? word & VIA_CLIENT_WAY_MASK
                                                                       : 0;
}

/* Does the link still lead there by which it was opened? */
static inline bool via_client_tcp_has_way(const struct via_client_tcp *tcp)
{
    return via_client_tcp_way_to(tcp->attach, tcp->host) ==
           atomic_load_explicit(&tcp->way, memory_order_relaxed);
}

/* Pairs with the release in dial(): a connection is there before it is counted. */
static inline unsigned via_client_tcp_count(const struct via_attach *attach)
{
    return atomic_load_explicit(&attach->tcp_count, memory_order_acquire);
}

#endif
