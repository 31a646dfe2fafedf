/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Copies as emulated hosts make them: one thread copies frames into a window, another one copies
 * them out of it, a few at a time by turns, each by way of what the other's processor has in its
 * cache. And both on one processor, where the window is at hand.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/types.h"
#include "core/node.h"
#include "sim/machine/measure.h"
#include "sim/memory.h"

#define FRAMES_COUNT 4096u
/* After so many the other side is rung, and wakes up: RING_EARLY_BYTES of src/core/relay.c. */
#define RUNG_FRAMES 4u
/* What a program puts, or where it goes, again and again. */
#define OWN_FRAMES 2u

enum { PUTTER, TAKER };

struct copier {
    struct copying *copying;
    pthread_t thread;
    unsigned index;          /* PUTTER or TAKER: the processor, too */
    unsigned char *own;      /* owned */
    double ns[FRAMES_COUNT]; /* of a copy */
};

struct copying {
    _Alignas(64) atomic_uint put_count;   /* the putter's */
    _Alignas(64) atomic_uint taken_count; /* the taker's */
    unsigned char *window;                /* owned */
    size_t frame_bytes;
    unsigned slots_count;
    struct copier copiers[2];
};

static void copy_one(struct copier *copier, unsigned number)
{
    const struct copying *copying = copier->copying;
    size_t bytes = copying->frame_bytes;
    unsigned char *slot = copying->window + number % copying->slots_count * bytes;
    unsigned char *own = copier->own + number % OWN_FRAMES * bytes;
    uint64_t start_ns = sim_measure_now_ns();
    if (copier->index == PUTTER) {
        memcpy(slot, own, bytes); /* as port/emu */
    } else {
        via_copy_once(own, slot, bytes); /* as core/segment.c */
    }
    __asm__ volatile("" : : "r"(own), "r"(slot) : "memory");
    copier->ns[number] = (double)(sim_measure_now_ns() - start_ns);
}

static void *put(void *arg)
{
    struct copier *copier = arg;
    struct copying *copying = copier->copying;
    for (unsigned i = 0; i < FRAMES_COUNT; i++) {
        /* Pairs with the release in take(): what was rung for has been read. */
        while (i % RUNG_FRAMES == 0 &&
               atomic_load_explicit(&copying->taken_count, memory_order_acquire) != i) {
        }
        copy_one(copier, i);
        atomic_store_explicit(&copying->put_count, i + 1, memory_order_release);
    }
    return NULL;
}

static void *take(void *arg)
{
    struct copier *copier = arg;
    struct copying *copying = copier->copying;
    for (unsigned i = 0; i < FRAMES_COUNT; i++) {
        /* Pairs with the release in put(): the frames are there. */
        while (i % RUNG_FRAMES == 0 &&
               atomic_load_explicit(&copying->put_count, memory_order_acquire) != i + RUNG_FRAMES) {
        }
        copy_one(copier, i);
        atomic_store_explicit(&copying->taken_count, i + 1, memory_order_release);
    }
    return NULL;
}

static double rate(struct copier *copier)
{
    return (double)copier->copying->frame_bytes * 1e9 /
           sim_measure_median(copier->ns, FRAMES_COUNT);
}

/* Both sides by one thread, a frame after the other. */
static double near_rate(struct copying *copying)
{
    for (unsigned i = 0; i < FRAMES_COUNT; i++) {
        copy_one(&copying->copiers[PUTTER], i);
        copy_one(&copying->copiers[TAKER], i);
    }
    return 2 / (1 / rate(&copying->copiers[PUTTER]) + 1 / rate(&copying->copiers[TAKER]));
}

static int far_rates(struct copying *copying, struct sim_measured *ret, struct via_error *err)
{
    struct copier *copiers = copying->copiers;
    int rc = sim_measure_start(&copiers[TAKER].thread, TAKER, take, &copiers[TAKER]);
    if (rc != 0) {
        return via_error_set(err, -EAGAIN, "starting a thread: %s", strerror(rc));
    }
    put(&copiers[PUTTER]);
    pthread_join(copiers[TAKER].thread, NULL);
    ret->put_rate = rate(&copiers[PUTTER]);
    ret->copy_rate = rate(&copiers[TAKER]);
    return 0;
}

int sim_measure_memory(struct sim_measured *ret, struct via_error *err)
{
    struct via_node_config config;
    struct copying *copying = sim_alloc_lines(sizeof(*copying));
    int rc = 0;
    via_node_config_init(&config);
    copying->frame_bytes = config.frame_bytes_max;
    copying->slots_count = config.pipe_slots;
    copying->window = sim_alloc_lines(copying->frame_bytes * copying->slots_count);
    for (unsigned i = 0; i < 2; i++) {
        copying->copiers[i].copying = copying;
        copying->copiers[i].index = i;
        copying->copiers[i].own = sim_alloc_lines(OWN_FRAMES * copying->frame_bytes);
    }
    ret->near_rate = near_rate(copying);
    ret->put_rate = ret->near_rate;
    ret->copy_rate = ret->near_rate;
    if (ret->cpus_count > 1) {
        rc = far_rates(copying, ret, err);
    }
    /* What all processors together get through their own caches: no less than the bus between. */
    ret->bus_rate = 2 * ret->near_rate * ret->cpus_count;
    free(copying->copiers[0].own);
    free(copying->copiers[1].own);
    free(copying->window);
    free(copying);
    return rc;
}
