/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Direct connections, the end that owns the memory, shared by its sources: client_tcp_serve.c has
 * the protocol of a connection, client_tcp_thread.c the threads, opening and closing. */
#ifndef VIA_HOST_CLIENT_TCP_SERVE_INSIDE_H
#define VIA_HOST_CLIENT_TCP_SERVE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "host/client_tcp.h"
#include "host/host_spin.h"

#define VIA_CLIENT_SERVE_CONNS_MAX 1024u
#define VIA_CLIENT_SERVE_SEGMENTS_MAX 64u
#define VIA_CLIENT_SERVE_EVENTS_MAX 16

struct via_client_serve_conn {
    int fd;            /* -1: free */
    bool known;        /* the peer has presented a valid token */
    bool writes;       /* waits for room in the socket, and takes no requests meanwhile */
    uint32_t peer;     /* from calls->admit() */
    uint64_t since_ns; /* time of accept() */
    uint64_t used_ns;  /* of a host: the last turn that received bytes */
    uint64_t received; /* bytes of requests */
    int status;        /* the first failure that no answer has reported yet */
    int reported;      /* the last failure that an answer reports, which may not have arrived ... */
    uint64_t reported_at; /* ... and the position of the request that was answered */
    unsigned char *in, *out;
    size_t in_begin, in_end, out_begin, out_end;
    struct via_tcp_request put; /* `put_left` bytes of its payload have not been taken */
    uint64_t put_left;
    struct via_tcp_request get; /* `get_left` bytes of its payload are to be sent, after `out` */
    uint64_t get_left;
    size_t sent; /* bytes in this turn */
};

struct via_client_served {
    uint64_t handle;
    unsigned char *base;
    size_t bytes;
};

struct via_client_serve {
    struct via_attach *attach;                  /* of a process; NULL: of a host */
    const struct via_client_serve_calls *calls; /* of a host, borrowed; NULL: of a process */
    struct via_tcp_card card;
    int listen_fd, epoll_fd, wake_fd;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
    _Atomic bool polled; /* a thread of the program has polled since the last poll of `thread` */
    _Atomic bool poked;  /* wake_fd was written, and `thread` has not handled that */
    pthread_mutex_t lock;
    struct via_client_serve_conn *conns; /* VIA_CLIENT_SERVE_CONNS_MAX */
    unsigned conns_end;
    unsigned strangers; /* connections that are not known */
    bool exhausted;     /* a connection waits in the backlog for a free descriptor */
    struct via_client_served segments[VIA_CLIENT_SERVE_SEGMENTS_MAX];
    unsigned segments_count;

    /* Of a host. */
    _Atomic bool review; /* calls->is_unwanted() may be true for some connections */
    struct via_host_spin spin;
    uint64_t now_ns;        /* time of the turn */
    uint64_t idle_since_ns; /* time of the last turn that did something; 0: none did */
    uint64_t crowded_at_ns; /* time of the last check of `crowded` */
    bool crowded;
    bool slept; /* the thread has slept since idle_since_ns */
};

/* [lock] Accepts a bounded number of connections. */
void via_client_serve_accept(struct via_client_serve *serve);
/* [lock] Ends connections that have not presented the token in time. */
void via_client_serve_end_strangers(struct via_client_serve *serve);
/* [lock] Receives and applies requests of the connection, and sends answers, at most the share of
 * one turn. Returns the amount of work. */
unsigned via_client_serve_conn(struct via_client_serve *serve, struct via_client_serve_conn *conn);
/* [lock] Shuts the connection down and frees its place. */
void via_client_serve_end(struct via_client_serve *serve, struct via_client_serve_conn *conn);
/* [lock] Frees the place without shutting the connection down: in a child, which has only a copy of
 * its parent's descriptor, the connection of the parent stays open. */
void via_client_serve_forget(struct via_client_serve *serve, struct via_client_serve_conn *conn);

#endif
