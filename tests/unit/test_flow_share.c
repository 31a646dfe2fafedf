/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The flows to a host are divided between the users of this host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "host/flow_share.h"

#define USERS 8u
#define STEPS 200000u

static void a_lone_user_gets_the_flows_that_it_requests(void **state)
{
    struct via_flow_share share = {.owned = 0};
    uint32_t taken = 0;
    (void)state;
    for (uint32_t wish = 0; wish < 16; wish++) {
        assert_int_equal(via_flow_share_begin(&share, &taken, wish, 31), wish + 1);
    }
    /* The other half is for later users. In the user's own half each flow has at most two commands.
     */
    unsigned doubled[17] = {0};
    for (uint32_t wish = 16; wish < 31; wish++) {
        uint16_t flow = via_flow_share_begin(&share, &taken, wish, 31);
        assert_in_range(flow, 1, 16);
        assert_int_equal(doubled[flow]++, 0);
    }
    for (uint32_t i = 0; i < 31; i++) {
        via_flow_share_end(&share, &taken);
    }
    assert_int_equal(taken, 0);
    assert_int_equal(via_flow_share_begin(&share, &taken, 30, 31), 31);
}

static void each_of_some_users_has_flows_of_its_own(void **state)
{
    (void)state;
    static const struct {
        uint32_t flows_count;
        unsigned users;
    } cases[] = {{31, 5}, {7, 3}, {1, 1}};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        struct via_flow_share shares[USERS] = {{.owned = 0}};
        uint32_t taken = 0;
        for (unsigned user = 0; user < cases[i].users; user++) {
            uint32_t before = taken;
            for (uint32_t wish = 0; wish < cases[i].flows_count; wish++) {
                uint16_t flow =
                    via_flow_share_begin(&shares[user], &taken, wish, cases[i].flows_count);
                assert_in_range(flow, 1, cases[i].flows_count);
                assert_int_equal(before & UINT32_C(1) << (flow - 1), 0);
            }
        }
    }
}

/* For each wished flow of one user: the flow, and the number of commands under way. */
struct user {
    uint16_t flow[VIA_FLOWS_SHARED_MAX];
    unsigned count[VIA_FLOWS_SHARED_MAX];
    unsigned all;
};

static void end_one(struct user *user, struct via_flow_share *share, uint32_t *taken, uint32_t wish)
{
    if (user->count[wish] == 0) {
        return;
    }
    via_flow_share_end(share, taken);
    user->count[wish]--;
    user->all--;
    if (user->all == 0) {
        memset(user->flow, 0, sizeof(user->flow));
    }
}

static void commands_of_one_wish_stay_in_one_flow(void **state)
{
    (void)state;
    static struct user users[USERS];
    struct via_flow_share shares[USERS] = {{.owned = 0}};
    struct via_rng rng;
    uint32_t taken = 0;
    via_rng_init(&rng, 15);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned who = (unsigned)via_rng_below(&rng, USERS);
        uint32_t wish = (uint32_t)via_rng_below(&rng, 7);
        struct user *user = &users[who];
        if (via_rng_below(&rng, 2) == 0) {
            end_one(user, &shares[who], &taken, wish);
            continue;
        }
        uint16_t flow = via_flow_share_begin(&shares[who], &taken, wish, 7);
        assert_true(user->flow[wish] == 0 || user->flow[wish] == flow);
        user->flow[wish] = flow;
        user->count[wish]++;
        user->all++;
    }
    for (unsigned who = 0; who < USERS; who++) {
        for (uint32_t wish = 0; wish < 7; wish++) {
            while (users[who].count[wish] != 0) {
                end_one(&users[who], &shares[who], &taken, wish);
            }
        }
    }
    assert_int_equal(taken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_user_gets_the_flows_that_it_requests),
        cmocka_unit_test(each_of_some_users_has_flows_of_its_own),
        cmocka_unit_test(commands_of_one_wish_stay_in_one_flow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
