/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_RIGHTS_H
#define VIA_HOST_CONTROL_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

/*
 * Users and groups that hold a right, besides the user a host runs as and root, which hold all. The
 * kernel reports the user at the other end of a UNIX socket (SO_PEERCRED, SO_PEERGROUPS): the user
 * that called connect(), whichever process has the descriptor now.
 */
#define VIA_RIGHTS_ENTRIES_MAX 32u

enum via_rights_kind {
    VIA_RIGHTS_ALL = 1,
    VIA_RIGHTS_USER,
    VIA_RIGHTS_GROUP,
};

struct via_rights_entry {
    enum via_rights_kind kind;
    uint32_t id;
};

struct via_rights {
    unsigned count; /* 0: the owner and root alone */
    struct via_rights_entry entries[VIA_RIGHTS_ENTRIES_MAX];
};

/* Adds "all", "owner" (which has it anyway), "user:NAME|ID" and "group:NAME|ID", separated by
 * commas. -EINVAL with a text that names the wrong item; the rights are unchanged then. */
int via_rights_add(struct via_rights *rights, const char *text, struct via_error *err);

/* A user, as the kernel of the machine knows it on which the user's process runs. */
#define VIA_RIGHTS_GROUPS_MAX 256u
struct via_rights_user {
    uint32_t uid;
    uint32_t gid;
    unsigned groups_count; /* besides gid */
    uint32_t groups[VIA_RIGHTS_GROUPS_MAX];
};

/* The user that has connected with this socket. */
void via_rights_user_of(int fd, const struct ucred *peer, struct via_rights_user *ret_user);
bool via_rights_has_user(const struct via_rights *rights, const struct via_rights_user *user);

/* Does the process that has connected with this socket hold the right? */
bool via_rights_has(const struct via_rights *rights, int fd, const struct ucred *peer);

/* The user this process runs as, or root. */
bool via_rights_is_owner(uint32_t uid);

/* The limits of all processes of one user; 0 = the default, half of the host's limit. The
 * user that runs the host and root may have all. */
struct via_quota {
    uint32_t segments;     /* registered */
    uint64_t memory_bytes; /* of registered segments, whether touched or not */
    uint32_t pipes;        /* pairs of pipes: a process has one for each channel */
    uint32_t notes;        /* on the board of this host */
};

/* Takes "segments=N,memory=BYTES,pipes=N,notes=N", any of them, each 1 or more; bytes also with K,
 * M, G or T. -EINVAL with a text; the quota is unchanged then. */
int via_quota_parse(struct via_quota *quota, const char *text, struct via_error *err);

#endif
