/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The symmetric heap grows, up to a limit, while it is used; and random malloc, align, realloc and
 * free on all PEs, against a model of the contents of every block.
 *
 *     SHMEM_SYMMETRIC_SIZE=1m VIADUCT_SHMEM_HEAP_MAX=64m oshrun -n N prog_shmem_heap [seed [turns]]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static int me, pes, next;
static unsigned seed = 1, turns = 400;

/* --- growing ---------------------------------------------------------------------------------- */

/* Another thread of each PE, which puts to the neighbour PE continuously. */
static atomic_bool writer_stops;

static void *write_on(void *argument)
{
    long *word = argument;

    for (long number = 1; !atomic_load(&writer_stops); number++) {
        shmem_long_p(word, number, next);
        shmem_fence();
        CHECK(shmem_long_atomic_fetch_inc(word + 1, next) >= number - 1, "put %ld", number);
    }
    return NULL;
}

static void check_block(const unsigned char *block, size_t bytes, unsigned value)
{
    for (size_t i = 0; i < bytes; i += i + 1 < bytes && i + 509 >= bytes ? bytes - 1 - i : 509)
        CHECK(block[i] == (unsigned char)value, "byte %zu of %zu", i, bytes);
}

static void test_growing(void)
{
    unsigned char *kept = shmem_malloc(10000);
    CHECK(kept, "10000 bytes of 1 MiB");
    memset(kept, 'k' + me, 10000);
    for (size_t bytes = MIB; bytes <= 8 * MIB; bytes *= 2) {
        unsigned char *big = shmem_malloc(bytes);
        CHECK(big, "%zu bytes: the heap grows", bytes);
        memset(big, (int)(bytes / MIB) + me, bytes);
        shmem_barrier_all();
        /* The new part is symmetric, from the first byte to the last. */
        CHECK(shmem_addr_accessible(big + bytes - 1, next), "%zu bytes", bytes);
        unsigned char there;
        shmem_getmem(&there, big + bytes - 1, 1, next);
        CHECK(there == (unsigned char)(bytes / MIB + (size_t)next), "%zu bytes", bytes);
        shmem_barrier_all();
        shmem_uchar_p(big + bytes - 1, 'p', next);
        shmem_long_atomic_set((long *)(void *)big, 4711, next);
        shmem_barrier_all();
        CHECK(big[bytes - 1] == 'p' && *(long *)(void *)big == 4711, "%zu bytes", bytes);
        check_block(kept, 10000, 'k' + (unsigned)me);
    }
    shmem_free(kept);
}

static void test_limit(void)
{
    CHECK(shmem_malloc(100 * MIB) == NULL, "more than the limit");
    CHECK(shmem_align(MIB, 64 * MIB) == NULL, "more than the limit");
    unsigned char *block = shmem_malloc(MIB);
    CHECK(block, "what fits is given nevertheless");
    memset(block, 7, MIB);
    CHECK(shmem_realloc(block, 80 * MIB) == NULL, "more than the limit");
    check_block(block, MIB, 7);
    unsigned char *more = shmem_realloc(block, 24 * MIB);
    CHECK(more, "realloc grows it, too");
    check_block(more, MIB, 7);
    shmem_free(more);
}

static void test_new_life(void)
{
    shmem_finalize();
    shmem_init();
    unsigned char *block = shmem_malloc(20 * MIB);
    CHECK(block, "after another shmem_init");
    memset(block, me, 20 * MIB);
    shmem_barrier_all();
    unsigned char there;
    shmem_getmem(&there, block + 20 * MIB - 1, 1, next);
    CHECK(there == (unsigned char)next, "%u", there);
    shmem_free(block);
}

/* --- random ----------------------------------------------------------------------------------- */

struct block {
    unsigned char *bytes;
    size_t count;
    unsigned value; /* the value of every byte is this plus the PE's number */
};

static void fill(struct block *block, size_t count, unsigned turn)
{
    block->count = count;
    block->value = turn;
    memset(block->bytes, (int)(turn + (unsigned)me), count);
}

/* Checks a part of the neighbour's block. */
static void look(const struct block *block)
{
    unsigned char piece[64];
    size_t count = block->count < sizeof(piece) ? block->count : sizeof(piece);
    size_t off = (size_t)rand() % (block->count - count + 1);

    shmem_getmem(piece, block->bytes + off, count, next);
    for (size_t i = 0; i < count; i++)
        CHECK(piece[i] == (unsigned char)(block->value + (unsigned)next),
              "seed %u, byte %zu of %zu at PE %d", seed, off + i, block->count, next);
}

#define BLOCKS 48
static void test_random(void)
{
    struct block blocks[BLOCKS] = {{0}};

    srand(seed);
    for (unsigned turn = 1; turn <= turns; turn++) {
        struct block *block = &blocks[rand() % BLOCKS];
        size_t count = (size_t)rand() % (turn % 16 == 0 ? 2 * MIB : 20000) + 1;
        int what = rand() % 4;
        if (!block->bytes) {
            block->bytes = what == 0   ? shmem_align((size_t)64 << (rand() % 8), count)
                           : what == 1 ? shmem_calloc(count, 1)
                                       : shmem_malloc(count);
            CHECK(block->bytes, "seed %u, turn %u: %zu bytes", seed, turn, count);
            for (size_t i = 0; what == 1 && i < count; i++)
                CHECK(block->bytes[i] == 0, "seed %u, turn %u: calloc", seed, turn);
            fill(block, count, turn);
        } else if (what < 2) {
            size_t kept = count < block->count ? count : block->count;
            block->bytes = shmem_realloc(block->bytes, count);
            CHECK(block->bytes, "seed %u, turn %u: %zu bytes", seed, turn, count);
            check_block(block->bytes, kept, block->value + (unsigned)me);
            fill(block, count, turn);
        } else {
            shmem_free(block->bytes);
            block->bytes = NULL;
        }
        shmem_barrier_all();
        for (int i = 0; i < 4; i++) {
            const struct block *some = &blocks[rand() % BLOCKS];
            if (some->bytes)
                look(some);
        }
        shmem_barrier_all();
    }
    for (int i = 0; i < BLOCKS; i++)
        shmem_free(blocks[i].bytes);
}

int main(int argc, char **argv)
{
    pthread_t writer;
    int provided;

    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0, "init");
    me = shmem_my_pe();
    pes = shmem_n_pes();
    next = (me + 1) % pes;
    seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : seed;
    turns = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : turns;

    long *words = shmem_calloc(2, sizeof(long));
    CHECK(words, "two words");
    pthread_create(&writer, NULL, write_on, words);
    test_growing();
    atomic_store(&writer_stops, true);
    pthread_join(writer, NULL);
    test_limit();
    test_new_life();
    test_random();
    return passed("heap");
}
