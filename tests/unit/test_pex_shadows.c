/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The erratum of shadowed BARs: a link side decodes a copy of a BAR, which the chip makes when the
 * BAR is written after its set-up register. Two chips back to back, whose drivers write both.
 * Offsets are written out, as in test_pex_model.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/pex/pex.h"
#include "port/pex/driver.h"
#include "port/pex/port.h"

struct pair {
    struct via_pex *pex;
    struct via_pci *pci[2];
};

static void open_pair(struct pair *pair, bool has_erratum)
{
    struct via_pex_options options = via_pex_options_default;
    options.switches.shadows_bars = has_erratum;
    assert_int_equal(via_pex_new_pair(&options, &pair->pex, NULL), 0);
    assert_int_equal(via_pex_attach(pair->pex, VIA_PEX_VIRTUAL, &pair->pci[0]), 0);
    assert_int_equal(via_pex_attach(via_pex_joined(pair->pex), VIA_PEX_VIRTUAL, &pair->pci[1]), 0);
}

/* Chip 0's host reads a scratchpad of chip 1 through the cable. */
static uint32_t read_far(const struct pair *pair)
{
    return via_pci_read32(pair->pci[0], 2, 0x3EC6C);
}

static void a_bar_is_copied_after_its_set_up(void **state)
{
    (void)state;
    for (unsigned erratum = 0; erratum < 2; erratum++) {
        struct pair pair;
        open_pair(&pair, erratum != 0);
        struct via_pci *near = pair.pci[0], *far = pair.pci[1];
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(pair.pci[i]->ops->config_write(pair.pci[i], VIA_PCI_COMMAND, 2, 6), 0);
            via_pci_write32(pair.pci[i], 0, 0x3F004, 6);
        }
        via_pci_write32(near, 0, 0x3ED94, via_pci_read32(near, 0, 0x3EC90) | 1);
        via_pci_write32(near, 0, 0x3EC40, 0x40000000);
        via_pci_write32(far, 0, 0x3FDB4, 1); /* device 0 of the cable: entry 0 of the near chip */
        via_pci_write32(far, 0, 0x3EC6C, 0x5eed);

        via_pci_write32(far, 0, 0x3F0E4, 3);
        assert_int_equal(read_far(&pair), UINT32_MAX);
        via_pci_write32(far, 0, 0x3F010, 4);
        via_pci_write32(far, 0, 0x3F014, 0x40000000);
        assert_int_equal(read_far(&pair), 0x5eed);
        via_pci_write32(far, 0, 0x3F0E4, 3); /* the same again: the copy disappears */
        assert_int_equal(read_far(&pair), erratum != 0 ? UINT32_MAX : 0x5eed);
        via_pci_write32(far, 0, 0x3F014, 0x40000000);
        assert_int_equal(read_far(&pair), 0x5eed);
        near->ops->close(near);
        far->ops->close(far);
        via_pex_free(pair.pex);
    }
}

/* The driver writes them in this order, also after a reset of a host, which removes the copies. */
static void the_driver_writes_them_in_that_order(void **state)
{
    static const struct via_driver_host host = {
        .host = 1, .inbox_bytes = 65536, .threads_count = 1, .bell_fd = -1};
    struct via_port *port[2];
    struct pair pair;
    uint64_t now_ns = VIA_SEC_NS, deadline_ns;
    (void)state;
    open_pair(&pair, true);
    for (unsigned end = 0; end < 2; end++) {
        const struct via_pex_config config = {.target = "pair",
                                              .bar = 2,
                                              .window_bytes_max = 1u << 20,
                                              .irq = VIA_PCI_IRQ_KINDS,
                                              .b2b = true,
                                              .b2b_end = end};
        struct via_error err = {0};
        if (via_pex_port_open(&config, pair.pci[end], NULL, 7 + end, &host, &port[end], &err) !=
            0) {
            fail_msg("%s", err.text);
        }
    }
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0, ups = 0; ups < 20; i++, now_ns += VIA_MSEC_NS) {
            assert_true(i < 2000);
            bool are_up = true;
            for (unsigned end = 0; end < 2; end++) {
                via_pex_driver.service(port[end], now_ns, &deadline_ns);
                are_up &= port[end]->ops->link_is_up(port[end]);
            }
            ups = are_up ? ups + 1 : 0;
        }
        via_pex_reset_host(round == 0 ? pair.pex : via_pex_joined(pair.pex), VIA_PEX_VIRTUAL);
    }
    port[0]->ops->close(port[0]);
    port[1]->ops->close(port[1]);
    via_pex_free(pair.pex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bar_is_copied_after_its_set_up),
        cmocka_unit_test(the_driver_writes_them_in_that_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
