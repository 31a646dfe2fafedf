/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Cases that the conformance suite of ports does not cover: faults of the chip under the pex port,
 * and how it reports them. One thread drives both ends. */
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

#include "model/pex/pex.h"
#include "port/pex/port.h"
#include "tests/unit/pex_link.h"

static int set_up(void **state)
{
    *state = pex_link_new(PEX_LINK_MODEL, false);
    return 0;
}

static int set_up_pair(void **state)
{
    *state = pex_link_new(PEX_LINK_PAIR, false);
    return 0;
}

/* --- */

static void a_pulled_cable_is_noticed_and_mended(void **state)
{
    struct pex_link *link = *state;
    for (unsigned round = 0; round < 5; round++) {
        pex_link_check_data(link);
        via_pex_set_link(link->pex, false);
        pex_link_wait_for(link, false);
        for (unsigned side = 0; side < 2; side++) {
            assert_true(pex_link_events(link, side, UINT64_MAX) == VIA_PORT_EVENT_LINK_DOWN);
            assert_non_null(strstr(pex_link_error(link, side), "has no link"));
        }
        pex_link_turn(link, 30);
        assert_false(pex_link_is_up(link, 0) || pex_link_is_up(link, 1));
        via_pex_set_link(link->pex, true);
        pex_link_wait_for(link, true);
        for (unsigned side = 0; side < 2; side++) {
            assert_true(pex_link_events(link, side, UINT64_MAX) == VIA_PORT_EVENT_LINK_UP);
            assert_string_equal(pex_link_error(link, side), "");
        }
    }
    pex_link_check_data(link);
}

/* The link is up again before any poll, but the link side's registers were reset. */
static void a_short_loss_is_seen_by_both(void **state)
{
    struct pex_link *link = *state;
    for (unsigned round = 0; round < 5; round++) {
        via_pex_set_link(link->pex, false);
        via_pex_set_link(link->pex, true);
        pex_link_wait_for(link, false);
        pex_link_wait_for(link, true);
        for (unsigned side = 0; side < 2; side++) {
            assert_true(pex_link_events(link, side, UINT64_MAX) ==
                        (VIA_PORT_EVENT_LINK_DOWN | VIA_PORT_EVENT_LINK_UP));
        }
        pex_link_check_data(link);
    }
}

static void a_reset_of_either_host_is_survived(void **state)
{
    struct pex_link *link = *state;
    for (unsigned round = 0; round < 6; round++) {
        via_pex_reset_host(link->pex, round % 2);
        pex_link_wait_for(link, false);
        pex_link_wait_for(link, true);
        for (unsigned side = 0; side < 2; side++) {
            assert_true(pex_link_events(link, side, UINT64_MAX) ==
                        (VIA_PORT_EVENT_LINK_DOWN | VIA_PORT_EVENT_LINK_UP));
        }
        pex_link_check_data(link);
    }
}

static void a_fence_notices_first(void **state)
{
    struct pex_link *link = *state;
    struct via_port *port = link->end[0].port;
    uint64_t word = 1;
    assert_int_equal(port->ops->fence_start(port, 2), 0);
    via_pex_set_link(link->pex, false);
    port->ops->commit(port, 2, 0, &word, sizeof(word)); /* vanishes */
    assert_int_equal(port->ops->fence_poll(port, 2), -ENOLINK);
    assert_false(port->ops->link_is_up(port));
    assert_int_equal(port->ops->fence_poll(port, 2), -EINVAL);
    pex_link_turn(link, 1);
    assert_true(pex_link_events(link, 0, UINT64_MAX) == VIA_PORT_EVENT_LINK_DOWN);
    via_pex_set_link(link->pex, true);
    pex_link_wait_for(link, true);
    pex_link_check_data(link);
}

static void an_interrupt_that_is_lost_costs_time_only(void **state)
{
    struct pex_link *link = *state;
    struct via_port *port = link->end[1].port;
    via_pex_lose_interrupts(link->pex, VIA_PEX_VIRTUAL, 1);
    assert_int_equal(port->ops->ring(port, 0, 6), 0);
    assert_true(link->end[0].deadline_ns <= link->now_ns + 25 * VIA_MSEC_NS);
    pex_link_turn(link, 1);
    assert_true(pex_link_events(link, 0, 0xffff) == VIA_PORT_EVENT_DOORBELL(6));
    assert_int_equal(link->end[0].wakes[2], 1);
    /* Of several late doorbells one arrives; threads are woken once for all doorbells that are not
     * taken yet. */
    via_pex_hold_interrupts(link->pex, VIA_PEX_VIRTUAL, true);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(port->ops->ring(port, 0, i % 2 == 0 ? 1 : 14), 0);
    }
    via_pex_hold_interrupts(link->pex, VIA_PEX_VIRTUAL, false);
    pex_link_turn(link, 2);
    assert_int_equal(port->ops->ring(port, 0, 1), 0);
    pex_link_turn(link, 2);
    assert_int_equal(link->end[0].wakes[1], 1);
    assert_int_equal(link->end[0].wakes[0], 1);
    assert_true(pex_link_events(link, 0, 0xffff) ==
                (VIA_PORT_EVENT_DOORBELL(1) | VIA_PORT_EVENT_DOORBELL(14)));
}

static void a_degraded_link_is_reported(void **state)
{
    struct pex_link *link = *state;
    char text[256];
    via_pex_driver.describe(link->end[0].port, text, sizeof(text));
    assert_non_null(strstr(text, "PEX 87xx NT0 virtual side, revision CA, "));
    assert_non_null(strstr(text, "Gen3 x8, BAR 2 of 4194304 bytes (memory), MSI, model test"));
    via_pex_set_speed(link->pex, 1, 4);
    pex_link_wait_for(link, false);
    pex_link_wait_for(link, true);
    for (unsigned side = 0; side < 2; side++) {
        via_pex_driver.describe(link->end[side].port, text, sizeof(text));
        assert_non_null(strstr(text, "Gen1 x4 (degraded)"));
        assert_string_equal(pex_link_error(link, side),
                            "the link trained to Gen1 x4, the port is able to do Gen3 x8");
    }
    pex_link_check_data(link);
}

static void a_removed_function_is_an_end_of_the_link(void **state)
{
    struct pex_link *link = *state;
    for (unsigned side = 0; side < 2; side++) {
        via_pex_remove(link->pex, side, true);
        pex_link_wait_for(link, false);
        pex_link_turn(link, 50);
        assert_non_null(strstr(pex_link_error(link, side), "has no link"));
        via_pex_remove(link->pex, side, false);
        pex_link_wait_for(link, true);
        pex_link_check_data(link);
    }
}

static void a_new_driver_is_a_new_session(void **state)
{
    struct pex_link *link = *state;
    struct via_error err = {0};
    for (unsigned round = 0; round < 4; round++) {
        pex_link_close_end(link, round % 2);
        pex_link_turn(link, 5); /* a doorbell makes the port report it at once */
        assert_false(pex_link_is_up(link, 1 - round % 2));
        assert_int_equal(pex_link_open_end(link, round % 2, "", &err), 0);
        pex_link_wait_for(link, true);
        pex_link_check_data(link);
    }
}

/* One end's window would reach beyond the other end's inbox. */
static void windows_that_differ_are_no_link(void **state)
{
    struct pex_link link = {0};
    struct via_port_status status;
    struct via_error err = {0};
    (void)state;
    assert_int_equal(pex_link_open_end(&link, 0, "", &err), 0);
    assert_int_equal(pex_link_open_end(&link, 1, ",window=1MiB", &err), 0);
    pex_link_turn(&link, PEX_LINK_TURNS_MAX);
    for (unsigned side = 0; side < 2; side++) {
        assert_false(pex_link_is_up(&link, side));
        via_pex_driver.status(link.end[side].port, &status);
        assert_non_null(strstr(status.error, side == 0 ? "an inbox of 1044480 bytes, the window "
                                                         "of this end 4190208"
                                                       : "an inbox of 4190208 bytes, the window "
                                                         "of this end 1044480"));
    }
    for (unsigned side = 0; side < 2; side++) {
        pex_link_close_end(&link, side);
    }
}

/* Opens the link side's function, so that the test acts as the peer in place of the driver. */
static struct via_pci *take_link_side(struct pex_link *link)
{
    struct via_pci *pci;
    link->end[1].port->ops->close(link->end[1].port);
    link->end[1].port = NULL;
    pex_link_turn(link, 100);
    assert_int_equal(via_pex_attach(link->pex, VIA_PEX_LINK, &pci), 0);
    assert_int_equal(pci->ops->config_write(pci, 4, 2, 6), 0);
    uint32_t lut = 0x00210001;
    assert_int_equal(pci->ops->region_write(pci, 0, 0x3F000 + 0xDB4, &lut, 4), 0);
    return pci;
}

static void a_peer_of_another_version_is_reported(void **state)
{
    struct pex_link *link = *state;
    struct via_pci *pci = take_link_side(link);
    uint64_t line[8] = {UINT64_C(0x32304b4e4c584550), 4190208, 2, [7] = UINT64_C(0x500000001)};
    assert_int_equal(pci->ops->region_write(pci, 2, 64, line, sizeof(line)), 0);
    pex_link_turn(link, 100);
    assert_false(pex_link_is_up(link, 0));
    assert_non_null(strstr(pex_link_error(link, 0), "the peer's driver speaks version 2 of the pex "
                                                    "protocol, this one version 1"));
    /* A value that is not a version: no driver wrote it. */
    line[0] = UINT64_C(0xff304b4e4c584550);
    assert_int_equal(pci->ops->region_write(pci, 2, 64, line, sizeof(line)), 0);
    pex_link_turn(link, 100);
    assert_false(pex_link_is_up(link, 0));
    pci->ops->close(pci);
}

/* The other side of the chip belongs to a hostile peer, which writes arbitrary values. */
static void a_lying_peer_gets_no_link(void **state)
{
    struct pex_link *link = *state;
    struct pex_link_end *mine = &link->end[0];
    struct via_pci *pci = take_link_side(link);
    for (uint64_t i = 0; i < 200; i++) {
        /* Ready, with the right magic, but an ack that no end sends; or all-ones, or zero. */
        uint64_t fill = i % 3 == 0 ? UINT64_MAX : i % 3 == 1 ? 0 : i * UINT64_C(0x9e3779b97f4a7c15);
        uint64_t line[8] = {UINT64_C(0x31304b4e4c584550),
                            fill,
                            fill,
                            fill,
                            fill,
                            fill,
                            fill,
                            i % 3 == 2 ? (fill & ~UINT64_C(3)) | 1 : fill};
        assert_int_equal(pci->ops->region_write(pci, 2, 64, line, sizeof(line)), 0);
        pex_link_turn(link, 1);
        assert_false(mine->port->ops->link_is_up(mine->port));
    }
    pci->ops->close(pci);
}

/* --- two chips back to back --- */

static void each_host_of_a_pair_may_reset_its_chip(void **state)
{
    struct pex_link *link = *state;
    struct via_pex *chips[] = {link->pex, via_pex_joined(link->pex)};
    for (unsigned side = 0; side < 2; side++) {
        via_pex_reset_host(chips[side], VIA_PEX_VIRTUAL);
        pex_link_turn(link, 1);
        assert_false(pex_link_is_up(link, side));
        pex_link_wait_for(link, false);
        pex_link_wait_for(link, true);
        pex_link_check_data(link);
    }
}

static void a_pair_has_scratchpads_at_both(void **state)
{
    struct pex_link *link = *state;
    for (unsigned index = 0; index < 8; index++) {
        for (unsigned side = 0; side < 2; side++) { /* one of them may */
            struct via_port *port = link->end[side].port;
            port->ops->scratchpad_write(port, index, 100 + 10 * side + index);
        }
    }
    for (unsigned index = 0; index < 8; index++) {
        for (unsigned side = 0; side < 2; side++) {
            struct via_port *port = link->end[side].port;
            assert_int_equal(port->ops->scratchpad_read(port, index),
                             100 + 10 * (index / 4) + index);
        }
    }
}

static void chips_that_are_no_pair_are_refused(void **state)
{
    struct pex_link *link = *state;
    struct via_link_config config;
    struct pex_link other = {.kind = PEX_LINK_PAIR};
    struct via_error err = {0};
    assert_int_equal(pex_link_open_end(&other, 1, "", &err), -EBUSY);
    assert_string_equal(err.text, "model:test: the virtual side of end 1 has a driver already");
    other.kind = PEX_LINK_MODEL;
    assert_int_equal(pex_link_open_end(&other, 1, "", &err), -EBUSY);
    assert_non_null(strstr(err.text, "two chips back to back: give both ends b2b"));
    assert_int_equal(via_link_parse("pex:model:x,b2b=2", &config, &err), -EINVAL);
    assert_true(pex_link_is_up(link, 0) && pex_link_is_up(link, 1));
}

/* --- functions that can not be opened --- */

static void a_dma_function_fits_its_port(void **state)
{
    static const char *const wrong[] = {
        "pex:0000:03:00.0,dma=/tmp/d.sock", "pex:0000:03:00.0,dma=0000:03:00.1,noiommu",
        "pex:model:x,dma=/tmp/d.sock", "pex:model:x,dma=/tmp/d.sock,b2b=1"};
    struct via_link_config config;
    struct via_error err = {0};
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(via_link_parse(wrong[i], &config, &err), -EINVAL);
        assert_non_null(strstr(err.text, "dma=0000:03:00.1 with a function of this machine"));
    }
    assert_int_equal(via_link_parse("pex:0000:03:00.0,dma=0000:03:00.1", &config, &err), 0);
    assert_int_equal(via_link_parse("pex:0000:03:00.0,dma=0000:03:00.1,b2b=0", &config, &err), 0);
}

static void the_error_of_an_open_has_the_reason(void **state)
{
    static const struct {
        const char *options, *expected;
        uint64_t inbox_bytes_min;
        int rc;
    } wrong[] = {
        {",bar=4", "BAR 4 has 0 bytes: the EEPROM gives it no size", 0, -ENODEV},
        {",window=64KiB",
         "window of 65536 bytes (BARs of 4194304 and 4194304): the pipes need at "
         "least 70000 and a page",
         70000, -ENOSPC},
    };
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        struct pex_link one = {.end[0].host.inbox_bytes_min = wrong[i].inbox_bytes_min};
        struct via_error err = {0};
        assert_int_equal(pex_link_open_end(&one, 0, wrong[i].options, &err), wrong[i].rc);
        if (strstr(err.text, wrong[i].expected) == NULL) {
            fail_msg("%s", err.text);
        }
        assert_null(via_pex_find("test"));
    }
    struct pex_link first = {0}, second = {0};
    struct via_error err = {0};
    assert_int_equal(pex_link_open_end(&first, 1, "", &err), 0);
    assert_int_equal(pex_link_open_end(&second, 1, "", &err), -EBUSY);
    assert_string_equal(err.text, "model:test: the link side has a driver already");
    via_pex_set_link(via_pex_find("test"), false);
    pex_link_close_end(&first, 1);
}

/* --- invalid chips: a function of the model, some of whose answers differ --------------------- */

struct odd {
    uint32_t revision, who;   /* 0: not changed */
    uint64_t registers_bytes; /* of BAR 0 */
    uint64_t window_bytes;    /* of BAR 2 */
    uint32_t setup_own, setup_peer;
    uint32_t ids;
    unsigned reads; /* how many reads are answered; later ones are not; 0: all are */
    bool no_msi;    /* which is asked for */
};

static struct odd odd;
static const struct via_pci_ops *plain;
static struct via_pci_ops odd_ops;
static unsigned register_writes;

static unsigned odd_reads;

static bool odd_gone(struct via_pci *pci)
{
    (void)pci;
    return odd.reads != 0 && odd_reads >= odd.reads;
}

static int odd_config_read(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value)
{
    int rc = plain->config_read(pci, off, len, ret_value);
    uint32_t wanted = off == VIA_PCI_REVISION && len == 1    ? odd.revision
                      : off == VIA_PCI_VENDOR_ID && len == 4 ? odd.ids
                                                             : 0;
    *ret_value = wanted != 0 ? wanted : *ret_value;
    *ret_value = odd_gone(pci) ? UINT32_MAX >> (32 - 8 * len) : *ret_value;
    odd_reads++;
    return rc;
}

static int odd_region(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region)
{
    int rc = plain->region(pci, region, ret_region);
    uint64_t wanted = region == 0 ? odd.registers_bytes : region == 2 ? odd.window_bytes : 0;
    ret_region->bytes = wanted != 0 ? wanted : ret_region->bytes;
    return rc;
}

static int odd_region_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                           size_t len)
{
    static const uint64_t base = 0x3E000; /* NT0, virtual side */
    int rc = plain->region_read(pci, region, off, ret_data, len);
    uint32_t wanted = region != 0                   ? 0
                      : off == base + 0xC8C         ? odd.who
                      : off == base + 0xD4          ? odd.setup_own
                      : off == base + 0x1000 + 0xE8 ? odd.setup_peer
                                                    : 0;
    if (wanted != 0 && len == sizeof(wanted)) {
        memcpy(ret_data, &wanted, sizeof(wanted));
    }
    if (odd_gone(pci)) {
        memset(ret_data, 0xff, len);
    }
    odd_reads++;
    return rc;
}

static int odd_region_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                            size_t len)
{
    register_writes++;
    return plain->region_write(pci, region, off, data, len);
}

static unsigned odd_irqs(struct via_pci *pci, enum via_pci_irq_kind kind)
{
    return odd.no_msi && kind == VIA_PCI_MSI ? 0 : plain->irqs(pci, kind);
}

static void odd_close(struct via_pci *pci)
{
    pci->ops = plain;
    pci->ops->close(pci);
}

static struct via_pci *open_odd(struct via_pex *model)
{
    struct via_pci *pci;
    assert_int_equal(via_pex_attach(model, VIA_PEX_VIRTUAL, &pci), 0);
    plain = pci->ops;
    odd_ops = *plain;
    odd_ops.config_read = odd_config_read;
    odd_ops.region = odd_region;
    odd_ops.region_read = odd_region_read;
    odd_ops.region_write = odd_region_write;
    odd_ops.gone = odd_gone;
    odd_ops.irqs = odd_irqs;
    odd_ops.close = odd_close;
    pci->ops = &odd_ops;
    return pci;
}

static void refuse_odd(struct via_pex *model, const struct odd *what, int rc, const char *expected)
{
    static const uint32_t found = VIA_PCI_COMMAND_INTX_OFF;
    struct via_pex_config config = {.target = "test",
                                    .bar = 2,
                                    .window_bytes_max = 4u << 20,
                                    .irq = what->no_msi ? VIA_PCI_MSI : VIA_PCI_IRQ_KINDS,
                                    .alut = strstr(expected, "A-LUT") != NULL};
    struct via_driver_host host = {.host = 1, .inbox_bytes = 65536, .threads_count = 1};
    struct via_port *port = NULL;
    struct via_error err = {0};
    uint32_t command = 0;
    odd = *what;
    struct via_pci *pci = open_odd(model);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2, found), 0);
    register_writes = odd_reads = 0;
    assert_int_equal(via_pex_port_open(&config, pci, NULL, 1, &host, &port, &err), rc);
    if (strstr(err.text, expected) == NULL) {
        fail_msg("%s", err.text);
    }
    /* The function is unchanged: no register was written, and it still decodes memory. */
    assert_int_equal(register_writes, 0);
    assert_int_equal(via_pex_attach(model, VIA_PEX_VIRTUAL, &pci), 0);
    assert_int_equal(pci->ops->config_read(pci, VIA_PCI_COMMAND, 2, &command), 0);
    assert_int_equal(command, found);
    pci->ops->close(pci);
}

static void a_chip_that_is_odd_is_refused_and_left_as_it_was(void **state)
{
    static const struct {
        struct odd odd;
        int rc;
        const char *expected;
    } cases[] = {
        {{.ids = 0x860610b5}, -ENODEV, "vendor 10b5, device 8606: no NT port of a PEX 87xx"},
        {{.revision = 0x17}, -ENOTSUP, "revision 17 of the chip is none that this driver knows"},
        {{.registers_bytes = 0x20000},
         -ENODEV,
         "BAR 0 has 131072 bytes: the chip's registers take"},
        {{.window_bytes = 3u << 20},
         -ENODEV,
         "BAR 2 has 3145728 bytes: the EEPROM gives it no size"},
        {{.window_bytes = 4096}, -ENODEV, "BAR 2 has 4096 bytes"},
        {{.window_bytes = 8u << 20},
         -ENODEV,
         "BAR 2 has 8388608 bytes, its set-up register says 4194304"},
        {{.setup_own = 0xffa0000c}, -ENODEV, "its set-up register says 0"},
        {{.setup_peer = 0xffffffff}, -ENODEV, "BAR 2 of the other side has no size"},
        {{.who = 0x80000000}, -ENODEV, "register 0xC8C is 80000000: not NT0's virtual side"},
        {{.who = 1}, -ENODEV, "register 0xC8C is 00000001: not NT0's virtual side"},
        {{.who = 0}, -ENOTSUP, "the A-LUT is off by EEPROM"},
        {{.no_msi = true}, -ENOTSUP, "the function has no MSI"},
    };
    struct via_pex_options options = via_pex_options_default;
    struct via_pex *model;
    struct via_error err = {0};
    (void)state;
    options.alut_entries = 0;
    assert_int_equal(via_pex_new(&options, &model, &err), 0);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        refuse_odd(model, &cases[i].odd, cases[i].rc, cases[i].expected);
    }
    via_pex_free(model);
}

/* A function that disappears at any step of its identification is not reported as an unsuitable
 * chip. */
static void a_function_removed_during_the_open_is_reported(void **state)
{
    struct via_pex *model;
    struct via_error err = {0};
    (void)state;
    assert_int_equal(via_pex_new(&via_pex_options_default, &model, &err), 0);
    odd = (struct odd){0};
    for (unsigned reads = 1; reads <= 6; reads++) {
        struct odd goes = {.reads = reads};
        refuse_odd(model, &goes, -ENODEV, "the function does not answer any more");
    }
    via_pex_free(model);
}

/* --- back to back, and a BAR that allows no accesses by calls while it is mapped: the kernel's
 * VFIO --- */

static uint32_t far_registers[0x40000 / sizeof(uint32_t)];

static int mapped_map(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                      bool combining, struct via_pci_mapping *ret_mapping)
{
    if (region == 2 && off == 0 && bytes == sizeof(far_registers)) {
        *ret_mapping = (struct via_pci_mapping){
            .at = (unsigned char *)far_registers, .bytes = bytes, .caching = VIA_PCI_COMBINING};
        return 0;
    }
    int rc = plain->map(pci, region, off, bytes, combining, ret_mapping);
    ret_mapping->caching = VIA_PCI_COMBINING;
    return rc;
}

static void mapped_unmap(struct via_pci *pci, struct via_pci_mapping *mapping)
{
    if (mapping->at != (unsigned char *)far_registers) {
        plain->unmap(pci, mapping);
    }
}

static int mapped_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                        size_t len)
{
    register_writes += region == 2 ? 1 : 0;
    return region == 2 ? -EBUSY : plain->region_write(pci, region, off, data, len);
}

static void registers_beside_a_mapped_window_are_mapped_too(void **state)
{
    static const uint32_t base = 0x3E000; /* NT0, virtual side */
    struct via_pex_config config = {.target = "test",
                                    .bar = 2,
                                    .window_bytes_max = 1u << 20,
                                    .irq = VIA_PCI_IRQ_KINDS,
                                    .b2b = true};
    struct via_driver_host host = {.host = 1, .inbox_bytes = 65536, .threads_count = 1};
    struct via_port *port;
    struct via_pex *model;
    struct via_error err = {0};
    (void)state;
    assert_int_equal(via_pex_new_pair(&via_pex_options_default, &model, &err), 0);
    odd = (struct odd){0};
    struct via_pci *pci = open_odd(model);
    odd_ops.map = mapped_map;
    odd_ops.unmap = mapped_unmap;
    odd_ops.region_write = mapped_write;
    register_writes = 0;
    assert_int_equal(via_pex_port_open(&config, pci, NULL, 1, &host, &port, &err), 0);
    via_pex_chip_ring(via_pex_port_of(port), 4);
    via_pex_chip_set_pad(via_pex_port_of(port), 1, 0x5eed);
    assert_int_equal(far_registers[(base + 0xC4C) / 4], 4);
    assert_int_equal(far_registers[(base + 0xC70) / 4], 0x5eed);
    port->ops->close(port);
    assert_int_equal(register_writes, 0);
    via_pex_free(model);
}

#define PAIR_TEST(name) cmocka_unit_test_setup_teardown(name, set_up_pair, pex_link_tear_down)
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, pex_link_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_pulled_cable_is_noticed_and_mended),
        TEST(a_short_loss_is_seen_by_both),
        TEST(a_reset_of_either_host_is_survived),
        TEST(a_fence_notices_first),
        TEST(an_interrupt_that_is_lost_costs_time_only),
        TEST(a_degraded_link_is_reported),
        TEST(a_removed_function_is_an_end_of_the_link),
        TEST(a_new_driver_is_a_new_session),
        cmocka_unit_test(windows_that_differ_are_no_link),
        PAIR_TEST(a_pulled_cable_is_noticed_and_mended),
        PAIR_TEST(a_short_loss_is_seen_by_both),
        PAIR_TEST(a_fence_notices_first),
        PAIR_TEST(an_interrupt_that_is_lost_costs_time_only),
        PAIR_TEST(a_new_driver_is_a_new_session),
        PAIR_TEST(each_host_of_a_pair_may_reset_its_chip),
        PAIR_TEST(a_pair_has_scratchpads_at_both),
        PAIR_TEST(chips_that_are_no_pair_are_refused),
        TEST(a_peer_of_another_version_is_reported),
        TEST(a_lying_peer_gets_no_link),
        cmocka_unit_test(a_dma_function_fits_its_port),
        cmocka_unit_test(the_error_of_an_open_has_the_reason),
        cmocka_unit_test(a_chip_that_is_odd_is_refused_and_left_as_it_was),
        cmocka_unit_test(registers_beside_a_mapped_window_are_mapped_too),
        cmocka_unit_test(a_function_removed_during_the_open_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
