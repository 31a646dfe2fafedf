/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Copies as emulated hosts make them: into memory that another processor read last, and out of what
 * another one has written. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/machine/measure.h"
#include "sim/memory.h"

#define BYTES (1u << 20)
#define PIECE_BYTES 16384u /* about a frame */
#define PIECES (BYTES / PIECE_BYTES)
#define ROUNDS 16u
#define SAMPLES (ROUNDS * PIECES)

struct copier {
    struct copying *copying;
    pthread_t thread;
    unsigned index;
    unsigned char *own; /* owned */
    double ns[SAMPLES]; /* of a piece */
};

struct copying {
    _Alignas(64) atomic_uint turn; /* even: the writer's, odd: the reader's */
    unsigned char *shared;         /* owned */
    struct copier copiers[2];
};

static void *copy_by_turns(void *arg)
{
    struct copier *copier = arg;
    struct copying *copying = copier->copying;
    sim_measure_pin(copier->index);
    for (unsigned round = 0; round < ROUNDS; round++) {
        /* Pairs with the release below: the other one's copies are there. */
        while (atomic_load_explicit(&copying->turn, memory_order_acquire) !=
               2 * round + copier->index) {
        }
        for (unsigned piece = 0; piece < PIECES; piece++) {
            unsigned char *shared = copying->shared + piece * PIECE_BYTES;
            unsigned char *own = copier->own + piece * PIECE_BYTES;
            uint64_t start_ns = sim_measure_now_ns();
            memcpy(copier->index == 0 ? shared : own, copier->index == 0 ? own : shared,
                   PIECE_BYTES);
            __asm__ volatile("" : : "r"(own), "r"(shared) : "memory");
            copier->ns[round * PIECES + piece] = (double)(sim_measure_now_ns() - start_ns);
        }
        atomic_fetch_add_explicit(&copying->turn, 1, memory_order_release);
    }
    return NULL;
}

/* By itself, on a machine of one processor. */
static double own_rate(struct copier *copier, unsigned char *shared)
{
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start_ns = sim_measure_now_ns();
        memcpy(shared + i % PIECES * PIECE_BYTES, copier->own + i % PIECES * PIECE_BYTES,
               PIECE_BYTES);
        __asm__ volatile("" : : "r"(shared) : "memory");
        copier->ns[i] = (double)(sim_measure_now_ns() - start_ns);
    }
    return PIECE_BYTES * 1e9 / sim_measure_quartile(copier->ns, SAMPLES);
}

static int shared_rate(struct copying *copying, double *ret_rate, struct via_error *err)
{
    struct copier *copiers = copying->copiers;
    int rc = pthread_create(&copiers[0].thread, NULL, copy_by_turns, &copiers[0]);
    if (rc == 0) {
        rc = pthread_create(&copiers[1].thread, NULL, copy_by_turns, &copiers[1]);
        if (rc != 0) {
            copy_by_turns(&copiers[1]); /* so that the first one ends */
        }
        pthread_join(copiers[0].thread, NULL);
    }
    if (rc != 0) {
        return via_error_set(err, -EAGAIN, "starting a thread: %s", strerror(rc));
    }
    pthread_join(copiers[1].thread, NULL);
    *ret_rate = 2 * PIECE_BYTES * 1e9 /
                (sim_measure_quartile(copiers[0].ns, SAMPLES) +
                 sim_measure_quartile(copiers[1].ns, SAMPLES));
    return 0;
}

int sim_measure_memory(struct sim_measured *ret, struct via_error *err)
{
    struct copying *copying = sim_alloc_lines(sizeof(*copying));
    int rc = 0;
    copying->shared = sim_alloc_lines(BYTES);
    for (unsigned i = 0; i < 2; i++) {
        copying->copiers[i].copying = copying;
        copying->copiers[i].index = i;
        copying->copiers[i].own = sim_alloc_lines(BYTES);
        memset(copying->copiers[i].own, 1, BYTES);
    }
    memset(copying->shared, 2, BYTES);
    double own = own_rate(&copying->copiers[0], copying->shared);
    ret->copy_rate = own;
    if (ret->cpus_count > 1) {
        rc = shared_rate(copying, &ret->copy_rate, err);
    }
    /* What all processors together get through their own caches: no less than the bus between. */
    ret->bus_rate = 2 * own * ret->cpus_count;
    free(copying->copiers[0].own);
    free(copying->copiers[1].own);
    free(copying->shared);
    free(copying);
    return rc;
}
