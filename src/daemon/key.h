/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_KEY_H
#define VIA_DAEMON_KEY_H

#include <pthread.h>
#include <stdint.h>

#include "base/error.h"
#include "host/host.h"

/*
 * The fabric key: a file of 32 to 4096 random bytes, which is the same on all hosts of a fabric.
 * Its owner is the daemon's user or root, and no other user may read or write it.
 */
struct via_daemon_key {
    pthread_mutex_t lock; /* guards `key`, because drivers hash in threads of their own */
    uint8_t key[32];      /* BLAKE2b of the file */
    struct via_host_key host;
};

/* Reads the file. 0; -EPERM: other users may read or write it; -EINVAL: it is too short, too long
 * or not a regular file; or an error of open() or read(). ret_key->host points to *ret_key, which
 * must stay. */
VIA_MUST_CHECK int via_daemon_key_read(const char *path, struct via_daemon_key *ret_key,
                                       struct via_error *err);
/* [any thread] From now on `key` hashes with the bytes of `fresh`. */
void via_daemon_key_replace(struct via_daemon_key *key, const struct via_daemon_key *fresh);

#endif
