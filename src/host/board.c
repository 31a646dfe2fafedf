/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/types.h"

struct user {
    struct via_list link;
    uint32_t uid;
    uint32_t notes_count;
};

struct note {
    struct via_list bucket;
    struct via_list all;
    struct user *user;
    struct via_board_poster poster;
    uint64_t expiry_ns;
    uint16_t key_bytes;
    uint16_t value_bytes;
    unsigned char data[]; /* the key, then the value */
};

static struct via_list *bucket_of(struct via_board *board, const void *key, size_t key_bytes)
{
    return &board->buckets[via_hash64(VIA_HASH64_INIT, key, key_bytes) % VIA_BOARD_BUCKETS];
}

static struct user *find_user(const struct via_board *board, uint32_t uid)
{
    via_list_foreach(it, &board->users) {
        struct user *user = via_list_entry(it, struct user, link);
        if (user->uid == uid) {
            return user;
        }
    }
    return NULL;
}

/* The user's entry, with one more note. NULL: out of memory. */
static struct user *add_to_user(struct via_board *board, uint32_t uid)
{
    struct user *user = find_user(board, uid);
    if (user == NULL) {
        user = calloc(1, sizeof(*user));
        if (user == NULL) {
            return NULL;
        }
        user->uid = uid;
        via_list_push_back(&board->users, &user->link);
    }
    user->notes_count++;
    return user;
}

static void remove_from_user(struct user *user)
{
    if (--user->notes_count == 0) {
        via_list_remove(&user->link);
        free(user);
    }
}

static struct note *find(struct via_board *board, uint32_t uid, const void *key, size_t key_bytes)
{
    via_list_foreach(it, bucket_of(board, key, key_bytes)) {
        struct note *note = via_list_entry(it, struct note, bucket);
        if (note->poster.uid == uid && note->key_bytes == key_bytes &&
            memcmp(note->data, key, key_bytes) == 0) {
            return note;
        }
    }
    return NULL;
}

static size_t size_of(size_t key_bytes, size_t value_bytes)
{
    return sizeof(struct note) + key_bytes + value_bytes;
}

static void remove_note(struct via_board *board, struct note *note)
{
    via_list_remove(&note->bucket);
    via_list_remove(&note->all);
    board->notes_count--;
    board->bytes -= size_of(note->key_bytes, note->value_bytes);
    remove_from_user(note->user);
    free(note);
}

void via_board_init(struct via_board *board, uint32_t notes_max, size_t bytes_max)
{
    *board = (struct via_board){
        .notes_max = notes_max,
        .bytes_max = bytes_max,
        .expiry_next_ns = VIA_NEVER_NS,
    };
    via_list_init(&board->all);
    via_list_init(&board->users);
    for (size_t i = 0; i < VIA_BOARD_BUCKETS; i++) {
        via_list_init(&board->buckets[i]);
    }
}

void via_board_fini(struct via_board *board)
{
    via_list_foreach_safe(it, &board->all) {
        remove_note(board, via_list_entry(it, struct note, all));
    }
}

uint32_t via_board_notes_of(const struct via_board *board, uint32_t uid)
{
    const struct user *user = find_user(board, uid);
    return user != NULL ? user->notes_count : 0;
}

void via_board_each_user(const struct via_board *board,
                         void (*call)(void *ctx, uint32_t uid, uint32_t notes_count), void *ctx)
{
    via_list_foreach(it, &board->users) {
        const struct user *user = via_list_entry(it, struct user, link);
        call(ctx, user->uid, user->notes_count);
    }
}

int via_board_add(struct via_board *board, const struct via_board_poster *poster,
                  uint32_t user_notes_max, const void *key, size_t key_bytes, const void *value,
                  size_t value_bytes, uint64_t ttl_ns, uint64_t now_ns)
{
    if (key_bytes == 0 || key_bytes > VIA_BOARD_KEY_BYTES_MAX ||
        value_bytes > VIA_BOARD_VALUE_BYTES_MAX) {
        return -EINVAL;
    }
    via_board_expire(board, now_ns);
    struct note *old = find(board, poster->uid, key, key_bytes);
    size_t bytes = size_of(key_bytes, value_bytes);
    size_t freed = old != NULL ? size_of(old->key_bytes, old->value_bytes) : 0;
    if (board->notes_count - (old != NULL) >= board->notes_max ||
        board->bytes - freed + bytes > board->bytes_max) {
        return -ENOSPC;
    }
    if (old == NULL && via_board_notes_of(board, poster->uid) >= user_notes_max) {
        return -EDQUOT;
    }
    struct note *note = malloc(bytes);
    struct user *user = note != NULL ? add_to_user(board, poster->uid) : NULL;
    if (user == NULL) {
        free(note);
        return -ENOMEM;
    }
    if (old != NULL) {
        remove_note(board, old);
    }
    note->poster = *poster;
    note->user = user;
    note->expiry_ns =
        ttl_ns == 0 || ttl_ns > VIA_NEVER_NS - now_ns ? VIA_NEVER_NS : now_ns + ttl_ns;
    note->key_bytes = (uint16_t)key_bytes;
    note->value_bytes = (uint16_t)value_bytes;
    memcpy(note->data, key, key_bytes);
    if (value_bytes != 0) {
        memcpy(note->data + key_bytes, value, value_bytes);
    }
    via_list_push_back(bucket_of(board, key, key_bytes), &note->bucket);
    via_list_push_back(&board->all, &note->all);
    board->notes_count++;
    board->bytes += bytes;
    board->expiry_next_ns = via_min(board->expiry_next_ns, note->expiry_ns);
    return 0;
}

int via_board_pull(struct via_board *board, uint32_t uid, const void *key, size_t key_bytes,
                   void *ret_value, uint64_t now_ns)
{
    via_board_expire(board, now_ns);
    struct note *note = find(board, uid, key, key_bytes);
    if (note == NULL) {
        return -ENOENT;
    }
    int bytes = note->value_bytes;
    memcpy(ret_value, note->data + note->key_bytes, note->value_bytes);
    remove_note(board, note);
    return bytes;
}

static bool is_of(const struct note *note, const struct via_board_poster *poster)
{
    return note->poster.host == poster->host && note->poster.session == poster->session &&
           note->poster.process == poster->process;
}

void via_board_withdraw(struct via_board *board, const struct via_board_poster *poster)
{
    via_list_foreach_safe(it, &board->all) {
        struct note *note = via_list_entry(it, struct note, all);
        if (is_of(note, poster)) {
            remove_note(board, note);
        }
    }
}

void via_board_withdraw_stale(struct via_board *board, const uint32_t *sessions)
{
    via_list_foreach_safe(it, &board->all) {
        struct note *note = via_list_entry(it, struct note, all);
        uint32_t session = sessions[note->poster.host];
        if (session != 0 && session != note->poster.session) {
            remove_note(board, note);
        }
    }
}

uint64_t via_board_expire(struct via_board *board, uint64_t now_ns)
{
    if (now_ns < board->expiry_next_ns) {
        return board->expiry_next_ns;
    }
    uint64_t next_ns = VIA_NEVER_NS;
    via_list_foreach_safe(it, &board->all) {
        struct note *note = via_list_entry(it, struct note, all);
        if (note->expiry_ns <= now_ns) {
            remove_note(board, note);
        } else {
            next_ns = via_min(next_ns, note->expiry_ns);
        }
    }
    board->expiry_next_ns = next_ns;
    return next_ns;
}
