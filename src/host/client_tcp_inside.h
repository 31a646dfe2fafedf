/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_TCP_INSIDE_H
#define VIA_HOST_CLIENT_TCP_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "host/client.h"
#include "host/client_tcp.h"

#define VIA_CLIENT_TCP_OUT_BYTES (64u << 10)
#define VIA_CLIENT_TCP_IN_BYTES (32u << 10)
#define VIA_CLIENT_TCP_EXPECTED_MAX 1024u /* expected answers: a power of two */

/* Values of *expected.done besides a status. PENDING: the answer has not arrived. OVER: the
 * connection has ended; frames carry the puts that it keeps. */
#define VIA_CLIENT_TCP_PENDING 1
#define VIA_CLIENT_TCP_OVER 2

/* An answer that the peer has not sent completely. */
struct expected {
    void *to; /* destination of the payload; NULL: the payload is discarded */
    uint64_t bytes;
    int *done; /* VIA_CLIENT_TCP_PENDING, then the status; NULL: no thread waits */
    /* Of the connection, at the time of the request: issued, counted, position. */
    uint64_t issued, counted;
    uint64_t position;
};

struct via_client_tcp {
    struct via_attach *attach;
    uint8_t token[VIA_TCP_TOKEN_BYTES];
    uint16_t host;
    bool to_host; /* the peer is a host, which serves the segments of all its processes;
                     else the peer is a process */
    _Atomic bool end_reported; /* to_host: a quiet has reported the end of the connection */
    int fd;
    pthread_mutex_t lock;
    _Atomic int error;   /* the first failure, which ended the connection; 0: it is open */
    _Atomic int refused; /* status of a refused request for which no thread waited: the next quiet
                            reports it. 0: none */
    /* Numbers of requests, except gets for which a thread waits, and how many of them the answers
     * so far acknowledge. `counted`: only those for which a quiet of the attachment waits. */
    _Atomic uint64_t issued, applied;
    _Atomic uint64_t counted, counted_applied;
    uint64_t sent_ns; /* time of the last send */
    unsigned char *out, *in;
    size_t out_begin, in_begin, in_end;
    _Atomic size_t out_end;    /* not 0: `out` has bytes. Also read without the lock */
    struct expected *expected; /* VIA_CLIENT_TCP_EXPECTED_MAX */
    unsigned expected_first;
    _Atomic unsigned expected_count;
    uint64_t left;            /* bytes of the first expected payload that have not arrived ... */
    uint64_t answer_at;       /* ... and that have arrived */
    _Atomic unsigned remotes; /* to_host: number of open remotes that use the connection */
    uint64_t position;        /* bytes of requests, sent and gathered */
    uint64_t answered;        /* position of the last request whose answer has arrived completely */
    /* Of a connection that the library opens by itself (client_auto.c); else NULL and 0. */
    struct via_kept *kept;
    struct via_segment *segment; /* contains the kept puts */
    /* [lock] The connection has ended, and a thread hands its kept puts over to frames. holds: that
     * thread has incremented `held` of their remotes. helps: `helper` does so or will, because no
     * caller may wait; has_helper: `helper` is to be joined. */
    bool hands_over, holds;
    bool helps, has_helper;
    pthread_t helper;
    _Atomic uint64_t way; /* via_client_tcp_way_to() at the opening: frames take over when it
                             changes */
};

/* --- client_tcp.c ---------------------------------------------------------------------------- */

/* [lock] Ends the connection with this error. Keeps the first error of one that has ended. */
void via_client_tcp_end(struct via_client_tcp *tcp, int error);
bool via_client_tcp_is_over(const struct via_client_tcp *tcp);
/* Set the error text of a connection that has ended, or of a refused request. Return the error. */
int via_client_tcp_report_end(const struct via_client_tcp *tcp);
int via_client_tcp_report_refusal(const struct via_client_tcp *tcp);
/* True if gathered requests have not been sent. */
bool via_client_tcp_is_held_back(const struct via_client_tcp *tcp);
/* [lock] Sends the gathered requests. -EAGAIN: the socket has no room now. -ECONNRESET: the
 * connection has ended. */
int via_client_tcp_flush(struct via_client_tcp *tcp);
/* [lock] Receives answers, without waiting. */
void via_client_tcp_take(struct via_client_tcp *tcp);
/* [lock] Puts over a connection that keeps its puts. 0: the put was gathered or sent; a long put
 * was applied. Else the connection has ended. *ret_kept: true if the put is kept. */
int via_client_tcp_put_kept(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                            const void *src, size_t bytes, bool *ret_kept);
/* [lock] Waits until the peer has applied all requests. Returns 0, the refusal of the peer, or the
 * error of the connection. A connection that keeps its puts stores the refusal instead. */
int via_client_tcp_fence(struct via_client_tcp *tcp);
/* [lock] Sends a fence without waiting for its answer. */
void via_client_tcp_fence_soon(struct via_client_tcp *tcp);

/* --- client_tcp_dial.c ----------------------------------------------------------------------- */

/* Opens a connection to the host that keeps its puts. *tcp: NULL, or a connection that has ended
 * and whose struct is reused. -EXDEV: no such connection is possible now. */
VIA_MUST_CHECK int via_client_tcp_dial_kept(struct via_attach *attach, uint16_t host, uint64_t way,
                                            struct via_client_tcp **tcp);
/* Requests from the host how many bytes of requests it has applied. The connection has ended.
 * -EAGAIN: try again; -ENOENT: the host does not know. */
VIA_MUST_CHECK int via_client_tcp_request_position(struct via_client_tcp *tcp,
                                                   struct via_attach_position *ret_position);

/* --- client_tcp_way.c ------------------------------------------------------------------------ */

/* True if the connection to a host has ended and can not have lost anything. */
bool via_client_tcp_is_harmless_end(const struct via_client_tcp *tcp);
/* False if this machine knows that the peer has closed the connection. Receives answers. */
bool via_client_tcp_is_alive(struct via_client_tcp *tcp);
/* True if the attachment closes and its time for that is over. */
bool via_client_tcp_is_time_over(const struct via_attach *attach);

/* The state of the direct link to a host; 0: no direct link leads to it now. */
static inline uint64_t via_client_tcp_way_to(const struct via_attach *attach, unsigned host)
{
    uint64_t word = via_client_status(attach, host);
    return via_status_is_reachable(word) && via_status_hops(word) == 1 ? word & VIA_CLIENT_WAY_MASK
                                                                       : 0;
}

/* True while the link over which the connection was opened leads to the host. */
static inline bool via_client_tcp_has_way(const struct via_client_tcp *tcp)
{
    return via_client_tcp_way_to(tcp->attach, tcp->host) ==
           atomic_load_explicit(&tcp->way, memory_order_relaxed);
}

/* Acquire pairs with the release in dial(): a counted connection is complete. */
static inline unsigned via_client_tcp_count(const struct via_attach *attach)
{
    return atomic_load_explicit(&attach->tcp_count, memory_order_acquire);
}

#endif
