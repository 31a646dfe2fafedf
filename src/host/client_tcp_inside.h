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

/* An answer that is to come. */
struct expected {
    void *to; /* NULL: not wanted */
    uint64_t bytes;
    int *done; /* a thread waits: VIA_CLIENT_TCP_PENDING until then, and the status. Or NULL */
    uint64_t issued, counted; /* of the connection, when it was asked for */
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
    uint64_t left;      /* of the payload of the first expected one */
    uint64_t answer_at; /* how much of it has come */
};

/* Has the other end not closed it, as far as this machine knows? */
bool via_client_tcp_is_alive(struct via_client_tcp *tcp);

/* Pairs with the release in dial(): a connection is there before it is counted. */
static inline unsigned via_client_tcp_count(const struct via_attach *attach)
{
    return atomic_load_explicit(&attach->tcp_count, memory_order_acquire);
}

#endif
