/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How the spin budget adapts. A tick is a tenth of a microsecond here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sockets/stream/spin.h"

#define US 10u
#define WAKE_US 20u

/* One wait for an event that comes after need_us. The waiter notices it early only if it spins. */
struct result {
    uint64_t spun_us;
    uint64_t waited_us;
};

static struct result wait_for(struct via_spin *spin, uint64_t now_us, uint64_t need_us)
{
    uint64_t budget_us = via_spin_budget(spin, now_us * US) / US;
    if (need_us <= budget_us) {
        via_spin_learn(spin, need_us * US, 0);
        return (struct result){need_us, need_us};
    }
    uint64_t slept_us = need_us - budget_us + WAKE_US;
    via_spin_learn(spin, (budget_us + slept_us) * US, slept_us * US);
    return (struct result){budget_us, budget_us + slept_us};
}

static void short_waits_are_spun_through(void **state)
{
    (void)state;
    struct via_spin spin;
    via_spin_init(&spin, US);
    for (int i = 0; i < 1000; i++) {
        struct result result = wait_for(&spin, (uint64_t)i * 100, 1);
        assert_int_equal(result.waited_us, 1);
    }
}

static void long_waits_soon_cost_no_spinning(void **state)
{
    (void)state;
    struct via_spin spin;
    uint64_t spun_us = 0;
    via_spin_init(&spin, US);
    for (int i = 0; i < 100; i++) {
        wait_for(&spin, (uint64_t)i * 2000, 1000);
    }
    for (int i = 100; i < 20100; i++) {
        spun_us += wait_for(&spin, (uint64_t)i * 2000, 1000).spun_us;
    }
    /* 20,000 waits of a millisecond: attempts to spin again take less than a hundredth of a per
     * cent of the time. */
    assert_true(spun_us < 2000);
}

static void short_waits_after_long_ones_are_noticed(void **state)
{
    (void)state;
    struct via_spin spin;
    uint64_t now_us = 0;
    int waits = 0;
    via_spin_init(&spin, US);
    for (int i = 0; i < 1000; i++) {
        wait_for(&spin, now_us += 2000, 1000);
    }
    while (wait_for(&spin, now_us += 100, 1).waited_us != 1) {
        assert_true(++waits < 5000);
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(wait_for(&spin, now_us += 100, 1).waited_us, 1);
    }
}

/* Two sides answer each other within a microsecond, but each must first be woken by the other. */
static void two_sleepers_find_out_that_they_could_spin(void **state)
{
    (void)state;
    struct via_spin side[2];
    uint64_t now_us = 0;
    uint64_t other_wakes_us = WAKE_US;
    via_spin_init(&side[0], US);
    via_spin_init(&side[1], US);
    side[0].need_ticks = side[1].need_ticks = 10000 * US;
    int rounds = 0;
    for (;; rounds++) {
        assert_true(rounds < 2000);
        struct result result = wait_for(&side[rounds % 2], now_us += 100, other_wakes_us + 1);
        if (other_wakes_us == 0 && result.waited_us == 1) {
            break;
        }
        other_wakes_us = result.waited_us > result.spun_us ? WAKE_US : 0;
    }
}

static void a_thread_that_lost_the_cpu_does_not_spin_for_a_while(void **state)
{
    (void)state;
    struct via_spin spin;
    via_spin_init(&spin, US);
    assert_true(via_spin_budget(&spin, 0) > 0);
    via_spin_crowded(&spin, 1000 * US);
    assert_int_equal(via_spin_budget(&spin, 1001 * US), 0);
    assert_int_equal(via_spin_budget(&spin, 20999 * US), 0);
    assert_true(via_spin_budget(&spin, 21001 * US) > 0);
}

static void a_thread_that_gains_by_yielding_yields_at_once(void **state)
{
    (void)state;
    struct via_spin spin;
    via_spin_init(&spin, US);
    assert_false(spin.yields);
    via_spin_learn_yield(&spin, true);
    assert_true(spin.yields);
    /* The event came while this side polled, so it came from another CPU. */
    via_spin_learn_yield(&spin, false);
    assert_false(spin.yields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_waits_are_spun_through),
        cmocka_unit_test(long_waits_soon_cost_no_spinning),
        cmocka_unit_test(short_waits_after_long_ones_are_noticed),
        cmocka_unit_test(two_sleepers_find_out_that_they_could_spin),
        cmocka_unit_test(a_thread_that_lost_the_cpu_does_not_spin_for_a_while),
        cmocka_unit_test(a_thread_that_gains_by_yielding_yields_at_once),
    };
    return cmocka_run_group_tests_name("spin", tests, NULL, NULL);
}
