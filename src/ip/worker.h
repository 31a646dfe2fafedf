/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A worker: a thread with a queue of the device and an attachment of its own. It carries packets
 * both ways, and comes back by itself when the host's daemon has gone and is there again.
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

/* The common part of a process's workers. */
struct via_ip_shared {
    const struct via_ip_options *options;
    uint16_t host;
    struct via_ip_tun tun;
    struct via_ip_kernel kernel;              /* constant while workers run */
    _Atomic uint32_t offloads;                /* what all hosts that were met can take */
    _Atomic uint8_t queues[VIA_IP_HOSTS_MAX]; /* of each host; 0 = not known */
    _Atomic bool stop;
    _Atomic bool other_host;  /* the daemon that is there now is another host's */
    _Atomic bool device_gone; /* it was deleted: workers end */
    int stop_fd;              /* readable from then on */
};

/* Lanes are made and stay until the worker ends, so that others may read their counters. */
struct via_ip_worker {
    struct via_ip_shared *shared;
    unsigned queue;
    int tun_fd;
    pthread_t thread;
    _Atomic bool attached;

    struct via_attach *attach; /* NULL: none */
    int epoll_fd;
    uint64_t tick_ns; /* when timers are checked next */
    struct via_host_spin spin;
    int loadavg_fd;
    unsigned cpus;

    struct via_ip_lane *_Atomic lanes[VIA_IP_HOSTS_MAX][VIA_IP_QUEUES_MAX];
    struct via_list all; /* the lanes */
    unsigned lanes_count;

    uint64_t answers_ns; /* since when answers_count are counted */
    unsigned answers_count;

    struct via_ip_direct *direct; /* of queue 0; NULL: packets take no direct path */

    struct via_list pool; /* struct via_ip_buffer */
    unsigned pool_count;
    struct via_ip_buffer *buffers;
    int memory_fd; /* of all records: a memfd, which becomes a segment at each attaching */
    struct via_ip_lending lending;

    struct via_ip_counters counters; /* of what belongs to no host */
    _Atomic uint64_t reattached;
};

/* Allocates, does not start. -ENOMEM. */
int via_ip_worker_init(struct via_ip_worker *worker, struct via_ip_shared *shared,
                       unsigned queue) VIA_MUST_CHECK;
int via_ip_worker_start(struct via_ip_worker *worker) VIA_MUST_CHECK;
/* After shared->stop. */
void via_ip_worker_join(struct via_ip_worker *worker);
void via_ip_worker_fini(struct via_ip_worker *worker);

uint64_t via_ip_now_ns(void);

/* The lane to a queue of a host, made when there is none; NULL: no memory, or no such host. */
struct via_ip_lane *via_ip_worker_lane(struct via_ip_worker *worker, unsigned host, unsigned queue);

/* --- the parts of the loop. All return how many packets they moved, or -ENOTCONN ------------- */

/* Some packets of the device into lanes; what their lanes have no room for is held or dropped. */
int via_ip_worker_send(struct via_ip_worker *worker);
/* Sends held packets, or drops those that are too old. */
int via_ip_worker_send_held(struct via_ip_worker *worker, uint64_t now_ns);
/* Lent buffers that are free again go into the pool. */
void via_ip_worker_take_back(struct via_ip_worker *worker);
/* Of sessions that have ended, likewise; all: the host is not there any more. */
void via_ip_worker_empty_limbo(struct via_ip_worker *worker, bool all);
/* Without a host: what the device has is dropped. */
void via_ip_worker_drop_all(struct via_ip_worker *worker);
/* Some packets of each lane into the device. */
int via_ip_worker_receive(struct via_ip_worker *worker);

/* A session is broken: find a new one. rc: why; -ENOTCONN is returned, all else is 0. */
int via_ip_meet_again(struct via_ip_worker *worker, struct via_ip_lane *lane, int rc);
/* A packet wants to go: begins a session if the time for it has come. */
int via_ip_meet(struct via_ip_worker *worker, struct via_ip_lane *lane, uint64_t now_ns);
/* Takes in the hellos that have come. */
int via_ip_meet_hellos(struct via_ip_worker *worker, uint64_t now_ns);
/* Searches for hosts without a session so far. */
int via_ip_meet_all(struct via_ip_worker *worker, uint64_t now_ns);
/* Tells the peers that this worker ends. */
void via_ip_meet_bye(struct via_ip_worker *worker);

#endif
