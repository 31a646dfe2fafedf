/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The node on ports whose fences take time: a thread sleeps only after they are complete, and works
 * until then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/types.h"
#include "fabric.h"

#define FENCE_NS (200 * VIA_USEC_NS) /* 20 steps of the fabric */
#define LONG_FENCE_NS (2 * VIA_SEC_NS)
#define QUEUE 0u

static struct fabric *quiet_chain(unsigned hosts, uint64_t fence_ns)
{
    struct fabric *fabric = fabric_new(false);
    fabric_chain(fabric, hosts);
    fabric_settle(fabric);
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    fabric->fence_ns = fence_ns;
    return fabric;
}

static void send(struct fabric *fabric, int from, uint16_t to, uint64_t cookie)
{
    static uint64_t number = 5;
    struct via_op op = {.kind = VIA_OP_MESSAGE,
                        .destination = to,
                        .endpoint = 7,
                        .source = &number,
                        .bytes = 8,
                        .cookie = cookie};
    fabric_submit(fabric, from, &op);
    fabric->hosts[from].woken[0] = true;
}

static bool is_fencing(const struct fabric *fabric, unsigned link, unsigned side)
{
    return fabric->links[link].ports[side].fences[QUEUE].under_way;
}

/* Advances time until that end has a fence under way. */
static void run_until_fencing(struct fabric *fabric, unsigned link, unsigned side)
{
    for (unsigned i = 0; i < 1000 && !is_fencing(fabric, link, side); i++) {
        fabric_run(fabric, 1);
    }
    assert_true(is_fencing(fabric, link, side));
}

static void a_thread_sleeps_when_its_fence_is_over(void **state)
{
    struct fabric *fabric = quiet_chain(2, FENCE_NS);
    (void)state;
    assert_true(fabric->hosts[1].asleep[0]);
    send(fabric, 0, 1, 1);
    run_until_fencing(fabric, 0, 1);
    uint64_t since_ns = fabric->now_ns;
    while (!fabric->hosts[1].asleep[0]) {
        fabric_run(fabric, 1);
        assert_true(fabric->now_ns < since_ns + VIA_SEC_NS);
    }
    assert_true(fabric->now_ns - since_ns >= FENCE_NS / 2);
    assert_false(is_fencing(fabric, 0, 1));
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    fabric_free(fabric);
}

static void work_continues_while_a_fence_is_under_way(void **state)
{
    struct fabric *fabric = quiet_chain(2, LONG_FENCE_NS);
    (void)state;
    send(fabric, 0, 1, 1);
    run_until_fencing(fabric, 0, 1);
    for (uint64_t i = 2; i < 20; i++) {
        send(fabric, 0, 1, i);
        assert_true(fabric_drain(fabric, 10 * VIA_MSEC_NS));
    }
    assert_int_equal(fabric->hosts[1].deliveries_count, 19);
    assert_true(is_fencing(fabric, 0, 1));
    fabric_free(fabric);
}

static void fences_of_all_links_are_under_way_at_once(void **state)
{
    struct fabric *fabric = quiet_chain(3, FENCE_NS);
    (void)state;
    send(fabric, 0, 2, 1); /* by host 1, which has to arm both its links again */
    send(fabric, 2, 0, 2);
    bool both = false;
    for (unsigned i = 0; i < 1000 && !both; i++) {
        fabric_run(fabric, 1);
        both = is_fencing(fabric, 0, 1) && is_fencing(fabric, 1, 0);
    }
    assert_true(both);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    fabric_free(fabric);
}

static void a_proven_generation_needs_no_other_fence(void **state)
{
    struct fabric *fabric = quiet_chain(2, 0);
    (void)state;
    unsigned before = fabric->links[0].ports[0].fences_count;
    assert_true(before > 0);
    for (unsigned i = 0; i < 50; i++) {
        fabric->hosts[0].woken[0] = true; /* for nothing */
        fabric_run(fabric, VIA_MSEC_NS);
    }
    assert_int_equal(fabric->links[0].ports[0].fences_count, before);
    fabric_free(fabric);
}

/* The link fails, permanently or for a moment, while a thread waits for its fence. */
static void the_link_goes(bool comes_back)
{
    struct fabric *fabric = fabric_new(false);
    fabric_ring(fabric, 3);
    fabric_settle(fabric);
    fabric->fence_ns = LONG_FENCE_NS;
    struct fabric_link *link = &fabric->links[0]; /* between hosts 0 and 1 */
    send(fabric, 0, 1, 1);
    run_until_fencing(fabric, 0, 1);
    send(fabric, 0, 1, 2);
    fabric_cut(link);
    if (comes_back) {
        fabric_mend(link);
    }
    fabric->fence_ns = FENCE_NS;
    assert_true(fabric_drain(fabric, VIA_SEC_NS)); /* by the other path, or over the new link */
    assert_int_equal(fabric_completion(fabric, 0, 2)->status, 0);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    for (unsigned h = 0; h < 3; h++) {
        assert_true(fabric->hosts[h].asleep[0]);
    }
    fabric_free(fabric);
}

static void a_link_that_goes_ends_the_wait(void **state)
{
    (void)state;
    the_link_goes(false);
}

static void a_link_that_comes_up_again_is_fenced_again(void **state)
{
    (void)state;
    the_link_goes(true);
}

/* The thread itself notices from its port, before the control thread has taken the link down. */
static void a_thread_whose_port_dies_may_sleep(void **state)
{
    struct fabric *fabric = quiet_chain(2, LONG_FENCE_NS);
    struct fabric_host *host = &fabric->hosts[1];
    (void)state;
    send(fabric, 0, 1, 1);
    run_until_fencing(fabric, 0, 1);
    assert_int_equal(via_node_arm(host->node, 0), VIA_ARM_FENCING);
    fabric->links[0].up = false;
    fabric->links[0].downs_count++;
    uint64_t deadline_ns;
    (void)via_node_poll(host->node, 0, fabric->now_ns, &deadline_ns);
    assert_int_equal(via_node_arm(host->node, 0), VIA_ARM_SLEEP);
    assert_true(fabric->links[0].ports[1].fences_lost > 0);
    fabric_free(fabric);
}

static void a_thread_sleeps_for_a_fence_that_will_wake_it(void **state)
{
    struct fabric *fabric = quiet_chain(2, LONG_FENCE_NS);
    struct fabric_host *host = &fabric->hosts[1];
    (void)state;
    send(fabric, 0, 1, 1);
    run_until_fencing(fabric, 0, 1);
    assert_int_equal(via_node_arm(host->node, 0), VIA_ARM_FENCING);
    assert_false(via_node_release_ports(host->node, 0));
    fabric->links[0].ports[1].port.caps.fence_wakes = true;
    assert_true(via_node_release_ports(host->node, 0));
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_sleeps_when_its_fence_is_over),
        cmocka_unit_test(work_continues_while_a_fence_is_under_way),
        cmocka_unit_test(a_thread_sleeps_for_a_fence_that_will_wake_it),
        cmocka_unit_test(fences_of_all_links_are_under_way_at_once),
        cmocka_unit_test(a_proven_generation_needs_no_other_fence),
        cmocka_unit_test(a_link_that_goes_ends_the_wait),
        cmocka_unit_test(a_link_that_comes_up_again_is_fenced_again),
        cmocka_unit_test(a_thread_whose_port_dies_may_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
