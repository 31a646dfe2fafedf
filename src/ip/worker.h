/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A worker: a thread with one queue of the device and its own attachment. It moves packets in both
 * directions, and attaches again when the host's daemon restarts.
 *
 *   worker.c       the loop, attaching
 *   worker_send.c  device to lanes     worker_receive.c  lanes to device
 *   meet.c         sessions with other hosts
 */
#ifndef VIA_IP_WORKER_H
#define VIA_IP_WORKER_H

#include <pthread.h>

#include "host/host_spin.h"
#include "ip/direct.h"
#include "ip/kernel.h"
#include "ip/lane.h"
#include "ip/tun.h"

#define VIA_IP_HOSTS_MAX 1024u
#define VIA_IP_BUFFERS_COUNT 512u

struct via_ip_options;

/* State shared by the workers of a process. */
struct via_ip_shared {
    const struct via_ip_options *options;
    uint16_t host;
    struct via_ip_tun tun;
    struct via_ip_kernel kernel;              /* constant while workers run */
    _Atomic uint32_t offloads;                /* offloads that all hosts met so far accept */
    _Atomic uint8_t queues[VIA_IP_HOSTS_MAX]; /* of each host; 0 = not known */
    _Atomic bool stop;
    _Atomic bool other_host;  /* the present daemon belongs to another host */
    _Atomic bool device_gone; /* the device was deleted: workers end */
    int stop_fd;              /* readable after `stop` is set */
};

/* Lanes are not freed before the worker ends, so that other threads may read their counters. */
struct via_ip_worker {
    struct via_ip_shared *shared;
    unsigned queue;
    int tun_fd;
    pthread_t thread;
    _Atomic bool attached;

    struct via_attach *attach; /* NULL: none */
    int epoll_fd;
    uint64_t tick_ns; /* time of the next timer check */
    struct via_host_spin spin;
    int loadavg_fd;
    unsigned cpus;

    struct via_ip_lane *_Atomic lanes[VIA_IP_HOSTS_MAX][VIA_IP_QUEUES_MAX];
    struct via_list all; /* all lanes */
    unsigned lanes_count;

    uint64_t answers_ns;    /* begin of the interval of answers_count */
    unsigned answers_count; /* ICMP errors sent in this interval */

    struct via_ip_direct *direct; /* queue 0 only; NULL: no direct paths */

    struct via_list pool; /* struct via_ip_buffer */
    unsigned pool_count;
    struct via_ip_buffer *buffers;
    int memory_fd; /* of all records: a memfd, which becomes a segment at each attach */
    struct via_ip_lending lending;

    struct via_ip_counters counters; /* of packets without a host */
    _Atomic uint64_t reattached;
};

/* Allocates; does not start the thread. -ENOMEM. */
int via_ip_worker_init(struct via_ip_worker *worker, struct via_ip_shared *shared,
                       unsigned queue) VIA_MUST_CHECK;
int via_ip_worker_start(struct via_ip_worker *worker) VIA_MUST_CHECK;
/* Called after shared->stop is set. */
void via_ip_worker_join(struct via_ip_worker *worker);
void via_ip_worker_fini(struct via_ip_worker *worker);

uint64_t via_ip_now_ns(void);

/* The lane to a queue of a host, made if missing; NULL: no memory, or invalid host. */
struct via_ip_lane *via_ip_worker_lane(struct via_ip_worker *worker, unsigned host, unsigned queue);

/* --- the parts of the loop ------------------------------------------------------------------- */

/* send, send_held and receive return the number of packets that they moved, or -ENOTCONN: the
 * host's daemon has ended. */

/* Moves some packets of the device into lanes; packets without room are held or dropped. -ENODEV:
 * the device was deleted. */
int via_ip_worker_send(struct via_ip_worker *worker);
/* Sends held packets, or drops those that are too old. */
int via_ip_worker_send_held(struct via_ip_worker *worker, uint64_t now_ns);
/* Returns lent buffers that the host has read to the pool. */
void via_ip_worker_take_back(struct via_ip_worker *worker);
/* The same for ended sessions; all: the host's daemon has ended, so nothing reads them. */
void via_ip_worker_empty_limbo(struct via_ip_worker *worker, bool all);
/* Without a daemon: drops the packets of the device. */
void via_ip_worker_drop_all(struct via_ip_worker *worker);
/* Moves some packets of each lane into the device. */
int via_ip_worker_receive(struct via_ip_worker *worker);

/* --- sessions: 0, or -ENOTCONN ---------------------------------------------------------------- */

/* Ends a broken session, and begins a new one. rc: the cause; -ENOTCONN is only returned. */
int via_ip_meet_again(struct via_ip_worker *worker, struct via_ip_lane *lane, int rc);
/* Called for a packet without a session: begins a session, but not before lane->hello_ns. */
int via_ip_meet(struct via_ip_worker *worker, struct via_ip_lane *lane, uint64_t now_ns);
/* Handles received hellos. */
int via_ip_meet_hellos(struct via_ip_worker *worker, uint64_t now_ns);
/* Begins sessions with hosts that have none. */
int via_ip_meet_all(struct via_ip_worker *worker, uint64_t now_ns);
/* Sends BYE to all peers: this worker ends. */
void via_ip_meet_bye(struct via_ip_worker *worker);

#endif
