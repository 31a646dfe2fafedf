/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_RUNDIR_H
#define VIA_HOST_RUNDIR_H

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

/*
 * The run directory of a fabric on this machine: the sockets and lock files of its hosts. A user
 * that can enter it can reach them, so it belongs to one user and is closed to all others.
 *
 *   host-<id>.attach      the socket at which processes attach
 *   host-<id>.ctl         the socket for status, cut, mend, stop
 *   host-<id>.lock        locked (flock) by the host's daemon; contains its pid
 *   host-local            a symbolic link with the id of the host, in the directory of a machine's
 *                         only daemon; not in that of `viaduct up`, which has several daemons
 *   link-<a>-<b>-<n>.sock cable n between hosts a < b
 */
#define VIA_FABRIC_DEFAULT "default"
#define VIA_FABRIC_NAME_BYTES_MAX 32u

/* The size of a UNIX socket's path (sun_path). */
#define VIA_RUNDIR_PATH_BYTES 108u

struct via_rundir_path {
    char text[VIA_RUNDIR_PATH_BYTES];
};

/* 0 or -EINVAL: is this a fabric's name? */
int via_rundir_check_name(const char *fabric, struct via_error *err);

/* Of a machine's daemon. */
#define VIA_RUNDIR_MACHINE "/run/viaduct"
/* The fabric's description, which `viaduct up` writes. */
#define VIA_FABRIC_STATE_FILE "fabric.json"

/*
 * $VIADUCT_RUNDIR as it is; else /run/viaduct/<fabric> for root, $XDG_RUNTIME_DIR/viaduct/<fabric>,
 * or /tmp/viaduct-<uid>/<fabric>. fabric: NULL = $VIADUCT_FABRIC, else VIA_RUNDIR_MACHINE if it is
 * the directory of a host, else "default". 0, -EINVAL (a name that is none), -ENAMETOOLONG.
 */
int via_rundir_default(const char *fabric, struct via_rundir_path *ret_path, struct via_error *err);

/*
 * Makes the directory, with parents, mode 0700, unless it is there. passable: with mode 0711, so
 * that other users reach the sockets in it, whose names they know. -ELOOP (a symbolic link),
 * -ENOTDIR, -EPERM (owned by another user, open to others, closed to others that are to pass, or in
 * a directory where others may replace it), or an error of mkdir().
 */
int via_rundir_make(const char *rundir, bool passable, struct via_error *err);

/* The host whose directory it is; -ENOENT. */
int via_rundir_local(const char *rundir, unsigned *ret_host);
/* claim: the holder of a host's lock writes host-local, unless the directory belongs to another
 * live host or to a fabric of `viaduct up`. unclaim: removes it. */
void via_rundir_claim(const char *rundir, unsigned host);
void via_rundir_unclaim(const char *rundir, unsigned host);

/* 0, or -ENAMETOOLONG when the path does not fit a socket address. */
int via_rundir_attach_path(const char *rundir, unsigned host, struct via_rundir_path *ret_path,
                           struct via_error *err);
int via_rundir_control_path(const char *rundir, unsigned host, struct via_rundir_path *ret_path,
                            struct via_error *err);
int via_rundir_lock_path(const char *rundir, unsigned host, struct via_rundir_path *ret_path,
                         struct via_error *err);
/* a and b in any order. */
int via_rundir_link_path(const char *rundir, unsigned a, unsigned b, unsigned number,
                         struct via_rundir_path *ret_path, struct via_error *err);

#endif
