/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The cable: a UNIX SOCK_SEQPACKET socket between the two ends of an emulated link. Each datagram
 * is one message with up to eight descriptors. The receiver of a malformed message ends the
 * connection.
 */
#ifndef VIA_PORT_EMU_CABLE_H
#define VIA_PORT_EMU_CABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "port/emu/emu.h"

#define VIA_EMU_CABLE_MAGIC 0x454c4243u /* "CBLE" */
#define VIA_EMU_CABLE_VERSION 2u

enum via_emu_cable_type {
    VIA_EMU_CABLE_HELLO = 1,   /* first message each way. fds: inbox, bells; of side 0: bridge */
    VIA_EMU_CABLE_NUDGE = 2,   /* read the link word of the bridge. No fds */
    VIA_EMU_CABLE_REQUEST = 3, /* for on_message */
    VIA_EMU_CABLE_SLICE = 4, /* a slice of the receiver's window shows this memory. fds: the memory;
                                none: the slice shows nothing */
};

/* Magic and version come first in every version, so that a peer of another version can report the
 * mismatch. */
struct via_emu_cable_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type; /* enum via_emu_cable_type */
};

struct via_emu_cable_hello {
    struct via_emu_cable_header header;
    uint16_t host;
    uint16_t side;
    uint16_t bell_lines;
    uint16_t cut; /* 1: as far as the sender knows, the cable is cut */
    uint64_t inbox_bytes;
    char like[16];       /* name of the class of links that is emulated, zero-padded */
    uint32_t pads_known; /* 1: pads are those of an earlier connection */
    uint32_t reserved;
    uint32_t pads[VIA_PORT_SCRATCHPADS];
};
_Static_assert(sizeof(struct via_emu_cable_hello) == 80, "no holes");

/* First part of the body of a request; the rest is the message for on_message. */
struct via_emu_cable_request {
    uint32_t round; /* of the link word when the request was sent: void in any other round */
    uint32_t reserved;
};

/* Body of SLICE. */
struct via_emu_cable_slice {
    uint32_t round; /* as in a request */
    uint32_t slice;
    uint64_t exposure;
    uint64_t off; /* in the memory */
    uint64_t bytes;
};

#define VIA_EMU_CABLE_BODY_BYTES_MAX \
    (sizeof(struct via_emu_cable_request) + VIA_EMU_MESSAGE_BYTES_MAX)
struct via_emu_cable_message {
    _Alignas(8) struct via_emu_cable_header header;
    unsigned char body[VIA_EMU_CABLE_BODY_BYTES_MAX];
    size_t body_bytes;
    int fds[VIA_EMU_MESSAGE_FDS_MAX]; /* -1 where taken */
    unsigned fds_count;
};

/*
 * Listens at path with a UNIX socket of this type; replaces a socket whose process has died.
 * -EADDRINUSE: a living process listens there, and err contains its pid. -EEXIST: path is not a
 * socket.
 */
VIA_MUST_CHECK int via_emu_listen(const char *path, int type, mode_t mode, int *ret_fd,
                                  struct via_error *err);

/* The same for a cable. */
VIA_MUST_CHECK int via_emu_cable_listen(const char *path, mode_t mode, int *ret_fd,
                                        struct via_error *err);

/* Accepts a connection; -EAGAIN: none is pending. */
VIA_MUST_CHECK int via_emu_cable_accept(int listen_fd, int *ret_fd);

/* Connects without blocking: 0, -ENOENT or -ECONNREFUSED (no listener), -EAGAIN (the listener's
 * backlog is full), or another error. */
VIA_MUST_CHECK int via_emu_cable_connect(const char *path, int *ret_fd);

/* The process at the peer's end. -EACCES: it belongs to another user, and not to root. */
VIA_MUST_CHECK int via_emu_cable_peer(int fd, pid_t *ret_pid);

/* Sends a datagram made of a type and a body. Does not block: -EAGAIN. */
VIA_MUST_CHECK int via_emu_cable_send(int fd, enum via_emu_cable_type type, const void *body,
                                      size_t body_bytes, const int *fds, unsigned fds_count);

/*
 * 1: a message, whose fds the caller owns. 0: the peer has closed the connection. -EAGAIN: no
 * message. -EPROTO: a malformed message. -EPROTONOSUPPORT: another version; message->header is
 * valid then.
 */
VIA_MUST_CHECK int via_emu_cable_receive(int fd, struct via_emu_cable_message *ret_message);

void via_emu_cable_close_fds(struct via_emu_cable_message *message);

#endif
