/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bits.h"

static void log2_rounds_down(void **state)
{
    (void)state;
    assert_int_equal(via_log2_u32(1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log2_rounds_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
