/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Gets and atomics: operations with an answer.
 *
 * An atomic on a mapping is an instruction of this CPU. The owner's host executes atomics for other
 * hosts with the same instructions, so on one cache-coherent machine the two kinds compose. Behind
 * a port that is not coherent nothing is mapped, and the owner's host executes all atomics.
 */
#include "host/client.h"

#include <errno.h>
#include <string.h>

#include "core/node.h"
#include "host/client_auto.h"
#include "host/client_tcp.h"
#include "wire/frame.h"

static struct via_command get_command(const struct via_remote *remote, uint64_t off, uint64_t bytes)
{
    return (struct via_command){
        .kind = VIA_OP_GET,
        .source = VIA_SOURCE_NONE,
        .destination = remote->host,
        .bytes = bytes,
        .segment = remote->handle,
        .offset = off,
    };
}

struct few {
    const struct via_client_result *result;
};

static bool few_are_left(struct via_attach *attach, void *ctx)
{
    (void)attach;
    return ((const struct few *)ctx)->result->left < VIA_CLIENT_GET_PIECES_MAX;
}

/* [locked, waits] */
static int send_get(struct via_remote *remote, struct via_command *command, void *dst,
                    struct via_client_result *result)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    struct few few = {.result = result};
    struct via_client_wait wait = {
        .done = few_are_left,
        .ctx = &few,
        .deadline_ns = VIA_NEVER_NS,
        .replies = via_client_replies(attach, channel),
    };
    int rc = few_are_left(attach, &few) ? 0 : via_client_wait(attach, &wait);
    if (rc == 0) {
        rc = via_client_command_room(attach, channel, 0);
    }
    if (rc == 0) {
        struct via_client_intent intent = {
            .result = result,
            .destination = dst,
            .bytes = command->bytes,
        };
        via_client_command_send(attach, channel, command, NULL, 0, &intent);
    }
    return rc;
}

/* [locked, waits] Gets into memory that the host has mapped: one command, and no copy here. */
static int get_into_segment(struct via_remote *remote, uint64_t off,
                            const struct via_segment *segment, const unsigned char *dst,
                            size_t bytes, struct via_client_result *result)
{
    struct via_command command = get_command(remote, off, bytes);
    command.source = VIA_SOURCE_SEGMENT;
    command.a.source_segment = segment->handle;
    command.b.source_offset = (uint64_t)(dst - segment->base);
    return send_get(remote, &command, NULL, result);
}

/* [locked, waits] */
static int get_pieces(struct via_remote *remote, uint64_t off, unsigned char *dst, size_t bytes,
                      struct via_client_result *result)
{
    int rc = 0;
    for (size_t done = 0; done < bytes && rc == 0 && result->status == 0;) {
        size_t piece = via_min(bytes - done, (size_t)remote->attach->reply_bytes_max);
        struct via_command command = get_command(remote, off + done, piece);
        rc = send_get(remote, &command, dst + done, result);
        done += piece;
    }
    return rc;
}

static int get_by_frames(struct via_remote *remote, uint64_t off, void *dst, size_t bytes)
{
    struct via_attach *attach = remote->attach;
    struct via_client_result result = {0};
    via_client_lock(attach);
    struct via_segment *segment = via_client_segment_of(attach, dst, bytes);
    int rc = segment != NULL ? get_into_segment(remote, off, segment, dst, bytes, &result)
                             : get_pieces(remote, off, dst, bytes, &result);
    int ended =
        via_client_wait_result(attach, via_client_channel_to(attach, remote->host), &result);
    via_client_unlock(attach);
    ended = via_client_remote_status(remote, ended);
    if (rc == 0 && ended < 0 && ended != -ENOTCONN && ended != -ENOBUFS) {
        via_client_error(ended, "host %u, segment: get of %zu bytes at %llu: %s", remote->host,
                         bytes, (unsigned long long)off, strerror(-ended));
    }
    return rc != 0 ? rc : ended;
}

int via_client_remote_word(struct via_remote *remote, uint64_t off, struct via_client_word *word,
                           uint64_t *ret_word)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    int rc = via_attach_poll(attach);
    rc = rc >= 0 ? via_client_auto_try_leave(attach, remote->host) : rc;
    if (rc < 0) {
        return rc;
    }
    via_client_lock(attach);
    if (word->attach != attach) { /* after a fork() this may be the parent's attachment */
        *word = (struct via_client_word){.word = 0};
        if (via_client_command_has_room(attach, channel, 0)) {
            struct via_command command = get_command(remote, off, sizeof(word->word));
            struct via_client_intent intent = {
                .result = &word->result, .destination = &word->word, .bytes = sizeof(word->word)};
            via_client_command_send(attach, channel, &command, NULL, 0, &intent);
            word->attach = attach;
        }
    }
    bool open = word->attach == NULL || word->result.left != 0;
    rc = open ? -EAGAIN : word->result.status;
    via_client_unlock(attach);
    if (rc == 0) {
        *ret_word = word->word;
    }
    return rc;
}

void via_client_word_forget(struct via_client_word *word)
{
    if (word->attach != NULL) {
        via_client_lock(word->attach);
        via_client_command_forget(word->attach, &word->result);
        via_client_unlock(word->attach);
    }
}

/* 0: dst is filled. If the caller does not wait, a direct connection fills dst until the next
 * quiet. 1: frames must carry the bytes. Or a negative errno. */
static int get_without_frames(struct via_remote *remote, uint64_t off, void *dst, size_t bytes,
                              bool waits)
{
    struct via_client_mapping *mapping;
    int rc = via_client_check(remote, off, bytes, "get");
    if (rc == 0) {
        rc = via_client_direct_wait(remote, &mapping);
    }
    if (rc != 0 || bytes == 0) {
        return rc;
    }
    if (mapping == NULL) {
        struct via_client_tcp *tcp;
        rc = via_client_auto_leave(remote->attach, remote->host);
        rc = rc == 0 ? via_client_tcp_way(remote, &tcp) : rc;
        return rc != 0       ? rc
               : tcp != NULL ? via_client_tcp_get(tcp, remote, off, dst, bytes, waits)
                             : 1;
    }
    memcpy(dst, mapping->base + off, bytes);
    atomic_thread_fence(memory_order_acquire);
    return 0;
}

int via_remote_get(struct via_remote *remote, uint64_t off, void *dst, size_t bytes)
{
    int rc = get_without_frames(remote, off, dst, bytes, true);
    return rc != 1 ? rc : get_by_frames(remote, off, dst, bytes);
}

/* --- gets for which no thread waits yet ------------------------------------------------------- */

/* [locked, waits] Waits only for room in the pipe. The host holds gets back while it has no buffer
 * for their answers, and the wait for room takes answers. */
static int start_piece(struct via_remote *remote, struct via_command *command, void *dst)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    int rc = via_client_command_room(attach, channel, 0);
    if (rc == 0) {
        struct via_client_intent intent = {.destination = dst, .bytes = command->bytes};
        via_client_command_send(attach, channel, command, NULL, 0, &intent);
    }
    return rc;
}

static int start_by_frames(struct via_remote *remote, uint64_t off, unsigned char *dst,
                           size_t bytes)
{
    struct via_attach *attach = remote->attach;
    int rc = 0;
    via_client_lock(attach);
    struct via_segment *segment = via_client_segment_of(attach, dst, bytes);
    if (segment != NULL) {
        struct via_command command = get_command(remote, off, bytes);
        command.source = VIA_SOURCE_SEGMENT;
        command.a.source_segment = segment->handle;
        command.b.source_offset = (uint64_t)(dst - segment->base);
        rc = start_piece(remote, &command, NULL);
    }
    for (size_t done = 0; done < bytes && rc == 0 && segment == NULL;) {
        size_t piece = via_min(bytes - done, (size_t)attach->reply_bytes_max);
        struct via_command command = get_command(remote, off + done, piece);
        rc = start_piece(remote, &command, dst + done);
        done += piece;
    }
    via_client_unlock(attach);
    return rc;
}

int via_remote_get_start(struct via_remote *remote, uint64_t off, void *dst, size_t bytes)
{
    int rc = get_without_frames(remote, off, dst, bytes, false);
    return rc != 1 ? rc : start_by_frames(remote, off, dst, bytes);
}

/* --- atomics -----------------------------------------------------------------------------------*/

#define UPDATE(type, word, operation, operand, expected)                                         \
    switch (operation) {                                                                         \
    case VIADUCT_ATOMIC_ADD:                                                                     \
        return __atomic_fetch_add(word, (type)(operand), __ATOMIC_SEQ_CST);                      \
    case VIADUCT_ATOMIC_AND:                                                                     \
        return __atomic_fetch_and(word, (type)(operand), __ATOMIC_SEQ_CST);                      \
    case VIADUCT_ATOMIC_OR:                                                                      \
        return __atomic_fetch_or(word, (type)(operand), __ATOMIC_SEQ_CST);                       \
    case VIADUCT_ATOMIC_XOR:                                                                     \
        return __atomic_fetch_xor(word, (type)(operand), __ATOMIC_SEQ_CST);                      \
    case VIADUCT_ATOMIC_SWAP:                                                                    \
        return __atomic_exchange_n(word, (type)(operand), __ATOMIC_SEQ_CST);                     \
    case VIADUCT_ATOMIC_COMPARE_SWAP:                                                            \
        __atomic_compare_exchange_n(word, &(expected), (type)(operand), false, __ATOMIC_SEQ_CST, \
                                    __ATOMIC_SEQ_CST);                                           \
        return expected;                                                                         \
    case VIADUCT_ATOMIC_FETCH:                                                                   \
        return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                          \
    }                                                                                            \
    return 0;

static uint64_t update_8(uint64_t *word, enum viaduct_atomic operation, uint64_t operand,
                         uint64_t compare)
{
    uint64_t expected = compare;
    UPDATE(uint64_t, word, operation, operand, expected)
}

static uint32_t update_4(uint32_t *word, enum viaduct_atomic operation, uint64_t operand,
                         uint64_t compare)
{
    uint32_t expected = (uint32_t)compare;
    UPDATE(uint32_t, word, operation, operand, expected)
}

uint64_t via_client_atomic_update(void *word, unsigned width, enum viaduct_atomic operation,
                                  uint64_t operand, uint64_t compare)
{
    return width == 8 ? update_8(word, operation, operand, compare)
                      : update_4(word, operation, operand, compare);
}

static int atomic_direct(const struct via_remote *remote, const struct via_client_mapping *mapping,
                         uint64_t off, unsigned width, enum viaduct_atomic operation,
                         uint64_t operand, uint64_t compare, uint64_t *ret_old)
{
    void *word = mapping->base + off;
    if (mapping->read_only && operation != VIADUCT_ATOMIC_FETCH) {
        return via_client_error(-EACCES, "host %u, segment: atomic: it may only be read",
                                remote->host);
    }
    *ret_old = via_client_atomic_update(word, width, operation, operand, compare);
    return 0;
}

static struct via_command atomic_command(const struct via_remote *remote, uint64_t off,
                                         unsigned width, enum viaduct_atomic operation,
                                         uint64_t operand, uint64_t compare)
{
    return (struct via_command){
        .kind = VIA_OP_ATOMIC,
        .atomic = (uint8_t)((unsigned)operation | (width == 4 ? VIA_ATOMIC_32 : 0)),
        .source = VIA_SOURCE_NONE,
        .destination = remote->host,
        .bytes = width,
        .segment = remote->handle,
        .offset = off,
        .a.operand = operand,
        .b.compare = compare,
    };
}

static int atomic_by_frames(struct via_remote *remote, uint64_t off, unsigned width,
                            enum viaduct_atomic operation, uint64_t operand, uint64_t compare,
                            uint64_t *ret_old)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    struct via_client_result result = {0};
    struct via_command command = atomic_command(remote, off, width, operation, operand, compare);
    via_client_lock(attach);
    int rc = via_client_command_room(attach, channel, 0);
    if (rc == 0) {
        struct via_client_intent intent = {.result = &result};
        via_client_command_send(attach, channel, &command, NULL, 0, &intent);
        rc = via_client_remote_status(remote, via_client_wait_result(attach, channel, &result));
    }
    via_client_unlock(attach);
    if (rc == 0) {
        *ret_old = width == 4 ? (uint32_t)result.value : result.value;
    } else if (rc != -ENOTCONN && rc != -ENOBUFS) {
        via_client_error(rc, "host %u, segment: atomic at %llu: %s", remote->host,
                         (unsigned long long)off, strerror(-rc));
    }
    return rc;
}

/* The common part of both calls. 0 and the mapping, or NULL for "by frames". */
static int atomic_prepare(struct via_remote *remote, uint64_t off, unsigned width,
                          enum viaduct_atomic operation, struct via_client_mapping **ret_mapping)
{
    if ((width != 4 && width != 8) || off % width != 0 || operation < VIADUCT_ATOMIC_ADD ||
        operation > VIADUCT_ATOMIC_FETCH) {
        return via_client_error(-EINVAL,
                                "host %u, segment: atomic %d of %u bytes at %llu: no such "
                                "operation, or not aligned",
                                remote->host, (int)operation, width, (unsigned long long)off);
    }
    int rc = via_client_check(remote, off, width, "atomic");
    rc = rc == 0 ? via_client_direct_wait(remote, ret_mapping) : rc;
    return rc == 0 && *ret_mapping == NULL ? via_client_auto_leave(remote->attach, remote->host)
                                           : rc;
}

int via_remote_atomic(struct via_remote *remote, uint64_t off, unsigned width,
                      enum viaduct_atomic operation, uint64_t operand, uint64_t compare,
                      uint64_t *ret_old)
{
    struct via_client_mapping *mapping;
    uint64_t old = 0;
    int rc = atomic_prepare(remote, off, width, operation, &mapping);
    if (rc != 0) {
        return rc;
    }
    struct via_client_tcp *tcp = NULL;
    rc = mapping == NULL ? via_client_tcp_way(remote, &tcp) : 0;
    if (rc != 0) {
        return rc;
    }
    rc = mapping != NULL
             ? atomic_direct(remote, mapping, off, width, operation, operand, compare, &old)
         : tcp != NULL ? via_client_tcp_atomic(tcp, remote, off, width, operation, operand, compare,
                                               &old, NULL)
                       : atomic_by_frames(remote, off, width, operation, operand, compare, &old);
    if (rc == 0 && ret_old != NULL) {
        *ret_old = old;
    }
    return rc;
}

int via_remote_atomic_start(struct via_remote *remote, uint64_t off, unsigned width,
                            enum viaduct_atomic operation, uint64_t operand, uint64_t compare,
                            void *fetch)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    struct via_client_mapping *mapping;
    if (fetch == NULL &&
        (operation == VIADUCT_ATOMIC_COMPARE_SWAP || operation == VIADUCT_ATOMIC_FETCH)) {
        return via_client_error(-EINVAL, "host %u, segment: atomic %d without a result",
                                remote->host, (int)operation);
    }
    int rc = atomic_prepare(remote, off, width, operation, &mapping);
    if (rc != 0) {
        return rc;
    }
    if (mapping != NULL) {
        uint64_t old = 0;
        rc = atomic_direct(remote, mapping, off, width, operation, operand, compare, &old);
        if (rc == 0 && fetch != NULL) {
            memcpy(fetch, &old, width);
        }
        return rc;
    }
    struct via_client_tcp *tcp;
    rc = via_client_tcp_way(remote, &tcp);
    if (rc != 0 || tcp != NULL) {
        return rc != 0 ? rc
                       : via_client_tcp_atomic(tcp, remote, off, width, operation, operand, compare,
                                               NULL, fetch);
    }
    struct via_command command = atomic_command(remote, off, width, operation, operand, compare);
    via_client_lock(attach);
    rc = via_client_command_room(attach, channel, 0);
    if (rc == 0) {
        /* Counts as a put of the remote, so that direct stores do not overtake the atomic. */
        struct via_client_intent intent = {.remote = remote, .destination = fetch, .bytes = width};
        via_client_command_send(attach, channel, &command, NULL, 0, &intent);
    }
    via_client_unlock(attach);
    return rc;
}
