/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Where a fabric lives: one folder, its rundir, with a socket or two for each host in it. Client,
 * daemon and command agree on it through this file alone.
 */
#ifndef VIA_HOST_CONTROL_PATHS_H
#define VIA_HOST_CONTROL_PATHS_H

#include "base/types.h"

#define VIA_FABRIC_DEFAULT "default"
#define VIA_FABRIC_NAME_MAX 32u
/* A rundir plus the longest name in it; longer ones are refused. */
#define VIA_RUNDIR_BYTES 512u
#define VIA_PATH_BYTES 640u

/* true for 1 to 32 of a-z A-Z 0-9 _ . - that do not begin with a dot or dash. */
bool via_control_fabric_name_ok(const char *name);

/*
 * The rundir: `rundir` when it is given, else that of `fabric` when it is given, else
 * $VIADUCT_RUNDIR, else that of the default fabric. A fabric's is <base>/<fabric>, where base is
 * /run/viaduct for root, else $XDG_RUNTIME_DIR/viaduct, else /tmp/viaduct-<uid>.
 * 0, -EINVAL (no name of a fabric), -ENAMETOOLONG.
 */
int via_control_rundir(char ret_rundir[VIA_RUNDIR_BYTES], const char *rundir,
                       const char *fabric) VIA_MUST_CHECK;

/* <rundir>/host-<id>.<what>: "attach" (attach_wire.h), "control", "log", "pid". */
int via_control_host_path(char ret_path[VIA_PATH_BYTES], const char *rundir, unsigned host,
                          const char *what) VIA_MUST_CHECK;

struct sockaddr_un;

/*
 * A UNIX address for a path of any length: one that does not fit is named through a descriptor of
 * its folder. *ret_dir_fd is to be closed after bind or connect, -1 when there is none. 0 or
 * negative errno.
 */
int via_control_address(const char *path, struct sockaddr_un *ret_address,
                        int *ret_dir_fd) VIA_MUST_CHECK;

#endif
