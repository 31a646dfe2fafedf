/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_KEPT_H
#define VIA_HOST_CLIENT_KEPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/client_tcp.h"

/*
 * Puts that a direct connection has sent and that its host has not acknowledged. When the
 * connection ends, the host reports how many bytes of requests it has applied; frames then carry
 * the rest. The lock of the connection protects all of this.
 */
#define VIA_KEPT_PUTS_MAX 1024u
#define VIA_KEPT_BYTES (1u << 20)
/* A longer put is not copied: its caller waits until the host has applied it. */
#define VIA_KEPT_COPY_BYTES_MAX (256u << 10)

/*
 * The puts are kept in a segment that no other process can open. After the end of the process its
 * host reads them there, and puts the bytes that the neighbour has not applied
 * (attach_server_kept.c). A process may end at any instruction, so a record is complete before
 * `end` counts it, and one store of `first` removes it.
 */
#define VIA_KEPT_LAYOUT 2u

struct via_kept_record {
    uint64_t handle;
    uint64_t off;
    uint64_t bytes;
    uint64_t begin;      /* position of its payload in the stream of requests */
    uint64_t memory_off; /* offset in `memory` of the copy of a short put */
};

struct via_kept_area {
    uint32_t layout;             /* VIA_KEPT_LAYOUT */
    _Atomic uint32_t first, end; /* numbers of the next record to release, and of the next one to
                                    add. Also read without the lock */
    uint32_t reserved;
    uint8_t token[VIA_TCP_TOKEN_BYTES]; /* of the connection */
    struct via_kept_record records[VIA_KEPT_PUTS_MAX];
    unsigned char memory[VIA_KEPT_BYTES];
};

/* The part of a kept put that its host does not read. */
struct via_kept_source {
    struct via_remote *remote; /* stays open until its puts are released */
    const unsigned char *data;
    uint64_t memory_end; /* end of its copy, counted as via_kept.memory_end */
};

struct via_kept {
    struct via_kept_area *area;
    struct via_kept_source sources[VIA_KEPT_PUTS_MAX];
    uint64_t memory_begin, memory_end; /* bytes of `memory` released, and used, since the start */
    unsigned unfenced_count;           /* puts since the last fence ... */
    size_t unfenced_bytes;             /* ... and their bytes */
};

struct via_kept_put {
    struct via_remote *remote;
    const unsigned char *data;
    uint64_t begin;
    uint64_t off;
    size_t bytes;
};

/* kept, area: all zeros. area: borrowed. */
void via_kept_init(struct via_kept *kept, struct via_kept_area *area);
/* Number of kept puts. May be called without the lock: 0 means that the host has applied all puts
 * that the caller knows of, or that frames carry them. */
unsigned via_kept_count(const struct via_kept *kept);
/* The remote of the put number i, counted from the first one. i < via_kept_count(). */
struct via_remote *via_kept_remote(const struct via_kept *kept, unsigned i);
/* Number of bytes of the put that the host has applied, if it has applied `position` bytes of
 * requests. */
static inline uint64_t via_kept_applied(const struct via_kept_record *record, uint64_t position)
{
    return position > record->begin ? via_min(position - record->begin, record->bytes) : 0;
}

/* True if one more put of this size can be kept. */
bool via_kept_has_room(const struct via_kept *kept, size_t bytes);
/* There is room. A short put is copied; else src stays valid until the put is released. */
void via_kept_add(struct via_kept *kept, struct via_remote *remote, uint64_t begin, uint64_t off,
                  const void *src, size_t bytes);
/* True if the puts since the last fence are enough for another one. */
bool via_kept_is_fence_due(const struct via_kept *kept);
/* Releases the puts that the host has applied completely: it has applied `position` bytes of
 * requests. */
void via_kept_release(struct via_kept *kept, uint64_t position);
/* The first put, without the bytes that the host has applied. False: no put is kept. */
bool via_kept_first(const struct via_kept *kept, uint64_t position, struct via_kept_put *ret_put);
/* Releases the first put. */
void via_kept_pop(struct via_kept *kept);

#endif
