/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* No operation waits forever: how each kind ends, when, and with what status. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "fabric.h"

#define GIVE_UP_NS (100 * VIA_MSEC_NS)
#define WAIT_NS (400 * VIA_MSEC_NS)
/* A link is considered dead after 80 ms, and then the routes change. */
#define NOTICE_NS (100 * VIA_MSEC_NS)

static const uint16_t all_hosts[] = {0, 1, 2, 3, 4, 5, 6, 7};

static struct fabric *fabric_with_limits(void)
{
    struct fabric *fabric = fabric_new(true);
    fabric->config.give_up_ns = GIVE_UP_NS;
    fabric->config.wait_ns_max = WAIT_NS;
    return fabric;
}

static void enter(struct fabric *fabric, int host, uint32_t group, const uint16_t *members,
                  unsigned count, uint64_t cookie)
{
    struct via_op op = {
        .kind = VIA_OP_BARRIER,
        .group = group,
        .members = members,
        .members_count = count,
        .cookie = cookie,
    };
    fabric_submit(fabric, host, &op);
}

static int status_of(const struct fabric *fabric, int host, uint64_t cookie)
{
    const struct fabric_completion *completion = fabric_completion(fabric, host, cookie);
    assert_non_null(completion);
    return completion->status;
}

/* All running hosts enter the barrier, and all leave it. */
static void meet(struct fabric *fabric, uint32_t group, unsigned count, uint64_t cookie)
{
    for (unsigned h = 0; h < count; h++) {
        enter(fabric, (int)h, group, all_hosts, count, cookie);
    }
    fabric_run(fabric, 20 * VIA_MSEC_NS);
    for (unsigned h = 0; h < count; h++) {
        assert_int_equal(status_of(fabric, (int)h, cookie), 0);
    }
}

/* --- barriers -------------------------------------------------------------------------------- */

/* The absent host is the root, a member that relays for others, or the last member. */
static void a_barrier_with_an_absent_host_ends(void **state)
{
    (void)state;
    for (int absent = 0; absent < 4; absent++) {
        struct fabric *fabric = fabric_with_limits();
        fabric_ring(fabric, 4);
        fabric_settle(fabric);
        fabric_crash(fabric, absent);
        fabric_run(fabric, NOTICE_NS);
        for (int h = 0; h < 4; h++) {
            if (h != absent) {
                enter(fabric, h, 1, all_hosts, 4, 1);
            }
        }
        fabric_run(fabric, GIVE_UP_NS - 10 * VIA_MSEC_NS);
        for (int h = 0; h < 4; h++) {
            assert_null(fabric_completion(fabric, h, 1)); /* the host may come back */
        }
        fabric_run(fabric, 20 * VIA_MSEC_NS);
        for (int h = 0; h < 4; h++) {
            if (h != absent) {
                assert_int_equal(status_of(fabric, h, 1), -EHOSTUNREACH);
            }
        }
        /* No state of the barrier is left when the host has returned. */
        fabric_start(fabric, absent);
        fabric_settle(fabric);
        meet(fabric, 1, 4, 2);
        fabric_free(fabric);
    }
}

/* The host of a member has never run. */
static void a_barrier_with_a_host_that_never_came_ends(void **state)
{
    (void)state;
    for (int absent = 0; absent < 2; absent++) {
        struct fabric *fabric = fabric_with_limits();
        fabric_add_host(fabric);
        fabric_add_host(fabric);
        fabric_connect(fabric, 0, 1);
        fabric_start(fabric, 1 - absent);
        fabric_run(fabric, 2 * GIVE_UP_NS);
        enter(fabric, 1 - absent, 1, all_hosts, 2, 1);
        fabric_run(fabric, GIVE_UP_NS - VIA_MSEC_NS);
        assert_null(fabric_completion(fabric, 1 - absent, 1));
        fabric_run(fabric, 2 * VIA_MSEC_NS);
        assert_int_equal(status_of(fabric, 1 - absent, 1), -EHOSTUNREACH);
        fabric_free(fabric);
    }
}

/* All members except one arrive at the root; then the cable of another host is cut, and mended. */
static void an_arrival_of_a_host_that_was_lost_does_not_count(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost += 2) {
        struct fabric *fabric = fabric_with_limits();
        fabric_chain(fabric, 3);
        fabric_settle(fabric);
        for (int h = 0; h < 3; h++) {
            if (h != 1) {
                enter(fabric, h, 1, all_hosts, 3, 1);
            }
        }
        fabric_run(fabric, 10 * VIA_MSEC_NS);
        fabric_cut(&fabric->links[lost / 2]);
        fabric_run(fabric, NOTICE_NS + GIVE_UP_NS + 10 * VIA_MSEC_NS);
        assert_int_equal(status_of(fabric, 0, 1), -EHOSTUNREACH);
        assert_int_equal(status_of(fabric, 2, 1), -EHOSTUNREACH);
        fabric_mend(&fabric->links[lost / 2]);
        fabric_settle(fabric);
        for (int h = 0; h < 2; h++) {
            enter(fabric, h, 1, all_hosts, 3, 2);
        }
        fabric_run(fabric, 50 * VIA_MSEC_NS);
        for (int h = 0; h < 2; h++) {
            assert_null(fabric_completion(fabric, h, 2));
        }
        enter(fabric, 2, 1, all_hosts, 3, 2);
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        for (int h = 0; h < 3; h++) {
            assert_int_equal(status_of(fabric, h, 2), 0);
        }
        fabric_free(fabric);
    }
}

/* The root drops a member that waits longer than the others: the member is informed once it can be
 * reached again. */
static void a_member_without_a_limit_learns_that_its_arrival_was_dropped(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_with_limits();
    for (unsigned h = 0; h < 2; h++) {
        fabric_add_host(fabric);
    }
    fabric->hosts[1].config.give_up_ns = VIA_NEVER_NS;
    fabric->hosts[1].config.wait_ns_max = VIA_NEVER_NS;
    fabric_connect(fabric, 0, 1);
    fabric_start(fabric, 0);
    fabric_start(fabric, 1);
    fabric_settle(fabric);
    enter(fabric, 1, 1, all_hosts, 2, 1);
    fabric_run(fabric, 10 * VIA_MSEC_NS);
    fabric_cut(&fabric->links[0]);
    fabric_run(fabric, VIA_SEC_NS);
    assert_null(fabric_completion(fabric, 1, 1));
    fabric_mend(&fabric->links[0]);
    fabric_settle(fabric);
    fabric_run(fabric, 20 * VIA_MSEC_NS);
    assert_int_equal(status_of(fabric, 1, 1), -EHOSTUNREACH);
    meet(fabric, 1, 2, 2);
    fabric_free(fabric);
}

/* The member is reachable, and its own wait has no limit: the root drops the arrival. */
static void an_arrival_that_is_never_withdrawn_ends(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_with_limits();
    for (unsigned h = 0; h < 2; h++) {
        fabric_add_host(fabric);
    }
    fabric->hosts[1].config.wait_ns_max = VIA_NEVER_NS;
    fabric_connect(fabric, 0, 1);
    fabric_start(fabric, 0);
    fabric_start(fabric, 1);
    fabric_settle(fabric);
    enter(fabric, 1, 1, all_hosts, 2, 1);
    fabric_run(fabric, 2 * WAIT_NS - 5 * VIA_MSEC_NS);
    assert_null(fabric_completion(fabric, 1, 1));
    fabric_run(fabric, 20 * VIA_MSEC_NS);
    assert_int_equal(status_of(fabric, 1, 1), -ETIMEDOUT);
    meet(fabric, 1, 2, 2);
    fabric_free(fabric);
}

/* A reachable member does not enter: a program may compute for long, but not forever. */
static void the_wait_for_an_absent_member_ends(void **state)
{
    (void)state;
    for (int late = 0; late < 3; late++) {
        struct fabric *fabric = fabric_with_limits();
        fabric_chain(fabric, 3);
        fabric_settle(fabric);
        for (int h = 0; h < 3; h++) {
            if (h != late) {
                enter(fabric, h, 1, all_hosts, 3, 1);
            }
        }
        fabric_run(fabric, WAIT_NS - VIA_MSEC_NS);
        for (int h = 0; h < 3; h++) {
            assert_null(fabric_completion(fabric, h, 1));
        }
        fabric_run(fabric, 5 * VIA_MSEC_NS);
        for (int h = 0; h < 3; h++) {
            if (h != late) {
                assert_int_equal(status_of(fabric, h, 1), -ETIMEDOUT);
            }
        }
        /* A member that has left is not counted; one that enters again is. */
        enter(fabric, late, 1, all_hosts, 3, 2);
        fabric_run(fabric, 50 * VIA_MSEC_NS);
        assert_null(fabric_completion(fabric, late, 2));
        for (int h = 0; h < 3; h++) {
            if (h != late) {
                enter(fabric, h, 1, all_hosts, 3, 2);
            }
        }
        assert_true(fabric_drain(fabric, 100 * VIA_MSEC_NS));
        for (int h = 0; h < 3; h++) {
            assert_int_equal(status_of(fabric, h, 2), 0);
        }
        fabric_free(fabric);
    }
}

/*
 * The last member enters just when the others time out. -ETIMEDOUT means that the barrier has not
 * taken place, so a member that enters again enters the same barrier, not the next one.
 */
static void a_barrier_that_timed_out_has_not_taken_place(void **state)
{
    (void)state;
    unsigned timed_out = 0, met = 0;
    for (unsigned us = 0; us < 1000; us += 10) {
        struct fabric *fabric = fabric_with_limits();
        fabric_chain(fabric, 3);
        fabric->hosts[0].config.wait_ns_max = VIA_NEVER_NS;
        fabric_settle(fabric);
        enter(fabric, 1, 1, all_hosts, 3, 1);
        enter(fabric, 2, 1, all_hosts, 3, 1);
        fabric_run(fabric, WAIT_NS - 500 * VIA_USEC_NS + us * VIA_USEC_NS);
        enter(fabric, 0, 1, all_hosts, 3, 1);
        fabric_run(fabric, 50 * VIA_MSEC_NS);
        for (int h = 1; h < 3; h++) {
            int status = status_of(fabric, h, 1);
            assert_true(status == 0 || status == -ETIMEDOUT);
            timed_out += status == 0 ? 0 : 1;
            met += status == 0 ? 1 : 0;
            if (status != 0) {
                assert_null(fabric_completion(fabric, 0, 1));
            }
        }
        for (int h = 1; h < 3; h++) {
            if (status_of(fabric, h, 1) != 0) {
                enter(fabric, h, 1, all_hosts, 3, 2);
            }
        }
        fabric_run(fabric, 50 * VIA_MSEC_NS);
        assert_true(fabric_completion(fabric, 0, 1) != NULL);
        fabric_free(fabric);
    }
    assert_true(timed_out > 10);
    assert_true(met > 10);
}

/* A wait is cancelled at the moment when it ends. */
static void a_wait_that_ends_may_be_cancelled(void **state)
{
    (void)state;
    for (unsigned us = 0; us < 300; us += 10) {
        struct fabric *fabric = fabric_with_limits();
        fabric_chain(fabric, 2);
        fabric_settle(fabric);
        enter(fabric, 1, 1, all_hosts, 2, 1);
        fabric_run(fabric, WAIT_NS - 20 * VIA_USEC_NS + us * VIA_USEC_NS);
        via_node_cancel(fabric_node(fabric, 1), 0, UINT64_MAX, 1);
        fabric->hosts[1].woken[0] = true;
        int status = status_of(fabric, 1, 1);
        assert_true(status == -ECANCELED || status == -ETIMEDOUT);
        fabric_run(fabric, VIA_MSEC_NS); /* the withdrawal arrives at the root */
        enter(fabric, 0, 1, all_hosts, 2, 2);
        fabric_run(fabric, 10 * VIA_MSEC_NS);
        assert_null(fabric_completion(fabric, 0, 2));
        enter(fabric, 1, 1, all_hosts, 2, 2);
        assert_true(fabric_drain(fabric, 100 * VIA_MSEC_NS));
        assert_int_equal(status_of(fabric, 0, 2), 0);
        fabric_free(fabric);
    }
}

/* Arrivals of members that have ended, or that enter too many barriers, use no places of other
 * hosts. */
static void arrivals_without_a_barrier_cost_only_their_host(void **state)
{
    (void)state;
    static const uint16_t first_and_last[] = {0, 2};
    for (int gone = 0; gone < 2; gone++) {
        struct fabric *fabric = fabric_with_limits();
        fabric->config.ops_count = 128;
        fabric_chain(fabric, 3);
        fabric_settle(fabric);
        for (unsigned i = 0; i < 64; i++) {
            enter(fabric, 2, 100 + i, first_and_last, 2, 100 + i);
        }
        fabric_run(fabric, 20 * VIA_MSEC_NS);
        if (gone) {
            fabric_crash(fabric, 2);
            fabric_run(fabric, 200 * VIA_MSEC_NS);
        }
        meet(fabric, 1, 2, 1);
        fabric_free(fabric);
    }
}

/* A host with more arrivals at a root than allowed gets an error for each, and can enter again. */
static void too_many_arrivals_are_refused(void **state)
{
    (void)state;
    static const uint16_t both[] = {0, 1};
    struct fabric *fabric = fabric_with_limits();
    fabric->config.ops_count = 128;
    fabric->config.wait_ns_max = VIA_NEVER_NS;
    fabric_chain(fabric, 2);
    fabric_settle(fabric);
    unsigned refused = 0;
    for (unsigned i = 0; i < 100; i++) {
        enter(fabric, 1, i, both, 2, i);
    }
    fabric_run(fabric, 50 * VIA_MSEC_NS);
    for (unsigned i = 0; i < 100; i++) {
        const struct fabric_completion *completion = fabric_completion(fabric, 1, i);
        refused += completion != NULL ? 1 : 0;
        assert_true(completion == NULL || completion->status == -ENOSPC);
        assert_true((completion == NULL) == (i < VIA_BARRIER_ARRIVALS_MAX));
    }
    assert_int_equal(refused, 100 - VIA_BARRIER_ARRIVALS_MAX);
    for (unsigned i = 0; i < VIA_BARRIER_ARRIVALS_MAX; i++) {
        enter(fabric, 0, i, both, 2, i);
    }
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    enter(fabric, 1, 99, both, 2, 1099);
    enter(fabric, 0, 99, both, 2, 1099);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(status_of(fabric, 1, 1099), 0);
    fabric_free(fabric);
}

/* --- other operations ------------------------------------------------------------------------ */

static struct via_op message(const uint64_t *number, uint16_t destination, uint64_t cookie)
{
    return (struct via_op){
        .kind = VIA_OP_MESSAGE,
        .destination = destination,
        .source = number,
        .bytes = sizeof(*number),
        .cookie = cookie,
    };
}

/* There is a default limit. */
static void the_default_is_an_end(void **state)
{
    (void)state;
    static const uint16_t both[] = {0, 1};
    uint64_t number = 1, result = 0;
    struct fabric *fabric = fabric_new(true);
    fabric_add_host(fabric);
    fabric_start(fabric, 0);
    fabric_run(fabric, VIA_MSEC_NS);
    struct via_op op = message(&number, 1, 1);
    fabric_submit(fabric, 0, &op);
    op = (struct via_op){.kind = VIA_OP_GET,
                         .destination = 1,
                         .flow = 1,
                         .result = &result,
                         .bytes = 8,
                         .cookie = 2};
    fabric_submit(fabric, 0, &op);
    enter(fabric, 0, 1, both, 2, 3);
    fabric_run(fabric, 10 * VIA_MSEC_NS);
    fabric->now_ns += 119 * VIA_SEC_NS;
    fabric_run(fabric, 10 * VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[0].completions_count, 0);
    fabric->now_ns += VIA_SEC_NS;
    fabric_run(fabric, 10 * VIA_MSEC_NS);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(status_of(fabric, 0, i), -EHOSTUNREACH);
    }
    fabric_free(fabric);
}

static void never_is_never(void **state)
{
    (void)state;
    static const uint16_t both[] = {0, 1};
    uint64_t number = 1;
    struct fabric *fabric = fabric_new(true);
    fabric->config.give_up_ns = VIA_NEVER_NS;
    fabric->config.wait_ns_max = VIA_NEVER_NS;
    fabric_add_host(fabric);
    fabric_start(fabric, 0);
    fabric->hosts[0].deliver_answer = -EAGAIN;
    fabric_run(fabric, VIA_MSEC_NS);
    struct via_op op = message(&number, 1, 1);
    fabric_submit(fabric, 0, &op);
    op = message(&number, 0, 2);
    fabric_submit(fabric, 0, &op);
    enter(fabric, 0, 1, both, 2, 3);
    for (unsigned i = 0; i < 10; i++) {
        fabric_run(fabric, VIA_MSEC_NS);
        fabric->now_ns += 10000 * VIA_SEC_NS;
    }
    assert_int_equal(fabric->hosts[0].completions_count, 0);
    fabric_free(fabric);
}

/* An operation that is submitted after a long sleep of its thread has its full time. */
static void sleep_does_not_count(void **state)
{
    (void)state;
    static const uint16_t both[] = {0, 1};
    uint64_t number = 1;
    struct fabric *fabric = fabric_with_limits();
    fabric_add_host(fabric);
    fabric_start(fabric, 0);
    fabric->hosts[0].deliver_answer = -EAGAIN;
    fabric_run(fabric, VIA_MSEC_NS);
    fabric->now_ns += 10000 * VIA_SEC_NS;
    struct via_op op = message(&number, 1, 1);
    fabric_submit(fabric, 0, &op);
    op = message(&number, 0, 2);
    fabric_submit(fabric, 0, &op);
    enter(fabric, 0, 1, both, 2, 3);
    fabric_run(fabric, GIVE_UP_NS - VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[0].completions_count, 0);
    fabric_run(fabric, 2 * VIA_MSEC_NS);
    assert_int_equal(status_of(fabric, 0, 1), -EHOSTUNREACH);
    assert_int_equal(status_of(fabric, 0, 3), -EHOSTUNREACH);
    fabric_run(fabric, WAIT_NS * 5 / 4 - GIVE_UP_NS);
    assert_int_equal(status_of(fabric, 0, 2), -ETIMEDOUT);
    fabric_free(fabric);
}

/* If a consumer is never ready, its messages end one after another, each after its own time limit.
 */
static void a_consumer_that_is_never_ready_ends_the_wait(void **state)
{
    (void)state;
    for (uint16_t to = 0; to < 2; to++) {
        uint64_t numbers[3] = {0, 1, 2};
        struct fabric *fabric = fabric_with_limits();
        fabric_chain(fabric, 2);
        fabric_settle(fabric);
        fabric->hosts[to].deliver_answer = -EAGAIN;
        for (unsigned i = 0; i < 3; i++) {
            struct via_op op = message(&numbers[i], to, i);
            fabric_submit(fabric, 0, &op);
        }
        fabric_run(fabric, WAIT_NS - VIA_MSEC_NS);
        assert_null(fabric_completion(fabric, 0, 0));
        fabric_run(fabric, WAIT_NS / 4 + 2 * VIA_MSEC_NS);
        assert_int_equal(status_of(fabric, 0, 0), -ETIMEDOUT);
        assert_null(fabric_completion(fabric, 0, 1));
        /* The next operations are unaffected. */
        fabric_run(fabric, 150 * VIA_MSEC_NS); /* a SKIP at the next time-out */
        fabric->hosts[to].deliver_answer = 0;
        via_node_resume(fabric_node(fabric, to), 0, 0, 0);
        fabric->hosts[to].woken[0] = true;
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        for (unsigned i = 1; i < 3; i++) {
            assert_int_equal(status_of(fabric, 0, i), 0);
            assert_int_equal(fabric->hosts[to].deliveries[i - 1].first, i);
        }
        assert_int_equal(fabric->hosts[to].deliveries_count, 2);
        fabric_free(fabric);
    }
}

/* If the time-out for hosts is long and that for members short, an unreachable host does not count
 * as a member that does not enter. */
static void a_cut_off_host_may_return_within_the_limit(void **state)
{
    (void)state;
    uint64_t number = 1;
    struct fabric *fabric = fabric_new(true);
    fabric->config.give_up_ns = WAIT_NS;
    fabric->config.wait_ns_max = GIVE_UP_NS;
    fabric_chain(fabric, 2);
    fabric_settle(fabric);
    for (unsigned i = 0; i < 2; i++) {
        struct via_op op = message(&number, 1, 2 * i);
        fabric_cut(&fabric->links[0]);
        fabric_run(fabric, NOTICE_NS);
        fabric_submit(fabric, 0, &op);
        enter(fabric, 0, 1, all_hosts, 2, 2 * i + 1);
        fabric_run(fabric, WAIT_NS - 100 * VIA_MSEC_NS);
        assert_null(fabric_completion(fabric, 0, 2 * i));
        assert_null(fabric_completion(fabric, 0, 2 * i + 1));
        if (i == 0) {
            fabric_mend(&fabric->links[0]);
        }
        fabric_run(fabric, 110 * VIA_MSEC_NS);
        assert_int_equal(status_of(fabric, 0, 2 * i), i == 0 ? 0 : -EHOSTUNREACH);
        /* Once all hosts can be reached, a member that has not entered in its time is late. */
        assert_int_equal(status_of(fabric, 0, 2 * i + 1), i == 0 ? -ETIMEDOUT : -EHOSTUNREACH);
    }
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_with_an_absent_host_ends),
        cmocka_unit_test(a_barrier_with_a_host_that_never_came_ends),
        cmocka_unit_test(an_arrival_of_a_host_that_was_lost_does_not_count),
        cmocka_unit_test(a_member_without_a_limit_learns_that_its_arrival_was_dropped),
        cmocka_unit_test(an_arrival_that_is_never_withdrawn_ends),
        cmocka_unit_test(the_wait_for_an_absent_member_ends),
        cmocka_unit_test(a_barrier_that_timed_out_has_not_taken_place),
        cmocka_unit_test(a_wait_that_ends_may_be_cancelled),
        cmocka_unit_test(arrivals_without_a_barrier_cost_only_their_host),
        cmocka_unit_test(too_many_arrivals_are_refused),
        cmocka_unit_test(the_default_is_an_end),
        cmocka_unit_test(never_is_never),
        cmocka_unit_test(sleep_does_not_count),
        cmocka_unit_test(a_consumer_that_is_never_ready_ends_the_wait),
        cmocka_unit_test(a_cut_off_host_may_return_within_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
