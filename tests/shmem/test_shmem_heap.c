/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "shmem/heap.h"

#define HEAP_BYTES (UINT64_C(1) << 20)
#define G VIA_HEAP_GRANULE

static uint64_t take(struct via_heap *heap, uint64_t bytes, uint64_t align)
{
    uint64_t off = UINT64_MAX;

    assert_int_equal(via_heap_alloc(heap, bytes, align, &off), 0);
    assert_true(off % align == 0 && off % G == 0 && off + bytes <= heap->bytes);
    assert_int_equal(via_heap_check(heap), 0);
    return off;
}

static void give(struct via_heap *heap, uint64_t off)
{
    assert_int_equal(via_heap_free(heap, off), 0);
    assert_int_equal(via_heap_check(heap), 0);
}

static void blocks_do_not_overlap_and_join_again(void **state)
{
    (void)state;
    struct via_heap heap;
    uint64_t off;

    assert_int_equal(via_heap_init(&heap, HEAP_BYTES + 1), 0);
    assert_true(heap.bytes == HEAP_BYTES);
    uint64_t a = take(&heap, 1, 1), b = take(&heap, G, 1), c = take(&heap, G + 1, 1);
    assert_true(a + G <= b && b + G <= c);
    assert_true(via_heap_block_bytes(&heap, c) == 2 * G);
    give(&heap, b);
    assert_true(take(&heap, 2, 1) == b);
    give(&heap, a);
    give(&heap, c);
    give(&heap, b);
    assert_true(take(&heap, HEAP_BYTES, 1) == 0);
    assert_int_equal(via_heap_alloc(&heap, 1, 1, &off), -ENOSPC);
    via_heap_fini(&heap);
}

static void a_request_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    struct via_heap heap;
    uint64_t off = 7;

    assert_int_equal(via_heap_init(&heap, HEAP_BYTES), 0);
    assert_int_equal(via_heap_alloc(&heap, HEAP_BYTES + 1, 1, &off), -ENOSPC);
    assert_int_equal(via_heap_alloc(&heap, UINT64_MAX, 1, &off), -ENOSPC);
    assert_int_equal(via_heap_alloc(&heap, 1, UINT64_C(1) << 63, &off), 0);
    assert_int_equal(off, 0);
    assert_int_equal(via_heap_alloc(&heap, 1, UINT64_C(1) << 63, &off), -ENOSPC);
    assert_int_equal(via_heap_check(&heap), 0);
    via_heap_fini(&heap);
}

static void only_what_was_given_can_be_taken_back(void **state)
{
    (void)state;
    struct via_heap heap;

    assert_int_equal(via_heap_init(&heap, HEAP_BYTES), 0);
    uint64_t a = take(&heap, 3 * G, 1);
    assert_int_equal(via_heap_free(&heap, a + G), -EINVAL);
    assert_int_equal(via_heap_free(&heap, a + 1), -EINVAL);
    assert_int_equal(via_heap_resize(&heap, a + G, 1), -EINVAL);
    assert_int_equal(via_heap_block_bytes(&heap, a + G), 0);
    give(&heap, a);
    assert_int_equal(via_heap_free(&heap, a), -EINVAL);
    via_heap_fini(&heap);
}

static void a_block_grows_into_what_is_free_behind_it(void **state)
{
    (void)state;
    struct via_heap heap;

    assert_int_equal(via_heap_init(&heap, HEAP_BYTES), 0);
    uint64_t a = take(&heap, G, 1), b = take(&heap, G, 1), c = take(&heap, G, 1);
    assert_int_equal(via_heap_resize(&heap, a, 2 * G), -ENOSPC);
    give(&heap, b);
    assert_int_equal(via_heap_resize(&heap, a, 2 * G), 0);
    assert_int_equal(via_heap_resize(&heap, a, 3 * G), -ENOSPC);
    assert_int_equal(via_heap_check(&heap), 0);
    assert_int_equal(via_heap_resize(&heap, a, 1), 0);
    assert_true(take(&heap, G, 1) == b);
    assert_int_equal(via_heap_resize(&heap, c, HEAP_BYTES - c), 0);
    assert_int_equal(via_heap_check(&heap), 0);
    assert_true(heap.used_bytes == HEAP_BYTES);
    via_heap_fini(&heap);
}

#define SLOTS 400
/* Two heaps, like those of two PEs, get the same random calls: the offsets are the same, and blocks
 * do not overlap. */
static void copies_agree(void **state)
{
    (void)state;
    struct via_heap mine, theirs;
    struct via_rng rng;
    static unsigned char owner[HEAP_BYTES / VIA_HEAP_GRANULE];
    uint64_t offs[SLOTS], bytes[SLOTS] = {0};

    via_rng_init(&rng, 20261121);
    assert_int_equal(via_heap_init(&mine, HEAP_BYTES / 8), 0);
    assert_int_equal(via_heap_init(&theirs, HEAP_BYTES / 8), 0);
    for (int turn = 0; turn < 60000; turn++) {
        size_t slot = via_rng_below(&rng, SLOTS);
        uint64_t wanted = via_rng_between(&rng, 1, via_rng_chance(&rng, 1, 20) ? 60000 : 3000);
        uint64_t there = 0;
        if (bytes[slot] && via_rng_chance(&rng, 1, 2)) {
            assert_int_equal(via_heap_free(&mine, offs[slot]), 0);
            assert_int_equal(via_heap_free(&theirs, offs[slot]), 0);
            memset(owner + offs[slot] / G, 0, (bytes[slot] + G - 1) / G);
            bytes[slot] = 0;
        } else if (bytes[slot]) {
            int result = via_heap_resize(&mine, offs[slot], wanted);
            assert_int_equal(via_heap_resize(&theirs, offs[slot], wanted), result);
            if (result < 0)
                continue;
            memset(owner + offs[slot] / G, 0, (bytes[slot] + G - 1) / G);
            bytes[slot] = wanted;
        } else {
            uint64_t align = UINT64_C(1) << via_rng_below(&rng, 14);
            int result = via_heap_alloc(&mine, wanted, align, &offs[slot]);
            assert_int_equal(via_heap_alloc(&theirs, wanted, align, &there), result);
            if (result < 0 && via_heap_bytes_for(&mine, wanted, align) <= HEAP_BYTES) {
                /* Exactly the needed size is enough. */
                uint64_t needed = via_heap_bytes_for(&mine, wanted, align);
                assert_int_equal(via_heap_grow(&mine, needed), 0);
                assert_int_equal(via_heap_grow(&theirs, needed), 0);
                assert_int_equal(via_heap_alloc(&mine, wanted, align, &offs[slot]), 0);
                assert_int_equal(via_heap_alloc(&theirs, wanted, align, &there), 0);
                result = 0;
            }
            if (result < 0)
                continue;
            assert_true(there == offs[slot] && there % align == 0);
            bytes[slot] = wanted;
        }
        if (bytes[slot]) {
            for (uint64_t i = offs[slot] / G; i < (offs[slot] + bytes[slot] + G - 1) / G; i++)
                assert_int_equal(owner[i]++, 0);
            assert_true(via_heap_block_bytes(&mine, offs[slot]) >= bytes[slot]);
        }
        if (turn % 100 == 0)
            assert_int_equal(via_heap_check(&mine), 0);
    }
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (bytes[slot])
            give(&mine, offs[slot]);
    assert_true(mine.used_bytes == 0);
    assert_true(take(&mine, mine.bytes, 1) == 0);
    via_heap_fini(&mine);
    via_heap_fini(&theirs);
}

static void a_heap_grows_at_its_end(void **state)
{
    (void)state;
    struct via_heap heap;

    assert_int_equal(via_heap_init(&heap, 4 * G), 0);
    uint64_t a = take(&heap, 3 * G, 1), off;
    assert_int_equal(via_heap_alloc(&heap, 2 * G, 1, &off), -ENOSPC);
    /* The free block at the end counts towards the needed size. */
    assert_true(via_heap_bytes_for(&heap, 2 * G, 1) == 5 * G);
    assert_true(via_heap_bytes_for(&heap, 1, 4 * G) == 5 * G);
    assert_int_equal(via_heap_grow(&heap, 5 * G + 1), 0);
    assert_int_equal(via_heap_check(&heap), 0);
    assert_true(take(&heap, 2 * G, 1) == 3 * G);
    /* No block is free there. */
    assert_true(via_heap_bytes_for(&heap, G, 1) == 6 * G);
    assert_int_equal(via_heap_grow(&heap, 6 * G), 0);
    assert_true(take(&heap, G, 1) == 5 * G);
    /* Smaller, or larger, than any heap can be. */
    assert_int_equal(via_heap_grow(&heap, G), 0);
    assert_true(heap.bytes == 6 * G);
    assert_true(via_heap_bytes_for(&heap, UINT64_MAX - 1, 1) == UINT64_MAX);
    give(&heap, a);
    via_heap_fini(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_do_not_overlap_and_join_again),
        cmocka_unit_test(a_request_that_does_not_fit_changes_nothing),
        cmocka_unit_test(only_what_was_given_can_be_taken_back),
        cmocka_unit_test(a_block_grows_into_what_is_free_behind_it),
        cmocka_unit_test(a_heap_grows_at_its_end),
        cmocka_unit_test(copies_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
