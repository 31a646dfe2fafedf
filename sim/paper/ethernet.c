/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* TCP over Ethernet, as far as system A's second column needs it: writes that cost their time fill
 * a socket buffer, which leaves in full segments. */
#include "base/types.h"
#include "sim/paper/stream.h"

static const struct sim_key keys[] = {
    {"rate", SIM_BANDWIDTH, 1e5, 1e11, NULL},
    {"segment", SIM_BYTES, 64, 9000, NULL},  /* payload of a full one */
    {"overhead", SIM_BYTES, 0, 1000, NULL},  /* headers, preamble, gap of each */
    {"buffer", SIM_BYTES, 16384, 1e9, NULL}, /* the socket's */
    {"write", SIM_TIME, 0, 1e9, NULL},       /* a call of write, copying aside */
};
const struct sim_section sim_ethernet_section = {"ethernet", false, keys, VIA_ARRAY_COUNT(keys)};

struct ethernet {
    struct sim_cost cost;
    struct sim_server core, wire;
    struct sim_pool buffer;
    uint64_t write_ps, segment_ps;
    double copy_rate;
    uint64_t segment_bytes, bytes;
    uint64_t unsent_bytes; /* less than a segment */
    uint64_t left_bytes;   /* of the write under way */
    uint64_t writes_left;
    uint64_t delivered_bytes, delivered_ps;
};

static void segment_sent(void *object, uint64_t arg)
{
    (void)arg;
    struct ethernet *ethernet = object;
    sim_pool_give(&ethernet->buffer, ethernet->segment_bytes);
    ethernet->delivered_bytes += ethernet->segment_bytes;
    ethernet->delivered_ps = ethernet->cost.now_ps;
}

static void write_next(struct ethernet *ethernet);

/* A piece of a write has its room in the socket buffer. */
static void buffered(void *object, uint64_t bytes)
{
    struct ethernet *ethernet = object;
    ethernet->left_bytes -= bytes;
    ethernet->unsent_bytes += bytes;
    if (ethernet->unsent_bytes >= ethernet->segment_bytes) {
        ethernet->unsent_bytes -= ethernet->segment_bytes;
        sim_server_add(&ethernet->wire, ethernet->segment_ps, 0,
                       (struct sim_call){segment_sent, ethernet, 0});
    }
    write_next(ethernet);
}

static void copied(void *object, uint64_t bytes)
{
    struct ethernet *ethernet = object;
    sim_pool_take(&ethernet->buffer, bytes, (struct sim_call){buffered, ethernet, bytes});
}

/* The next piece, at most a segment, of this write or the next one. */
static void write_next(struct ethernet *ethernet)
{
    uint64_t call_ps = 0;
    if (ethernet->left_bytes == 0) {
        if (ethernet->writes_left == 0) {
            return;
        }
        ethernet->writes_left--;
        ethernet->left_bytes = ethernet->bytes;
        call_ps = ethernet->write_ps;
    }
    uint64_t bytes = via_min(ethernet->left_bytes, ethernet->segment_bytes);
    uint64_t copy_ps = (uint64_t)((double)bytes / ethernet->copy_rate * (double)SIM_SEC_PS);
    sim_server_add(&ethernet->core, call_ps + copy_ps, 0,
                   (struct sim_call){copied, ethernet, bytes});
}

double sim_ethernet_run(const struct sim_scenario *scenario, uint64_t bytes)
{
    /* So many segments that the buffer's filling does not count. */
    const uint64_t segments_count = 100;
    struct ethernet ethernet = {
        .write_ps = sim_scenario_ps(scenario, "ethernet", "write"),
        .copy_rate = sim_scenario_number(scenario, "memory", "copy"),
        .segment_bytes = sim_scenario_count(scenario, "ethernet", "segment"),
        .bytes = bytes,
    };
    double frame =
        (double)(ethernet.segment_bytes + sim_scenario_count(scenario, "ethernet", "overhead"));
    ethernet.segment_ps =
        (uint64_t)(frame * (double)SIM_SEC_PS / sim_scenario_number(scenario, "ethernet", "rate"));
    ethernet.writes_left = (segments_count * ethernet.segment_bytes + bytes - 1) / bytes;
    sim_cost_init(&ethernet.cost);
    sim_server_init(&ethernet.core, &ethernet.cost);
    sim_server_init(&ethernet.wire, &ethernet.cost);
    sim_pool_init(&ethernet.buffer, &ethernet.cost,
                  sim_scenario_count(scenario, "ethernet", "buffer"));
    write_next(&ethernet);
    sim_cost_run(&ethernet.cost, UINT64_MAX);
    double rate =
        (double)ethernet.delivered_bytes * (double)SIM_SEC_PS / (double)ethernet.delivered_ps;
    sim_pool_fini(&ethernet.buffer);
    sim_cost_fini(&ethernet.cost);
    return rate;
}
