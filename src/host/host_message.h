/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_MESSAGE_H
#define VIA_HOST_HOST_MESSAGE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "core/node.h"
#include "host/host_transfer.h"

/*
 * Messages between the hosts themselves: on channel 0, flow 0, to an endpoint that processes can
 * neither open nor send to. Each service of a host has such an endpoint. Messages from one host to
 * another arrive in the order in which they are sent.
 */
struct via_host;

#define VIA_HOST_MESSAGE_BYTES_MAX 600u
#define VIA_HOST_SENDS_MAX 256u
#define VIA_HOST_REQUESTS_MAX (VIA_HOST_SENDS_MAX / 2) /* requests among these */
/* ... requests to one host, and the same number of answers: the most that a host which accepts no
 * messages can occupy. */
#define VIA_HOST_SENDS_OF_HOST_MAX (VIA_HOST_SENDS_MAX / 4)
#define VIA_HOST_ARRIVALS_MAX 128u
/* Time in which the destination must accept a message. */
#define VIA_HOST_MESSAGE_TIMEOUT_NS (5 * VIA_SEC_NS)
/* ... the shorter time while messages to other hosts find no room, for a destination with more than
 * a few messages under way. */
#define VIA_HOST_MESSAGE_PATIENCE_NS (250 * VIA_MSEC_NS)
#define VIA_HOST_SENDS_FEW 8u

/* The handlers of an endpoint's messages. The functions run on the control thread. */
struct via_host_service {
    uint32_t endpoint; /* VIA_HOST_ENDPOINT_* */
    uint32_t bytes_min, bytes_max;
    /* A message of host `source` has arrived: hostile, but a private copy, 8-byte aligned. False:
     * there is no room for its answer now; the function is called again later. */
    bool (*arrived)(struct via_host *host, uint16_t source, const void *data, uint32_t bytes);
    /* The result of a message: 0 = the destination has accepted it; -EHOSTUNREACH: not in time; or
     * the node's error. */
    void (*ended)(struct via_host *host, uint16_t destination, const void *data, int status);
};

/* A message under way. It belongs to the control thread while free, then to transfer thread 0 until
 * it is in `done`; deadline_ns, used and cancelling always belong to the control thread. */
struct via_host_send {
    struct via_list link; /* transfer.sends, or messages.done */
    struct via_mail submit;
    struct via_mail cancel;
    const struct via_host_service *service;
    uint64_t cookie;
    uint64_t deadline_ns;
    uint16_t destination;
    bool used;
    bool submitted; /* transfer thread 0 */
    bool cancelling;
    bool answers;     /* enum via_host_message_kind */
    unsigned holders; /* under lock: in `done` when it is 0 */
    int status;
    uint32_t bytes;
    _Alignas(8) unsigned char data[VIA_HOST_MESSAGE_BYTES_MAX];
};

struct via_host_arrival {
    const struct via_host_service *service;
    uint16_t source;
    uint32_t bytes;
    _Alignas(8) unsigned char data[VIA_HOST_MESSAGE_BYTES_MAX];
};

struct via_host_messages {
    pthread_mutex_t lock;
    struct via_host_arrival inbox[VIA_HOST_ARRIVALS_MAX]; /* under lock, as all up to `done` */
    unsigned inbox_head, inbox_count;
    uint64_t blocked[VIA_HOSTS_MAX / 64]; /* hosts whose message was not taken */
    bool is_blocked;
    struct via_list done;

    struct via_host_send sends[VIA_HOST_SENDS_MAX];
    unsigned used_count;
    bool is_short;                        /* a sender found no room since the last tick */
    uint16_t under_way[VIA_HOSTS_MAX][2]; /* to each host: requests, and answers */
    uint32_t serial;
    struct via_mail resume;
    _Atomic bool resuming; /* the mail is posted and not handled yet */
};

void via_host_messages_open(struct via_host *host);
void via_host_messages_close(struct via_host *host);

/* Handles arrivals and results; returns the next deadline. */
uint64_t via_host_messages_tick(struct via_host *host);

/* How much of this host's memory for messages a message may use. */
enum via_host_message_kind {
    VIA_HOST_MESSAGE_REQUESTS, /* refused when half of it is used: the rest is for answers */
    VIA_HOST_MESSAGE_ANSWERS,  /* as long as there is any */
};

/* [control] Is there room for an answer to a host? 1: yes. 0: not now, because of others. -EBUSY:
 * it takes none of the answers under way to it, so it gets no more. */
int via_host_message_room(struct via_host *host, uint16_t destination);

/* [control] Sends a copy of data; the service's `ended` follows, unless this fails: -EAGAIN (too
 * many messages are under way, to this host or altogether), -EMSGSIZE (longer than a frame or than
 * the service allows). */
int via_host_message_send(struct via_host *host, const struct via_host_service *service,
                          enum via_host_message_kind kind, uint16_t destination, const void *data,
                          uint32_t bytes);

/* [transfer thread] */
int via_host_message_deliver(struct via_host *host, const struct via_delivery *delivery);
void via_host_message_complete(struct via_host *host, uint64_t cookie, int status);
void via_host_message_submit_again(struct via_transfer *transfer);

#endif
