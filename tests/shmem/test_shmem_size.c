/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shmem/size.h"

static const struct {
    const char *text;
    uint64_t bytes;
} good[] = {
    {"0", 0},
    {"1", 1},
    {"20m", 20971520},
    {"3.1M", 3250586},
    {".5m", 524288},
    {"0.5m", 524288},
    {"20kk", 20480},
    {"1k", 1024},
    {"1K of memory", 1024},
    {"2g", UINT64_C(2) << 30},
    {"3T", UINT64_C(3) << 40},
    {"  7", 7},
    {"7.", 7},
    {"1.0000001", 2},
    {"0.0001k", 1},
    {"1.000000000000000000000000001", 1},
    {"16777215T", UINT64_C(16777215) << 40},
    {"18446744073709551615", UINT64_MAX},
    {"1e8", 100000000},
    {"1.5E3", 1500},
    {"2e+1k", 20480},
    {"2500e-3", 3},
    {"1e-30", 1},
    {"0e99999999999", 0},
    {"123456789.5e-2m", UINT64_C(1294538265068)},
};

static const struct {
    const char *text;
    int code;
} bad[] = {
    {"", -EINVAL},
    {" ", -EINVAL},
    {"k", -EINVAL},
    {".", -EINVAL},
    {".k", -EINVAL},
    {"-1", -EINVAL},
    {"+1", -EINVAL},
    {"1x", -EINVAL},
    {"1e", -EINVAL},
    {"1e+", -EINVAL},
    {"e8", -EINVAL},
    {"1e20", -ERANGE},
    {"1e99999999999", -ERANGE},
    {"1 k", -EINVAL},
    {"0x10", -EINVAL},
    {"nan", -EINVAL},
    {"inf", -EINVAL},
    {"1,5m", -EINVAL},
    {"12.3.4", -EINVAL},
    {"18446744073709551616", -ERANGE},
    {"16777216T", -ERANGE},
    {"99999999999999999999999999", -ERANGE},
};

static void sizes_of_the_standard(void **state)
{
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(good); i++) {
        uint64_t bytes = 12345;
        assert_int_equal(via_size_parse(good[i].text, &bytes), 0);
        assert_true(bytes == good[i].bytes);
    }
}

static void what_is_no_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(bad); i++) {
        uint64_t bytes = 12345;
        assert_int_equal(via_size_parse(bad[i].text, &bytes), bad[i].code);
        assert_int_equal(bytes, 12345);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_the_standard),
        cmocka_unit_test(what_is_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
