/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* DMA copies bodies only if a line that the engine wrote has arrived: in one process, over the
 * second NT port of a chip, over two chips back to back, and behind vfio-user sockets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/pex/port.h"
#include "tests/unit/pex_link.h"

#define UNKNOWN_REQUESTER 0x7700u
#define AGAIN_US 1100000u /* after which an engine that failed is asked again */

static unsigned char source[8192] __attribute__((aligned(4096)));

static int set_up(void **state)
{
    struct pex_link *link = pex_link_new(pex_link_kind_of(*state), true);
    *state = link;
    for (unsigned i = 0; i < sizeof(source); i++) {
        source[i] = (unsigned char)(i * 7);
    }
    struct via_port *port = link->end[0].port;
    assert_int_equal(via_pex_driver.memory_register(port, source, sizeof(source), NULL), 0);
    return 0;
}

/* The probe uses real time: an engine that does not answer has 20 ms. */
static void wait_up(struct pex_link *link)
{
    for (unsigned i = 0; !pex_link_is_up(link, 0) || !pex_link_is_up(link, 1); i++) {
        assert_true(i < 5000);
        pex_link_turn(link, 1);
        usleep(200);
    }
}

static void replug(struct pex_link *link)
{
    via_pex_set_link(link->pex, false);
    pex_link_wait_for(link, false);
    via_pex_set_link(link->pex, true);
    wait_up(link);
}

/* Starts a DMA of 4000 bytes and returns the result; the bytes arrive if it is 0. */
static int try_dma(struct pex_link *link)
{
    static uint64_t cookies;
    struct via_port *port = link->end[0].port, *to = link->end[1].port;
    uint64_t taken;
    int result;
    memset(to->inbox, 0, 4000);
    int rc = port->ops->dma(port, 0, 0, source, 4000, ++cookies);
    if (rc != 0) {
        assert_int_equal(to->inbox[1], 0);
        return rc;
    }
    for (unsigned i = 0; port->ops->dma_take(port, 0, &taken, &result, 1) == 0; i++) {
        assert_true(i < 100000);
        usleep(10);
    }
    assert_int_equal(taken, cookies);
    assert_int_equal(result, 0);
    assert_memory_equal(to->inbox, source, 4000);
    return 0;
}

/* DMA is off, and the status has the reason; everything else continues. */
static void check_off(struct pex_link *link, int rc, const char *expected)
{
    assert_int_equal(try_dma(link), rc);
    if (strstr(pex_link_error(link, 0), expected) == NULL) {
        fail_msg("'%s' is not in '%s'", expected, pex_link_error(link, 0));
    }
    pex_link_check_data(link);
}

static void check_on(struct pex_link *link)
{
    assert_int_equal(try_dma(link), 0);
    assert_string_equal(pex_link_error(link, 0), "");
    pex_link_check_data(link);
}

/* --- tests --- */

static void a_requester_that_the_chip_refuses_is_noticed(void **state)
{
    struct pex_link *link = *state;
    struct via_pex_stats before, after;
    check_on(link);
    for (unsigned round = 0; round < 3; round++) {
        via_pex_engine_set_requester(link->pex, VIA_PEX_VIRTUAL, UNKNOWN_REQUESTER);
        replug(link);
        check_off(link, -ENOTSUP, "does not arrive at the peer, although it reports success");
        assert_non_null(strstr(pex_link_error(link, 0), "(entered is 02:00)"));
        /* No attempt follows before the link has been down. */
        via_pex_stats(link->pex, &before);
        usleep(round == 0 ? AGAIN_US : 1000);
        pex_link_turn(link, 100);
        check_off(link, -ENOTSUP, "does not arrive");
        via_pex_stats(link->pex, &after);
        assert_int_equal(after.requester_refused, before.requester_refused);
        via_pex_engine_set_requester(link->pex, VIA_PEX_VIRTUAL, VIA_PEX_ENGINE_REQUESTER);
        replug(link);
        check_on(link);
    }
}

/* The probe of the other end's engine is independent. */
static void each_end_finds_out_for_itself(void **state)
{
    struct pex_link *link = *state;
    via_pex_engine_set_requester(link->pex, VIA_PEX_LINK, UNKNOWN_REQUESTER);
    replug(link);
    check_on(link);
    assert_non_null(strstr(pex_link_error(link, 1), "does not arrive at the peer"));
}

static void an_engine_with_errata_is_used(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults errata[] = {
        {.stops_silently = true},
        {.late_write_back = true},
        {.misaligned_reads = 3, .stops_silently = true, .late_write_back = true},
    };
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(errata); i++) {
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &errata[i]);
        replug(link);
        check_on(link);
    }
}

static void an_engine_that_fails_is_asked_again(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults none = {0}, bad[] = {{.fails = true}, {.stalls = true}};
    static const char *const expected[] = {"fails to copy 64 bytes",
                                           "does not end a copy of 64 bytes"};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(bad); i++) {
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &bad[i]);
        replug(link);
        check_off(link, -ENOTSUP, expected[i]);
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &none);
        usleep(AGAIN_US);
        for (unsigned k = 0; try_dma(link) != 0; k++) {
            assert_true(k < 1000);
            pex_link_turn(link, 1);
            usleep(200);
        }
        check_on(link);
    }
}

static void an_engine_that_hangs_does_not_keep_the_link_down(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults hangs = {.hangs = true};
    via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &hangs);
    replug(link);
    for (unsigned i = 0; try_dma(link) != -EIO; i++) { /* until the abort has failed, too */
        assert_true(i < 1000);
        pex_link_turn(link, 1);
        usleep(200);
    }
    check_off(link, -EIO, "does not obey an abort");
    replug(link);
    check_off(link, -EIO, "does not obey an abort");
}

/* The link ends while the line is under way; the line does not disturb any later probe. */
static void a_probe_over_the_end_of_a_link(void **state)
{
    struct pex_link *link = *state;
    const struct via_pex_engine_faults none = {0}, stalls = {.stalls = true};
    for (unsigned round = 0; round < 8; round++) {
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &stalls);
        via_pex_set_link(link->pex, false);
        pex_link_wait_for(link, false);
        via_pex_set_link(link->pex, true);
        pex_link_turn(link, 3 + 5 * round);
        via_pex_set_link(link->pex, false);
        pex_link_turn(link, 3);
        via_pex_engine_set_faults(link->pex, VIA_PEX_VIRTUAL, &none);
        via_pex_set_link(link->pex, true);
        wait_up(link);
        check_on(link);
    }
}

/* A new chip behind the sockets: the port repeats the probe, which may pass or fail. */
static void a_restarted_server_is_probed(void **state)
{
    struct pex_link *link = *state;
    for (unsigned round = 0; round < 4; round++) {
        bool is_refused = round % 2 == 0;
        pex_link_stop_server(link);
        pex_link_wait_for(link, false);
        pex_link_start_server(link);
        if (is_refused) {
            via_pex_engine_set_requester(link->pex, VIA_PEX_VIRTUAL, UNKNOWN_REQUESTER);
        }
        for (unsigned i = 0; !pex_link_is_up(link, 0) || !pex_link_is_up(link, 1) ||
                             try_dma(link) != (is_refused ? -ENOTSUP : 0) ||
                             (pex_link_error(link, 0)[0] != '\0') != is_refused;
             i++) {
            assert_true(i < 2000);
            link->now_ns += VIA_SEC_NS; /* after which functions look for their servers */
            pex_link_turn(link, 10);
            usleep(200);
        }
        if (is_refused) {
            check_off(link, -ENOTSUP, "does not arrive at the peer");
        } else {
            check_on(link);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PEX_LINK_TESTS(a_requester_that_the_chip_refuses_is_noticed, set_up),
        PEX_LINK_TEST(each_end_finds_out_for_itself, set_up, MODEL),
        PEX_LINK_TESTS(an_engine_with_errata_is_used, set_up),
        PEX_LINK_TEST(an_engine_that_fails_is_asked_again, set_up, MODEL),
        PEX_LINK_TEST(an_engine_that_hangs_does_not_keep_the_link_down, set_up, MODEL),
        PEX_LINK_TESTS(a_probe_over_the_end_of_a_link, set_up),
        PEX_LINK_TEST(a_restarted_server_is_probed, set_up, USER),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
