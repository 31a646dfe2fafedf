/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The simulated write-combining buffers: their guarantees, and that they guarantee no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/combine.h"
#include "base/types.h"

#define BYTES 4096u
#define SEEDS 200u

static unsigned char memory[BYTES] VIA_CACHELINE_ALIGNED;

static void after_a_drain_memory_holds_what_was_stored(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        unsigned char expected[BYTES];
        struct via_combine combine;
        struct via_rng rng;
        via_combine_init(&combine, seed);
        via_rng_init(&rng, seed + 1000);
        memset(memory, 0, sizeof(memory));
        memset(expected, 0, sizeof(expected));
        for (unsigned i = 0; i < 100; i++) {
            unsigned char src[300];
            size_t bytes = (size_t)via_rng_below(&rng, sizeof(src));
            size_t off = (size_t)via_rng_below(&rng, BYTES - bytes);
            memset(src, (int)(i + 1), sizeof(src));
            via_combine_store(&combine, memory + off, src, bytes);
            memcpy(expected + off, src, bytes);
        }
        via_combine_drain(&combine);
        assert_memory_equal(memory, expected, BYTES);
    }
}

/* Without an sfence a flag stored after its data must sometimes be visible before them: otherwise a
 * missing sfence would not be found. With the sfence it never is. */
static unsigned flags_before_data(bool fenced)
{
    unsigned early = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        static const uint64_t one = 1;
        struct via_combine combine;
        via_combine_init(&combine, seed);
        memset(memory, 0, sizeof(memory));
        for (unsigned line = 0; line < 4; line++) {
            via_combine_store(&combine, memory + 64 * line, &one, sizeof(one));
        }
        if (fenced) {
            via_combine_drain(&combine);
        }
        via_combine_store(&combine, memory + 1024, &one, sizeof(one));
        while (combine.lines_count != 0) {
            bool flag = memory[1024] != 0;
            bool data = memory[0] != 0 && memory[64] != 0 && memory[128] != 0 && memory[192] != 0;
            if (flag && !data) {
                early++;
                break;
            }
            /* Each further store may write a buffer to memory. */
            via_combine_store(&combine, memory + 2048, &one, sizeof(one));
            if (combine.lines_count == 1) {
                via_combine_drain(&combine);
            }
        }
        via_combine_drain(&combine);
    }
    return early;
}

static void only_a_drain_orders_two_lines(void **state)
{
    (void)state;
    assert_true(flags_before_data(false) > SEEDS / 10);
    assert_int_equal(flags_before_data(true), 0);
}

static void what_is_dropped_never_arrives(void **state)
{
    (void)state;
    unsigned lost = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        static const uint64_t one = 1;
        struct via_combine combine;
        via_combine_init(&combine, seed);
        memset(memory, 0, sizeof(memory));
        via_combine_store(&combine, memory, &one, sizeof(one));
        via_combine_drop(&combine);
        via_combine_drain(&combine);
        lost += memory[0] == 0;
    }
    assert_true(lost > SEEDS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_drain_memory_holds_what_was_stored),
        cmocka_unit_test(only_a_drain_orders_two_lines),
        cmocka_unit_test(what_is_dropped_never_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
