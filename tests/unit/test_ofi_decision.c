/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Cuts and mends of a link over libfabric: both ends obey the later decision, for any lost messages
 * of a greeting and any restarted end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "port/ofi/decision.h"

#define CONNECTOR 0
#define LISTENER 1

struct ends {
    struct via_ofi_decision of[2];
    uint64_t instances[2];
};

static struct via_ofi_proof prove(const struct ends *ends, unsigned end)
{
    return (struct via_ofi_proof){
        .instance = ends->instances[end],
        .flags = via_ofi_decision_flags(&ends->of[end]),
        .decision = ends->of[end].last,
    };
}

static void restart(struct ends *ends, unsigned end)
{
    static uint64_t instance;
    ends->of[end] = (struct via_ofi_decision){.last = 0};
    ends->instances[end] = ++instance;
}

static struct ends ends_new(void)
{
    struct ends ends;
    restart(&ends, CONNECTOR);
    restart(&ends, LISTENER);
    return ends;
}

/* The listener gets the proof; the connector gets the grant, unless it is lost. */
static void greet(struct ends *ends, bool is_grant_lost)
{
    struct via_ofi_proof mine = prove(ends, CONNECTOR);
    via_ofi_decision_agree(&ends->of[LISTENER], &mine);
    struct via_ofi_proof grant = prove(ends, LISTENER);
    if (!is_grant_lost) {
        assert_false(via_ofi_decision_granted(&ends->of[CONNECTOR], &mine, &grant));
    }
}

static void assert_cut(const struct ends *ends, bool cut)
{
    assert_int_equal(ends->of[0].last, ends->of[1].last);
    assert_int_equal(via_ofi_decision_is_cut(&ends->of[0]), cut);
}

static void a_mend_that_was_not_read_counts(void **state)
{
    (void)state;
    for (unsigned end = 0; end < 2; end++) {
        struct ends ends = ends_new();
        greet(&ends, false);
        via_ofi_decision_make(&ends.of[end], true);
        greet(&ends, false);
        assert_cut(&ends, true);
        via_ofi_decision_make(&ends.of[end], false); /* its message is lost */
        greet(&ends, false);
        assert_cut(&ends, false);
    }
}

/* The operator of the other end has found the link down, and does not know the reason. */
static void a_mend_of_a_link_that_is_down_is_as_late_as_an_unknown_cut(void **state)
{
    (void)state;
    for (unsigned end = 0; end < 2; end++) {
        struct ends ends = ends_new();
        greet(&ends, false);
        via_ofi_decision_make(&ends.of[end], true);
        via_ofi_decision_make(&ends.of[1 - end], false);
        greet(&ends, false);
        assert_cut(&ends, false);
        via_ofi_decision_make(&ends.of[end], true);
        greet(&ends, false);
        assert_cut(&ends, true);
    }
}

static void a_cut_outlives_either_end(void **state)
{
    (void)state;
    for (unsigned end = 0; end < 2; end++) {
        struct ends ends = ends_new();
        greet(&ends, false);
        via_ofi_decision_make(&ends.of[end], true);
        greet(&ends, false);
        restart(&ends, end);
        greet(&ends, false);
        assert_cut(&ends, true);
        restart(&ends, 1 - end);
        greet(&ends, false);
        assert_cut(&ends, true);
    }
}

static void a_restarted_end_can_mend_before_the_greeting(void **state)
{
    (void)state;
    for (unsigned end = 0; end < 2; end++) {
        struct ends ends = ends_new();
        greet(&ends, false);
        for (unsigned i = 0; i < 7; i++) {
            via_ofi_decision_make(&ends.of[1 - end], i % 2 == 0);
        }
        greet(&ends, false);
        assert_cut(&ends, true);
        restart(&ends, end);
        via_ofi_decision_make(&ends.of[end], false);
        greet(&ends, false);
        assert_cut(&ends, false);
    }
}

/* The listener has received the connector's cut, and the connector has restarted: a mend at the
 * listener is later. */
static void a_decision_is_new_only_once(void **state)
{
    (void)state;
    struct ends ends = ends_new();
    via_ofi_decision_make(&ends.of[CONNECTOR], true);
    greet(&ends, true);
    assert_true(via_ofi_decision_is_cut(&ends.of[LISTENER]));
    via_ofi_decision_make(&ends.of[LISTENER], false);
    greet(&ends, true);
    greet(&ends, false);
    assert_cut(&ends, false);
}

static void a_mend_during_the_greeting_is_sent(void **state)
{
    (void)state;
    struct ends ends = ends_new();
    greet(&ends, false);
    via_ofi_decision_make(&ends.of[LISTENER], true);
    struct via_ofi_proof mine = prove(&ends, CONNECTOR);
    via_ofi_decision_make(&ends.of[CONNECTOR], false);
    via_ofi_decision_agree(&ends.of[LISTENER], &mine);
    struct via_ofi_proof grant = prove(&ends, LISTENER);
    assert_true(via_ofi_decision_granted(&ends.of[CONNECTOR], &mine, &grant));
    via_ofi_decision_mended(&ends.of[LISTENER], ends.of[CONNECTOR].last);
    assert_cut(&ends, false);
}

static void numbers_of_no_honest_peer_do_no_harm(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {VIA_OFI_DECISION_MAX, VIA_OFI_DECISION_MAX + 1,
                                       UINT32_MAX - 1, UINT32_MAX};
    for (unsigned i = 0; i < 4; i++) {
        struct ends ends = ends_new();
        greet(&ends, false);
        via_ofi_decision_make(&ends.of[LISTENER], true);
        struct via_ofi_decision before = ends.of[LISTENER];
        struct via_ofi_proof mine = prove(&ends, CONNECTOR), forged = mine;
        forged.decision = numbers[i];
        via_ofi_decision_agree(&ends.of[LISTENER], &forged);
        assert_int_equal(ends.of[LISTENER].last, before.last);
        assert_false(via_ofi_decision_granted(&ends.of[CONNECTOR], &mine, &forged));
        assert_int_equal(ends.of[CONNECTOR].last, mine.decision);
        via_ofi_decision_mended(&ends.of[LISTENER], numbers[i]);
        assert_false(via_ofi_decision_is_cut(&ends.of[LISTENER]));
        assert_true(ends.of[LISTENER].last < VIA_OFI_DECISION_MAX);
    }
}

/* Decisions at an end that has received all earlier ones, and lost grants: the last decision is
 * valid. */
static void the_last_of_many_counts(void **state)
{
    (void)state;
    struct via_rng rng;
    via_rng_init(&rng, 17);
    for (unsigned round = 0; round < 2000; round++) {
        struct ends ends = ends_new();
        bool cut = false;
        for (unsigned i = 0; i < 20; i++) {
            unsigned end = (unsigned)via_rng_below(&rng, 2);
            if (via_rng_below(&rng, 4) == 0) {
                restart(&ends, end);
                greet(&ends, false);
                continue; /* only one end has the decision */
            }
            cut = via_rng_below(&rng, 2) == 0;
            via_ofi_decision_make(&ends.of[end], cut);
            for (unsigned lost = (unsigned)via_rng_below(&rng, 3); lost != 0; lost--) {
                greet(&ends, true);
            }
            greet(&ends, false);
            assert_cut(&ends, cut);
        }
    }
}

/* The connector's mend was made while its proof was on its way, and the listener's, too. */
static void a_mend_at_both_ends_while_they_greet_is_one(void **state)
{
    (void)state;
    struct ends ends = ends_new();
    via_ofi_decision_make(&ends.of[CONNECTOR], true);
    greet(&ends, false);
    struct via_ofi_proof mine = prove(&ends, CONNECTOR);
    via_ofi_decision_make(&ends.of[LISTENER], false);
    via_ofi_decision_make(&ends.of[CONNECTOR], false);
    via_ofi_decision_agree(&ends.of[LISTENER], &mine);
    struct via_ofi_proof grant = prove(&ends, LISTENER);
    assert_false(via_ofi_decision_granted(&ends.of[CONNECTOR], &mine, &grant));
    assert_cut(&ends, false);
    via_ofi_decision_make(&ends.of[LISTENER], true);
    greet(&ends, false);
    assert_cut(&ends, true);
}

static void a_mend_that_is_repeated_is_no_later(void **state)
{
    (void)state;
    struct ends ends = ends_new();
    greet(&ends, false);
    via_ofi_decision_make(&ends.of[CONNECTOR], false);
    via_ofi_decision_make(&ends.of[CONNECTOR], false);
    via_ofi_decision_make(&ends.of[CONNECTOR], false);
    via_ofi_decision_make(&ends.of[LISTENER], false);
    via_ofi_decision_make(&ends.of[LISTENER], true);
    greet(&ends, false);
    assert_cut(&ends, true);
}

static void after_the_highest_number_decisions_still_count(void **state)
{
    (void)state;
    for (unsigned end = 0; end < 2; end++) {
        for (int cut = 0; cut < 2; cut++) {
            struct ends ends = ends_new();
            struct via_ofi_proof high = prove(&ends, CONNECTOR);
            high.decision = VIA_OFI_DECISION_MAX - 1;
            via_ofi_decision_agree(&ends.of[LISTENER], &high);
            greet(&ends, false);
            via_ofi_decision_make(&ends.of[end], cut != 0);
            greet(&ends, false);
            assert_cut(&ends, cut != 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mend_that_was_not_read_counts),
        cmocka_unit_test(a_mend_of_a_link_that_is_down_is_as_late_as_an_unknown_cut),
        cmocka_unit_test(a_cut_outlives_either_end),
        cmocka_unit_test(a_restarted_end_can_mend_before_the_greeting),
        cmocka_unit_test(a_decision_is_new_only_once),
        cmocka_unit_test(a_mend_during_the_greeting_is_sent),
        cmocka_unit_test(numbers_of_no_honest_peer_do_no_harm),
        cmocka_unit_test(the_last_of_many_counts),
        cmocka_unit_test(a_mend_at_both_ends_while_they_greet_is_one),
        cmocka_unit_test(a_mend_that_is_repeated_is_no_later),
        cmocka_unit_test(after_the_highest_number_decisions_still_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
