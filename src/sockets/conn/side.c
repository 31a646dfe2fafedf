/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/side.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/types.h"
#include "sockets/process/lock.h"

#define EPOCH 1u
#define PAGE 4096u

/*
 * One direction: enough to keep a writer and a reader on two cores busy, small enough for L2. Where
 * the two take turns on a core, each turn moves what the slots hold: with 256, a 64-byte message
 * cost 370 ns of CPU, with 1024 about 200.
 */
const struct via_pipe_geometry via_ring = {
    .slots_count = VIA_RING_SLOTS_MAX, .data_bytes = 256u * 1024, .body_bytes_max = 32u * 1024};

#define SIDE_BYTES (2u * PAGE)
_Static_assert(sizeof(struct via_side) <= SIDE_BYTES, "pages of its own");

#define SPARE_MAX 64u

/* Pages that no other process has seen. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct via_side *spare[SPARE_MAX];
static unsigned spare_count;

static struct via_side *take_spare(void)
{
    struct via_side *side = NULL;
    via_lock(&lock);
    if (spare_count > 0) {
        side = spare[--spare_count];
    }
    via_unlock(&lock);
    if (side != NULL) {
        memset(side, 0, sizeof(*side));
    }
    return side;
}

static bool give_spare(struct via_side *side)
{
    bool given = false;
    via_lock(&lock);
    if (spare_count < SPARE_MAX) {
        spare[spare_count++] = side;
        given = true;
    }
    via_unlock(&lock);
    return given;
}

void via_side_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    spare_count = 0; /* they are the parent's, too */
}

struct via_side *via_side_new(void)
{
    struct via_side *side = take_spare();
    if (side == NULL) {
        side = mmap(NULL, SIDE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    if (side == MAP_FAILED) {
        return NULL;
    }
    atomic_store_explicit(&side->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&side->rcvlowat, 1, memory_order_relaxed);
    return side;
}

void via_side_free(struct via_side *side)
{
    if (side != NULL && (side->ever_forked || !give_spare(side))) {
        munmap(side, SIDE_BYTES);
    }
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

void via_side_say(struct via_side *side, uint64_t flags)
{
    _Atomic uint64_t *word =
        (_Atomic uint64_t *)(void *)(side->rx.pipe.credit.direct + VIA_SEGMENT_FLAGS_OFF);
    atomic_store_explicit(word, flags, memory_order_release);
}

/* Plus 1. */
static uint64_t own_cpu(void)
{
    return (uint64_t)sched_getcpu() + 1;
}

bool via_side_is_apart(const struct via_side *side)
{
    const _Atomic uint64_t *cpu =
        side->tx.pipe.credit + (VIA_SEGMENT_CPU_OFF - VIA_SEGMENT_CREDIT_OFF) / sizeof(*cpu);
    return atomic_load_explicit(cpu, memory_order_relaxed) != own_cpu();
}

void via_side_say_cpu(struct via_side *side)
{
    uint64_t cpu = own_cpu();
    if (via_unlikely(cpu != side->cpu_said)) {
        _Atomic uint64_t *word =
            (_Atomic uint64_t *)(void *)(side->rx.pipe.credit.direct + VIA_SEGMENT_CPU_OFF);
        side->cpu_said = cpu;
        atomic_store_explicit(word, cpu, memory_order_relaxed);
    }
}

void via_side_ask_times(struct via_side *side, uint64_t set)
{
    _Atomic uint64_t *word =
        (_Atomic uint64_t *)(void *)(side->rx.pipe.credit.direct + VIA_SEGMENT_TIMES_OFF);
    atomic_store_explicit(word, set, memory_order_relaxed);
}

void via_side_say_cold(struct via_side *side)
{
    _Atomic uint64_t *word =
        (_Atomic uint64_t *)(void *)(side->rx.pipe.credit.direct + VIA_SEGMENT_COLD_OFF);
    side->cold_said = side->cold_said == UINT32_MAX ? 1 : side->cold_said + 1;
    atomic_store_explicit(word, side->cold_said, memory_order_relaxed);
}
