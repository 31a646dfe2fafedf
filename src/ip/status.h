/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The status of viaduct-ip: a process (of the owner or root) that connects to <rundir>/host-<id>.ip
 * (SOCK_STREAM) receives a JSON object in one line, then end of file.
 */
#ifndef VIA_IP_STATUS_H
#define VIA_IP_STATUS_H

#include "host/rundir.h"
#include "ip/worker.h"

struct via_ip_status {
    struct via_rundir_path path;
    int fd; /* listening socket; -1: none */
};

/* Listens; replaces the socket of a dead process. -EADDRINUSE: a living process listens. */
int via_ip_status_open(struct via_ip_status *status, const char *rundir, unsigned host,
                       struct via_error *err) VIA_MUST_CHECK;
/* True if the run directory was replaced by one without the socket. */
bool via_ip_status_is_gone(const struct via_ip_status *status);
void via_ip_status_close(struct via_ip_status *status, bool remove);

/* Answers connected processes. Does not block. */
void via_ip_status_serve(const struct via_ip_status *status, const struct via_ip_shared *shared,
                         const struct via_ip_worker *workers);

#endif
