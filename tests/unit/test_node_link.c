/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Links: bring-up, its obstacles, and their end. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "core/pipe.h"
#include "fabric.h"
#include "wire/handshake.h"
#include "wire/link_state.h"

static enum via_link_state state_of(struct fabric *fabric, int host)
{
    return fabric_link_status(fabric, host, 0).state;
}

static void both_come_up(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct fabric *fabric = fabric_pair(direct);
        fabric_start_pair(fabric);
        fabric_settle(fabric);
        for (int h = 0; h < 2; h++) {
            struct via_link_status status = fabric_link_status(fabric, h, 0);
            uint16_t neighbour;
            assert_int_equal(status.state, VIA_LINK_UP);
            assert_int_equal(status.peer, 1 - h);
            assert_int_equal(status.peer_session, fabric->hosts[1 - h].config.session);
            assert_int_equal(status.peer_version, VIA_PROTOCOL_VERSION);
            assert_int_equal(status.ups_count, 1);
            assert_int_equal(status.downs_count, 0);
            assert_int_equal(via_node_neighbours(fabric_node(fabric, h), 0, &neighbour, 1), 1);
            assert_int_equal(neighbour, 1);
            assert_int_equal(via_node_neighbours(fabric_node(fabric, h), 5, &neighbour, 1),
                             -ENOENT);
        }
        fabric_run(fabric, VIA_SEC_NS); /* and the links stay up */
        assert_int_equal(fabric_link_status(fabric, 0, 0).ups_count, 1);
        assert_int_equal(fabric_link_status(fabric, 1, 0).ups_count, 1);
        fabric_free(fabric);
    }
}

static void they_start_in_any_order(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct fabric *fabric = fabric_pair(true);
        fabric_start(fabric, first);
        fabric_run(fabric, 100 * VIA_MSEC_NS);
        assert_int_equal(state_of(fabric, first), VIA_LINK_WAITING);
        fabric_start(fabric, 1 - first);
        fabric_settle(fabric);
        fabric_free(fabric);
    }
}

static void meet_version(uint8_t version)
{
    struct fabric *fabric = fabric_pair(true);
    fabric->hosts[1].config.protocol_version = version;
    fabric_start_pair(fabric);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_BAD_VERSION);
    assert_int_equal(state_of(fabric, 1), VIA_LINK_BAD_VERSION);
    assert_int_equal(fabric_link_status(fabric, 0, 0).peer_version, version);
    assert_int_equal(fabric_link_status(fabric, 1, 0).peer_version, VIA_PROTOCOL_VERSION);
    assert_int_equal(fabric_link_status(fabric, 0, 0).ups_count, 0);

    /* A peer with the right version replaces it. */
    fabric_crash(fabric, 1);
    fabric->hosts[1].config.protocol_version = 0;
    fabric_start(fabric, 1);
    fabric_settle(fabric);
    fabric_free(fabric);
}

/* An older version, a newer one, and the two limits of the field. */
static void both_hosts_report_another_version(void **state)
{
    (void)state;
    meet_version(VIA_PROTOCOL_VERSION - 1);
    meet_version(VIA_PROTOCOL_VERSION + 1);
    meet_version(1);
    meet_version(UINT8_MAX);
}

static void another_device_is_bad_magic(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start(fabric, 0);
    fabric->links[0].scratchpads[4] = 0xdeadbeef;
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_BAD_MAGIC);
    fabric_start(fabric, 1);
    fabric_settle(fabric);
    fabric_free(fabric);
}

static void geometry_must_agree(void **state)
{
    (void)state;
    for (int what = 1; what < 4; what++) {
        struct fabric *fabric = fabric_pair(true);
        struct via_node_config *config = &fabric->hosts[1].config;
        uint64_t window = fabric->links[0].ports[1].port.caps.window_bytes;
        if (what == 1) {
            config->frame_bytes_max = 512;
        } else if (what == 2) {
            config->channels_count = 2;
            config->frame_bytes_max = 64; /* so that it fits */
        } else {
            fabric->links[0].ports[1].port.caps.window_bytes = 64;
        }
        fabric_start_pair(fabric);
        fabric_run(fabric, 200 * VIA_MSEC_NS);
        assert_int_equal(state_of(fabric, 0), VIA_LINK_BAD_GEOMETRY);
        assert_int_equal(state_of(fabric, 1), VIA_LINK_BAD_GEOMETRY);
        fabric_crash(fabric, 1);
        fabric->links[0].ports[1].port.caps.window_bytes = window;
        *config = fabric->hosts[0].config;
        config->host = 1;
        fabric_start(fabric, 1);
        fabric_settle(fabric);
        fabric_free(fabric);
    }
}

static void an_inbox_too_small_is_not_written(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(false);
    struct via_port *port = &fabric->links[0].ports[1].port;
    free(port->inbox);
    port->inbox = aligned_alloc(64, 64);
    port->caps.inbox_bytes = 64;
    fabric->links[0].ports[0].port.caps.window_bytes = 64;
    fabric_start_pair(fabric);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_BAD_GEOMETRY);
    assert_int_equal(state_of(fabric, 1), VIA_LINK_BAD_GEOMETRY);
    fabric_free(fabric);
}

static void ids_must_differ_and_be_inside(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric->hosts[1].config.host = 0;
    fabric_start_pair(fabric);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_BAD_HOST);
    assert_int_equal(state_of(fabric, 1), VIA_LINK_BAD_HOST);
    fabric_free(fabric);

    fabric = fabric_pair(true);
    fabric->hosts[1].config.hosts_max = 64;
    fabric->hosts[1].config.host = 60; /* the other host knows only eight hosts */
    fabric_start_pair(fabric);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_BAD_HOST);
    assert_int_equal(state_of(fabric, 1), VIA_LINK_BAD_HOST); /* because the other host refuses */
    fabric_free(fabric);
}

static void configurations_are_checked(void **state)
{
    (void)state;
    struct via_node_config good, bad;
    via_node_config_init(&good);
    good.session = 1;
    assert_true(via_node_bytes(&good) > 0);
    assert_true(via_node_inbox_bytes(&good) > 0);
#define BAD(field, value)                      \
    bad = good;                                \
    bad.field = value;                         \
    assert_int_equal(via_node_bytes(&bad), 0); \
    assert_int_equal(via_node_inbox_bytes(&bad), 0)
    BAD(session, 0);
    BAD(host, 64);
    BAD(hosts_max, 0);
    BAD(hosts_max, 1025);
    BAD(channels_count, 0);
    BAD(channels_count, 15);
    BAD(ports_count, VIA_PORTS_MAX + 1);
    BAD(pipe_slots, 0);
    BAD(pipe_slots, 3);
    BAD(frame_bytes_max, 0);
    BAD(frame_bytes_max, 100);
    BAD(frame_bytes_max, 65536);
    BAD(bypass_count, 0);
    BAD(ops_count, 1);
    BAD(flows_count, 0);
    BAD(window_frames, 0);
    BAD(batch_frames, 0);
    BAD(epoch_first, 0xffff);
}

static void a_silent_peer_is_down_within_its_time(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    fabric_crash(fabric, 1);
    fabric_run(fabric, 60 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_UP);
    fabric_run(fabric, 45 * VIA_MSEC_NS);
    assert_int_not_equal(state_of(fabric, 0), VIA_LINK_UP);
    assert_int_equal(fabric_link_status(fabric, 0, 0).downs_count, 1);
    assert_int_equal(fabric_link_status(fabric, 0, 0).down_why, -ETIMEDOUT);
    struct via_route_status route;
    assert_int_equal(via_node_route_status(fabric_node(fabric, 0), 1, &route), 0);
    assert_int_equal(route.port, VIA_PORT_NONE);

    fabric_start(fabric, 1);
    fabric_settle(fabric);
    assert_int_equal(fabric_link_status(fabric, 0, 0).ups_count, 2);
    fabric_free(fabric);
}

static void a_quick_restart_is_noticed_by_its_registers(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct fabric *fabric = fabric_pair(true);
        fabric_start_pair(fabric);
        fabric_settle(fabric);
        fabric_crash(fabric, who);
        fabric_start(fabric, who);
        fabric_settle(fabric);
        struct via_link_status status = fabric_link_status(fabric, 1 - who, 0);
        assert_int_equal(status.peer_session, fabric->hosts[who].config.session);
        assert_int_equal(status.downs_count, 1);
        assert_int_equal(status.down_why, -ECONNRESET);
        fabric_free(fabric);
    }
}

/* The first epoch of a host may be that of its previous run. */
static void a_restart_with_the_same_epoch_is_noticed(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct fabric *fabric = fabric_pair(true);
        fabric->hosts[0].config.epoch_first = 500;
        fabric->hosts[1].config.epoch_first = 500;
        fabric_start_pair(fabric);
        fabric_settle(fabric);
        fabric->hosts[1 - who].frozen = true; /* the host does not notice that its peer ends */
        fabric_crash(fabric, who);
        fabric_start(fabric, who);
        fabric_run(fabric, 50 * VIA_MSEC_NS);
        assert_int_not_equal(state_of(fabric, who), VIA_LINK_UP);
        fabric->hosts[1 - who].frozen = false;
        fabric_settle(fabric);
        fabric_free(fabric);
    }
}

static void a_read_that_times_out_does_not_cost_the_link(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    struct via_link_status status;
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    for (unsigned i = 0; i < 20; i++) {
        fabric->links[0].late_reads = 1;
        fabric_run(fabric, 20 * VIA_MSEC_NS);
        assert_int_equal(fabric->links[0].late_reads, 0);
    }
    for (unsigned host = 0; host < 2; host++) {
        assert_int_equal(via_node_link_status(fabric_node(fabric, (int)host), 0, &status), 0);
        assert_int_equal(status.state, VIA_LINK_UP);
        assert_int_equal(status.downs_count, 0);
    }
    fabric_free(fabric);
}

/* The first interval in which no heartbeat of the peer has come. */
static void a_fini_is_noticed_by_the_second_heartbeat(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    via_node_fini(fabric_node(fabric, 1));
    fabric_crash(fabric, 1);
    fabric_run(fabric, 41 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_WAITING);
    fabric_free(fabric);
}

/* A read across a link costs microseconds, and an idle host has nothing else to do. */
static void registers_of_a_peer_that_beats_are_not_read(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    fabric->links[0].reads = 0;
    fabric_run(fabric, VIA_SEC_NS);
    /* 50 heartbeats of two hosts. Each reads the host's own state, and every eighth reads two
     * registers of the peer. */
    assert_in_range(fabric->links[0].reads, 110, 140);
    fabric_free(fabric);
}

static void cut_and_mend(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct fabric *fabric = fabric_pair(direct);
        fabric->hosts[0].config.epoch_first = VIA_EPOCH_MAX - 3; /* across the wrap */
        fabric->hosts[1].config.epoch_first = VIA_EPOCH_MAX - 2;
        fabric_start_pair(fabric);
        fabric_settle(fabric);
        for (unsigned i = 1; i <= 8; i++) {
            fabric_cut(&fabric->links[0]);
            fabric_run(fabric, VIA_MSEC_NS);
            assert_int_equal(state_of(fabric, 0), VIA_LINK_DOWN);
            assert_int_equal(state_of(fabric, 1), VIA_LINK_DOWN);
            if (i % 2 == 0) {
                fabric_run(fabric, 200 * VIA_MSEC_NS);
            }
            fabric_mend(&fabric->links[0]);
            fabric_settle(fabric);
            assert_int_equal(fabric_link_status(fabric, 0, 0).downs_count, i);
            assert_int_equal(fabric_link_status(fabric, 0, 0).down_why, -ENOLINK);
            assert_int_equal(fabric_link_status(fabric, 1, 0).ups_count, i + 1);
        }
        fabric_free(fabric);
    }
}

/* Link-down and link-up before any poll: the event shows this, or the zeroed registers. */
static void a_flap_between_two_polls_is_noticed(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++) {
        struct fabric *fabric = fabric_pair(true);
        fabric_start_pair(fabric);
        fabric_settle(fabric);
        fabric_cut(&fabric->links[0]);
        fabric_mend(&fabric->links[0]);
        if (!events) {
            fabric->links[0].ports[0].events = 0;
            fabric->links[0].ports[1].events = 0;
        }
        fabric_run(fabric, 25 * VIA_MSEC_NS);
        assert_int_equal(fabric_link_status(fabric, 0, 0).downs_count, 1);
        assert_int_equal(fabric_link_status(fabric, 1, 0).downs_count, 1);
        fabric_settle(fabric);
        fabric_free(fabric);
    }
}

static void a_host_that_was_not_scheduled_returns(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    fabric->hosts[0].frozen = true;
    fabric_run(fabric, 3 * VIA_SEC_NS);
    assert_int_not_equal(state_of(fabric, 1), VIA_LINK_UP);
    fabric->hosts[0].frozen = false;
    fabric_settle(fabric);
    assert_int_equal(state_of(fabric, 0), VIA_LINK_UP);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    assert_int_equal(state_of(fabric, 1), VIA_LINK_UP);
    fabric_free(fabric);
}

/* Pipe 0's memory in an inbox: see layout.h. */
static uint64_t *control_word(struct fabric_port *port, unsigned slot)
{
    return (uint64_t *)(void *)(port->port.inbox + 128 + 64 + slot * 64 + 56);
}

static void invalid_records_of_the_peer_take_the_link_down(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(true);
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    /* Posted into host 0's inbox: a record with a length beyond the geometry, in all slots. */
    uint32_t r3 = fabric->links[0].scratchpads[3];
    for (unsigned slot = 0; slot < VIA_CONTROL_PIPE_SLOTS; slot++) {
        for (uint32_t lap = 0; lap < 1; lap++) {
            uint64_t old = *control_word(&fabric->links[0].ports[0], slot);
            /* The next number of this round, or that of the next round: control pipes begin 8
             * before the wrap
             */
            uint32_t first = slot < 8 ? slot : slot - 16;
            uint32_t sequence = old == 0 ? first : via_record_word_sequence(old) + 16;
            *control_word(&fabric->links[0].ports[0], slot) =
                via_record_word((uint16_t)(r3 >> 16), 0xffff, sequence);
        }
    }
    fabric_run(fabric, 25 * VIA_MSEC_NS);
    assert_int_equal(fabric_link_status(fabric, 0, 0).errors, 1);
    assert_int_equal(fabric_link_status(fabric, 0, 0).downs_count, 1);
    assert_int_equal(fabric_link_status(fabric, 0, 0).down_why, -EPROTO);
    fabric_settle(fabric); /* a new epoch is a new attempt */
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_come_up),
        cmocka_unit_test(they_start_in_any_order),
        cmocka_unit_test(both_hosts_report_another_version),
        cmocka_unit_test(another_device_is_bad_magic),
        cmocka_unit_test(geometry_must_agree),
        cmocka_unit_test(an_inbox_too_small_is_not_written),
        cmocka_unit_test(ids_must_differ_and_be_inside),
        cmocka_unit_test(configurations_are_checked),
        cmocka_unit_test(a_silent_peer_is_down_within_its_time),
        cmocka_unit_test(a_quick_restart_is_noticed_by_its_registers),
        cmocka_unit_test(a_restart_with_the_same_epoch_is_noticed),
        cmocka_unit_test(a_read_that_times_out_does_not_cost_the_link),
        cmocka_unit_test(a_fini_is_noticed_by_the_second_heartbeat),
        cmocka_unit_test(registers_of_a_peer_that_beats_are_not_read),
        cmocka_unit_test(cut_and_mend),
        cmocka_unit_test(a_flap_between_two_polls_is_noticed),
        cmocka_unit_test(a_host_that_was_not_scheduled_returns),
        cmocka_unit_test(invalid_records_of_the_peer_take_the_link_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
