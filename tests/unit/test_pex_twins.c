/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Both NT ports of one chip at once: host 1 has both virtual sides, two other hosts the link sides.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/pex/engine.h"
#include "port/pex/port.h"
#include "tests/unit/pex_link.h"

struct both {
    struct pex_link *link[2]; /* link of NT0, link of NT1 */
    const char *options;
};

static int set_up_with(void **state, const char *options)
{
    struct both *both = calloc(1, sizeof(*both));
    assert_non_null(both);
    both->options = options;
    for (unsigned nt = 0; nt < 2; nt++) {
        both->link[nt] = calloc(1, sizeof(*both->link[nt]));
        both->link[nt]->kind = nt == 0 ? PEX_LINK_NT0 : PEX_LINK_NT1;
        both->link[nt]->now_ns = VIA_SEC_NS;
        pex_link_open(both->link[nt], options);
    }
    *state = both;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, "");
}

static int set_up_alut(void **state)
{
    return set_up_with(state, ",alut,window=2MiB");
}

static int tear_down(void **state)
{
    struct both *both = *state;
    pex_link_close(both->link[0]);
    pex_link_close(both->link[1]);
    free(both);
    assert_null(via_pex_find("test"));
    return 0;
}

static void turn(struct both *both, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pex_link_turn(both->link[0], 1);
        pex_link_turn(both->link[1], 1);
    }
}

static void check_data(struct both *both)
{
    pex_link_check_data(both->link[0]);
    pex_link_check_data(both->link[1]);
}

static void wait_up(struct both *both)
{
    for (unsigned nt = 0; nt < 2; nt++) {
        for (unsigned i = 0;
             !pex_link_is_up(both->link[nt], 0) || !pex_link_is_up(both->link[nt], 1); i++) {
            assert_true(i < PEX_LINK_TURNS_MAX);
            turn(both, 1);
        }
    }
}

/* The other link is not affected. */
static void check_untouched(struct both *both, unsigned nt)
{
    for (unsigned side = 0; side < 2; side++) {
        assert_true(pex_link_is_up(both->link[nt], side));
        assert_true(pex_link_events(both->link[nt], side, UINT64_MAX) == 0);
    }
    pex_link_check_data(both->link[nt]);
}

static void both_links_carry_data(void **state)
{
    struct both *both = *state;
    for (unsigned round = 0; round < 3; round++) {
        check_data(both);
        /* The same offsets in both windows. */
        for (unsigned nt = 0; nt < 2; nt++) {
            for (unsigned side = 0; side < 2; side++) {
                struct via_port *port = both->link[nt]->end[side].port;
                uint64_t word = 1 + round + 10 * nt + 100 * side;
                port->ops->commit(port, 1, 8192, &word, sizeof(word));
            }
        }
        for (unsigned nt = 0; nt < 2; nt++) {
            for (unsigned side = 0; side < 2; side++) {
                struct via_port *from = both->link[nt]->end[side].port;
                uint64_t word = 1 + round + 10 * nt + 100 * side;
                assert_int_equal(from->ops->fence_start(from, 1), 0);
                assert_int_equal(from->ops->fence_poll(from, 1), 1);
                assert_memory_equal(both->link[nt]->end[1 - side].port->inbox + 8192, &word, 8);
            }
        }
    }
}

static void doorbells_and_scratchpads_are_of_a_port(void **state)
{
    struct both *both = *state;
    for (unsigned nt = 0; nt < 2; nt++) {
        struct via_port *port = both->link[nt]->end[0].port;
        for (unsigned index = 0; index < 4; index++) {
            port->ops->scratchpad_write(port, index, 100 * (nt + 1) + index);
        }
        assert_int_equal(port->ops->ring(port, 0, 3 + nt), 0);
    }
    turn(both, 1);
    for (unsigned nt = 0; nt < 2; nt++) {
        struct via_port *port = both->link[nt]->end[1].port;
        for (unsigned index = 0; index < 4; index++) {
            assert_int_equal(port->ops->scratchpad_read(port, index), 100 * (nt + 1) + index);
        }
        assert_true(pex_link_events(both->link[nt], 1, UINT64_MAX) ==
                    VIA_PORT_EVENT_DOORBELL(3 + nt));
    }
}

static void a_cable_or_a_host_is_of_one_port(void **state)
{
    struct both *both = *state;
    for (unsigned nt = 0; nt < 2; nt++) {
        struct pex_link *link = both->link[nt];
        via_pex_set_link(link->pex, false);
        pex_link_wait_for(link, false);
        check_untouched(both, 1 - nt);
        via_pex_set_link(link->pex, true);
        pex_link_wait_for(link, true);
        via_pex_reset_host(link->pex, VIA_PEX_LINK);
        pex_link_wait_for(link, false);
        check_untouched(both, 1 - nt);
        pex_link_wait_for(link, true);
        via_pex_remove(link->pex, VIA_PEX_LINK, true);
        pex_link_wait_for(link, false);
        check_untouched(both, 1 - nt);
        via_pex_remove(link->pex, VIA_PEX_LINK, false);
        pex_link_wait_for(link, true);
        for (unsigned side = 0; side < 2; side++) {
            (void)pex_link_events(link, side, UINT64_MAX);
        }
        check_data(both);
    }
}

static void a_reset_of_the_host_with_both_ends_both(void **state)
{
    struct both *both = *state;
    for (unsigned nt = 0; nt < 2; nt++) {
        via_pex_reset_host(both->link[nt]->pex, VIA_PEX_VIRTUAL);
        for (unsigned i = 0; i < 2; i++) {
            pex_link_wait_for(both->link[i], false);
        }
        wait_up(both);
        for (unsigned i = 0; i < 4; i++) {
            assert_true(pex_link_events(both->link[i / 2], i % 2, UINT64_MAX) ==
                        (VIA_PORT_EVENT_LINK_DOWN | VIA_PORT_EVENT_LINK_UP));
        }
        check_data(both);
    }
}

static void a_driver_of_one_port_may_come_and_go(void **state)
{
    struct both *both = *state;
    struct via_error err = {0};
    for (unsigned round = 0; round < 4; round++) {
        struct pex_link *link = both->link[round % 2];
        pex_link_close_end(link, round / 2);
        pex_link_turn(link, 5);
        check_untouched(both, 1 - round % 2);
        assert_int_equal(pex_link_open_end(link, round / 2, both->options, &err), 0);
        pex_link_wait_for(link, true);
        for (unsigned side = 0; side < 2; side++) {
            (void)pex_link_events(link, side, UINT64_MAX);
        }
        check_data(both);
    }
}

/* BAR 0 of each function shows the registers of the whole chip. A host at NT0 that writes into the
 * registers of NT1 takes down that link, which then comes up again; the host reaches no memory of
 * another host in this way. */
static void a_host_that_writes_into_the_other_port(void **state)
{
    struct both *both = *state;
    struct pex_link *link = both->link[1];
    struct via_pci *hostile = via_pex_port_of(both->link[0]->end[1].port)->pci;
    static const uint32_t wiped[] = {0xC3C, 0xC40, 0xD94, 0xDB4, 0x004};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wiped); i++) {
        for (unsigned side = 0; side < 2; side++) {
            via_pci_write32(hostile, 0, 0x3C000 + 0x1000 * side + wiped[i], 0);
        }
    }
    pex_link_turn(link, 200);
    wait_up(both);
    for (unsigned side = 0; side < 2; side++) {
        assert_true((pex_link_events(link, side, UINT64_MAX) & VIA_PORT_EVENT_LINK_DOWN) != 0);
    }
    check_untouched(both, 0);
    check_data(both);
    via_pci_write32(hostile, 0, 0x3C000 + 0xC4C, 0xffff); /* all its doorbells */
    turn(both, 2);
    (void)pex_link_events(link, 0, UINT64_MAX);
    check_data(both);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct both *both = *state;
    struct via_link_config config;
    struct via_error err = {0};
    struct pex_link other = {.kind = PEX_LINK_NT1};
    assert_int_equal(pex_link_open_end(&other, 1, "", &err), -EBUSY);
    assert_string_equal(err.text, "model:test: the link side of NT1 has a driver already");
    other.kind = PEX_LINK_MODEL;
    assert_int_equal(pex_link_open_end(&other, 1, "", &err), -EBUSY);
    assert_non_null(strstr(err.text, "a chip with two NT ports: give all ends nt"));
    other.kind = PEX_LINK_PAIR;
    assert_int_equal(pex_link_open_end(&other, 1, "", &err), -EBUSY);
    assert_int_equal(via_link_parse("pex:model:x,b2b=0,nt=1", &config, &err), -EINVAL);
    assert_int_equal(via_link_parse("pex:model:x,nt=2", &config, &err), -EINVAL);
    assert_int_equal(via_link_parse("pex:0000:03:00.0,nt=1", &config, &err), -EINVAL);
    assert_non_null(strstr(err.text, "nt= goes with model:NAME"));
    check_data(both);
}

/* --- the one DMA function of the host with both NT ports --- */

static unsigned char source[16384] __attribute__((aligned(4096)));

static void open_sharing(struct pex_link *link[2])
{
    for (unsigned i = 0; i < sizeof(source); i++) {
        source[i] = (unsigned char)(i * 7);
    }
    for (unsigned nt = 0; nt < 2; nt++) {
        link[nt] = pex_link_new(nt == 0 ? PEX_LINK_NT0 : PEX_LINK_NT1, true);
        struct via_port *port = link[nt]->end[0].port;
        assert_int_equal(port->caps.dma_depth, 60);
        assert_int_equal(link[nt]->end[1].port->caps.dma_depth, 60);
        assert_int_equal(via_pex_driver.memory_register(port, source, sizeof(source), NULL), 0);
        assert_int_equal(via_pex_driver.memory_register(port, source, 4096, NULL), -EBUSY);
    }
}

static int start_dma(struct pex_link *link, unsigned queue, unsigned off, unsigned len)
{
    struct via_port *port = link->end[0].port;
    return port->ops->dma(port, queue, off, source + off, len, off + 1);
}

/* Waits up to a second of real time. Returns the result of the DMA. */
static int take_dma(struct pex_link *link, unsigned queue, unsigned off)
{
    struct via_port *port = link->end[0].port;
    uint64_t cookie;
    int result;
    for (unsigned i = 0; port->ops->dma_take(port, queue, &cookie, &result, 1) == 0; i++) {
        assert_true(i < 100000);
        usleep(10);
    }
    assert_int_equal(cookie, off + 1);
    return result;
}

static void expect_dma(struct pex_link *link, unsigned off, unsigned len)
{
    assert_int_equal(take_dma(link, 1, off), 0);
    assert_memory_equal(link->end[1].port->inbox + off, source + off, len);
}

/* On one channel: the bodies of each link arrive at the link's peer, and each link takes its own
 * results. */
static void both_links_have_the_dma_function(void **state)
{
    struct pex_link *link[2];
    (void)state;
    open_sharing(link);
    for (unsigned i = 0; i < 40; i++) { /* more than a ring has */
        assert_int_equal(start_dma(link[0], 1, 64 * i, 64), 0);
        assert_int_equal(start_dma(link[1], 1, 8192 + 64 * i, 64), 0);
        expect_dma(link[1], 8192 + 64 * i, 64);
        expect_dma(link[0], 64 * i, 64);
    }
    assert_int_equal(link[0]->end[1].port->inbox[8192 + 1], 0);
    assert_int_equal(link[1]->end[1].port->inbox[1], 0);
    /* The control thread of either link wakes the threads of both. */
    unsigned wakes = link[0]->end[0].wakes[1];
    assert_int_equal(start_dma(link[0], 1, 0, 64), 0);
    pex_link_turn(link[1], 1);
    assert_int_equal(link[0]->end[0].wakes[1], wakes + 1);
    assert_int_equal(take_dma(link[0], 1, 0), 0);
    pex_link_close(link[0]);
    assert_int_equal(start_dma(link[1], 1, 4096, 64), 0);
    expect_dma(link[1], 4096, 64);
    pex_link_close(link[1]);
    assert_null(via_pex_find("test"));
}

/* The peer ends a link while the probe's copy is under way: the other link, which shares the ring,
 * then has the whole ring again. */
static void a_link_that_ends_in_mid_probe_keeps_no_slot(void **state)
{
    struct pex_link *link[2];
    (void)state;
    open_sharing(link);
    const struct via_pex_dma *dma = via_pex_port_of(link[0]->end[0].port)->dma;
    struct via_port *peer = link[0]->end[1].port;
    for (unsigned round = 0; round < 3; round++) {
        via_pex_driver.cut(peer, true);
        pex_link_wait_for(link[0], false);
        via_pex_driver.cut(peer, false);
        for (unsigned i = 0; dma->probe.step != VIA_PLX_PROBE_COPIES; i++) {
            assert_true(i < PEX_LINK_TURNS_MAX);
            pex_link_turn(link[0], 1);
        }
        via_pex_driver.cut(peer, true);
        pex_link_turn(link[0], 3);
        for (unsigned i = 0; i < 40; i++) { /* more than a ring has */
            assert_int_equal(start_dma(link[1], 0, 64 * i, 64), 0);
            assert_int_equal(take_dma(link[1], 0, 64 * i), 0);
        }
        via_pex_driver.cut(peer, false);
        pex_link_wait_for(link[0], true);
        assert_int_equal(start_dma(link[0], 0, 0, 64), 0);
        assert_int_equal(take_dma(link[0], 0, 0), 0);
        assert_memory_equal(link[0]->end[1].port->inbox, source, 64);
    }
    pex_link_close(link[0]);
    pex_link_close(link[1]);
    assert_null(via_pex_find("test"));
}

/* An abort of one link, or its close with DMAs under way, ends the DMAs of both links on that
 * channel.
 */
static void a_link_that_ends_takes_its_dma_along(void **state)
{
    const struct via_pex_engine_faults none = {0}, stalls = {.stalls = true};
    struct pex_link *link[2];
    (void)state;
    open_sharing(link);
    via_pex_engine_set_faults(link[0]->pex, VIA_PEX_VIRTUAL, &stalls);
    assert_int_equal(start_dma(link[0], 1, 0, 64), 0);
    assert_int_equal(start_dma(link[1], 1, 64, 64), 0);
    link[0]->end[0].port->ops->dma_abort(link[0]->end[0].port, 1);
    assert_int_equal(take_dma(link[0], 1, 0), -ECANCELED);
    assert_int_equal(take_dma(link[1], 1, 64), -EIO);
    assert_int_equal(start_dma(link[0], 1, 0, 64), 0);
    assert_int_equal(start_dma(link[1], 1, 64, 64), 0);
    pex_link_close(link[0]);
    assert_int_equal(take_dma(link[1], 1, 64), -EIO);
    via_pex_engine_set_faults(link[1]->pex, VIA_PEX_VIRTUAL, &none);
    assert_int_equal(start_dma(link[1], 1, 4096, 64), 0);
    expect_dma(link[1], 4096, 64);
    pex_link_close(link[1]);
    assert_null(via_pex_find("test"));
}

/* An engine that can not be aborted is disabled when a link closes: the other link continues
 * without DMA. */
static void a_link_that_ends_cuts_a_hanging_engine_off(void **state)
{
    const struct via_pex_engine_faults hangs = {.hangs = true};
    struct pex_link *link[2];
    (void)state;
    open_sharing(link);
    via_pex_engine_set_faults(link[0]->pex, VIA_PEX_VIRTUAL, &hangs);
    assert_int_equal(start_dma(link[0], 1, 0, 64), 0);
    assert_int_equal(start_dma(link[1], 2, 64, 64), 0);
    pex_link_close(link[0]);
    assert_int_equal(take_dma(link[1], 2, 64), -EIO);
    assert_int_equal(start_dma(link[1], 1, 4096, 64), -EIO);
    pex_link_check_data(link[1]);
    pex_link_close(link[1]);
}

/* A DMA function that uses the IO virtual addresses of a port is closed with that port, and can be
 * attached again with it; the other port, which had joined, has no DMA then. */
static void a_function_that_a_port_leads_goes_with_it(void **state)
{
    struct pex_link *link[2];
    struct via_pex_port *port[2];
    struct via_error err = {0};
    (void)state;
    for (unsigned nt = 0; nt < 2; nt++) {
        link[nt] = pex_link_new(nt == 0 ? PEX_LINK_NT0 : PEX_LINK_NT1, false);
        port[nt] = via_pex_port_of(link[nt]->end[0].port);
    }
    for (unsigned round = 0; round < 2; round++) {
        struct via_pci *pci;
        assert_int_equal(via_pex_dma_join(port[0], "led", &err), -ENOENT);
        assert_int_equal(via_pex_attach_engine_apart(link[0]->pex, VIA_PEX_VIRTUAL, &pci), 0);
        assert_int_equal(via_pex_dma_open(port[0], "led", pci, true, &err), 0);
        if (round == 0) {
            assert_int_equal(via_pex_dma_join(port[1], "led", &err), 0);
        }
        pex_link_close_end(link[0], 0);
        assert_int_equal(pex_link_open_end(link[0], 0, "", &err), 0);
        port[0] = via_pex_port_of(link[0]->end[0].port);
        pex_link_turn(link[1], 3);
        assert_int_equal(start_dma(link[1], 1, 0, 64), -EIO);
    }
    pex_link_close(link[0]);
    pex_link_close(link[1]);
    assert_null(via_pex_find("test"));
}

#define TESTS(name)                                           \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down), \
        cmocka_unit_test_setup_teardown(name, set_up_alut, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TESTS(both_links_carry_data),
        TESTS(doorbells_and_scratchpads_are_of_a_port),
        TESTS(a_cable_or_a_host_is_of_one_port),
        TESTS(a_reset_of_the_host_with_both_ends_both),
        TESTS(a_driver_of_one_port_may_come_and_go),
        TESTS(a_host_that_writes_into_the_other_port),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, set_up, tear_down),
        cmocka_unit_test(both_links_have_the_dma_function),
        cmocka_unit_test(a_link_that_ends_in_mid_probe_keeps_no_slot),
        cmocka_unit_test(a_link_that_ends_takes_its_dma_along),
        cmocka_unit_test(a_link_that_ends_cuts_a_hanging_engine_off),
        cmocka_unit_test(a_function_that_a_port_leads_goes_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
