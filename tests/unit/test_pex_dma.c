/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* DMA of the pex port, and its end if the engine of the register model, or the link, fails: in one
 * process, over the second NT port of a chip, over two chips back to back, and with the engine
 * behind a vfio-user socket. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/pex/port.h"
#include "tests/unit/pex_link.h"

/* --- DMA --- */

#define SOURCE_BYTES 16384u
static unsigned char source[SOURCE_BYTES] __attribute__((aligned(4096)));

static int set_up(void **state)
{
    struct pex_link *link = pex_link_new(pex_link_kind_of(*state), true);
    struct via_port *port = link->end[0].port;
    *state = link;
    assert_int_equal(port->caps.dma_depth, 60);
    for (unsigned i = 0; i < SOURCE_BYTES; i++) {
        source[i] = (unsigned char)(i * 7);
    }
    assert_int_equal(via_pex_driver.memory_register(port, source, sizeof(source), NULL), 0);
    assert_int_equal(via_pex_driver.memory_register(port, source, 4096, NULL), -EBUSY);
    return 0;
}

/* Waits up to a second of real time for the end of a DMA. Returns its result. */
static int take_dma(struct pex_link *link, unsigned queue, uint64_t cookie)
{
    struct via_port *port = link->end[0].port;
    uint64_t taken;
    int result;
    for (unsigned i = 0; port->ops->dma_take(port, queue, &taken, &result, 1) == 0; i++) {
        assert_true(i < 100000);
        usleep(10);
    }
    assert_int_equal(taken, cookie);
    return result;
}

static int start_dma(struct pex_link *link, unsigned queue, uint64_t off, size_t len,
                     uint64_t cookie)
{
    struct via_port *port = link->end[0].port;
    return port->ops->dma(port, queue, off, source + off % 4096, len, cookie);
}

static void dma_survives_the_engines_errata(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults errata[] = {
        {0},
        {.stops_silently = true},
        {.late_write_back = true},
        {.stops_silently = true, .late_write_back = true},
        {.misaligned_reads = 1},
        {.misaligned_reads = 3, .stops_silently = true, .late_write_back = true},
    };
    struct via_port *to = link->end[1].port;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(errata); i++) {
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &errata[i]);
        for (uint64_t k = 0; k < 40; k++) { /* more than a ring holds */
            unsigned queue = k % 5;         /* two queues share a channel */
            memset(to->inbox, 0, 8192);
            assert_int_equal(start_dma(link, queue, k, 4000, k), 0);
            assert_int_equal(start_dma(link, queue, 5000 + k, 64, 100 + k), 0);
            assert_int_equal(take_dma(link, queue, k), 0);
            assert_int_equal(take_dma(link, queue, 100 + k), 0);
            assert_memory_equal(to->inbox + k, source + k, 4000);
            assert_int_equal(to->inbox[k + 4000], 0);
            assert_memory_equal(to->inbox + 5000 + k, source + (5000 + k) % 4096, 64);
        }
    }
    struct via_port *port = link->end[0].port;
    assert_int_equal(port->ops->dma(port, 0, 0, &link->now_ns, 8, 1), -EINVAL); /* not registered */
    assert_int_equal(start_dma(link, 0, port->caps.window_bytes - 7, 8, 1), -EINVAL);
}

static void an_engine_that_stalls_is_aborted(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults none = {0}, stalls = {.stalls = true};
    struct via_port *port = link->end[0].port;
    uint64_t cookie;
    int result;
    for (unsigned round = 0; round < 3; round++) {
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &stalls);
        assert_int_equal(start_dma(link, 1, 0, 100, 1), 0);
        assert_int_equal(start_dma(link, 5, 0, 100, 2), 0); /* on the same channel */
        assert_int_equal(port->ops->dma_take(port, 1, &cookie, &result, 1), 0);
        port->ops->dma_abort(port, 1);
        assert_int_equal(take_dma(link, 1, 1), -ECANCELED);
        assert_int_equal(take_dma(link, 5, 2), -EIO);
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &none);
        assert_int_equal(start_dma(link, 1, 0, 100, 3), 0);
        assert_int_equal(take_dma(link, 1, 3), 0);
    }
}

static void an_engine_that_hangs_is_cut_off(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults none = {0}, hangs = {.hangs = true};
    via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &hangs);
    assert_int_equal(start_dma(link, 0, 0, 100, 1), 0);
    link->end[0].port->ops->dma_abort(link->end[0].port, 0);
    assert_int_equal(take_dma(link, 0, 1), -ECANCELED);
    via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &none);
    assert_int_equal(start_dma(link, 0, 0, 100, 2), -EIO);
    pex_link_check_data(link); /* all other functions continue */
}

static void dma_during_a_link_down_is_reported(void **state)
{
    struct pex_link *link = *state;
    assert_int_equal(start_dma(link, 0, 0, 100, 1), 0);
    via_pex_set_link(link->pex, false);
    pex_link_wait_for(link, false);
    assert_int_equal(start_dma(link, 0, 0, 100, 2), -ENOLINK);
    via_pex_set_link(link->pex, true);
    pex_link_wait_for(link, true);
    assert_int_equal(take_dma(link, 0, 1), -ENOLINK);
    assert_int_equal(start_dma(link, 0, 0, 100, 3), 0);
    assert_int_equal(take_dma(link, 0, 3), 0);
}

/* Functions try to reach their servers once a second. */
static void wait_a_second(struct pex_link *link)
{
    link->now_ns += VIA_SEC_NS;
    pex_link_turn(link, 100);
}

/* The chip behind the sockets ends, and a new one starts later: the link and DMA work again, and
 * DMAs that were under way end with an error. */
static void a_restarted_server_is_found(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults hangs = {.hangs = true};
    for (unsigned round = 0; round < 3; round++) {
        bool is_cut_off = round == 2;
        uint64_t cookie = 0;
        int result = 0;
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &hangs);
        assert_int_equal(start_dma(link, 0, 0, 100, 1), 0);
        if (is_cut_off) {
            link->end[0].port->ops->dma_abort(link->end[0].port, 0);
            assert_int_equal(take_dma(link, 0, 1), -ECANCELED);
        }
        pex_link_stop_server(link);
        pex_link_wait_for(link, false);
        assert_non_null(strstr(pex_link_error(link, 0), "the function does not answer"));
        pex_link_start_server(link);
        for (unsigned i = 0; !pex_link_is_up(link, 0) || !pex_link_is_up(link, 1); i++) {
            assert_true(i < 1000);
            wait_a_second(link);
        }
        assert_string_equal(pex_link_error(link, 0), "");
        struct via_port *port = link->end[0].port;
        for (unsigned i = 0; !is_cut_off && port->ops->dma_take(port, 0, &cookie, &result, 1) == 0;
             i++) {
            assert_true(i < 1000);
            wait_a_second(link);
        }
        assert_int_equal(result, is_cut_off ? 0 : -ENOLINK);
        for (unsigned i = 0; start_dma(link, 0, 0, 4000, 2) != 0; i++) {
            assert_true(i < 1000);
            wait_a_second(link);
        }
        assert_int_equal(take_dma(link, 0, 2), 0);
        assert_memory_equal(link->end[1].port->inbox, source, 4000);
        memset(link->end[1].port->inbox, 0, 4000);
        pex_link_check_data(link);
    }
}

/* --- a DMA function with faults --- */

/* Functions of the model, with reads without an answer, writes that wait for a read, and a server
 * that ends and restarts. */
static struct via_pci_ops slow_ops;
static const struct via_pci_ops *plain_ops;
static bool slow_is_silent;
static unsigned slow_writes; /* posted, and not yet pushed */
static bool slow_is_gone;
static unsigned slow_offers, slow_takes; /* DMA that the port accepted meanwhile */
static struct via_port *slow_port;

static int slow_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data, size_t len)
{
    slow_writes = 0;
    if (slow_is_silent) {
        memset(ret_data, 0xff, len);
        return 0;
    }
    return plain_ops->region_read(pci, region, off, ret_data, len);
}

static int slow_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                      size_t len)
{
    slow_writes++;
    for (unsigned queue = 0; slow_port != NULL && queue < 4 && slow_offers < 100; queue++) {
        slow_takes += slow_port->ops->dma(slow_port, queue, 0, source, 64, 9) == 0 ? 1 : 0;
        slow_offers++;
    }
    return plain_ops->region_write(pci, region, off, data, len);
}

static bool is_slow_function_lost(struct via_pci *pci)
{
    return slow_is_gone || plain_ops->gone(pci);
}

static int slow_revive(struct via_pci *pci)
{
    (void)pci;
    slow_is_gone = false;
    return 0;
}

static unsigned slow_wakes, slow_writes_at_wake;

static void slow_wake(void *ctx, unsigned thread)
{
    (void)ctx, (void)thread;
    slow_wakes++;
    slow_writes_at_wake = slow_writes;
}

static int set_up_slow(void **state)
{
    struct pex_link *link = pex_link_new(PEX_LINK_MODEL, false);
    static struct via_driver_host host;
    struct via_pex_config config = {
        .target = "slow", .bar = 2, .window_bytes_max = 4u << 20, .irq = VIA_PCI_IRQ_KINDS};
    struct via_pci *pci, *engine;
    struct via_error err;
    *state = link;
    pex_link_close_end(link, 0);
    assert_int_equal(via_pex_attach(link->pex, VIA_PEX_VIRTUAL, &pci), 0);
    assert_int_equal(via_pex_attach_engine(link->pex, VIA_PEX_VIRTUAL, &engine), 0);
    plain_ops = engine->ops;
    slow_ops = *plain_ops;
    slow_ops.region_read = slow_read;
    slow_ops.region_write = slow_write;
    slow_ops.gone = is_slow_function_lost;
    slow_ops.revive = slow_revive;
    engine->ops = &slow_ops;
    slow_is_silent = false;
    slow_wakes = 0;
    host = link->end[0].host;
    host.wake = slow_wake;
    assert_int_equal(via_pex_port_open(&config, pci, engine, 7, &host, &link->end[0].port, &err),
                     0);
    pex_link_wait_for(link, true);
    struct via_port *port = link->end[0].port;
    assert_int_equal(via_pex_driver.memory_register(port, source, sizeof(source), NULL), 0);
    return 0;
}

/* A register that reads as all-ones does not prove that the engine has stopped: the port disables
 * the engine, and does not use it again. */
static void an_engine_that_does_not_answer_is_cut_off(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults none = {0}, hangs = {.hangs = true};
    via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &hangs);
    assert_int_equal(start_dma(link, 0, 0, 100, 1), 0);
    link->end[0].port->ops->dma_abort(link->end[0].port, 0);
    slow_is_silent = true;
    assert_int_equal(take_dma(link, 0, 1), -ECANCELED);
    slow_is_silent = false;
    via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &none);
    assert_int_equal(start_dma(link, 0, 0, 100, 2), -EIO);
    pex_link_check_data(link);
}

/* A DMA that ends while the interrupt's status is cleared raises no interrupt of its own. */
static void threads_wake_after_the_interrupt_is_cleared(void **state)
{
    struct pex_link *link = *state;
    assert_int_equal(start_dma(link, 3, 0, 100, 1), 0);
    for (unsigned i = 0; slow_wakes == 0; i++) {
        assert_true(i < PEX_LINK_TURNS_MAX);
        pex_link_turn(link, 1);
    }
    assert_int_equal(slow_writes_at_wake, 0);
    assert_int_equal(take_dma(link, 3, 1), 0);
}

/* The port writes its registers again, channel by channel, and transfer threads continue meanwhile.
 */
static void a_restarted_function_is_not_used_before_its_proof(void **state)
{
    struct pex_link *link = *state;
    assert_int_equal(start_dma(link, 0, 0, 100, 1), 0);
    assert_int_equal(take_dma(link, 0, 1), 0);
    slow_port = link->end[0].port;
    slow_is_gone = true;
    while (slow_is_gone) {
        link->now_ns += VIA_SEC_NS; /* of attempts to find it */
        pex_link_turn(link, 1);
        slow_port = slow_is_gone ? slow_port : NULL;
    }
    assert_true(slow_offers > 4);
    assert_int_equal(slow_takes, 0);
    for (unsigned i = 0; start_dma(link, 0, 0, 100, 2) != 0; i++) {
        assert_true(i < PEX_LINK_TURNS_MAX);
        pex_link_turn(link, 1);
    }
    assert_int_equal(take_dma(link, 0, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PEX_LINK_TESTS(dma_survives_the_engines_errata, set_up),
        PEX_LINK_TESTS(an_engine_that_stalls_is_aborted, set_up),
        PEX_LINK_TESTS(an_engine_that_hangs_is_cut_off, set_up),
        PEX_LINK_TESTS(dma_during_a_link_down_is_reported, set_up),
        PEX_LINK_TEST(a_restarted_server_is_found, set_up, USER),
        cmocka_unit_test_setup_teardown(an_engine_that_does_not_answer_is_cut_off, set_up_slow,
                                        pex_link_tear_down),
        cmocka_unit_test_setup_teardown(threads_wake_after_the_interrupt_is_cleared, set_up_slow,
                                        pex_link_tear_down),
        cmocka_unit_test_setup_teardown(a_restarted_function_is_not_used_before_its_proof,
                                        set_up_slow, pex_link_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
