/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Producers and consumers: every PE with an odd number makes pieces of work for the PE before it,
 * through a ring of slots in the consumer's memory. One call puts a piece and raises its slot's
 * signal (the signal is never seen before the piece); the consumer answers by a count of what it
 * has used, and the producer is never more than SLOTS ahead.
 *
 *     oshrun -n 2 ./producer_consumer [pieces]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECES_DEFAULT 10000
#define SLOTS 8
#define WORDS 64

/* At the consumer: the ring, and for each slot the number of the piece that is in it. */
static long ring[SLOTS][WORDS];
static uint64_t filled[SLOTS];
/* At the producer: how many pieces have been used. */
static uint64_t used;
/* At PE 0: how many were wrong. */
static long wrong_pieces, checked_pieces;

static long word_of(int producer, uint64_t piece, size_t i)
{
    return (long)(piece * 1000003) + (long)i * 17 + producer;
}

static void produce(int consumer, uint64_t pieces)
{
    long piece_words[WORDS];
    int me = shmem_my_pe();

    for (uint64_t piece = 1; piece <= pieces; piece++) {
        size_t slot = piece % SLOTS;
        for (size_t i = 0; i < WORDS; i++)
            piece_words[i] = word_of(me, piece, i);
        if (piece > SLOTS)
            shmem_uint64_wait_until(&used, SHMEM_CMP_GE, piece - SLOTS);
        shmem_put_signal(ring[slot], piece_words, WORDS, &filled[slot], piece, SHMEM_SIGNAL_SET,
                         consumer);
    }
}

static long consume(int producer, uint64_t pieces)
{
    long wrong = 0;

    for (uint64_t piece = 1; piece <= pieces; piece++) {
        size_t slot = piece % SLOTS;
        /* A slot's signal is the piece's number, so it is the new piece that is waited for. */
        shmem_signal_wait_until(&filled[slot], SHMEM_CMP_EQ, piece);
        for (size_t i = 0; i < WORDS; i++)
            wrong += ring[slot][i] != word_of(producer, piece, i);
        shmem_uint64_p(&used, piece, producer);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    uint64_t pieces = argc > 1 ? strtoul(argv[1], NULL, 10) : PIECES_DEFAULT;

    shmem_init();
    int me = shmem_my_pe();
    int pes = shmem_n_pes();

    if (me % 2 == 1) {
        produce(me - 1, pieces);
    } else if (me + 1 < pes) {
        long wrong = consume(me + 1, pieces);
        shmem_atomic_add(&wrong_pieces, wrong, 0);
        shmem_atomic_add(&checked_pieces, (long)pieces, 0);
    }
    shmem_barrier_all();

    int failed = 0;
    if (me == 0) {
        failed = wrong_pieces != 0 || checked_pieces != (long)pieces * (pes / 2);
        printf("%s: %ld pieces of %d words by %d producers, %ld words are wrong\n",
               failed ? "FAIL" : "PASS", checked_pieces, WORDS, pes / 2, wrong_pieces);
    }
    shmem_finalize();
    return failed;
}
