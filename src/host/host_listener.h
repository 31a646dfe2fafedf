/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_LISTENER_H
#define VIA_HOST_HOST_LISTENER_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/error.h"
#include "host/host_source.h"
#include "host/rundir.h"

/*
 * A listening UNIX socket in the run directory. This process holds the host's lock, so an existing
 * socket belongs to a dead process, and is replaced.
 */
struct via_host_listener {
    struct via_host *host;
    struct via_host_source source;
    struct via_rundir_path path;
    void (*accepted)(struct via_host *host, int fd, const struct ucred *peer);
    int spare_fd;       /* without free descriptors: closed, to accept a connection and close it */
    uint64_t resume_ns; /* no connection is accepted before; 0: now */
    bool bound;
};

/* type: SOCK_STREAM or SOCK_SEQPACKET. */
int via_host_listener_open(struct via_host *host, struct via_host_listener *listener,
                           const struct via_rundir_path *path, int type,
                           void (*accepted)(struct via_host *host, int fd,
                                            const struct ucred *peer),
                           struct via_error *err);
void via_host_listener_close(struct via_host_listener *listener);
/* Accepts again after a pause; the next deadline. */
uint64_t via_host_listener_tick(struct via_host_listener *listener);

#endif
