/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The node between neighbours: every operation, exactly once, in order. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/types.h"
#include "fabric.h"

static void messages_arrive_once_in_order(bool direct)
{
    struct fabric *fabric = fabric_new(direct);
    uint64_t numbers[500];
    fabric_chain(fabric, 2);
    fabric_settle(fabric);

    for (uint64_t i = 0; i < 500; i++) {
        numbers[i] = i;
        struct via_op op = {
            .kind = VIA_OP_MESSAGE,
            .destination = 1,
            .flow = 1,
            .endpoint = 7,
            .source_endpoint = 9,
            .source = &numbers[i],
            .bytes = 8,
            .cookie = 100 + i,
        };
        fabric_submit(fabric, 0, &op);
    }
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    const struct fabric_host *to = &fabric->hosts[1];
    assert_int_equal(to->deliveries_count, 500);
    for (unsigned i = 0; i < 500; i++) {
        assert_int_equal(to->deliveries[i].first, i);
        assert_int_equal(to->deliveries[i].bytes, 8);
        assert_int_equal(to->deliveries[i].endpoint, 7);
        assert_int_equal(to->deliveries[i].source_endpoint, 9);
        assert_int_equal(to->deliveries[i].source, 0);
        assert_int_equal(to->deliveries[i].flow, 1);
        assert_int_equal(fabric->hosts[0].completions[i].cookie, 100 + i);
        assert_int_equal(fabric->hosts[0].completions[i].status, 0);
    }
    assert_int_equal(fabric->hosts[0].completions_count, 500);
    assert_int_equal(fabric_counters(fabric, 0).frames_resent, 0);
    fabric_free(fabric);
}

static void messages_by_stores(void **state)
{
    (void)state;
    messages_arrive_once_in_order(true);
}

static void messages_by_puts(void **state)
{
    (void)state;
    messages_arrive_once_in_order(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_by_stores),
        cmocka_unit_test(messages_by_puts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
