/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The simulated bus of a DMA function keeps PCI Express order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/pex/bus.h"
#include "vfio/plx_dma.h"

struct bench {
    struct sim_world world;
    struct sim_link link;
    struct sim_pex pex;
};

static void bench_init(struct bench *bench)
{
    struct via_error err = {0};
    struct sim_config *config = &bench->world.config;
    config->port.put_ns_min = config->port.put_ns_max = 1000;
    config->dma.ns_min = config->dma.ns_max = 1000;
    bench->pex.payload_bytes = 64;
    bench->pex.bytes_per_us = 4000;
    sim_clock_init(&bench->world.clock);
    assert_int_equal(via_pex_new(&via_pex_options_default, &bench->pex.model, &err), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct sim_end *end = &bench->link.end[i];
        struct sim_pex_side *side = &bench->pex.sides[i];
        *end = (struct sim_end){.world = &bench->world,
                                .link = &bench->link,
                                .peer = &bench->link.end[1 - i],
                                .host = i};
        *side = (struct sim_pex_side){
            .device.side = side, .pex = &bench->pex, .end = end, .engine.device.side = side};
    }
}

static void bench_fini(struct bench *bench, struct via_pci *pci)
{
    pci->ops->close(pci);
    sim_pex_bus_drop(&bench->pex.sides[0]);
    via_pex_free(bench->pex.model);
    sim_clock_fini(&bench->world.clock);
}

/* A request that turns bus mastering off does not overtake a start that was posted before it: the
 * start arrives first, and is cancelled. */
static void a_posted_start_is_cancelled(void **state)
{
    static struct bench bench;
    struct sim_event event;
    const uint32_t start = VIA_PLX_DMA_START;
    (void)state;
    bench_init(&bench);
    struct sim_pex_engine *engine = &bench.pex.sides[0].engine;
    struct via_pci *pci = sim_pex_engine_open(&bench.pex.sides[0]);
    (void)pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                 VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER);
    assert_int_equal(pci->ops->region_write(pci, 0, VIA_PLX_DMA_REG(1, VIA_PLX_DMA_CONTROL), &start,
                                            sizeof(start)),
                     0);
    assert_int_equal(bench.pex.sides[0].writes_count, 1); /* under way */
    (void)pci->ops->config_write(pci, VIA_PCI_COMMAND, 2, VIA_PCI_COMMAND_MEMORY);
    assert_int_equal(bench.pex.sides[0].writes_count, 0);
    assert_int_equal(engine->channels[1].starts_count, 0);
    bool any = false;
    while (sim_clock_take(&bench.world.clock, &event)) {
        bool is_start = event.kind == SIM_EVENT_CHIP && (event.c & 0xf) == SIM_PEX_START;
        any |= is_start;
        assert_true(!is_start || event.c >> 8 != engine->channels[1].era);
    }
    assert_true(any);
    bench_fini(&bench, pci);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_posted_start_is_cancelled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
