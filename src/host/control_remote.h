/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_REMOTE_H
#define VIA_HOST_CONTROL_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"
#include "host/control_rights.h"
#include "host/host_message.h"

/*
 * Requests of the control protocol to another host, by messages to VIA_HOST_ENDPOINT_REMOTE: one
 * message for the request, one or more for the answer. The request names its user, and the
 * destination checks that user's rights: hosts of a fabric trust each other's user ids, as with
 * notes on boards.
 */
struct via_host;

#define VIA_REMOTE_REQUEST_BYTES_MAX 384u
#define VIA_REMOTE_ANSWER_BYTES_MAX (1u << 20)
#define VIA_REMOTE_GROUPS_MAX 40u
/* Time in which the destination must answer. */
#define VIA_REMOTE_TIMEOUT_NS (1800 * VIA_MSEC_NS)
/* Answers under way: to all hosts, and to one. */
#define VIA_REMOTE_ANSWERS_MAX 32u
#define VIA_REMOTE_ANSWERS_OF_HOST_MAX 8u
/* Messages of one answer that are under way. */
#define VIA_REMOTE_WINDOW 8u
/* Requests of one host in a second; more are refused. */
#define VIA_REMOTE_REQUESTS_PER_SECOND 100u
/*
 * Limits at the requesting host, so that one user can not use up the requests that the destination
 * accepts: requests under way to one host, of all users and of one user. Requests of the owner and
 * root do not count. A place is reused only after VIA_REMOTE_PLACE_NS, and requests without a place
 * wait.
 */
#define VIA_REMOTE_PLACES_MAX 6u
#define VIA_REMOTE_PLACES_OF_USER_MAX 2u
#define VIA_REMOTE_PLACE_NS (100 * VIA_MSEC_NS)

enum via_remote_type {
    VIA_REMOTE_REQUEST = 1,
    VIA_REMOTE_ANSWER = 2,
};

struct via_remote_message {
    uint32_t type;
    uint32_t id; /* of the request, given by the requesting host */
    uint32_t total_bytes;
    uint32_t off;          /* answer: where data belongs */
    uint32_t uid;          /* request */
    uint32_t gid;          /* request */
    uint16_t groups_count; /* request: groups, 4 bytes each, come before the text */
    uint16_t bytes;        /* of text in data */
    uint32_t reserved;
    unsigned char data[568];
};
#define VIA_REMOTE_HEAD_BYTES 32u
_Static_assert(sizeof(struct via_remote_message) == VIA_HOST_MESSAGE_BYTES_MAX, "it is a message");
_Static_assert(VIA_REMOTE_REQUEST_BYTES_MAX + 4 * VIA_REMOTE_GROUPS_MAX <= 568, "it fits");

/* The place of a user's request to a host that is under way, or ended a short time ago. */
struct via_remote_place {
    struct via_remote_call *call; /* NULL: it has ended */
    uid_t uid;
    uint64_t free_ns; /* earliest time of its next use */
};

/* A request under way to another host. The caller's memory, until it is answered or cancelled. */
struct via_remote_call {
    struct via_list link;           /* of calls, or of waiting */
    struct via_remote_place *place; /* NULL: none, or not yet */
    struct via_remote_message message;
    uint32_t message_bytes;
    uint32_t id;
    uint16_t destination;
    bool active;
    uint64_t deadline_ns;
    char *text;
    size_t bytes;
    size_t total_bytes;
    /* Called once: with the answer as JSON on one line, not validated, or with NULL and the reason
     * as text. Both are valid during the call only. */
    void (*answered)(struct via_remote_call *call, const char *text, size_t bytes, const char *why);
};

struct via_control_remote {
    struct via_list calls;
    struct via_list waiting;                                  /* calls without a place */
    struct via_remote_place (*places)[VIA_REMOTE_PLACES_MAX]; /* hosts_max */
    struct via_list answers;
    unsigned answers_count;
    uint32_t id_next;
    struct via_remote_rate {
        uint64_t since_ns;
        unsigned count;
    } * rates; /* hosts_max */
};

extern const struct via_host_service via_control_remote_service;

int via_control_remote_open(struct via_host *host, struct via_error *err);
void via_control_remote_close(struct via_host *host);
uint64_t via_control_remote_tick(struct via_host *host);

/* Sends the request (a line without its end) to another host; call->answered follows, unless this
 * fails with a text: there is no such host, no route to it, or too many requests are under way. */
int via_control_remote_send_request(struct via_host *host, struct via_remote_call *call,
                                    uint16_t destination, const struct via_rights_user *user,
                                    const char *text, size_t bytes, struct via_error *err);
void via_control_remote_cancel(struct via_remote_call *call);

#endif
