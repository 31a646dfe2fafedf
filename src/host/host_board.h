/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_BOARD_H
#define VIA_HOST_HOST_BOARD_H

#include <stdbool.h>
#include <stddef.h>

#include "host/attach_wire.h"
#include "host/host_message.h"

/*
 * Notes for the boards of other hosts: messages between hosts (host_message.h) to
 * VIA_HOST_ENDPOINT_BOARD carry the notes and the answers.
 */
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
    union {
        int32_t status; /* answer */
        uint32_t uid;   /* post: of the process, according to its host */
    };
    uint32_t ttl_ms;
    uint16_t key_bytes;
    uint16_t value_bytes;
    unsigned char data[576]; /* key, then value; only their bytes are sent */
};
#define VIA_BOARD_MESSAGE_HEAD_BYTES 24u
_Static_assert(offsetof(struct via_board_message, data) == VIA_BOARD_MESSAGE_HEAD_BYTES,
               "no holes");
_Static_assert(sizeof(struct via_board_message) <= VIA_HOST_MESSAGE_BYTES_MAX, "it is a message");

#define VIA_BOARD_NOTES_MAX 8192u
#define VIA_BOARD_BYTES_MAX (4u << 20)

extern const struct via_host_service via_host_board_service;

void via_host_board_open(struct via_host *host);
void via_host_board_close(struct via_host *host);

/* Links or routes changed: removes the notes that processes of a restarted host had left. */
void via_host_board_changed(struct via_host *host);

/* Removes expired notes; returns the next deadline. */
uint64_t via_host_board_tick(struct via_host *host);

/*
 * Sends a note to pending->peer; via_attach_server_answered follows, unless this fails: -EAGAIN
 * (too many under way).
 */
int via_host_board_post(struct via_host *host, const struct via_attach_pending *pending,
                        const struct via_attach_request *request);

/* The process has ended: removes its notes from the boards of this and other hosts. False: some
 * messages could not be sent yet. */
bool via_host_board_leave(struct via_host *host, struct via_process *process);

#endif
