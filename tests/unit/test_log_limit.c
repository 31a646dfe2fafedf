/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Messages that a peer or a process can cause do not fill the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log_limit.h"

#define INTERVAL VIA_LOG_LIMIT_INTERVAL_NS

struct captured {
    unsigned count;
    char last[256];
};

static void capture(void *ctx, const struct via_log_message *message)
{
    struct captured *captured = ctx;
    captured->count++;
    snprintf(captured->last, sizeof(captured->last), "%s", message->text);
}

static struct captured captured;

static int set_up(void **state)
{
    (void)state;
    captured = (struct captured){0};
    via_log_set_sink(capture, &captured);
    via_log_set_level(VIA_LOG_INFO);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    via_log_set_sink(NULL, NULL);
    return 0;
}

static void say(struct via_log_limit *limit, uint64_t now_ns, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        via_log_limited(limit, now_ns, VIA_LOG_WARN, "uid %d refused", 7);
    }
}

static void a_burst_goes_through_and_a_flood_does_not(void **state)
{
    (void)state;
    struct via_log_limit limit = {0};
    say(&limit, 5, VIA_LOG_LIMIT_BURST);
    assert_int_equal(captured.count, VIA_LOG_LIMIT_BURST);
    assert_string_equal(captured.last, "uid 7 refused");
    say(&limit, 5, 1000);
    assert_int_equal(captured.count, VIA_LOG_LIMIT_BURST);
    /* Each interval returns one token, and the next message contains the number of suppressed ones.
     */
    say(&limit, 5 + INTERVAL - 1, 1);
    assert_int_equal(captured.count, VIA_LOG_LIMIT_BURST);
    say(&limit, 5 + INTERVAL, 2);
    assert_int_equal(captured.count, VIA_LOG_LIMIT_BURST + 1);
    assert_string_equal(captured.last, "uid 7 refused (1001 more suppressed)");
    say(&limit, 5 + 2 * INTERVAL, 1);
    assert_string_equal(captured.last, "uid 7 refused (1 more suppressed)");
    say(&limit, 5 + 3 * INTERVAL, 1);
    assert_string_equal(captured.last, "uid 7 refused");
}

static void a_quiet_source_has_its_burst_again_and_no_more(void **state)
{
    (void)state;
    struct via_log_limit limit = {0};
    say(&limit, 0, 100);
    captured.count = 0;
    say(&limit, 3 * INTERVAL, 100);
    assert_int_equal(captured.count, 3);
    captured.count = 0;
    say(&limit, 1000 * INTERVAL, 100);
    assert_int_equal(captured.count, VIA_LOG_LIMIT_BURST);
}

static void the_end_of_a_flood_is_logged(void **state)
{
    (void)state;
    struct via_log_limit limit = {0};
    say(&limit, 0, VIA_LOG_LIMIT_BURST);
    assert_int_equal(via_log_limit_flush(&limit, 0, "refusals"), VIA_NEVER_NS);
    say(&limit, 0, 5);
    captured.count = 0;
    uint64_t again_ns = via_log_limit_flush(&limit, 1, "refusals");
    assert_int_equal(again_ns, INTERVAL);
    assert_int_equal(captured.count, 0);
    assert_int_equal(via_log_limit_flush(&limit, again_ns, "refusals"), VIA_NEVER_NS);
    assert_int_equal(captured.count, 1);
    assert_string_equal(captured.last, "refusals: 5 more suppressed");
    assert_int_equal(via_log_limit_flush(&limit, again_ns, "refusals"), VIA_NEVER_NS);
    assert_int_equal(captured.count, 1);
}

static void a_suppressed_level_takes_no_token(void **state)
{
    (void)state;
    struct via_log_limit limit = {0};
    via_log_set_level(VIA_LOG_ERROR);
    say(&limit, 0, 100);
    assert_int_equal(limit.full_ns, 0);
    assert_int_equal(limit.suppressed, 0);
    via_log_set_level(VIA_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_burst_goes_through_and_a_flood_does_not, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_quiet_source_has_its_burst_again_and_no_more, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_a_flood_is_logged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_suppressed_level_takes_no_token, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
