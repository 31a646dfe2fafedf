/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Puts: stores where the memory is mapped, else commands to the host. A reader sees the stores of a
 * thread in program order: each put begins with a release fence (on x86 only a compiler barrier).
 */
#include "host/client.h"

#include <errno.h>
#include <string.h>

#include "base/copy.h"
#include "core/node.h"
#include "host/client_aperture.h"
#include "host/client_auto.h"
#include "host/client_sys.h"
#include "host/client_tcp.h"
#include "wire/frame.h"

static int check_writable(const struct via_remote *remote, const struct via_client_mapping *mapping)
{
    if (via_unlikely(mapping->read_only)) {
        return via_client_error(-EACCES, "host %u, segment: put: it may only be read",
                                remote->host);
    }
    return 0;
}

/* True if the bytes were one aligned word, which is then stored as a whole. */
static bool store_word(unsigned char *to, const void *src, size_t bytes)
{
    if (((uintptr_t)to & (bytes - 1)) != 0) {
        return false;
    }
    if (bytes == 8) {
        uint64_t word;
        memcpy(&word, src, sizeof(word));
        __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
        return true;
    }
    if (bytes == 4) {
        uint32_t word;
        memcpy(&word, src, sizeof(word));
        __atomic_store_n((uint32_t *)(void *)to, word, __ATOMIC_RELEASE);
        return true;
    }
    return false;
}

/* Stores the last aligned 8 bytes after all other bytes. */
static void store_last_word(unsigned char *to, const unsigned char *src, size_t bytes)
{
    size_t end = (((uintptr_t)to + bytes) & ~(uintptr_t)7) - (uintptr_t)to;
    if (bytes < 8 || end < 8 || end > bytes) {
        via_copy_once(to, src, bytes);
        return;
    }
    via_copy_once(to, src, end - 8);
    via_copy_once(to + end, src + end, bytes - end);
    store_word(to + end - 8, src + end - 8, 8);
}

static void store(const struct via_client_mapping *mapping, uint64_t off, const void *src,
                  size_t bytes, unsigned flags)
{
    unsigned char *to = mapping->base + off;
    if (!store_word(to, src, bytes)) {
        atomic_thread_fence(memory_order_release);
        if ((flags & VIADUCT_PUT_LAST_WORD) != 0) {
            store_last_word(to, src, bytes);
        } else if (bytes != 0) {
            /* Not memcpy: other threads may poll and reset any word of it. */
            via_copy_once(to, src, bytes);
        }
    }
    if ((flags & VIADUCT_PUT_NOTIFY) != 0) {
        via_sys_bell_ring(mapping->bell_fd);
    }
}

static uint8_t frame_flags(unsigned flags)
{
    return (uint8_t)(((flags & VIADUCT_PUT_NOTIFY) != 0 ? VIA_FRAME_FLAG_NOTIFY : 0) |
                     ((flags & VIADUCT_PUT_LAST_WORD) != 0 ? VIA_FRAME_FLAG_LAST_WORD : 0) |
                     ((flags & VIADUCT_PUT_LAZY) != 0 ? VIA_FRAME_FLAG_ACK_SOON : 0));
}

/* Returns the failure of an earlier put, once. */
static int earlier_failure(struct via_remote *remote)
{
    if (via_likely(atomic_load_explicit(&remote->error, memory_order_relaxed) == 0)) {
        return 0;
    }
    int rc = via_client_remote_take_failure(remote);
    return via_client_error(rc, "host %u, segment: an earlier put: %s", remote->host,
                            strerror(-rc));
}

static struct via_command put_command(const struct via_remote *remote, uint64_t off, uint64_t bytes)
{
    return (struct via_command){
        .kind = VIA_OP_PUT,
        .source = bytes == 0 ? VIA_SOURCE_NONE : VIA_SOURCE_BODY,
        .destination = remote->host,
        .bytes = bytes,
        .segment = remote->handle,
        .offset = off,
    };
}

/* [locked, waits] Sends one command with its payload as body. */
static int send_piece(struct via_remote *remote, struct via_command *command, const void *body)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    size_t body_bytes = command->source == VIA_SOURCE_BODY ? (size_t)command->bytes : 0;
    int rc = via_client_command_room(attach, channel, body_bytes);
    if (rc == 0) {
        struct via_client_intent intent = {.remote = remote};
        via_client_command_send(attach, channel, command, body, body_bytes, &intent);
    }
    return rc;
}

/* [locked, waits] Sends all bytes that do not fit into the last command, and stores their number in
 * *ret_sent. */
static int send_first_pieces(struct via_remote *remote, uint64_t off, const unsigned char *src,
                             size_t bytes, size_t *ret_sent)
{
    size_t piece_bytes = remote->attach->body_bytes_max;
    size_t sent = 0;
    int rc = 0;
    while (rc == 0 && bytes - sent > piece_bytes) {
        struct via_command command = put_command(remote, off + sent, piece_bytes);
        rc = send_piece(remote, &command, src + sent);
        sent += piece_bytes;
    }
    *ret_sent = sent;
    return rc;
}

int via_client_put_by_frames(struct via_remote *remote, uint64_t off, const unsigned char *src,
                             size_t bytes, unsigned flags)
{
    size_t sent = 0;
    int rc = 0;
    via_client_lock(remote->attach);
    if (via_unlikely(bytes > remote->attach->body_bytes_max)) {
        rc = send_first_pieces(remote, off, src, bytes, &sent);
    }
    if (rc == 0) {
        struct via_command command = put_command(remote, off + sent, bytes - sent);
        command.flags = frame_flags(flags);
        rc = send_piece(remote, &command, src + sent);
    }
    via_client_unlock(remote->attach);
    return rc;
}

static int check_put(struct via_remote *remote, uint64_t off, size_t bytes)
{
    int rc = via_client_check(remote, off, bytes, "put");
    return rc == 0 ? earlier_failure(remote) : rc;
}

/* Checks the put and chooses its path: *ret_mapping is NULL for "by frames". */
static int begin_put(struct via_remote *remote, uint64_t off, size_t bytes,
                     struct via_client_mapping **ret_mapping)
{
    int rc = check_put(remote, off, bytes);
    return rc == 0 ? via_client_direct_wait(remote, ret_mapping) : rc;
}

/* As begin_put(), but returns -EAGAIN instead of waiting. */
static int begin_try(struct via_remote *remote, uint64_t off, size_t bytes,
                     struct via_client_mapping **ret_mapping)
{
    int rc = check_put(remote, off, bytes);
    if (rc != 0) {
        return rc;
    }
    *ret_mapping = via_client_direct(remote);
    if (*ret_mapping != NULL) {
        return 0;
    }
    /* via_client_direct() may have found that the segment is lost */
    rc = via_client_check(remote, off, bytes, "put");
    rc = rc == 0 ? via_client_tcp_leave(remote) : rc;
    rc = rc == 0 ? via_client_auto_try_leave(remote->attach, remote->host) : rc;
    if (rc == 0 && via_client_has_frames_due(remote)) {
        rc = via_attach_poll(remote->attach);
        return rc < 0 ? rc : -EAGAIN;
    }
    return rc;
}

static int put_direct(struct via_remote *remote, const struct via_client_mapping *mapping,
                      uint64_t off, const void *src, size_t bytes, unsigned flags)
{
    int rc = check_writable(remote, mapping);
    if (rc == 0) {
        store(mapping, off, src, bytes, flags);
    }
    return rc;
}

/* Stores the longest prefix that slices cover; *ret_done bytes have arrived. *ret_end: the put is
 * complete. */
static int put_by_slices(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                         unsigned flags, size_t *ret_done, bool *ret_end)
{
    struct via_client_part part = {.off = off, .src = src, .bytes = bytes};
    int rc = 0;
    *ret_done = 0;
    *ret_end = false;
    if (bytes != 0 && (via_client_status(remote->attach, remote->host) & VIA_STATUS_SLICES) != 0) {
        rc = via_client_aperture_put_long(remote, &part, flags, ret_done);
    }
    if (rc == 0 && bytes != 0 && *ret_done == bytes) {
        *ret_end = true;
        rc = (flags & VIADUCT_PUT_NOTIFY) == 0
                 ? 0
                 : via_client_put_by_frames(remote, 0, NULL, 0, VIADUCT_PUT_NOTIFY);
    }
    return rc;
}

/* Puts the last aligned 8 bytes separately after the others, so that they are stored as a whole. */
static int put_last_word_by_tcp(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                                const unsigned char *src, size_t bytes, unsigned flags)
{
    size_t end = (size_t)(via_align_down(off + bytes, 8) - off);
    if (bytes <= 8 || end < 8 || end > bytes) {
        return via_client_tcp_put(tcp, remote, off, src, bytes, flags);
    }
    int rc = end == 8 ? 0 : via_client_tcp_put(tcp, remote, off, src, end - 8, flags);
    if (rc == 0 && end != bytes) {
        rc = via_client_tcp_put(tcp, remote, off + end, src + end, bytes - end, flags);
    }
    return rc == 0 ? via_client_tcp_put(tcp, remote, off + end - 8, src + end - 8, 8, flags) : rc;
}

/* Puts through the remote's connection if it can be used now, and sets *ret_end. Otherwise no
 * request on the connection is under way. Notifications are sent in frames. */
static int put_by_tcp(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                      unsigned flags, bool *ret_end)
{
    struct via_client_tcp *tcp = NULL;
    *ret_end = false;
    if (via_likely(remote->tcp == NULL)) {
        return via_client_auto_put(remote, off, src, bytes, flags, ret_end);
    }
    if ((flags & VIADUCT_PUT_NOTIFY) != 0) {
        return via_client_tcp_leave(remote);
    }
    int rc = via_client_tcp_way(remote, &tcp);
    if (rc == 0 && tcp != NULL) {
        *ret_end = true;
        rc = (flags & VIADUCT_PUT_LAST_WORD) != 0
                 ? put_last_word_by_tcp(tcp, remote, off, src, bytes, flags)
                 : via_client_tcp_put(tcp, remote, off, src, bytes, flags);
    }
    return rc;
}

static int put_indirect(struct via_remote *remote, uint64_t off, const unsigned char *src,
                        size_t bytes, unsigned flags)
{
    size_t done;
    bool end;
    int rc = put_by_tcp(remote, off, src, bytes, flags, &end);
    if (rc != 0 || end) {
        return rc;
    }
    rc = put_by_slices(remote, off, src, bytes, flags, &done, &end);
    return rc != 0 || end
               ? rc
               : via_client_put_by_frames(remote, off + done, src + done, bytes - done, flags);
}

int via_remote_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                   unsigned flags)
{
    struct via_client_mapping *mapping;
    int rc = begin_put(remote, off, bytes, &mapping);
    if (rc != 0) {
        return rc;
    }
    if (mapping != NULL) {
        return put_direct(remote, mapping, off, src, bytes, flags);
    }
    return bytes == 0 && flags == 0 ? 0 : put_indirect(remote, off, src, bytes, flags);
}

/* --- in blocks -------------------------------------------------------------------------------- */

/* Longer blocks are not packed, because that would save nothing. No frame is shorter than this. */
#define PACKED_BLOCK_BYTES_MAX 64u
#define PACKED_BYTES 8192u

struct blocks {
    uint64_t off;
    int64_t step;
    const unsigned char *src;
    int64_t src_step;
    size_t bytes; /* of one block */
    size_t count;
};

/* Removes the first `count` blocks. */
static void advance(struct blocks *blocks, size_t count)
{
    blocks->off += (uint64_t)blocks->step * count;
    blocks->src += blocks->src_step * (int64_t)count;
    blocks->count -= count;
}

static void pack(unsigned char *packed, const struct blocks *blocks, size_t count)
{
    const unsigned char *src = blocks->src;
    for (size_t i = 0; i < count; i++, src += blocks->src_step) {
        if (blocks->bytes == 8) {
            memcpy(packed + i * 8, src, 8);
        } else {
            memcpy(packed + i * blocks->bytes, src, blocks->bytes);
        }
    }
}

static int put_packed(struct via_remote *remote, struct blocks *blocks)
{
    unsigned char packed[PACKED_BYTES];
    size_t bytes = via_min(sizeof(packed), (size_t)remote->attach->body_bytes_max);
    size_t count = via_min(blocks->count, bytes / blocks->bytes);
    struct via_command command = put_command(remote, blocks->off, count * blocks->bytes);
    command.kind = VIA_OP_PUT_STRIDED;
    command.a.step = (uint64_t)blocks->step;
    command.b.block_bytes = blocks->bytes;
    pack(packed, blocks, count);
    via_client_lock(remote->attach);
    int rc = send_piece(remote, &command, packed);
    via_client_unlock(remote->attach);
    advance(blocks, count);
    return rc;
}

int via_remote_put_strided(struct via_remote *remote, uint64_t off, int64_t step, const void *src,
                           int64_t src_step, size_t block_bytes, size_t blocks_count)
{
    struct blocks blocks = {off, step, src, src_step, block_bytes, blocks_count};
    int64_t last = 0;
    int rc = 0;
    if (blocks_count == 0 || block_bytes == 0) {
        return 0;
    }
    if (blocks_count > INT64_MAX ||
        __builtin_mul_overflow(step, (int64_t)blocks_count - 1, &last)) {
        return via_client_error(-ERANGE, "host %u, segment: put of %zu blocks: outside of it",
                                remote->host, blocks_count);
    }
    /* If the first and the last block are inside, so are all blocks between them. */
    rc = via_client_check(remote, off, block_bytes, "put");
    if (rc == 0) {
        rc = via_client_check(remote, off + (uint64_t)last, block_bytes, "put");
    }
    while (rc == 0 && blocks.count != 0) {
        struct via_client_mapping *mapping = NULL;
        rc = begin_put(remote, blocks.off, block_bytes, &mapping);
        bool packs = block_bytes <= PACKED_BLOCK_BYTES_MAX && remote->tcp == NULL;
        if (rc == 0 && mapping == NULL && packs) {
            rc = via_client_auto_leave(remote->attach, remote->host);
        }
        if (rc == 0 && mapping == NULL && packs) {
            rc = put_packed(remote, &blocks);
        } else if (rc == 0) {
            rc = mapping != NULL
                     ? put_direct(remote, mapping, blocks.off, blocks.src, block_bytes, 0)
                     : put_indirect(remote, blocks.off, blocks.src, block_bytes, 0);
            advance(&blocks, 1);
        }
    }
    return rc;
}

static struct via_command put_from_command(const struct via_remote *remote, uint64_t off,
                                           const struct via_segment *segment, uint64_t src_off,
                                           size_t bytes, unsigned flags)
{
    struct via_command command = put_command(remote, off, bytes);
    command.flags = frame_flags(flags);
    if (bytes != 0) {
        command.source = VIA_SOURCE_SEGMENT;
        command.a.source_segment = segment->handle;
        command.b.source_offset = src_off;
    }
    return command;
}

static int send_from(struct via_remote *remote, uint64_t off, const struct via_segment *segment,
                     uint64_t src_off, size_t bytes, unsigned flags)
{
    struct via_command command = put_from_command(remote, off, segment, src_off, bytes, flags);
    via_client_lock(remote->attach);
    int rc = send_piece(remote, &command, NULL);
    via_client_unlock(remote->attach);
    return rc;
}

/* As begin_put(), or as begin_try() if the caller does not wait, for bytes of a segment. A segment
 * without a mapping in this process goes in frames. */
static int begin_from(struct via_remote *remote, uint64_t off, const struct via_segment *segment,
                      uint64_t src_off, size_t bytes, bool waits,
                      struct via_client_mapping **ret_mapping)
{
    if (src_off > segment->bytes || bytes > segment->bytes - src_off) {
        return via_client_error(-ERANGE,
                                "host %u, segment: put of %zu bytes from %llu: outside "
                                "of the own segment of %zu bytes",
                                remote->host, bytes, (unsigned long long)src_off, segment->bytes);
    }
    int rc = waits ? begin_put(remote, off, bytes, ret_mapping)
                   : begin_try(remote, off, bytes, ret_mapping);
    if (segment->base == NULL) {
        *ret_mapping = NULL;
    }
    return rc;
}

/* Waits until all requests on the remote's connection, or on the connection to its host, have been
 * applied. */
static int leave(struct via_remote *remote)
{
    int rc = via_client_tcp_leave(remote);
    return rc == 0 ? via_client_auto_leave(remote->attach, remote->host) : rc;
}

int via_remote_put_from(struct via_remote *remote, uint64_t off, struct via_segment *segment,
                        uint64_t src_off, size_t bytes, unsigned flags)
{
    struct via_client_mapping *mapping;
    int rc = begin_from(remote, off, segment, src_off, bytes, true, &mapping);
    if (rc != 0 || (bytes == 0 && flags == 0)) {
        return rc;
    }
    if (mapping != NULL) {
        return put_direct(remote, mapping, off, segment->base + src_off, bytes, flags);
    }
    size_t done = 0;
    bool end = false;
    rc = segment->base != NULL
             ? put_by_tcp(remote, off, segment->base + src_off, bytes, flags, &end)
             : leave(remote);
    if (rc == 0 && !end && segment->base != NULL) {
        rc = put_by_slices(remote, off, segment->base + src_off, bytes, flags, &done, &end);
    }
    return rc != 0 || end
               ? rc
               : send_from(remote, off + done, segment, src_off + done, bytes - done, flags);
}

/* A quarter of the commands that the host takes out of the pipe for hosts that are cut off. */
#define CUT_OFF_PUTS_MAX 64u

static inline bool is_cut_off(const struct via_attach *attach, unsigned host)
{
    return via_status_hops(via_client_status(attach, host)) == VIA_STATUS_UNREACHABLE;
}

bool via_client_remote_is_held(const struct via_remote *remote)
{
    const struct via_attach *attach = remote->attach;
    return via_unlikely(is_cut_off(attach, remote->host)) &&
           atomic_load_explicit(&attach->host_pending[remote->host], memory_order_relaxed) >=
               CUT_OFF_PUTS_MAX;
}

size_t via_remote_try_max(const struct via_remote *remote)
{
    return remote->attach->body_bytes_max;
}

/* [locked] 0: the command can be sent under this lock. -EAGAIN: the host will ring the bell. */
static int try_room(struct via_remote *remote, const struct via_command *command)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    size_t bytes = command->source == VIA_SOURCE_BODY ? (size_t)command->bytes : 0;
    if (attach->dead) {
        return via_client_dead(attach);
    }
    if (command->bytes > sizeof(uint64_t) && via_client_remote_is_held(remote)) {
        /* except a put of one word, which no later put repeats soon: the peer may wait for it */
        return -EAGAIN;
    }
    bool fits = via_client_command_has_room(attach, channel, bytes);
    if (!fits && !attach->asleep) {
        via_client_take(attach);
    }
    if (!fits) {
        /* The host rings the bell when there is room again. */
        via_pipe_request_room(&channel->writer);
        fits = via_client_command_has_room(attach, channel, bytes);
    }
    return fits ? 0 : attach->dead ? via_client_dead(attach) : -EAGAIN;
}

/* [locked] Sends a command for which there is room. */
static void send_now(struct via_remote *remote, struct via_command *command, const void *src)
{
    struct via_attach *attach = remote->attach;
    struct via_client_channel *channel = via_client_channel_to(attach, remote->host);
    size_t bytes = command->source == VIA_SOURCE_BODY ? (size_t)command->bytes : 0;
    struct via_client_intent intent = {.remote = remote};
    via_client_command_send(attach, channel, command, src, bytes, &intent);
}

/* [locked] */
static int try_send(struct via_remote *remote, struct via_command *command, const void *src)
{
    int rc = try_room(remote, command);
    if (rc == 0) {
        send_now(remote, command, src);
    }
    return rc;
}

/* Sends each remote a put of no bytes, which its host acknowledges at once. Flows are in order, so
 * earlier puts are acknowledged, too. */
void via_client_hurry(struct via_attach *attach)
{
    via_client_lock(attach);
    via_list_foreach(it, &attach->remotes) {
        struct via_remote *remote = via_list_entry(it, struct via_remote, link);
        if (atomic_load_explicit(&remote->pending, memory_order_relaxed) != 0 &&
            !is_cut_off(remote->attach, remote->host)) {
            struct via_command command = put_command(remote, 0, 0);
            (void)!try_send(remote, &command, NULL);
        }
    }
    via_client_unlock(attach);
}

bool via_client_is_quiet(const struct via_attach *attach)
{
    if (atomic_load_explicit(&attach->puts_pending, memory_order_acquire) == 0) {
        return true;
    }
    for (unsigned host = 0; host < attach->hosts_max; host++) {
        /* Pairs with the release that decrements the count: at 0 all puts have arrived. */
        if (atomic_load_explicit(&attach->host_pending[host], memory_order_acquire) != 0 &&
            !is_cut_off(attach, host)) {
            return false;
        }
    }
    return true;
}

static int try_command(struct via_remote *remote, struct via_command *command, const void *src)
{
    via_client_lock(remote->attach);
    int rc = try_send(remote, command, src);
    via_client_unlock(remote->attach);
    return rc;
}

static bool has_ended(struct via_attach *attach, void *ctx)
{
    const struct via_client_result *result = ctx;
    (void)attach;
    return result->left == 0;
}

int via_client_hand_over(struct via_attach *attach, uint64_t deadline_ns)
{
    struct via_client_result result = {.left = 0};
    struct via_client_wait wait = {.done = has_ended, .ctx = &result, .deadline_ns = deadline_ns};
    int rc = 0;
    via_client_lock(attach);
    for (unsigned i = 0; i < attach->channels_count && rc == 0; i++) {
        struct via_client_channel *channel = &attach->channels[i];
        /* To this host, without a segment: the daemon answers with an error as soon as it takes the
         * command. */
        struct via_command command = {.kind = VIA_OP_PUT, .destination = attach->host};
        struct via_client_intent intent = {.result = &result};
        wait.replies |= via_client_replies(attach, channel);
        rc = via_client_command_has_room(attach, channel, 0) ? 0 : -EAGAIN;
        if (rc == 0) {
            via_client_command_send(attach, channel, &command, NULL, 0, &intent);
        }
    }
    rc = rc == 0 && result.left != 0 ? via_client_wait(attach, &wait) : rc;
    via_client_command_forget(attach, &result);
    via_client_unlock(attach);
    return rc;
}

int via_client_remote_follow(struct via_remote *remote)
{
    /* Frames of a flow are in order, and no store of the same attachment overtakes a frame. */
    struct via_command command = put_command(remote, 0, 0);
    return try_command(remote, &command, NULL);
}

/*
 * Puts through slices, or with this command. -EAGAIN: no byte was put, and the caller may put other
 * bytes to the same place. So this function reserves the room for the command, or for the ring
 * after the stores, before the first store.
 */
static int try_indirect(struct via_remote *remote, struct via_command *command, const void *src,
                        const void *body, const struct via_client_reader *reader)
{
    const struct via_client_part parts[] = {
        {.off = command->offset, .src = src, .bytes = (size_t)command->bytes},
        {.off = command->a.signal_offset,
         .src = &command->b.signal_value,
         .bytes = sizeof(command->b.signal_value)},
    };
    unsigned count = command->kind == VIA_OP_PUT_SIGNAL ? 2 : 1;
    int ready = command->bytes == 0 || src == NULL
                    ? 0
                    : via_client_aperture_ready(remote, parts, count, VIA_CLIENT_APERTURE_TRIES);
    if (ready < 0) {
        return ready;
    }
    bool rings = (command->flags & VIA_FRAME_FLAG_NOTIFY) != 0;
    unsigned flags = (command->flags & VIA_FRAME_FLAG_LAST_WORD) != 0 ? VIADUCT_PUT_LAST_WORD : 0;
    struct via_command ring = put_command(remote, 0, 0);
    ring.flags = VIA_FRAME_FLAG_NOTIFY;
    via_client_lock(remote->attach);
    int rc = try_room(remote, command);
    if (rc == 0 &&
        (ready == 0 || !via_client_aperture_store(remote, parts, count, flags, reader))) {
        send_now(remote, command, body);
    } else if (rc == 0 && rings && (reader == NULL || reader->is_asleep(reader->ctx))) {
        send_now(remote, &ring, NULL);
    }
    via_client_unlock(remote->attach);
    return rc;
}

int via_client_try_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                       unsigned flags, const struct via_client_reader *reader)
{
    if (bytes > via_remote_try_max(remote)) {
        return via_client_error(-EMSGSIZE,
                                "host %u, segment: put of %zu bytes at once: at most "
                                "%zu can be tried",
                                remote->host, bytes, via_remote_try_max(remote));
    }
    struct via_client_mapping *mapping;
    int rc = begin_try(remote, off, bytes, &mapping);
    if (rc != 0) {
        return rc;
    }
    if (mapping != NULL) {
        return put_direct(remote, mapping, off, src, bytes, flags);
    }
    struct via_command command = put_command(remote, off, bytes);
    command.flags = frame_flags(flags);
    return try_indirect(remote, &command, src, src, reader);
}

int via_remote_try_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                       unsigned flags)
{
    return via_client_try_put(remote, off, src, bytes, flags, NULL);
}

int via_remote_try_put_from(struct via_remote *remote, uint64_t off, struct via_segment *segment,
                            uint64_t src_off, size_t bytes, unsigned flags)
{
    struct via_client_mapping *mapping;
    int rc = begin_from(remote, off, segment, src_off, bytes, false, &mapping);
    if (rc != 0 || (bytes == 0 && flags == 0)) {
        return rc;
    }
    if (mapping != NULL) {
        return put_direct(remote, mapping, off, segment->base + src_off, bytes, flags);
    }
    struct via_command command = put_from_command(remote, off, segment, src_off, bytes, flags);
    return try_indirect(remote, &command, segment->base != NULL ? segment->base + src_off : NULL,
                        NULL, NULL);
}

static void signal_direct(const struct via_client_mapping *mapping, uint64_t signal_off,
                          uint64_t value, unsigned signal_op)
{
    uint64_t *word = (uint64_t *)(void *)(mapping->base + signal_off);
    /* Pairs with the acquire of the thread that waits for the signal: that thread then finds the
     * bytes of the put. */
    if (signal_op == VIADUCT_SIGNAL_ADD) {
        __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
}

static int signal_by_frames(struct via_remote *remote, uint64_t off, const unsigned char *src,
                            size_t bytes, uint64_t signal, uint64_t value)
{
    size_t sent = 0;
    int rc = 0;
    via_client_lock(remote->attach);
    if (via_unlikely(bytes > remote->attach->body_bytes_max)) {
        rc = send_first_pieces(remote, off, src, bytes, &sent);
    }
    if (rc == 0) {
        struct via_command command = put_command(remote, off + sent, bytes - sent);
        command.kind = VIA_OP_PUT_SIGNAL;
        command.a.signal_offset = signal;
        command.b.signal_value = value;
        rc = send_piece(remote, &command, src + sent);
    }
    via_client_unlock(remote->attach);
    return rc;
}

int via_client_try_put_signal(struct via_remote *remote, uint64_t off, const void *src,
                              size_t bytes, uint64_t signal_off, uint64_t value, unsigned flags)
{
    struct via_client_mapping *mapping;
    int rc = via_client_check(remote, signal_off, sizeof(value), "signal");
    if (rc == 0) {
        rc = begin_try(remote, off, bytes, &mapping);
    }
    if (rc != 0) {
        return rc;
    }
    if (mapping == NULL) {
        struct via_command command = put_command(remote, off, bytes);
        command.kind = VIA_OP_PUT_SIGNAL;
        command.flags = frame_flags(flags);
        command.a.signal_offset = signal_off;
        command.b.signal_value = value;
        return try_indirect(remote, &command, src, src, NULL);
    }
    rc = check_writable(remote, mapping);
    if (rc == 0) {
        store(mapping, off, src, bytes, 0);
        signal_direct(mapping, signal_off, value, VIADUCT_SIGNAL_SET);
    }
    if (rc == 0 && (flags & VIADUCT_PUT_NOTIFY) != 0) {
        via_sys_bell_ring(mapping->bell_fd);
    }
    return rc;
}

int via_remote_put_signal(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                          uint64_t signal_off, uint64_t value, unsigned signal_op)
{
    struct via_client_mapping *mapping;
    if (signal_off % 8 != 0 || signal_op > VIADUCT_SIGNAL_ADD) {
        return via_client_error(-EINVAL,
                                "host %u, segment: signal at %llu: is not aligned to 8 "
                                "bytes, or no such update",
                                remote->host, (unsigned long long)signal_off);
    }
    int rc = via_client_check(remote, signal_off, 8, "signal");
    if (rc == 0) {
        rc = begin_put(remote, off, bytes, &mapping);
    }
    if (rc != 0) {
        return rc;
    }
    if (mapping == NULL && remote->tcp != NULL) {
        struct via_client_tcp *tcp;
        rc = via_client_tcp_way(remote, &tcp);
        if (rc != 0 || tcp != NULL) {
            return rc != 0 ? rc
                           : via_client_tcp_put_signal(tcp, remote, off, src, bytes, signal_off,
                                                       value, signal_op);
        }
    }
    if (mapping == NULL) {
        rc = via_client_auto_leave(remote->attach, remote->host);
        if (rc != 0) {
            return rc;
        }
    }
    if (mapping == NULL && signal_op == VIADUCT_SIGNAL_SET) {
        const struct via_client_part parts[] = {
            {.off = off, .src = src, .bytes = bytes},
            {.off = signal_off, .src = &value, .bytes = sizeof(value)},
        };
        rc = via_client_aperture_put(remote, parts, VIA_ARRAY_COUNT(parts), 0,
                                     VIA_CLIENT_APERTURE_WAITS);
        if (rc != 0) {
            return rc < 0 ? rc : 0;
        }
    }
    if (mapping == NULL) {
        uint64_t add = signal_op == VIADUCT_SIGNAL_ADD ? VIA_FRAME_SIGNAL_ADD : 0;
        return signal_by_frames(remote, off, src, bytes, signal_off | add, value);
    }
    rc = check_writable(remote, mapping);
    if (rc == 0) {
        store(mapping, off, src, bytes, 0);
        signal_direct(mapping, signal_off, value, signal_op);
    }
    return rc;
}
