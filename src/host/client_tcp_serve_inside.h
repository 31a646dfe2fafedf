/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of the end of direct connections that owns the memory: client_tcp_serve.c has the protocol
 * of a connection, client_tcp_thread.c the threads, opening and closing. */
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
    int fd; /* -1: free */
    bool known;
    bool writes;   /* it waits for room in the socket, and takes nothing meanwhile */
    uint32_t peer; /* whose it is: from calls->admit() */
    uint64_t since_ns;
    uint64_t used_ns;  /* of a host: its last turn that did something */
    uint64_t received; /* bytes of requests */
    int status;        /* the first failure that no answer has reported yet */
    unsigned char *in, *out;
    size_t in_begin, in_end, out_begin, out_end;
    struct via_tcp_request put; /* whose payload comes */
    uint64_t put_left;
    struct via_tcp_request get; /* whose payload goes, behind `out` */
    uint64_t get_left;
    size_t sent; /* in this turn */
};

struct via_client_served {
    uint64_t handle;
    unsigned char *base;
    size_t bytes;
};

struct via_client_serve {
    struct via_attach *attach;                  /* NULL: a host's */
    const struct via_client_serve_calls *calls; /* borrowed; NULL: a process's */
    struct via_tcp_card card;
    int listen_fd, epoll_fd, wake_fd;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
    _Atomic bool polled; /* by threads of the program, since the thread's last poll */
    _Atomic bool poked;
    pthread_mutex_t lock;
    struct via_client_serve_conn *conns; /* VIA_CLIENT_SERVE_CONNS_MAX */
    unsigned conns_end, strangers;
    bool exhausted; /* a caller waits, and there is no descriptor for it */
    struct via_client_served segments[VIA_CLIENT_SERVE_SEGMENTS_MAX];
    unsigned segments_count;

    /* Of a host. */
    _Atomic bool review; /* calls->is_unwanted() may be true for some */
    struct via_host_spin spin;
    uint64_t now_ns;        /* of the turn */
    uint64_t idle_since_ns; /* the last turn that did something; 0: none did */
    uint64_t crowded_at_ns;
    bool crowded, slept; /* slept: since that turn */
};

/* [lock] Takes callers, a bounded number. */
void via_client_serve_accept(struct via_client_serve *serve);
/* [lock] Ends those that have not shown the token in time. */
void via_client_serve_end_strangers(struct via_client_serve *serve);
/* [lock] Takes and applies requests of the connection, and sends answers. How much was done. */
unsigned via_client_serve_conn(struct via_client_serve *serve, struct via_client_serve_conn *conn);
/* [lock] */
void via_client_serve_end(struct via_client_serve *serve, struct via_client_serve_conn *conn);
/* [lock] Of a child that has a copy of its parent's connections: the parent's stay. */
void via_client_serve_forget(struct via_client_serve *serve, struct via_client_serve_conn *conn);

#endif
