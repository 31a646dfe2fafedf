/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Barriers among hosts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "fabric.h"

static const uint16_t all_hosts[] = {0, 1, 2, 3, 4, 5, 6, 7};

static struct via_op barrier(uint64_t group, const uint16_t *members, unsigned count,
                             uint64_t cookie)
{
    return (struct via_op){
        .kind = VIA_OP_BARRIER,
        .group = group,
        .members = members,
        .members_count = count,
        .cookie = cookie,
    };
}

static void enter(struct fabric *fabric, int host, uint64_t group, const uint16_t *members,
                  unsigned count, uint64_t cookie)
{
    struct via_op op = barrier(group, members, count, cookie);
    fabric_submit(fabric, host, &op);
}

static void no_member_leaves_before_all_have_arrived(void **state)
{
    (void)state;
    for (unsigned hosts = 1; hosts <= 8; hosts++) {
        struct fabric *fabric = fabric_new(hosts % 2 == 0);
        fabric->config.ops_count = 3; /* fewer releases at a time than members */
        fabric_chain(fabric, hosts);
        fabric_settle(fabric);
        for (unsigned round = 0; round < 6; round++) {
            /* Each time another member enters last. */
            for (unsigned i = 0; i + 1 < hosts; i++) {
                enter(fabric, (int)((round + 1 + i) % hosts), 5, all_hosts, hosts, round);
            }
            fabric_run(fabric, VIA_MSEC_NS);
            for (unsigned h = 0; h < hosts; h++) {
                assert_null(fabric_completion(fabric, (int)h, round));
            }
            enter(fabric, (int)(round % hosts), 5, all_hosts, hosts, round);
            assert_null(fabric_completion(fabric, (int)(round % hosts), round));
            assert_true(fabric_drain(fabric, VIA_MSEC_NS));
            for (unsigned h = 0; h < hosts; h++) {
                assert_int_equal(fabric_completion(fabric, (int)h, round)->status, 0);
            }
        }
        fabric_free(fabric);
    }
}

/* Every member continues as soon as it is released; none is ever a round ahead of another. */
static unsigned rounds[FABRIC_HOSTS_MAX];
static unsigned hosts_in_race;

static void next_round(struct fabric_host *host, uint64_t cookie, int status)
{
    assert_int_equal(status, 0);
    rounds[host->index]++;
    for (unsigned h = 0; h < hosts_in_race; h++) {
        assert_true(rounds[host->index] <= rounds[h] + 1);
    }
    if (cookie < 200) {
        struct via_op op = barrier(9, all_hosts, hosts_in_race, cookie + 1);
        assert_int_equal(via_node_submit(host->node, 0, &op), 0);
    }
}

static void early_arrivals_wait_for_their_round(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct via_rng rng;
    hosts_in_race = 5;
    memset(rounds, 0, sizeof(rounds));
    fabric_ring(fabric, hosts_in_race);
    fabric_settle(fabric);
    via_rng_init(&rng, 3);
    for (unsigned h = 0; h < hosts_in_race; h++) {
        fabric->hosts[h].on_complete = next_round;
        enter(fabric, (int)h, 9, all_hosts, hosts_in_race, 1);
    }
    for (unsigned i = 0; i < 20000; i++) {
        for (unsigned h = 0; h < hosts_in_race; h++) {
            fabric->hosts[h].frozen = via_rng_chance(&rng, 1, 3);
        }
        fabric_run(fabric, 10 * VIA_USEC_NS);
    }
    for (unsigned h = 0; h < hosts_in_race; h++) {
        assert_int_equal(rounds[h], 200);
    }
    fabric_free(fabric);
}

static void groups_are_apart(void **state)
{
    (void)state;
    static const uint16_t even[] = {0, 2}, odd[] = {1, 3};
    struct fabric *fabric = fabric_new(true);
    fabric_ring(fabric, 4);
    fabric_settle(fabric);
    enter(fabric, 0, 1, even, 2, 1);
    enter(fabric, 0, 2, all_hosts, 4, 2);
    enter(fabric, 1, 2, all_hosts, 4, 2);
    enter(fabric, 1, 3, odd, 2, 3);
    enter(fabric, 2, 2, all_hosts, 4, 2);
    enter(fabric, 3, 3, odd, 2, 3);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_null(fabric_completion(fabric, 0, 1));
    assert_null(fabric_completion(fabric, 0, 2));
    assert_non_null(fabric_completion(fabric, 1, 3));
    assert_non_null(fabric_completion(fabric, 3, 3));
    enter(fabric, 2, 1, even, 2, 1);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_non_null(fabric_completion(fabric, 0, 1));
    enter(fabric, 3, 2, all_hosts, 4, 2);
    assert_true(fabric_drain(fabric, VIA_MSEC_NS));
    fabric_free(fabric);
}

/* Two users choose the same number of a group: these are different groups, in any order of arrival.
 */
static void groups_of_two_users_are_apart(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    uint64_t mine = VIA_BARRIER_GROUP(1000, 5), theirs = VIA_BARRIER_GROUP(1001, 5);
    fabric_chain(fabric, 2);
    fabric_settle(fabric);
    enter(fabric, 0, mine, all_hosts, 2, 1);
    enter(fabric, 0, theirs, all_hosts, 2, 2);
    enter(fabric, 1, theirs, all_hosts, 2, 3);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_null(fabric_completion(fabric, 0, 1));
    assert_int_equal(fabric_completion(fabric, 0, 2)->status, 0);
    assert_int_equal(fabric_completion(fabric, 1, 3)->status, 0);
    /* An early arrival waits for the barrier of its own user. */
    enter(fabric, 1, theirs, all_hosts, 2, 4);
    enter(fabric, 1, mine, all_hosts, 2, 5);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric_completion(fabric, 0, 1)->status, 0);
    assert_int_equal(fabric_completion(fabric, 1, 5)->status, 0);
    assert_null(fabric_completion(fabric, 1, 4));
    enter(fabric, 0, theirs, all_hosts, 2, 6);
    assert_true(fabric_drain(fabric, VIA_MSEC_NS));
    assert_int_equal(fabric_completion(fabric, 1, 4)->status, 0);
    fabric_free(fabric);
}

static void bad_barriers_are_not_accepted(void **state)
{
    (void)state;
    static const uint16_t twice[] = {0, 0}, down[] = {1, 0}, others[] = {1, 2}, outside[] = {0, 8};
    struct fabric *fabric = fabric_new(true);
    fabric->config.channels_count = 2;
    fabric_chain(fabric, 2);
    struct via_node *node = fabric_node(fabric, 0);
    struct via_op op = barrier(1, twice, 2, 1);
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.members = down;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.members = others;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.members = outside;
    assert_int_equal(via_node_submit(node, 0, &op), -EHOSTUNREACH);
    op.members_count = 0;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op = barrier(1, all_hosts, 2, 1);
    assert_int_equal(via_node_submit(node, 1, &op), -EINVAL); /* channel 0 only */
    assert_int_equal(via_node_submit(node, 0, &op), 0);
    op.cookie = 2;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL); /* one per group at a time */
    op.group = 2;
    assert_int_equal(via_node_submit(node, 0, &op), 0);
    fabric_free(fabric);
}

static void a_restarted_member_ends_the_wait(void **state)
{
    (void)state;
    for (int who = 0; who < 4; who++) {
        struct fabric *fabric = fabric_new(true);
        fabric_ring(fabric, 4);
        fabric_settle(fabric);
        for (int h = 0; h < 4; h++) {
            if (h != (who + 1) % 4) {
                enter(fabric, h, 1, all_hosts, 4, 1);
            }
        }
        fabric_run(fabric, VIA_MSEC_NS);
        fabric_crash(fabric, who);
        fabric_run(fabric, 200 * VIA_MSEC_NS);
        for (int h = 0; h < 4; h++) {
            assert_null(fabric_completion(fabric, h, 1)); /* the host may come back */
        }
        fabric_start(fabric, who);
        fabric_settle(fabric);
        fabric_run(fabric, 20 * VIA_MSEC_NS);
        for (int h = 0; h < 4; h++) {
            if (h != who && h != (who + 1) % 4) {
                assert_int_equal(fabric_completion(fabric, h, 1)->status, -ECONNRESET);
            }
        }
        /* Earlier arrivals do not count: the next barrier waits for all members. */
        for (int h = 0; h < 4; h++) {
            if (h != (who + 2) % 4) {
                enter(fabric, h, 1, all_hosts, 4, 2);
            }
        }
        fabric_run(fabric, 100 * VIA_MSEC_NS);
        for (int h = 0; h < 4; h++) {
            assert_null(fabric_completion(fabric, h, 2));
        }
        enter(fabric, (who + 2) % 4, 1, all_hosts, 4, 2);
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        for (int h = 0; h < 4; h++) {
            assert_int_equal(fabric_completion(fabric, h, 2)->status, 0);
        }
        fabric_free(fabric);
    }
}

static void a_cancelled_wait_is_taken_back(void **state)
{
    (void)state;
    for (int who = 0; who < 3; who++) {
        for (unsigned wait_us = 0; wait_us <= 1000; wait_us += 20) {
            struct fabric *fabric = fabric_new(true);
            fabric_chain(fabric, 3);
            fabric_settle(fabric);
            enter(fabric, who, 1, all_hosts, 3, 1);
            fabric_run(fabric, wait_us * VIA_USEC_NS);
            via_node_cancel(fabric_node(fabric, who), 0, UINT64_MAX, 1);
            fabric->hosts[who].woken[0] = true;
            assert_int_equal(fabric_completion(fabric, who, 1)->status, -ECANCELED);
            assert_int_equal(via_node_pending(fabric_node(fabric, who), 0), 0);
            fabric_run(fabric, VIA_MSEC_NS);
            enter(fabric, (who + 1) % 3, 1, all_hosts, 3, 2);
            enter(fabric, (who + 2) % 3, 1, all_hosts, 3, 2);
            fabric_run(fabric, VIA_MSEC_NS);
            assert_null(fabric_completion(fabric, (who + 1) % 3, 2));
            enter(fabric, who, 1, all_hosts, 3, 2);
            assert_true(fabric_drain(fabric, 100 * VIA_MSEC_NS));
            assert_int_equal(fabric_completion(fabric, who, 2)->status, 0);
            fabric_free(fabric);
            if (wait_us > 100) {
                wait_us += 280;
            }
        }
    }
}

/* Limits a user like a host: one user may have half of the places. Places whose release has not
 * reached the root count as used. Returns the last cookie. */
static uint64_t enter_all_it_may(struct fabric *fabric, uint32_t user, uint64_t cookie)
{
    const uint32_t most = VIA_BARRIER_ARRIVALS_MAX / 2;
    struct via_node *node = fabric_node(fabric, 1);

    while (via_node_barriers(node, user, 0) < most) {
        cookie++;
        enter(fabric, 1, VIA_BARRIER_GROUP(user, cookie), all_hosts, 2, cookie);
    }
    assert_int_equal(via_node_barriers(node, user, 0), most);
    return cookie;
}

/* Processes of one user enter barriers and die, even while the root does not run. In any state of
 * the root, another user still gets its half of the places at the root. */
static void a_user_that_dies_takes_no_place_of_another(void **state)
{
    enum { DIES = 1000, OTHER = 1001 };
    const unsigned half = VIA_BARRIER_ARRIVALS_MAX / 2;
    struct fabric *fabric = fabric_new(true);
    struct via_rng rng;
    (void)state;
    /* All arrivals are under way at once. */
    fabric->config.window_frames = 128;
    fabric->config.pipe_slots = 128;
    fabric->config.ops_count = 128;
    fabric_chain(fabric, 2);
    fabric_settle(fabric);
    via_rng_init(&rng, 15);
    struct via_node *node = fabric_node(fabric, 1);
    uint64_t entered = 0, others = UINT64_C(1) << 32;
    for (unsigned round = 0; round < 40; round++) {
        fabric->hosts[0].frozen = round % 2 == 0;
        for (unsigned deaths = 0; deaths < 3; deaths++) {
            entered = enter_all_it_may(fabric, DIES, entered);
            fabric_run(fabric, via_rng_below(&rng, 4) * 10 * VIA_USEC_NS);
            via_node_cancel(node, 0, ~(UINT64_MAX >> 32), 0);
        }
        enter_all_it_may(fabric, DIES, entered);
        fabric->hosts[0].frozen = false;
        for (unsigned i = 0; i < half; i++) {
            enter(fabric, 1, VIA_BARRIER_GROUP(OTHER, i), all_hosts, 2, others + i);
        }
        fabric_run(fabric, VIA_MSEC_NS);
        via_node_cancel(node, 0, ~(UINT64_MAX >> 32), 0);
        for (unsigned i = 0; i < half; i++) {
            assert_null(fabric_completion(fabric, 1, others + i));
            enter(fabric, 0, VIA_BARRIER_GROUP(OTHER, i), all_hosts, 2, others + i);
        }
        assert_true(fabric_drain(fabric, VIA_MSEC_NS));
        for (unsigned i = 0; i < half; i++) {
            assert_int_equal(fabric_completion(fabric, 1, others + i)->status, 0);
        }
        fabric_run(fabric, VIA_MSEC_NS);
        assert_int_equal(via_node_barriers(node, DIES, 0), 0);
        others += half;
        entered += half;
    }
    fabric_free(fabric);
}

/* Users whose processes enter barriers alone, one after another, leave places for the next user.
 * The root accepts the entries of all users. The owner of the host, who has no limit, still finds
 * free places.
 */
static void users_leave_places_for_the_next_one(void **state)
{
    enum { USERS = 4, OWNER = 0 };
    static const unsigned shares[USERS] = {16, 8, 4, 2};
    struct fabric *fabric = fabric_new(true);
    uint64_t entered = 0;
    (void)state;
    fabric->config.ops_count = 128;
    fabric_chain(fabric, 2);
    fabric_settle(fabric);
    struct via_node *node = fabric_node(fabric, 1);
    for (uint32_t user = 1; user <= USERS; user++) {
        while (via_node_is_barrier_allowed(node, user, 0) && entered < 64) {
            entered++;
            enter(fabric, 1, VIA_BARRIER_GROUP(user, entered), all_hosts, 2, entered);
        }
        assert_int_equal(via_node_barriers(node, user, 0), shares[user - 1]);
    }
    enter(fabric, 1, VIA_BARRIER_GROUP(OWNER, 1), all_hosts, 2, 1000);
    enter(fabric, 1, VIA_BARRIER_GROUP(OWNER, 2), all_hosts, 2, 1001);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[1].completions_count, 0);
    assert_false(via_node_is_barrier_allowed(node, USERS + 1, 0)); /* the owner gets the rest */
    assert_false(via_node_is_barrier_allowed(node, 1, 0));
    via_node_cancel(node, 0, UINT64_MAX, 1); /* of the first user */
    via_node_cancel(node, 0, UINT64_MAX, 2);
    assert_false(via_node_is_barrier_allowed(node, 2, 0)); /* the root has not received it yet */
    fabric->hosts[1].woken[0] = true;
    fabric_run(fabric, VIA_MSEC_NS);
    assert_true(via_node_is_barrier_allowed(node, USERS + 1, 0));
    assert_false(via_node_is_barrier_allowed(node, 1, 0));
    fabric_free(fabric);
}

static void barriers_survive_flaps(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct via_rng rng;
    hosts_in_race = 4;
    memset(rounds, 0, sizeof(rounds));
    fabric_ring(fabric, hosts_in_race);
    fabric_settle(fabric);
    via_rng_init(&rng, 8);
    for (unsigned h = 0; h < hosts_in_race; h++) {
        fabric->hosts[h].on_complete = next_round;
        enter(fabric, (int)h, 9, all_hosts, hosts_in_race, 1);
    }
    for (unsigned i = 0; i < 100; i++) {
        unsigned l = (unsigned)via_rng_below(&rng, 4);
        fabric_run(fabric, via_rng_between(&rng, 1, 50) * 10 * VIA_USEC_NS);
        fabric_cut(&fabric->links[l]);
        fabric_run(fabric, via_rng_between(&rng, 1, 100) * 10 * VIA_USEC_NS);
        fabric_mend(&fabric->links[l]);
    }
    fabric_run(fabric, 10 * VIA_SEC_NS);
    for (unsigned h = 0; h < hosts_in_race; h++) {
        assert_int_equal(rounds[h], 200);
    }
    fabric_free(fabric);
}

/* Sleeping hosts are woken by the two doorbells that are reserved for barriers. */
static void barriers_have_their_doorbells(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric_chain(fabric, 3);
    fabric_settle(fabric);
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    enter(fabric, 2, 1, all_hosts, 3, 1);
    enter(fabric, 0, 1, all_hosts, 3, 1);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric->links[1].rings[VIA_PORT_DOORBELL_BARRIER_START], 1);
    assert_int_equal(fabric->links[0].rings[VIA_PORT_DOORBELL_BARRIER_START], 1);
    assert_int_equal(fabric->links[0].rings[VIA_PORT_DOORBELL_BARRIER_END], 0);
    enter(fabric, 1, 1, all_hosts, 3, 1);
    assert_true(fabric_drain(fabric, VIA_MSEC_NS));
    assert_int_equal(fabric->links[0].rings[VIA_PORT_DOORBELL_BARRIER_START], 2);
    assert_int_equal(fabric->links[0].rings[VIA_PORT_DOORBELL_BARRIER_END], 1);
    assert_int_equal(fabric->links[1].rings[VIA_PORT_DOORBELL_BARRIER_END], 1);
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_member_leaves_before_all_have_arrived),
        cmocka_unit_test(early_arrivals_wait_for_their_round),
        cmocka_unit_test(groups_are_apart),
        cmocka_unit_test(groups_of_two_users_are_apart),
        cmocka_unit_test(bad_barriers_are_not_accepted),
        cmocka_unit_test(a_restarted_member_ends_the_wait),
        cmocka_unit_test(a_cancelled_wait_is_taken_back),
        cmocka_unit_test(a_user_that_dies_takes_no_place_of_another),
        cmocka_unit_test(users_leave_places_for_the_next_one),
        cmocka_unit_test(barriers_survive_flaps),
        cmocka_unit_test(barriers_have_their_doorbells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
