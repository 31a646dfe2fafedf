/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_KEPT_H
#define VIA_HOST_CLIENT_KEPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Puts that a direct connection has sent and that its host has not acknowledged. When the
 * connection ends, the host tells how many bytes of requests it has applied; frames then carry the
 * rest. No lock: the connection's.
 */
struct via_remote;

#define VIA_KEPT_PUTS_MAX 1024u
#define VIA_KEPT_BYTES (256u << 10)
/* Longer puts are not copied: their caller waits until they have been applied. */
#define VIA_KEPT_COPY_BYTES_MAX (64u << 10)

struct via_kept_put {
    struct via_remote *remote; /* stays open until its puts are released */
    const unsigned char *data;
    uint64_t begin; /* of its payload in the stream of requests */
    uint64_t off;
    size_t bytes;
    uint64_t memory_end; /* of its copy, in bytes that were ever copied */
};

struct via_kept {
    struct via_kept_put puts[VIA_KEPT_PUTS_MAX];
    unsigned first;
    _Atomic unsigned count;            /* also read without the lock */
    uint64_t memory_begin, memory_end; /* bytes that were ever released, and copied */
    unsigned unasked_count;            /* puts since the last fence ... */
    size_t unasked_bytes;              /* ... and their bytes */
    unsigned char memory[VIA_KEPT_BYTES];
};

/* Is there room for one put more? */
bool via_kept_has_room(const struct via_kept *kept, size_t bytes);
/* There is room. src: copied if it is short; else the caller's until the put is released. */
void via_kept_add(struct via_kept *kept, struct via_remote *remote, uint64_t begin, uint64_t off,
                  const void *src, size_t bytes);
/* True if the puts since the last fence are enough for another one. */
bool via_kept_wants_fence(const struct via_kept *kept);
/* All requests up to this byte of the stream have been applied. */
void via_kept_release(struct via_kept *kept, uint64_t position);
/* The first put, without the bytes that were applied by then. false: there is none. */
bool via_kept_first(const struct via_kept *kept, uint64_t position, struct via_kept_put *ret_put);
void via_kept_pop(struct via_kept *kept);

#endif
