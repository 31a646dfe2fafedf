/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define OBJECT_BYTES 1000u
#define OBJECTS_MAX 20000u

static struct via_pool pool = VIA_POOL_INIT(OBJECT_BYTES, OBJECTS_MAX);

/* Private memory that this process may write, in KiB: strict overcommit charges it. */
static long charged_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmData:", 7) == 0) {
            assert_int_equal(sscanf(line + 7, "%ld", &kib), 1);
        }
    }
    fclose(file);
    assert_true(kib >= 0);
    return kib;
}

static void a_pool_is_charged_as_it_is_used(void **state)
{
    (void)state;
    static unsigned char *objects[OBJECTS_MAX];
    long before = charged_kib();
    objects[0] = via_pool_get(&pool);
    assert_true(charged_kib() - before <= 256); /* of 20 MB */
    for (unsigned i = 1; i < OBJECTS_MAX; i++) {
        objects[i] = via_pool_get(&pool);
    }
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        assert_non_null(objects[i]);
        assert_int_equal(objects[i][0], 0);
        assert_int_equal(objects[i][OBJECT_BYTES - 1], 0);
        memset(objects[i], 0xff, OBJECT_BYTES);
        assert_true(via_pool_is_owner(&pool, (uintptr_t)objects[i]));
        assert_int_equal(via_pool_index(&pool, objects[i]), i);
    }
    assert_true(charged_kib() - before < (long)(pool.size * OBJECTS_MAX / 1024) * 4 / 3);
    assert_null(via_pool_get(&pool));
    via_pool_put(&pool, objects[7]);
    assert_ptr_equal(via_pool_get(&pool), objects[7]);
    assert_null(via_pool_get(&pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_is_charged_as_it_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
