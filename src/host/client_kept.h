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
 * connection ends, the host tells how many bytes of requests it has applied; frames then carry the
 * rest. No lock: the connection's.
 */
#define VIA_KEPT_PUTS_MAX 1024u
#define VIA_KEPT_BYTES (1u << 20)
/* Longer puts are not copied: their caller waits until they have been applied. */
#define VIA_KEPT_COPY_BYTES_MAX (256u << 10)

/*
 * They lie in a segment that no other process reaches: when the process has ended, its host reads
 * them there and puts what the neighbour has not applied (attach_server_kept.c). So a process may
 * end at any instruction: a record is complete before it is counted, and one store takes it away.
 */
#define VIA_KEPT_LAYOUT 2u

struct via_kept_record {
    uint64_t handle;
    uint64_t off;
    uint64_t bytes;
    uint64_t begin;      /* of its payload in the stream of requests */
    uint64_t memory_off; /* of its copy, if it is short */
};

struct via_kept_area {
    uint32_t layout;             /* VIA_KEPT_LAYOUT */
    _Atomic uint32_t first, end; /* of the records: the number of the next one that is released, or
                                    added. Also read without the lock */
    uint32_t reserved;
    uint8_t token[VIA_TCP_TOKEN_BYTES]; /* of the connection */
    struct via_kept_record records[VIA_KEPT_PUTS_MAX];
    unsigned char memory[VIA_KEPT_BYTES];
};

/* What the process alone needs of a put. */
struct via_kept_source {
    struct via_remote *remote; /* stays open until its puts are released */
    const unsigned char *data;
    uint64_t memory_end; /* of its copy, in bytes that were ever copied */
};

struct via_kept {
    struct via_kept_area *area;
    struct via_kept_source sources[VIA_KEPT_PUTS_MAX];
    uint64_t memory_begin, memory_end; /* bytes that were ever released, and copied */
    unsigned unasked_count;            /* puts since the last fence ... */
    size_t unasked_bytes;              /* ... and their bytes */
};

struct via_kept_put {
    struct via_remote *remote;
    const unsigned char *data;
    uint64_t begin;
    uint64_t off;
    size_t bytes;
};

/* All are zeros. area: borrowed. */
void via_kept_init(struct via_kept *kept, struct via_kept_area *area);
/* How many are kept. Also without the lock: at 0 the host has applied all puts that the caller
 * knows of, or frames carry them. */
unsigned via_kept_count(const struct via_kept *kept);
/* Of the put with this number from the first on; there is such a put. */
struct via_remote *via_kept_remote(const struct via_kept *kept, unsigned i);
/* How many bytes of a put were applied, when `position` bytes of requests were. */
static inline uint64_t via_kept_applied(const struct via_kept_record *record, uint64_t position)
{
    return position > record->begin ? via_min(position - record->begin, record->bytes) : 0;
}

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
