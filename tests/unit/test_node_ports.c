/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Ports that are added and removed while a node runs. */
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

/* Waits until the node has released the port; fails the test after 100 ms. An access after that
 * crashes. */
static void unplug(struct fabric *fabric, int host, unsigned index)
{
    int rc = -EAGAIN;
    for (unsigned i = 0; i < 1000 && rc == -EAGAIN; i++) {
        rc = via_node_port_clear(fabric_node(fabric, host), index);
        fabric_run(fabric, 100 * VIA_USEC_NS);
    }
    assert_int_equal(rc, 0);
}

static struct via_port *port_of(struct fabric *fabric, unsigned link, unsigned side)
{
    return &fabric->links[link].ports[side].port;
}

/* Any use of the port from now on ends the test's process. */
static const struct via_port_ops *forbid(struct via_port *port)
{
    const struct via_port_ops *ops = port->ops;
    port->ops = NULL;
    return ops;
}

static void send(struct fabric *fabric, int from, int to, unsigned count)
{
    static const unsigned char data[64];
    for (unsigned i = 0; i < count; i++) {
        struct via_op op = {.kind = VIA_OP_MESSAGE,
                            .destination = (uint16_t)to,
                            .endpoint = 7,
                            .source = data,
                            .bytes = sizeof(data),
                            .cookie = i + 1};
        fabric_submit(fabric, from, &op);
    }
}

static void a_port_is_taken_away_and_given_back(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct fabric *fabric = fabric_pair(direct);
        fabric_start_pair(fabric);
        fabric_settle(fabric);
        struct via_node *node = fabric_node(fabric, 0);
        struct via_port *port = port_of(fabric, 0, 0);
        assert_int_equal(via_node_port_set(node, 0, port), -EBUSY);
        assert_int_equal(via_node_port_clear(node, 1), -EINVAL);
        assert_int_equal(via_node_port_dimension(node, 0, 1), -EBUSY);
        /* The port is in use, so the node does not release it at once. */
        assert_int_equal(via_node_port_clear(node, 0), -EAGAIN);
        unplug(fabric, 0, 0);
        assert_int_equal(via_node_port_clear(node, 0), -ENOENT);
        const struct via_port_ops *ops = forbid(port);
        send(fabric, 0, 1, 5);
        fabric_run(fabric, VIA_SEC_NS);
        struct via_link_status status = fabric_link_status(fabric, 0, 0);
        assert_int_equal(status.state, VIA_LINK_DOWN);
        assert_int_equal(status.ups_count, 0);
        assert_int_equal(status.frames_sent, 0);
        assert_int_equal(status.peer_session, 0);
        assert_int_equal(fabric_link_status(fabric, 1, 0).state, VIA_LINK_WAITING);
        assert_int_equal(fabric->hosts[1].deliveries_count, 0);

        port->ops = ops;
        assert_int_equal(via_node_port_dimension(node, 0, VIA_DIMENSIONS_MAX), -EINVAL);
        assert_int_equal(via_node_port_dimension(node, 0, 3), 0);
        assert_int_equal(via_node_port_set(node, 0, port), 0);
        fabric->hosts[0].control_deadline = 0;
        fabric_settle(fabric);
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        assert_int_equal(fabric->hosts[1].deliveries_count, 5);
        assert_int_equal(fabric_link_status(fabric, 0, 0).ups_count, 1);
        fabric_free(fabric);
    }
}

/* A port that never had a link, and one whose link is not up yet. */
static void links_that_are_not_up_go_as_well(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start(fabric, 0);
    assert_int_equal(via_node_port_clear(fabric_node(fabric, 0), 0), -EAGAIN);
    unplug(fabric, 0, 0);
    struct via_port *port = port_of(fabric, 0, 0);
    assert_int_equal(via_node_port_set(fabric_node(fabric, 0), 0, port), 0);
    fabric->hosts[0].control_deadline = 0;
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    assert_int_equal(fabric_link_status(fabric, 0, 0).state, VIA_LINK_WAITING);
    unplug(fabric, 0, 0);
    const struct via_port_ops *ops = forbid(port);
    fabric_start(fabric, 1);
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    port->ops = ops;
    assert_int_equal(via_node_port_set(fabric_node(fabric, 0), 0, port), 0);
    fabric->hosts[0].control_deadline = 0;
    fabric_settle(fabric);
    /* The node ends while it is releasing a port. */
    assert_int_equal(via_node_port_clear(fabric_node(fabric, 0), 0), -EAGAIN);
    via_node_fini(fabric_node(fabric, 0));
    fabric_crash(fabric, 0);
    fabric_free(fabric);
}

/* Traffic of other hosts takes the other path around the ring, and later returns; frames under way
 * are not lost. */
static void traffic_of_a_ring_goes_round_the_gap(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric_ring(fabric, 4);
    fabric_settle(fabric);
    /* Links: 0-1, 1-2, 2-3, 3-0; host 1 has 0-1 at port 0 and 1-2 at port 1. */
    struct via_port *port = port_of(fabric, 1, 0);
    for (unsigned round = 0; round < 5; round++) {
        send(fabric, 0, 2, 40);
        send(fabric, 1, 2, 40);
        unplug(fabric, 1, 1);
        const struct via_port_ops *ops = forbid(port);
        send(fabric, 1, 2, 40);
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        assert_int_equal(fabric->hosts[2].deliveries_count, (round + 1) * 120);
        port->ops = ops;
        assert_int_equal(via_node_port_dimension(fabric_node(fabric, 1), 1, (uint8_t)(round % 2)),
                         0);
        assert_int_equal(via_node_port_set(fabric_node(fabric, 1), 1, port), 0);
        fabric->hosts[1].control_deadline = 0;
        fabric_settle(fabric);
    }
    struct via_route_status route;
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    assert_int_equal(via_node_route_status(fabric_node(fabric, 1), 2, &route), 0);
    assert_int_equal(route.port, 1);
    assert_int_equal(route.hops, 1);
    fabric_free(fabric);
}

/* A channel that slept through the life of a link must release it nevertheless. */
static void a_link_comes_and_goes_between_two_turns(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start_pair(fabric);
    struct via_node *node = fabric_node(fabric, 0);
    fabric->hosts[0].frozen = true;
    for (unsigned i = 0; i < 1000 && fabric_link_status(fabric, 0, 0).ups_count == 0; i++) {
        uint64_t deadline_ns;
        via_node_control(node, fabric->now_ns, &deadline_ns);
        fabric_run(fabric, 100 * VIA_USEC_NS);
    }
    assert_int_equal(fabric_link_status(fabric, 0, 0).ups_count, 1);
    assert_int_equal(via_node_port_clear(node, 0), -EAGAIN);
    fabric->hosts[0].frozen = false;
    unplug(fabric, 0, 0);
    (void)forbid(port_of(fabric, 0, 0));
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    fabric_free(fabric);
}

/* The next port with this index may lead to another host. */
static void another_port_takes_the_place(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    for (unsigned i = 0; i < 3; i++) {
        fabric_add_host(fabric);
    }
    fabric_connect(fabric, 0, 1);
    fabric_connect(fabric, 0, 2);
    for (int i = 0; i < 3; i++) {
        fabric_start(fabric, i);
    }
    fabric_settle(fabric);
    struct via_node *node = fabric_node(fabric, 0);
    unplug(fabric, 0, 0);
    unplug(fabric, 0, 1);
    struct via_route_status route;
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    assert_int_equal(via_node_route_status(node, 1, &route), 0);
    assert_int_equal(route.port, VIA_PORT_NONE);
    assert_int_equal(via_node_port_set(node, 0, port_of(fabric, 1, 0)), 0);
    assert_int_equal(via_node_port_set(node, 1, port_of(fabric, 0, 0)), 0);
    fabric->hosts[0].control_deadline = 0;
    fabric_settle(fabric);
    assert_int_equal(fabric_link_status(fabric, 0, 0).peer, 2);
    assert_int_equal(fabric_link_status(fabric, 0, 1).peer, 1);
    send(fabric, 1, 2, 20);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric->hosts[2].deliveries_count, 20);
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_port_is_taken_away_and_given_back),
        cmocka_unit_test(links_that_are_not_up_go_as_well),
        cmocka_unit_test(traffic_of_a_ring_goes_round_the_gap),
        cmocka_unit_test(a_link_comes_and_goes_between_two_turns),
        cmocka_unit_test(another_port_takes_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
