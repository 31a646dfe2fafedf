/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_SLICE_TABLE_H
#define VIA_HOST_SLICE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/types.h"
#include "host/attach_wire.h"

/*
 * The slices of one port at the host that stores through them: the piece of a segment behind each
 * slice, the processes that may store through it, and the choice of a slice to reuse for another
 * piece. No I/O and no clock; owned by the control thread. It shares the words of attach_wire.h
 * with processes. A slice whose users are busy is not reused before they have left it or ended. On
 * ports that detach (a mapping never reaches a later piece of the slice) the users have
 * VIA_SLICE_GRACE_NS to leave. On other ports a process that never announces that it has left keeps
 * the slice for as long as it lives.
 */

/* A slice that was used less than this ago is not taken for a process that has its share. */
#define VIA_SLICE_REST_NS (5 * VIA_MSEC_NS)
#define VIA_SLICE_GRACE_NS (10 * VIA_MSEC_NS)
/* Time for which a slice taken from a uid with more than its share is reserved for the uid that
 * requested it. */
#define VIA_SLICE_KEEP_NS (100 * VIA_MSEC_NS)

#define VIA_SLICE_NONE UINT32_MAX

/* A part of a segment of another host: as long as a slice; the last one may be shorter. */
struct via_slice_piece {
    uint64_t handle;
    uint64_t index;
};

/* A process that may store through a slice. The owner's memory while it is in a slice. */
struct via_slice_user {
    struct via_list link;         /* of the slice */
    uint32_t slice;               /* VIA_SLICE_NONE: none */
    uid_t uid;                    /* uid of the process: slices are shared out among uids */
    const _Atomic uint64_t *busy; /* hostile */
    uint64_t bursts_seen;
};

enum via_slice_state {
    VIA_SLICE_FREE,
    VIA_SLICE_REQUESTED, /* this host has requested the piece from the owner's host */
    VIA_SLICE_OPEN,      /* processes may store */
    VIA_SLICE_LEAVING,   /* revoked, but users may still be busy */
};

struct via_slice_entry {
    enum via_slice_state state;
    struct via_slice_piece piece; /* REQUESTED, OPEN */
    uid_t requested_uid;          /* REQUESTED: uid of the process that requested it */
    uint64_t used_ns;             /* when a check last found that it had been used */
    uint64_t busy_ns;             /* LEAVING: when a check first found its users busy, or 0 */
    uint64_t kept_until_ns;       /* taken from a uid with more: reserved for kept_uid until then */
    uid_t kept_uid;
    struct via_list users;
};

struct via_slice_table {
    struct via_slice_entry *entries; /* owned */
    uint32_t count;
    bool detaches;
    _Atomic uint64_t *words; /* borrowed; one for each slice */
    uint64_t sampled_ns;     /* when busy words were last loaded */
    uint64_t evicted_count;
    uint64_t refused_count; /* requests for which no slice was free */
};

/* All slices are free. words: `count` of them. detaches: a property of the port. 0 or -ENOMEM. */
int via_slice_table_init(struct via_slice_table *table, uint32_t count, bool detaches,
                         _Atomic uint64_t *words);
void via_slice_table_fini(struct via_slice_table *table);

void via_slice_user_init(struct via_slice_user *user, uid_t uid, const _Atomic uint64_t *busy);

/* The slice that has the piece, or for which it was requested; VIA_SLICE_NONE. */
uint32_t via_slice_table_find(const struct via_slice_table *table,
                              const struct via_slice_piece *piece);

/*
 * Takes a slice for a piece that no slice has, for a process of this uid: a free one, or the least
 * recently used one, whose users lose it. It becomes REQUESTED. -EAGAIN: all are in use now.
 */
int via_slice_table_take(struct via_slice_table *table, const struct via_slice_piece *piece,
                         uid_t uid, uint64_t now_ns, uint32_t *ret_slice) VIA_MUST_CHECK;

/* The piece is exposed: the slice's word becomes `life`, not 0. The slice was REQUESTED. */
void via_slice_table_open(struct via_slice_table *table, uint32_t slice, uint64_t life,
                          uint64_t now_ns);

/* The user may store through an OPEN slice; it has no other slice. */
void via_slice_table_join(struct via_slice_table *table, uint32_t slice,
                          struct via_slice_user *user);

/* The process has ended, or has unmapped the slice: it stores no more. */
void via_slice_table_leave(struct via_slice_table *table, struct via_slice_user *user);

/* No process may store through the slice any more. gone: the segment was freed. */
void via_slice_table_revoke(struct via_slice_table *table, uint32_t slice, bool gone);
void via_slice_table_revoke_all(struct via_slice_table *table);

/* Slices that all users have left become FREE, without users. Returns the number of slices that are
 * still LEAVING. */
uint32_t via_slice_table_settle(struct via_slice_table *table, uint64_t now_ns);

uint32_t via_slice_table_open_count(const struct via_slice_table *table);
/* Slices that are REQUESTED for a process of this uid. */
uint32_t via_slice_table_requested_count(const struct via_slice_table *table, uid_t uid);
/* Has the slice users, and are all of them of this uid? */
bool via_slice_table_is_only_of(const struct via_slice_table *table, uint32_t slice, uid_t uid);

#endif
