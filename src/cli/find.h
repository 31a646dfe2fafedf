/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_FIND_H
#define VIA_CLI_FIND_H

#include <limits.h>

#include "base/error.h"

/* Finds the programs that this command starts. Those of the same build or installation come
 * first. */
struct via_find_path {
    char text[PATH_MAX];
};

/* viaductd: beside this program, else in $PATH. -ENOENT. */
int via_find_daemon(struct via_find_path *ret_path, struct via_error *err) VIA_MUST_CHECK;

/* viaduct-sim: beside this program, in its ../libexec/viaduct, else in $PATH. -ENOENT. */
int via_find_simulator(struct via_find_path *ret_path, struct via_error *err) VIA_MUST_CHECK;

/* libviaduct-sockets.so: beside this program, in its ../lib, or in the configured library folder.
 * -ENOENT. */
int via_find_preload(struct via_find_path *ret_path, struct via_error *err) VIA_MUST_CHECK;

/* viaduct-ip: beside this program, else in $PATH. -ENOENT. */
int via_find_ip(struct via_find_path *ret_path, struct via_error *err) VIA_MUST_CHECK;

/* A file of ../share/viaduct of this program's folder. -ENOENT. */
int via_find_shared(const char *name, struct via_find_path *ret_path,
                    struct via_error *err) VIA_MUST_CHECK;

/* oshrun: beside this program, else in $PATH. -ENOENT. */
int via_find_oshrun(struct via_find_path *ret_path, struct via_error *err) VIA_MUST_CHECK;

/* An executable of $PATH. -ENOENT. */
int via_find_in_path(const char *name, struct via_find_path *ret_path) VIA_MUST_CHECK;

#endif
