/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Symmetric memory: the promises of the allocation calls, and its symmetry. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int me, pes, next;

static char variable[3];
static long from_context;
static char filled[5000] = "filled";
static _Thread_local int private_variable;

static void test_nothing(void)
{
    CHECK(shmem_malloc(0) == NULL, "malloc(0)");
    CHECK(shmem_calloc(0, 8) == NULL && shmem_calloc(8, 0) == NULL, "calloc of nothing");
    CHECK(shmem_align(64, 0) == NULL, "align of nothing");
    CHECK(shmem_malloc_with_hints(0, SHMEM_MALLOC_ATOMICS_REMOTE) == NULL, "hints");
    shmem_free(NULL);
    /* None of these is a barrier, so one PE may make them alone. */
    if (me == 0)
        CHECK(shmem_malloc(0) == NULL && shmem_calloc(0, 1) == NULL, "by one PE");
}

static void test_contents(void)
{
    long *zeros = shmem_calloc(1000, sizeof(long));
    CHECK(zeros, "calloc");
    for (int i = 0; i < 1000; i++)
        CHECK(zeros[i] == 0, "element %d", i);
    for (int i = 0; i < 1000; i++)
        zeros[i] = i;
    long *more = shmem_realloc(zeros, 5000 * sizeof(long));
    CHECK(more, "realloc");
    for (int i = 0; i < 1000; i++)
        CHECK(more[i] == i, "element %d", i);
    long *less = shmem_realloc(more, 10 * sizeof(long));
    CHECK(less, "realloc");
    for (int i = 0; i < 10; i++)
        CHECK(less[i] == i, "element %d", i);
    /* Memory that was used before is zeroed again. */
    shmem_free(less);
    zeros = shmem_calloc(2000, sizeof(long));
    for (int i = 0; i < 2000; i++)
        CHECK(zeros[i] == 0, "element %d", i);
    shmem_free(zeros);
    CHECK(shmem_realloc(NULL, 64) != NULL, "realloc of nothing");
}

/* Freed memory can be allocated again: in total more than any heap of the tests holds. */
static void test_given_back(void)
{
    for (int i = 0; i < 100; i++) {
        void *block = shmem_malloc((size_t)1 << 20);
        CHECK(block, "block %d", i);
        shmem_free(block);
    }
}

/* Hints have no visible effect. */
static void test_hints(void)
{
    long *words =
        shmem_malloc_with_hints(64, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE);
    CHECK(words, "hints");
    words[0] = 1;
    shmem_barrier_all();
    shmem_long_atomic_add(words, 2, next);
    shmem_barrier_all();
    CHECK(words[0] == 3, "%ld", words[0]);
    shmem_free(words);
}

/* The names of these calls before OpenSHMEM 1.2. */
static void test_old_names(void)
{
    long *words = shmalloc(4 * sizeof(long));
    CHECK(words, "shmalloc");
    words[3] = me;
    words = shrealloc(words, 1000 * sizeof(long));
    CHECK(words && words[3] == me, "shrealloc");
    shmem_barrier_all();
    CHECK(shmem_long_g(&words[3], next) == next, "of PE %d", next);
    long *aligned = shmemalign(4096, 100);
    CHECK(aligned && (uintptr_t)aligned % 4096 == 0, "shmemalign");
    shfree(aligned);
    shfree(words);
    /* Freed blocks are allocated again. */
    for (int i = 0; i < 100; i++) {
        void *block = shmalloc((size_t)1 << 20);
        CHECK(block, "block %d", i);
        shfree(block);
    }
}

/* Contexts that may be shared end with their team, and their memory is freed. */
static void test_contexts_end(void)
{
    size_t used[41], first, second;
    shmem_team_t team;
    shmem_ctx_t ctx;

    for (int turn = 0; turn < 40; turn++) {
        used[turn] = mallinfo2().uordblks;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &team) == 0, "team");
        for (int i = 0; i < 100; i++)
            CHECK(shmem_team_create_ctx(team, i % 2 ? SHMEM_CTX_SERIALIZED : 0, &ctx) == 0, "%d",
                  i);
        shmem_ctx_long_p(ctx, &from_context, turn, (shmem_team_my_pe(team) + 1) % pes);
        shmem_team_destroy(team);
        shmem_barrier_all();
        CHECK(from_context == turn, "%ld", from_context);
        shmem_barrier_all();
    }
    used[40] = mallinfo2().uordblks;
    /* Paths to other PEs that are opened meanwhile take memory only once, not in both measurements.
     */
    first = used[25] - (used[10] < used[25] ? used[10] : used[25]);
    second = used[40] - (used[25] < used[40] ? used[25] : used[40]);
    CHECK(first < 1500 || second < 1500, "%zu, then %zu bytes more", first, second);
}

static void test_alignment(void)
{
    for (size_t alignment = sizeof(void *); alignment <= (size_t)16 << 20; alignment *= 4) {
        void *pointer = shmem_align(alignment, 100);
        CHECK(pointer && (uintptr_t)pointer % alignment == 0, "alignment %zu", alignment);
        shmem_free(pointer);
    }
    void *pointer = shmem_malloc(1);
    CHECK((uintptr_t)pointer % _Alignof(max_align_t) == 0, "malloc");
    shmem_free(pointer);
}

/* A request that does not fit returns NULL at every PE, and has no other effect. */
static void test_too_much(void)
{
    CHECK(shmem_malloc(SIZE_MAX / 2) == NULL, "too much");
    CHECK(shmem_calloc(SIZE_MAX / 2, 16) == NULL, "too much");
    int *kept = shmem_malloc(sizeof(int));
    *kept = 42;
    CHECK(shmem_realloc(kept, SIZE_MAX / 4) == NULL, "too much");
    CHECK(*kept == 42, "the block is unchanged");
    shmem_free(kept);
}

/* Offsets are the same at every PE: bytes that one PE writes into a block arrive in the same block.
 */
static void check_same(const unsigned char *block, size_t bytes, unsigned number)
{
    unsigned char *there = malloc(bytes);
    shmem_getmem(there, block, bytes, next);
    for (size_t i = 0; i < bytes; i++)
        CHECK(there[i] == (unsigned char)(number + (unsigned)next), "block %u, byte %zu", number,
              i);
    free(there);
}

#define BLOCKS 64
static void test_random(void)
{
    static unsigned char *blocks[BLOCKS];
    static size_t bytes[BLOCKS];
    unsigned number[BLOCKS] = {0};

    srand(7);
    for (unsigned turn = 1; turn <= 600; turn++) {
        int slot = rand() % BLOCKS;
        size_t wanted = (size_t)rand() % (turn % 10 == 0 ? 200000 : 3000) + 1;
        if (!blocks[slot]) {
            blocks[slot] = rand() % 3 == 0 ? shmem_align(256, wanted) : shmem_malloc(wanted);
        } else if (rand() % 3 == 0) {
            unsigned char *moved = shmem_realloc(blocks[slot], wanted);
            CHECK(moved, "realloc");
            size_t kept = wanted < bytes[slot] ? wanted : bytes[slot];
            for (size_t i = 0; i < kept; i++)
                CHECK(moved[i] == (unsigned char)(number[slot] + (unsigned)me), "realloc");
            blocks[slot] = moved;
        } else {
            shmem_free(blocks[slot]);
            blocks[slot] = NULL;
            continue;
        }
        CHECK(blocks[slot], "turn %u", turn);
        bytes[slot] = wanted;
        number[slot] = turn;
        memset(blocks[slot], (int)(turn + (unsigned)me), wanted);
        shmem_barrier_all();
        check_same(blocks[slot], wanted, turn);
        shmem_barrier_all();
    }
    for (int slot = 0; slot < BLOCKS; slot++) {
        if (!blocks[slot])
            continue;
        check_same(blocks[slot], bytes[slot], number[slot]);
        shmem_free(blocks[slot]);
    }
}

static void test_pointers(void)
{
    int *heap = shmem_malloc(sizeof(int)), on_stack;

    *heap = me;
    shmem_barrier_all();
    CHECK(shmem_ptr(heap, me) == heap && shmem_ptr(variable, me) == variable, "my own");
    for (int pe = 0; pe < pes; pe++) {
        CHECK(shmem_pe_accessible(pe), "PE %d", pe);
        CHECK(shmem_addr_accessible(heap, pe) && shmem_addr_accessible(variable, pe), "PE %d", pe);
        CHECK(!shmem_addr_accessible(&on_stack, pe), "PE %d", pe);
        CHECK(!shmem_addr_accessible(&private_variable, pe), "PE %d", pe);
        const int *there = shmem_ptr(heap, pe);
        /* NULL only for PEs of other hosts. */
        CHECK(there ? *there == pe : getenv("VIADUCT_HOST") || getenv("SEVERAL_MACHINES"), "PE %d",
              pe);
        CHECK(shmem_ptr(&on_stack, pe) == NULL, "PE %d", pe);
    }
    CHECK(!shmem_pe_accessible(-1) && !shmem_pe_accessible(pes), "PEs that are not");
    shmem_free(heap);
}

/* Initialized and zero variables, of odd sizes. */
static void test_variables(void)
{
    char there[sizeof(filled)];

    CHECK(strcmp(filled, "filled") == 0 && variable[0] == 0, "before");
    shmem_barrier_all();
    memset(filled, 'a' + me, sizeof(filled));
    shmem_putmem(variable, &(char[3]){'x', (char)me, 'z'}, 3, next);
    shmem_barrier_all();
    CHECK(variable[0] == 'x' && variable[1] == (me + pes - 1) % pes && variable[2] == 'z', "put");
    shmem_getmem(there, filled, sizeof(filled), next);
    for (size_t i = 0; i < sizeof(there); i++)
        CHECK(there[i] == 'a' + next, "byte %zu", i);
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    next = (me + 1) % pes;
    test_nothing();
    test_contents();
    test_hints();
    test_given_back();
    test_old_names();
    test_contexts_end();
    test_alignment();
    test_too_much();
    test_pointers();
    test_variables();
    test_random();
    return passed("memory");
}
