/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The cost model's resources, each against values computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/cost/dma.h"
#include "sim/cost/pio.h"

#define EVENTS_MAX 1000000

/* --- engine ---------------------------------------------------------------------------------- */

struct record {
    struct sim_cost *cost;
    uint64_t times_ps[64];
    uint64_t args[64];
    unsigned count;
};

static void note(void *object, uint64_t arg)
{
    struct record *record = object;
    assert_true(record->count < VIA_ARRAY_COUNT(record->times_ps));
    record->times_ps[record->count] = record->cost->now_ps;
    record->args[record->count++] = arg;
}

static void calls_come_by_time_then_by_request(void **state)
{
    (void)state;
    struct sim_cost cost;
    sim_cost_init(&cost);
    struct record record = {.cost = &cost};
    sim_cost_at(&cost, 30, (struct sim_call){note, &record, 3});
    sim_cost_at(&cost, 10, (struct sim_call){note, &record, 1});
    sim_cost_at(&cost, 30, (struct sim_call){note, &record, 4});
    sim_cost_at(&cost, 20, (struct sim_call){note, &record, 2});
    sim_cost_at(&cost, 5, (struct sim_call){0});
    assert_true(sim_cost_run(&cost, EVENTS_MAX));
    assert_int_equal(record.count, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(record.args[i], i + 1);
    }
    assert_int_equal(cost.now_ps, 30);
    sim_cost_fini(&cost);
}

static void a_time_beyond_the_last_is_the_last(void **state)
{
    (void)state;
    struct sim_cost cost;
    sim_cost_init(&cost);
    struct record record = {.cost = &cost};
    sim_cost_at(&cost, 10, (struct sim_call){note, &record, 1});
    assert_true(sim_cost_step(&cost));
    sim_cost_after(&cost, UINT64_MAX, (struct sim_call){note, &record, 3});
    sim_cost_after(&cost, 5, (struct sim_call){note, &record, 2});
    assert_false(sim_cost_step_until(&cost, 14));
    assert_true(sim_cost_step_until(&cost, 15));
    assert_false(sim_cost_step_until(&cost, UINT64_MAX - 1));
    assert_true(sim_cost_step_until(&cost, UINT64_MAX));
    assert_false(sim_cost_step_until(&cost, UINT64_MAX));
    assert_int_equal(record.count, 3);
    assert_int_equal(record.args[2], 3);
    sim_cost_fini(&cost);
}

static void a_server_does_one_job_after_the_other(void **state)
{
    (void)state;
    struct sim_cost cost;
    struct sim_server server;
    sim_cost_init(&cost);
    sim_server_init(&server, &cost);
    struct record record = {.cost = &cost};
    assert_int_equal(sim_server_add(&server, 100, 7, (struct sim_call){note, &record, 0}), 100);
    assert_int_equal(sim_server_add(&server, 50, 7, (struct sim_call){note, &record, 1}), 150);
    /* Not before 1000; later jobs wait for it. */
    assert_int_equal(sim_server_add_at(&server, 1000, 5, 0, (struct sim_call){note, &record, 2}),
                     1005);
    assert_int_equal(sim_server_add(&server, 10, 0, (struct sim_call){note, &record, 3}), 1015);
    assert_true(sim_cost_run(&cost, EVENTS_MAX));
    static const uint64_t times[] = {107, 157, 1005, 1015};
    assert_int_equal(record.count, 4);
    assert_memory_equal(record.times_ps, times, sizeof(times));
    assert_int_equal(server.busy_ps, 165);
    sim_cost_fini(&cost);
}

static void a_pool_serves_who_asked_first(void **state)
{
    (void)state;
    struct sim_cost cost;
    struct sim_pool pool;
    sim_cost_init(&cost);
    sim_pool_init(&pool, &cost, 4);
    struct record record = {.cost = &cost};
    sim_pool_take(&pool, 3, (struct sim_call){note, &record, 0});
    sim_pool_take(&pool, 2, (struct sim_call){note, &record, 1});
    /* One token is free, but an earlier caller waits for two. */
    assert_false(sim_pool_try(&pool, 1));
    sim_pool_take(&pool, 1, (struct sim_call){note, &record, 2});
    assert_true(sim_cost_run(&cost, EVENTS_MAX));
    assert_int_equal(record.count, 1);
    sim_pool_give(&pool, 3);
    assert_true(sim_cost_run(&cost, EVENTS_MAX));
    assert_int_equal(record.count, 3);
    assert_int_equal(record.args[1], 1);
    assert_int_equal(record.args[2], 2);
    assert_int_equal(pool.free_count, 1);
    assert_int_equal(pool.waited_count, 2);
    for (unsigned i = 0; i < 40; i++) {
        sim_pool_take(&pool, 4, (struct sim_call){note, &record, 10 + i});
    }
    sim_pool_give(&pool, 3);
    assert_true(sim_cost_run(&cost, EVENTS_MAX));
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(record.args[record.count - 1], 10 + i);
        sim_pool_give(&pool, 4);
        assert_true(sim_cost_run(&cost, EVENTS_MAX));
    }
    sim_cost_fini(&cost);
}

/* --- links ----------------------------------------------------------------------------------- */

/* The table of pcie-bench's formula, with DLLPs that all lanes carry: GB/s of payload. */
static void links_reach_the_rate_of_the_formula(void **state)
{
    (void)state;
    static const struct {
        struct sim_pcie_link link;
        unsigned payload;
        double plain, full;
    } rows[] = {
        {{2, 8, 128, true}, 64, 2.909, 2.852},     {{2, 8, 256, true}, 256, 3.657, 3.601},
        {{3, 8, 256, true}, 64, 5.729, 5.657},     {{3, 8, 256, true}, 256, 7.202, 7.112},
        {{3, 16, 256, true}, 256, 14.404, 14.280},
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(rows); i++) {
        struct sim_pcie_link link = rows[i].link;
        double share = (double)rows[i].payload / (rows[i].payload + 24);
        assert_true(llabs((long long)(sim_pcie_tlp_bandwidth(&link) * share / 1e6 -
                                      rows[i].full * 1e3)) <= 1);
        link.dllp = false;
        assert_true(llabs((long long)(sim_pcie_tlp_bandwidth(&link) * share / 1e6 -
                                      rows[i].plain * 1e3)) <= 1);
    }
}

/* PCIe base specification 3.0, tables 3-7 to 3-9. */
static void ack_limits_are_those_of_the_specification(void **state)
{
    (void)state;
    static const struct {
        struct sim_pcie_link link;
        unsigned limit;
    } rows[] = {
        {{1, 1, 128, true}, 237}, {{1, 4, 256, true}, 118},  {{1, 8, 128, true}, 67},
        {{1, 8, 512, true}, 86},  {{1, 16, 128, true}, 48},  {{2, 8, 128, true}, 118},
        {{2, 8, 256, true}, 158}, {{3, 8, 256, true}, 203},  {{3, 16, 256, true}, 168},
        {{3, 1, 512, true}, 655}, {{3, 16, 512, true}, 182},
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(rows); i++) {
        assert_int_equal(sim_pcie_ack_limit(&rows[i].link), rows[i].limit);
    }
}

static void transfers_are_cut_into_tlps(void **state)
{
    (void)state;
    assert_int_equal(sim_pcie_tlps(0, 256), 1);
    assert_int_equal(sim_pcie_tlps(1, 256), 1);
    assert_int_equal(sim_pcie_tlps(256, 256), 1);
    assert_int_equal(sim_pcie_tlps(257, 256), 2);
    assert_int_equal(sim_pcie_tlps(4096, 128), 32);
    /* Gen3 x8 without DLLPs: 7.877 GB/s; 16 TLPs of 256 + 24 B. */
    const struct sim_pcie_link link = {3, 8, 256, false};
    assert_in_range(sim_pcie_ps(sim_pcie_tlp_bandwidth(&link), 16, 4096, 24), 568749, 568751);
}

/* --- a small fabric: host - chip - device ---------------------------------------------------- */

/* A host, a switch and a device; ps, bytes and metres. */
static const struct sim_value fabric_values[] = {
    {.section = "pcie", .key = "dllp", .text = "none"},
    {.section = "pcie", .key = "write_header", .number = 24},
    {.section = "pcie", .key = "request_header", .number = 24},
    {.section = "pcie", .key = "completion_header", .number = 20},
    {.section = "host h", .key = "write", .number = 150000},
    {.section = "host h", .key = "read", .number = 400000},
    {.section = "host h", .key = "completion", .number = 64},
    {.section = "switch s", .key = "forward", .number = 100000},
    {.section = "switch s", .key = "nt", .number = 10000},
    {.section = "switch s", .key = "read", .number = 200000},
    {.section = "switch s", .key = "lanes", .number = 16},
    {.section = "switch s", .key = "ports", .number = 2},
    {.section = "device d", .key = "write", .number = 50000},
    {.section = "device d", .key = "read", .number = 300000},
    {.section = "device d", .key = "completion", .number = 64},
    {.section = "device d", .key = "credits", .number = 4},
    {.section = "device d", .key = "drain", .number = 100000},
    {.section = "medium m", .key = "delay", .number = 5000},
    {.section = "medium m", .key = "converters", .number = 0},
    {.section = "medium m", .key = "reach", .number = 10},
    {.section = "medium m", .key = "rate", .number = 8},
    {.section = "link up", .key = "a", .text = "h"},
    {.section = "link up", .key = "b", .text = "s"},
    {.section = "link up", .key = "generation", .number = 2},
    {.section = "link up", .key = "lanes", .number = 8},
    {.section = "link up", .key = "mps", .number = 128},
    {.section = "link up", .key = "medium", .text = "m"},
    {.section = "link up", .key = "length", .number = 2},
    {.section = "link down", .key = "a", .text = "s"},
    {.section = "link down", .key = "b", .text = "d"},
    {.section = "link down", .key = "generation", .number = 2},
    {.section = "link down", .key = "lanes", .number = 8},
    {.section = "link down", .key = "mps", .number = 256},
    {.section = "link down", .key = "medium", .text = "m"},
    {.section = "link down", .key = "length", .number = 2},
    {.section = "pio", .key = "store", .number = 1000},
    {.section = "pio", .key = "store_bytes", .number = 8},
    {.section = "pio", .key = "line", .number = 64},
    {.section = "pio", .key = "fill_buffers", .number = 2},
    {.section = "pio", .key = "uncached_store", .number = 2000},
    {.section = "pio", .key = "uncached_queue", .number = 3},
    {.section = "pio", .key = "uncached_drain", .number = 50000},
    {.section = "dma e", .key = "channels", .number = 2},
    {.section = "dma e", .key = "setup", .number = 500000},
    {.section = "dma e", .key = "finish", .number = 30000},
    {.section = "dma e", .key = "request_interval", .number = 10000},
    {.section = "dma e", .key = "tags", .number = 2},
    {.section = "dma e", .key = "descriptor", .number = 32},
    {.section = "dma e", .key = "mrrs", .number = 128},
};

struct fabric {
    struct sim_scenario scenario;
    struct sim_cost cost;
    struct sim_net net;
    struct sim_pio pio;
    struct sim_dma dma;
    struct sim_path there, back, nowhere, to_chip, from_chip;
    struct record record;
};

static struct fabric *fabric_new(void)
{
    struct fabric *fabric = calloc(1, sizeof(*fabric));
    struct via_error err = {0};
    assert_non_null(fabric);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fabric_values); i++) {
        assert_int_equal(sim_scenario_set(&fabric->scenario, &fabric_values[i], &err), 0);
    }
    sim_cost_init(&fabric->cost);
    sim_net_init(&fabric->net, &fabric->cost);
    sim_net_build(&fabric->net, &fabric->scenario);
    unsigned h = (unsigned)sim_net_node(&fabric->net, "h");
    unsigned s = (unsigned)sim_net_node(&fabric->net, "s");
    unsigned d = (unsigned)sim_net_node(&fabric->net, "d");
    assert_int_equal(sim_net_path(&fabric->net, h, d, &fabric->there), 0);
    assert_int_equal(sim_net_path(&fabric->net, d, h, &fabric->back), 0);
    assert_int_equal(sim_net_path(&fabric->net, d, d, &fabric->nowhere), 0);
    assert_int_equal(sim_net_path(&fabric->net, h, s, &fabric->to_chip), 0);
    assert_int_equal(sim_net_path(&fabric->net, s, h, &fabric->from_chip), 0);
    assert_int_equal(fabric->there.hops_count, 2);
    assert_int_equal(fabric->there.mps_bytes, 128);
    sim_pio_init(&fabric->pio, &fabric->net, &fabric->scenario);
    sim_dma_init(&fabric->dma, &fabric->net, &fabric->scenario, "dma e");
    fabric->record.cost = &fabric->cost;
    return fabric;
}

static void fabric_free(struct fabric *fabric)
{
    sim_dma_fini(&fabric->dma);
    sim_net_fini(&fabric->net);
    sim_cost_fini(&fabric->cost);
    free(fabric);
}

/* Runs to the end. Returns the time of the only call. */
static uint64_t ended_ps(struct fabric *fabric)
{
    assert_true(sim_cost_run(&fabric->cost, EVENTS_MAX));
    assert_int_equal(fabric->record.count, 1);
    return fabric->record.times_ps[0];
}

/* 4 GB/s: a byte is 250 ps. */
static void a_write_pays_its_bytes_once_and_each_hop(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    sim_net_post(&fabric->net, &(struct sim_post){.path = &fabric->there,
                                                  .bytes = 128,
                                                  .arrived = {note, &fabric->record, 0}});
    /* 152 B on the wire 38 ns; two cables 20 ns; the switch 110 ns; drain 100 and 50 ns. */
    assert_int_equal(ended_ps(fabric), 38000 + 20000 + 110000 + 150000);
    fabric_free(fabric);
}

/* The time is that of the narrower link, 76 ns for the same bytes, whether it comes first or
 * second. */
static void the_slowest_link_is_what_a_write_pays(void **state)
{
    (void)state;
    for (unsigned slow = 0; slow < 2; slow++) {
        struct fabric *fabric = fabric_new();
        fabric->net.links[slow].ways[0].bandwidth /= 2; /* half of the lanes */
        sim_net_post(&fabric->net, &(struct sim_post){.path = &fabric->there,
                                                      .bytes = 128,
                                                      .arrived = {note, &fabric->record, 0}});
        assert_int_equal(ended_ps(fabric), 76000 + 20000 + 110000 + 150000);
        /* The fast link is not occupied for longer than its own 38 ns. */
        assert_int_equal(fabric->net.links[1 - slow].ways[0].wire.busy_ps, 38000);
        fabric_free(fabric);
    }
}

static void a_read_is_a_round_trip(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    sim_net_read(&fabric->net, &fabric->there, &fabric->back, 256,
                 (struct sim_call){note, &fabric->record, 0});
    /* Request 24 B: 6 ns; completions 4 x (64 + 20) B: 84 ns; each way 130 ns; 300 ns in between.
     */
    assert_int_equal(ended_ps(fabric), 6000 + 84000 + 2 * 130000 + 300000);
    fabric_free(fabric);
}

static void a_node_reads_its_own_memory_without_a_link(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    sim_net_read(&fabric->net, &fabric->nowhere, &fabric->nowhere, 256,
                 (struct sim_call){note, &fabric->record, 0});
    assert_int_equal(ended_ps(fabric), 300000);
    fabric_free(fabric);
}

static void a_doorbell_is_a_write_to_the_chip_and_an_msi(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    sim_net_ring(&fabric->net, &fabric->to_chip, &fabric->from_chip,
                 (struct sim_call){note, &fabric->record, 0});
    /* Twice 28 B, 7 ns, and a cable, 10 ns; the host's 150 ns. */
    assert_int_equal(ended_ps(fabric), 2 * 17000 + 150000);
    fabric_free(fabric);
}

/* Four credits: the fifth TLP waits until the first has been drained and its UpdateFC is back. */
static void writes_wait_for_credits(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    for (unsigned i = 0; i < 8; i++) {
        sim_net_post(&fabric->net, &(struct sim_post){.path = &fabric->there,
                                                      .bytes = 128,
                                                      .arrived = {note, &fabric->record, i}});
    }
    assert_true(sim_cost_run(&fabric->cost, EVENTS_MAX));
    assert_int_equal(fabric->record.count, 8);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(fabric->record.args[i], i);
    }
    /* As fast as the device drains; the round trip of credits, 4 x 100 ns, costs nothing. */
    assert_int_equal(fabric->record.times_ps[0], 318000);
    assert_int_equal(fabric->record.times_ps[7], 318000 + 7 * 100000);
    assert_int_equal(fabric->net.links[1].ways[0].credits.waited_count, 4);
    fabric_free(fabric);
}

/* --- stores ---------------------------------------------------------------------------------- */

static uint64_t stored_ps(struct fabric *fabric, bool combined, uint64_t bytes)
{
    struct sim_pio_store store = {.pio = &fabric->pio,
                                  .path = &fabric->there,
                                  .bytes = bytes,
                                  .combined = combined,
                                  .stored = {note, &fabric->record, 0}};
    sim_pio_start(&store);
    return ended_ps(fabric);
}

static void a_line_leaves_when_it_is_full(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    /* Eight stores of 1 ns, 88 B on the wire. */
    assert_int_equal(stored_ps(fabric, true, 64), 8000 + 22000);
    fabric_free(fabric);
}

/* With two buffers, lines are filled while others are sent, so that lines follow each other on the
 * wire. */
static void fill_buffers_saturate(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    assert_int_equal(stored_ps(fabric, true, 4 * 64), 8000 + 4 * 22000);
    fabric_free(fabric);
}

/* Half a line is four stores, each a TLP of 32 B. */
static void a_partial_line_leaves_store_by_store(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    assert_int_equal(stored_ps(fabric, true, 32), 4000 + 4 * 8000);
    fabric_free(fabric);
}

/* Three places: the fourth store waits until the first has left, 2 + 50 ns after the start. */
static void uncached_stores_wait_for_their_queue(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    assert_int_equal(stored_ps(fabric, false, 3 * 8), 3 * 2000);
    fabric_free(fabric);
    fabric = fabric_new();
    assert_int_equal(stored_ps(fabric, false, 4 * 8), 2000 + 50000 + 2000);
    fabric_free(fabric);
    fabric = fabric_new();
    assert_int_equal(stored_ps(fabric, false, 10 * 8), 2000 + 7 * 50000 + 2000);
    fabric_free(fabric);
}

/* --- DMA ------------------------------------------------------------------------------------- */

static struct sim_dma_transfer transfer_of(struct fabric *fabric, uint64_t bytes, unsigned arg)
{
    return (struct sim_dma_transfer){.to_source = &fabric->back,
                                     .from_source = &fabric->there,
                                     .to_target = &fabric->nowhere,
                                     .bytes = bytes,
                                     .done = {note, &fabric->record, arg}};
}

/* A read by the device: 6 ns request, two ways of 130 ns, the host's 400 ns, completions. */
static uint64_t device_read_ps(uint64_t bytes)
{
    return 6000 + 2 * 130000 + 400000 + (bytes + bytes / 64 * 20) * 250;
}

static void dma_is_set_up_reads_and_finishes(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    struct sim_dma_transfer transfer = transfer_of(fabric, 128, 0);
    sim_dma_start(&fabric->dma, 0, &transfer);
    /* A target in the device itself: drained and seen, 150 ns. */
    assert_int_equal(ended_ps(fabric), 500000 + device_read_ps(128) + 150000 + 30000);
    fabric_free(fabric);
}

static void a_descriptor_costs_a_read(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    struct sim_dma_transfer transfer = transfer_of(fabric, 128, 0);
    transfer.to_descriptor = &fabric->back;
    transfer.from_descriptor = &fabric->there;
    sim_dma_start(&fabric->dma, 0, &transfer);
    uint64_t descriptor_ps = 6000 + 2 * 130000 + 400000 + (32 + 20) * 250;
    assert_int_equal(ended_ps(fabric),
                     500000 + descriptor_ps + device_read_ps(128) + 150000 + 30000);
    fabric_free(fabric);
}

/* With two tags the third request is sent when the first is answered. */
static void tags_limit_what_is_under_way(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    struct sim_dma_transfer transfer = transfer_of(fabric, 4 * 128, 0);
    sim_dma_start(&fabric->dma, 0, &transfer);
    /* The third's data come a whole read after the first's; the fourth's, 42 ns later, are drained
     * behind them: twice 100 ns, then 50 ns until they are seen. */
    assert_int_equal(ended_ps(fabric), 500000 + 2 * device_read_ps(128) + 200000 + 50000 + 30000);
    fabric_free(fabric);
}

static void a_channel_does_one_transfer_after_the_other(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new();
    struct sim_dma_transfer first = transfer_of(fabric, 128, 1);
    struct sim_dma_transfer second = transfer_of(fabric, 128, 2);
    struct sim_dma_transfer other = transfer_of(fabric, 128, 3);
    sim_dma_start(&fabric->dma, 0, &first);
    sim_dma_start(&fabric->dma, 0, &second);
    sim_dma_start(&fabric->dma, 1, &other);
    assert_true(sim_cost_run(&fabric->cost, EVENTS_MAX));
    assert_int_equal(fabric->record.count, 3);
    uint64_t one_ps = 500000 + device_read_ps(128) + 150000 + 30000;
    assert_int_equal(fabric->record.args[0], 1);
    assert_int_equal(fabric->record.times_ps[0], one_ps);
    /* The second channel is delayed only by shared resources: request, completions and drain. */
    assert_int_equal(fabric->record.args[1], 3);
    assert_in_range(fabric->record.times_ps[1], one_ps + 1, one_ps + 150000);
    assert_int_equal(fabric->record.args[2], 2);
    assert_int_equal(fabric->record.times_ps[2], 2 * one_ps);
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_come_by_time_then_by_request),
        cmocka_unit_test(a_time_beyond_the_last_is_the_last),
        cmocka_unit_test(a_server_does_one_job_after_the_other),
        cmocka_unit_test(a_pool_serves_who_asked_first),
        cmocka_unit_test(links_reach_the_rate_of_the_formula),
        cmocka_unit_test(ack_limits_are_those_of_the_specification),
        cmocka_unit_test(transfers_are_cut_into_tlps),
        cmocka_unit_test(a_write_pays_its_bytes_once_and_each_hop),
        cmocka_unit_test(the_slowest_link_is_what_a_write_pays),
        cmocka_unit_test(a_read_is_a_round_trip),
        cmocka_unit_test(a_node_reads_its_own_memory_without_a_link),
        cmocka_unit_test(a_doorbell_is_a_write_to_the_chip_and_an_msi),
        cmocka_unit_test(writes_wait_for_credits),
        cmocka_unit_test(a_line_leaves_when_it_is_full),
        cmocka_unit_test(fill_buffers_saturate),
        cmocka_unit_test(a_partial_line_leaves_store_by_store),
        cmocka_unit_test(uncached_stores_wait_for_their_queue),
        cmocka_unit_test(dma_is_set_up_reads_and_finishes),
        cmocka_unit_test(a_descriptor_costs_a_read),
        cmocka_unit_test(tags_limit_what_is_under_way),
        cmocka_unit_test(a_channel_does_one_transfer_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
