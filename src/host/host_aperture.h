/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_APERTURE_H
#define VIA_HOST_HOST_APERTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/attach_wire.h"
#include "host/host_message.h"
#include "host/slice_table.h"
#include "port/slice.h"

/*
 * Apertures (docs/adr/0016-apertures.md): the assignment of slices of a window to pieces of
 * segments.
 * The host whose processes store (the importer) has the table of a link's slices; the host of the
 * segment (the owner) exposes the requested piece, if the segment allows it, and notifies the
 * importer when the segment was freed. They send messages (host_message.h) to
 * VIA_HOST_ENDPOINT_APERTURE.
 *
 * Control thread.
 */
struct via_host;
struct via_host_segment;
struct via_process;
struct via_attach_pending;

enum via_aperture_message_type {
    VIA_APERTURE_EXPOSE =
        1, /* importer: show this piece in this slice instead of its present one */
    VIA_APERTURE_ANSWER = 2, /* owner: status, and the length of the piece */
    VIA_APERTURE_GONE = 3,   /* owner: the segment of an exposure was freed; the slice is empty */
};

struct via_aperture_message {
    uint32_t type; /* enum via_aperture_message_type */
    uint32_t link; /* the receiver's number of the link, plus 1 */
    uint32_t from; /* the sender's number of the link, plus 1 */
    uint32_t slice;
    uint64_t exposure; /* the importer's number of the request: never used twice */
    uint64_t handle;   /* EXPOSE */
    uint64_t piece;    /* EXPOSE: the segment's bytes from piece * bytes on */
    uint64_t bytes;    /* EXPOSE: of a slice. ANSWER: of the piece */
    int32_t status;    /* ANSWER: 0 or negative errno */
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct via_aperture_message) == 56, "no padding on the wire");

extern const struct via_host_service via_host_aperture_service;

/* A slice at the host that stores through it: fields that are not in the table. */
struct via_host_slice {
    uint64_t exposure;
    uint64_t bytes;       /* of the piece */
    uint64_t deadline_ns; /* REQUESTED: deadline of the owner's answer */
    bool answered;        /* REQUESTED: exposed, but the port can not map the memory yet */
    bool mapped;          /* the port has the memory that a process maps */
};

/* A slice at the host of the segment. */
struct via_host_exposure {
    uint64_t handle;   /* 0: the slice has no piece */
    uint64_t exposure; /* the importer's number */
    bool gone;         /* the segment was freed, and the importer must be notified */
};

/* The slices of a link, in both directions. */
struct via_host_slices {
    struct via_port_slices *port; /* borrowed; NULL: the link has none */
    unsigned link;                /* its index */
    uint64_t edges;               /* ups and downs of the link that have been handled */
    uint32_t word_first;          /* in the status page */
    uint64_t silent_until_ns; /* 0, or the peer did not answer: no request to it before this time */
    uint64_t silence_ns;      /* length of the last such pause; 0: the peer has answered since */
    bool leaving;             /* slices may be LEAVING, or FREE and still mapped */
    bool gone_due;            /* exposures may be `gone` */
    uint32_t requested_count;
    struct via_slice_table table;
    struct via_host_slice *slices;       /* of `count` */
    struct via_host_exposure *exposures; /* of `count` */
    uint64_t opened_count, gone_count, exposed_count, exposed_refused_count;
};

/* The slices of a process. */
struct via_host_slice_user {
    struct via_slice_user user;
    struct via_host_slices *link; /* of user.slice */
};

struct via_host_slice_users {
    struct via_host_slice_user users[VIA_ATTACH_SLICES_MAX]; /* by busy word */
    uint32_t oldest; /* the next one to give up its slice when all are used, in turn */
};

struct via_host_aperture {
    struct via_host_slices *links; /* by index; NULL before it is open */
    uint64_t exposure_last;
    uint64_t bursts_ended; /* of processes that have ended */
};

/* Before any port is open. 0 or -ENOMEM. */
int via_host_aperture_open(struct via_host *host);
/* The port of this link is open, and not yet added to the node. 0 or -ENOMEM. */
int via_host_aperture_link_open(struct via_host *host, unsigned index);
/* The node no longer has the port. False: processes may still store through its slices, for
 * VIA_SLICE_GRACE_NS at most. */
bool via_host_aperture_link_close(struct via_host *host, unsigned index);
/* After the last process has ended. */
void via_host_aperture_close(struct via_host *host);

/* VIA_ATTACH_SLICE: 0 = answered, or will be answered; else the status for the answer. */
int via_host_aperture_request(struct via_process *process,
                              const struct via_attach_request *request);
/* Sends a request to the owner's host, or joins the processes that wait for the same piece:
 * via_attach_server_answered follows. 0, -EXDEV, -EAGAIN. */
int via_host_aperture_send_request(struct via_host *host, struct via_attach_pending *pending,
                                   const struct via_attach_request *request);

/* The process has detached or died: it stores no more. */
void via_host_aperture_leave(struct via_process *process);

/* No process may write to this segment any more; called before its memory is freed. */
void via_host_aperture_gone(struct via_host *host, uint64_t handle);

/* Links may have gone up or down: those that went down have no slices any more. */
void via_host_aperture_changed(struct via_host *host);

/* Does this link have slices in this state? */
bool via_host_aperture_is_offered(const struct via_host *host, unsigned index,
                                  const struct via_link_status *link);

/* Does all due work; returns the next deadline. */
uint64_t via_host_aperture_tick(struct via_host *host);

/* Puts through slices that processes have begun, by their own count. */
uint64_t via_host_aperture_bursts(const struct via_host *host);

#endif
