/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_BOARD_H
#define VIA_HOST_HOST_BOARD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/list.h"
#include "core/node.h"
#include "host/attach_wire.h"
#include "host/host_transfer.h"

/*
 * Notes for the boards of other hosts: they travel as messages between the hosts themselves, on
 * channel 0, flow 0, to VIA_HOST_ENDPOINT_BOARD, and are answered the same way.
 */
struct via_host;
struct via_process;
struct via_attach_pending;

enum via_board_message_type {
    VIA_BOARD_POST = 1,     /* answered */
    VIA_BOARD_ANSWER = 2,   /* id, status */
    VIA_BOARD_WITHDRAW = 3, /* all notes of `process`; not answered */
};

struct via_board_message {
    uint32_t type; /* enum via_board_message_type */
    uint32_t id;
    uint32_t process;
    int32_t status;
    uint32_t ttl_ms;
    uint16_t key_bytes;
    uint16_t value_bytes;
    unsigned char data[576]; /* key, value; sent only as long as they are */
};
#define VIA_BOARD_MESSAGE_HEAD_BYTES 24u
_Static_assert(offsetof(struct via_board_message, data) == VIA_BOARD_MESSAGE_HEAD_BYTES,
               "no holes");

#define VIA_BOARD_SENDS_MAX 256u
#define VIA_BOARD_INBOX_MAX 128u
#define VIA_BOARD_NOTES_MAX 8192u
#define VIA_BOARD_BYTES_MAX (4u << 20)
/* Another host has so long to take a note. */
#define VIA_BOARD_TIMEOUT_NS (5 * VIA_SEC_NS)

/* A message on its way. Of the control thread while free, then of transfer thread 0 until it is in
 * `done`; deadline_ns, used and cancelling are always the control thread's. */
struct via_board_send {
    struct via_list link; /* transfer.sends, or board_mail.done */
    struct via_mail submit;
    struct via_mail cancel;
    uint64_t cookie;
    uint64_t deadline_ns;
    uint16_t destination;
    bool used;
    bool submitted; /* transfer thread 0 */
    bool cancelling;
    unsigned holders; /* under lock: in `done` when it is 0 */
    int status;
    uint32_t bytes;
    struct via_board_message message;
};

struct via_board_arrival {
    uint16_t source;
    uint32_t bytes;
    struct via_board_message message;
};

struct via_host_board_mail {
    pthread_mutex_t lock;
    struct via_board_arrival inbox[VIA_BOARD_INBOX_MAX]; /* under lock, as all up to `done` */
    unsigned inbox_head, inbox_count;
    uint64_t blocked[VIA_HOSTS_MAX / 64]; /* hosts whose message was not taken */
    bool is_blocked;
    struct via_list done;

    struct via_board_send sends[VIA_BOARD_SENDS_MAX];
    unsigned used_count;
    uint32_t serial;
    uint32_t sessions[VIA_HOSTS_MAX]; /* of the other hosts, as last seen */
    struct via_mail resume;
    _Atomic bool resuming; /* the mail is on its way */
};

void via_host_board_open(struct via_host *host);
void via_host_board_close(struct via_host *host);

/* Links or routes changed: what the processes of a host left before it restarted is taken down. */
void via_host_board_changed(struct via_host *host);

/* What arrived and what ended; the next deadline. */
uint64_t via_host_board_tick(struct via_host *host);

/*
 * Sends a note on its way to pending->peer; via_attach_server_answered follows, unless this fails:
 * -EAGAIN (too many under way).
 */
int via_host_board_post(struct via_host *host, const struct via_attach_pending *pending,
                        const struct via_attach_request *request);

/* The process has gone: its notes go, here and elsewhere. false: not all could be sent for yet. */
bool via_host_board_leave(struct via_host *host, struct via_process *process);

/* [transfer thread] */
int via_host_board_deliver(struct via_host *host, const struct via_delivery *delivery);
void via_host_board_complete(struct via_host *host, uint64_t cookie, int status);
void via_host_board_submit_again(struct via_transfer *transfer);

#endif
