/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_BOARD_H
#define VIA_HOST_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

/*
 * The notes on a host's board: small values by key, each with a time to live. No threads, no clock:
 * the caller passes the time in.
 */
#define VIA_BOARD_KEY_BYTES_MAX 64u
#define VIA_BOARD_VALUE_BYTES_MAX 512u
#define VIA_BOARD_BUCKETS 256u

/* The owner of a note: when a poster detaches, the board removes all its notes. Each user has its
 * own keys: only processes of the note's user find the note. */
struct via_board_poster {
    uint32_t uid;
    uint16_t host;
    uint32_t session; /* of that host */
    uint32_t process; /* number of the attachment there */
};

struct via_board {
    struct via_list buckets[VIA_BOARD_BUCKETS];
    struct via_list all;   /* oldest first */
    struct via_list users; /* users with notes on this board */
    uint32_t notes_count;
    uint32_t notes_max;
    size_t bytes;
    size_t bytes_max;
    uint64_t expiry_next_ns; /* not later than the first expiry */
};

void via_board_init(struct via_board *board, uint32_t notes_max, size_t bytes_max);
void via_board_fini(struct via_board *board);

/*
 * Posts a note; it replaces one of the same user with the same key. ttl_ns from now; 0 = until its
 * poster detaches. 0, -EINVAL (sizes), -ENOSPC (too many notes or bytes), -EDQUOT (the user has
 * user_notes_max notes there), -ENOMEM.
 */
int via_board_add(struct via_board *board, const struct via_board_poster *poster,
                  uint32_t user_notes_max, const void *key, size_t key_bytes, const void *value,
                  size_t value_bytes, uint64_t ttl_ns, uint64_t now_ns);

/* Removes a note of this user and copies its value to ret_value (VIA_BOARD_VALUE_BYTES_MAX), its
 * length, -ENOENT. */
int via_board_pull(struct via_board *board, uint32_t uid, const void *key, size_t key_bytes,
                   void *ret_value, uint64_t now_ns);

/* Number of notes of this user on the board. */
uint32_t via_board_notes_of(const struct via_board *board, uint32_t uid);

/* Calls `call` for each user with notes on the board. */
void via_board_each_user(const struct via_board *board,
                         void (*call)(void *ctx, uint32_t uid, uint32_t notes_count), void *ctx);

/* Removes all notes of a poster. */
void via_board_withdraw(struct via_board *board, const struct via_board_poster *poster);

/* Removes all notes that hosts have posted in another session than sessions[host id]; 0 = keep the
 * notes of this host. */
void via_board_withdraw_stale(struct via_board *board, const uint32_t *sessions);

/* Removes expired notes. Returns the time of the next expiry, or UINT64_MAX. */
uint64_t via_board_expire(struct via_board *board, uint64_t now_ns);

#endif
