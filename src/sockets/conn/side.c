/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/side.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "base/types.h"
#include "sockets/process/lock.h"

#define EPOCH 1u
#define PAGE 4096u

/*
 * One direction: large enough to keep a writer and a reader on two cores busy, small enough for the
 * L2 cache. If the two run in turn on one core, the slots limit what one turn moves: a 64-byte
 * message cost 370 ns of CPU with 256 slots, and about 200 ns with 1024.
 */
const struct via_pipe_geometry via_ring = {
    .slots_count = VIA_RING_SLOTS_MAX, .data_bytes = 256u * 1024, .body_bytes_max = 32u * 1024};

#define ENDS_BYTES (VIA_RING_SLOTS_MAX * sizeof(uint32_t))
_Static_assert(ENDS_BYTES % PAGE == 0, "pages of their own");

/*
 * Sides lie in chunks of one mapping each, because the kernel allows a process only 65,530
 * mappings: first the sides, close together, then the pages of their positions. Memory that a
 * forked process shares is not used for another side: a chunk from before a fork is unmapped with
 * its last side.
 */
#define CHUNKS_MAX 4096u
#define CHUNK_SIDES_MIN 8u /* small at first: mapped memory is charged under strict overcommit */
#define CHUNK_SIDES_MAX 64u

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_LAST);
static struct chunk {
    unsigned char *base; /* NULL: none */
    uint64_t free; /* a bit per side: free, and all its bytes are 0; after a fork no bit is set */
    unsigned sides;
    unsigned used; /* sides in use */
} chunks[CHUNKS_MAX];
static unsigned chunks_used; /* chunks from this index on have not been made */
static unsigned first_free;  /* chunks below this index have no free sides */
/* The first chunk made since the last fork: it keeps its pages without a side in use. */
static unsigned chunk_kept = CHUNKS_MAX;
static unsigned chunk_sides = CHUNK_SIDES_MIN;

/* The bytes of the sides of a chunk, before their positions. */
static size_t sides_bytes(unsigned sides)
{
    return (sides * sizeof(struct via_side) + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static size_t chunk_bytes(unsigned sides)
{
    return sides_bytes(sides) + sides * ENDS_BYTES;
}

static bool make_chunk(struct chunk *chunk)
{
    void *memory = mmap(NULL, chunk_bytes(chunk_sides), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    *chunk = (struct chunk){
        .base = memory, .free = ~UINT64_C(0) >> (64 - chunk_sides), .sides = chunk_sides};
    chunks_used = via_max(chunks_used, (unsigned)(chunk - chunks) + 1);
    chunk_kept = via_min(chunk_kept, (unsigned)(chunk - chunks));
    chunk_sides = via_min(chunk_sides * 2, CHUNK_SIDES_MAX);
    return true;
}

static struct via_side *begin_side(const struct chunk *chunk, unsigned index)
{
    struct via_side *side = (struct via_side *)(void *)chunk->base + index;
    side->chunk = (uint16_t)(chunk - chunks);
    side->data_ends =
        (uint32_t *)(void *)(chunk->base + sides_bytes(chunk->sides) + index * ENDS_BYTES);
    return side;
}

/* [locked] */
static struct via_side *take_from_chunk(void)
{
    for (; first_free < CHUNKS_MAX; first_free++) {
        struct chunk *chunk = &chunks[first_free];
        if (chunk->free != 0 || (chunk->base == NULL && make_chunk(chunk))) {
            unsigned index = (unsigned)__builtin_ctzll(chunk->free);
            chunk->free &= chunk->free - 1;
            chunk->used++;
            return begin_side(chunk, index);
        }
        if (chunk->base == NULL) {
            return NULL;
        }
    }
    return NULL;
}

/* [locked] */
static void unmap_unused(struct chunk *chunk)
{
    if (chunk->base != NULL && chunk->used == 0 && chunk->free == 0) {
        munmap(chunk->base, chunk_bytes(chunk->sides));
        chunk->base = NULL;
        first_free = via_min(first_free, (unsigned)(chunk - chunks));
    }
}

void via_side_forked(bool child)
{
    if (child) {
        via_lock_reset(&lock);
    }
    via_lock(&lock);
    for (unsigned i = 0; i < chunks_used; i++) {
        chunks[i].free = 0;
        unmap_unused(&chunks[i]);
    }
    chunk_sides = CHUNK_SIDES_MIN;
    chunk_kept = CHUNKS_MAX;
    via_unlock(&lock);
}

struct via_side *via_side_new(void)
{
    via_lock(&lock);
    struct via_side *side = take_from_chunk();
    via_unlock(&lock);
    if (side != NULL) {
        atomic_store_explicit(&side->refs, 1, memory_order_relaxed);
    }
    return side;
}

/* Sets all bytes to 0. */
static void clear(struct via_side *side)
{
    /* Only pipes use the positions. Locked memory keeps its pages: mlockall(2). */
    if (side->rx.pipe.memory != NULL && madvise(side->data_ends, ENDS_BYTES, MADV_REMOVE) != 0) {
        memset(side->data_ends, 0, ENDS_BYTES);
    }
    memset(side, 0, sizeof(*side));
}

/* Frees the pages of a chunk without sides in use; they are 0. Not for a program that makes and
 * closes one connection after the other: to remove a page and to get a new one costs a third of
 * such a connection. [locked] */
static void free_pages(const struct chunk *chunk)
{
    if (chunk->base != NULL && chunk->used == 0 && chunk != &chunks[chunk_kept]) {
        (void)madvise(chunk->base, sides_bytes(chunk->sides), MADV_REMOVE);
    }
}

void via_side_free(struct via_side *side)
{
    if (side == NULL) {
        return;
    }
    struct chunk *chunk = &chunks[side->chunk];
    via_lock(&lock);
    unsigned index = (unsigned)(side - (struct via_side *)(void *)chunk->base);
    bool again = !side->ever_forked;
    if (again) {
        clear(side);
    }
    chunk->used--;
    chunk->free |= again ? UINT64_C(1) << index : 0;
    first_free = again ? via_min(first_free, (unsigned)(chunk - chunks)) : first_free;
    unmap_unused(chunk);
    free_pages(chunk);
    via_unlock(&lock);
}

void via_side_remove_pages(struct via_side *side)
{
    (void)madvise(side->data_ends, ENDS_BYTES, MADV_REMOVE);
}

void via_side_attach(struct via_side *side, const struct via_pipe_geometry *geometry,
                     unsigned char *own, unsigned char *peer)
{
    struct via_pipe_target credit = {.direct = peer + VIA_SEGMENT_CREDIT_OFF};
    struct via_pipe_target target = {.direct = peer + VIA_SEGMENT_PIPE_OFF};
    via_pipe_reader_init(&side->rx.pipe, geometry, own + VIA_SEGMENT_PIPE_OFF, &credit, EPOCH);
    via_stream_rx_init(&side->rx);
    via_pipe_writer_init(&side->tx.pipe, geometry, &target,
                         (const _Atomic uint64_t *)(const void *)(own + VIA_SEGMENT_CREDIT_OFF),
                         side->data_ends, EPOCH);
    via_stream_tx_init(&side->tx);
    side->rx.read = (void *)(own + VIA_SEGMENT_READ_OFF);
    side->tx.read = (void *)(peer + VIA_SEGMENT_READ_OFF);
    side->tx.times = (const void *)(own + VIA_SEGMENT_TIMES_OFF);
}

void via_side_allow_avail(struct via_side *side)
{
    const unsigned char *own = side->rx.pipe.memory - VIA_SEGMENT_PIPE_OFF;
    unsigned char *peer = side->rx.pipe.credit.direct - VIA_SEGMENT_CREDIT_OFF;
    const struct via_avail_words *own_words = (const void *)(own + VIA_SEGMENT_AVAIL_OFF);
    struct via_avail_words *peer_words = (void *)(peer + VIA_SEGMENT_AVAIL_OFF);
    via_stream_rx_allow_avail(&side->rx, own_words, peer_words);
    via_stream_tx_allow_avail(&side->tx, own_words, peer_words);
}

/* A word of the peer's memory. */
static _Atomic uint64_t *peer_word(struct via_side *side, size_t off)
{
    return (_Atomic uint64_t *)(void *)(side->rx.pipe.credit.direct + off);
}

void via_side_publish_flags(struct via_side *side, uint64_t flags)
{
    atomic_store_explicit(peer_word(side, VIA_SEGMENT_FLAGS_OFF), flags, memory_order_release);
}

/* The number of this thread's CPU, plus 1. */
static uint64_t own_cpu(void)
{
    return (uint64_t)sched_getcpu() + 1;
}

bool via_side_is_apart(const struct via_side *side)
{
    return atomic_load_explicit(via_side_own_word(side, VIA_SEGMENT_CPU_OFF),
                                memory_order_relaxed) != own_cpu();
}

void via_side_publish_cpu(struct via_side *side)
{
    uint64_t cpu = own_cpu();
    if (via_unlikely(cpu != side->cpu_published)) {
        side->cpu_published = cpu;
        atomic_store_explicit(peer_word(side, VIA_SEGMENT_CPU_OFF), cpu, memory_order_relaxed);
    }
}

void via_side_request_times(struct via_side *side, uint64_t set)
{
    atomic_store_explicit(peer_word(side, VIA_SEGMENT_TIMES_OFF), set, memory_order_relaxed);
}

void via_side_publish_cold(struct via_side *side)
{
    side->cold_published = side->cold_published == UINT32_MAX ? 1 : side->cold_published + 1;
    atomic_store_explicit(peer_word(side, VIA_SEGMENT_COLD_OFF), side->cold_published,
                          memory_order_relaxed);
}
