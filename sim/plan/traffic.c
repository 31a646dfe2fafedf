/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/traffic.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/plan/nodes.h"

/* Maximum backlog of a host at an offered load that exceeds what it can send. */
#define BACKLOG_MAX 64u

static const char *const pattern_names[] = {"neighbour", "all-to-all", "incast", "barrier"};

int plan_pattern_parse(const char *text, enum plan_pattern *ret_pattern)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(pattern_names); i++) {
        if (strcmp(text, pattern_names[i]) == 0) {
            *ret_pattern = (enum plan_pattern)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* --- times: buckets of 1/128 of a power of two ------------------------------------------------ */

static unsigned bucket_of(uint64_t ps)
{
    if (ps < 128) {
        return (unsigned)ps;
    }
    unsigned power = 63 - (unsigned)__builtin_clzll(ps);
    return (power - 6) * 128 + (unsigned)((ps >> (power - 7)) & 127);
}

static double middle_of(unsigned bucket)
{
    if (bucket < 128) {
        return bucket;
    }
    unsigned power = bucket / 128 + 6;
    return ldexp(1 + ((bucket % 128) + 0.5) / 128, (int)power);
}

static void times_add(struct plan_times *times, uint64_t ps)
{
    times->counts[via_min(bucket_of(ps), PLAN_TIMES_COUNT - 1)]++;
    times->total++;
    times->max_ps = via_max(times->max_ps, ps);
}

double plan_measured_latency(const struct plan_measured *measured, double percent)
{
    const struct plan_times *times = &measured->times;
    uint64_t wanted = (uint64_t)ceil((double)times->total * percent / 100);
    uint64_t seen = 0;
    for (unsigned i = 0; measured->at_rest && i < PLAN_TIMES_COUNT; i++) {
        seen += times->counts[i];
        if (seen > 0 && seen >= wanted) {
            return fmin(middle_of(i), (double)times->max_ps);
        }
    }
    return NAN;
}

/* --- destinations ---------------------------------------------------------------------------- */

/* TAG_BARRIER + round */
enum tag { TAG_DATA, TAG_BARRIER };

#define BARRIER_BYTES 8u

struct sender {
    struct traffic *traffic;
    struct via_rng rng;
    uint16_t host;
    uint16_t next;      /* of all others, the one to send to */
    uint32_t under_way; /* messages */
    uint64_t sent_count;
    uint64_t entered_ps; /* the barrier */
    uint32_t barriers_count, round;
    uint32_t arrived[PLAN_ROUNDS_MAX]; /* by round, or from the left and from the right */
};

struct traffic {
    const struct plan_run *run;
    struct plan_fabric *fabric; /* or */
    struct plan_nodes *nodes;
    const struct plan_shape *shape;
    struct sim_cost *cost;
    uint64_t taken_before; /* events of the cost model before this run */
    unsigned channels_count;
    struct sender *senders; /* owned; of all hosts */
    bool measuring, over;
    uint64_t got_bytes;
    struct plan_measured *measured;
};

static bool is_sending(const struct traffic *traffic, unsigned host)
{
    return traffic->run->pattern != PLAN_INCAST || host != 0;
}

static unsigned destination_of(struct sender *sender)
{
    unsigned hosts = sender->traffic->shape->hosts_count;
    switch (sender->traffic->run->pattern) {
    case PLAN_NEIGHBOUR:
        return (sender->host + 1u) % hosts;
    case PLAN_INCAST:
        return 0;
    default:
        break;
    }
    /* All others in turn; a prime number as the stride, so that consecutive destinations are not
     * neighbours, and each host starts at another offset. */
    unsigned others = hosts - 1;
    unsigned stride = others % 509 == 0 ? 521 : 509;
    sender->next = (uint16_t)((sender->next + stride) % others);
    return (sender->host + 1u + sender->next) % hosts;
}

static void submit(struct sender *sender, unsigned channel)
{
    struct traffic *traffic = sender->traffic;
    unsigned destination = destination_of(sender);
    sender->under_way++;
    if (traffic->nodes != NULL) {
        plan_nodes_submit(traffic->nodes, sender->host, destination, channel, traffic->run->bytes,
                          TAG_DATA);
    } else {
        plan_fabric_submit(traffic->fabric, sender->host, destination, channel, traffic->run->bytes,
                           TAG_DATA);
    }
}

static unsigned next_channel(struct sender *sender)
{
    return (unsigned)(sender->sent_count++ % sender->traffic->channels_count);
}

static void arrival(void *object, uint64_t arg);

static void next_arrival(struct sender *sender)
{
    const struct plan_run *run = sender->traffic->run;
    /* Exponential: 53 random bits in (0, 1]. */
    double u = (double)((via_rng_next(&sender->rng) >> 11) + 1) / 9007199254740992.0;
    double ps = -log(u) * (double)run->bytes / run->rate * (double)SIM_SEC_PS;
    sim_cost_after(sender->traffic->cost, (uint64_t)ps, (struct sim_call){arrival, sender, 0});
}

static void arrival(void *object, uint64_t arg)
{
    (void)arg;
    struct sender *sender = object;
    if (sender->traffic->over) {
        return;
    }
    next_arrival(sender);
    if (sender->under_way < BACKLOG_MAX) {
        submit(sender, next_channel(sender));
    } else if (sender->traffic->measuring) {
        sender->traffic->measured->refused_count++;
    }
}

/* --- barriers: src/shmem/barrier.c ----------------------------------------------------------- */

/* With at most NEIGHBOURS_MAX hosts, words go from neighbour to neighbour through windows, in both
 * directions: after round r a host has the words of the hosts up to r hops away. With more hosts,
 * or if the next host is not a neighbour, dissemination: in round r a put to the host 2^r
 * further. */
#define NEIGHBOURS_MAX 16u

static bool is_by_neighbours(const struct plan_shape *shape)
{
    return shape->hosts_count <= NEIGHBOURS_MAX &&
           (shape->kind == PLAN_TREE || shape->dimensions_count == 1);
}

static unsigned rounds_of(const struct plan_shape *shape)
{
    unsigned rounds = 0;
    if (is_by_neighbours(shape)) {
        return shape->hosts_count / 2;
    }
    while (1u << rounds < shape->hosts_count) {
        rounds++;
    }
    return rounds;
}

static void on_word(struct sender *sender, unsigned word);

static void word_arrived(void *object, uint64_t word)
{
    on_word(object, (unsigned)word);
}

static void send_words(struct sender *sender)
{
    struct traffic *traffic = sender->traffic;
    unsigned hosts = traffic->shape->hosts_count;
    if (!is_by_neighbours(traffic->shape)) {
        unsigned to = (sender->host + (1u << sender->round)) % hosts;
        plan_fabric_submit(traffic->fabric, sender->host, to, 0, BARRIER_BYTES,
                           (uint8_t)(TAG_BARRIER + sender->round));
        return;
    }
    for (unsigned right = 0; right < 2; right++) {
        unsigned to = (sender->host + (right ? 1 : hosts - 1)) % hosts;
        plan_fabric_store(traffic->fabric, sender->host, to,
                          (struct sim_call){word_arrived, &traffic->senders[to], right});
    }
}

static bool has_arrived(const struct sender *sender)
{
    const struct plan_shape *shape = sender->traffic->shape;
    if (!is_by_neighbours(shape)) {
        return sender->arrived[sender->round] >= sender->barriers_count;
    }
    uint32_t wanted = (sender->barriers_count - 1) * rounds_of(shape) + sender->round + 1;
    return sender->arrived[0] >= wanted && sender->arrived[1] >= wanted;
}

static void enter(struct sender *sender)
{
    sender->entered_ps = sender->traffic->cost->now_ps;
    sender->barriers_count++;
    sender->round = 0;
    send_words(sender);
}

/* Advances as far as the received words allow. */
static void on_word(struct sender *sender, unsigned word)
{
    struct traffic *traffic = sender->traffic;
    unsigned rounds = rounds_of(traffic->shape);
    sender->arrived[word]++;
    while (sender->barriers_count > 0 && has_arrived(sender)) {
        if (++sender->round < rounds) {
            send_words(sender);
            continue;
        }
        if (traffic->measuring) {
            times_add(&traffic->measured->times, traffic->cost->now_ps - sender->entered_ps);
        }
        enter(sender);
    }
}

/* --- a run ----------------------------------------------------------------------------------- */

static void on_delivered(void *object, struct plan_op *op)
{
    struct traffic *traffic = object;
    if (op->tag != TAG_DATA) {
        on_word(&traffic->senders[op->destination], op->tag - TAG_BARRIER);
    } else if (traffic->measuring) {
        traffic->got_bytes += op->bytes;
        times_add(&traffic->measured->times, traffic->cost->now_ps - op->born_ps);
    }
}

static void on_ended(void *object, struct plan_op *op)
{
    struct traffic *traffic = object;
    struct sender *sender = &traffic->senders[op->source];
    if (op->tag == TAG_DATA) {
        sender->under_way--;
        if (traffic->run->rate == 0 && !traffic->over) {
            submit(sender, op->channel); /* a program's attachment stays on its channel */
        }
    }
}

static void begin(void *object, uint64_t arg)
{
    (void)arg;
    struct sender *sender = object;
    const struct plan_run *run = sender->traffic->run;
    if (run->pattern == PLAN_BARRIER) {
        enter(sender);
    } else if (run->rate > 0) {
        next_arrival(sender);
    } else {
        for (unsigned i = 0; i < run->under_way; i++) {
            submit(sender, next_channel(sender));
        }
    }
}

/* Takes events until `until` of this run have been taken, or none is left. */
static void take_events(struct traffic *traffic, uint64_t until)
{
    const struct plan_run *run = traffic->run;
    struct sim_cost *cost = traffic->cost;
    uint64_t part = via_max(run->events_max / 100, UINT64_C(1));
    uint64_t done = cost->taken_count - traffic->taken_before;
    while (done < until && sim_cost_step(cost)) {
        done = cost->taken_count - traffic->taken_before;
        if (run->step != NULL && done % part == 0) {
            run->step(run->object, done);
        }
    }
}

static uint64_t stuck(const struct traffic *traffic)
{
    return traffic->nodes != NULL ? plan_nodes_stuck(traffic->nodes)
                                  : plan_fabric_stuck(traffic->fabric);
}

static void measure(struct traffic *traffic, uint64_t from_ps, uint64_t stuck_before)
{
    struct plan_measured *measured = traffic->measured;
    const struct plan_run *run = traffic->run;
    double seconds = (double)(traffic->cost->now_ps - from_ps) / (double)SIM_SEC_PS;
    measured->seconds = seconds;
    measured->senders_count = traffic->shape->hosts_count - (run->pattern == PLAN_INCAST ? 1 : 0);
    measured->offered = run->rate > 0 ? run->rate : NAN;
    measured->total = seconds > 0 ? (double)traffic->got_bytes / seconds : 0;
    measured->got = measured->total / measured->senders_count;
    measured->messages_count = measured->times.total;
    measured->stuck_count = stuck(traffic) - stuck_before;
    for (unsigned i = 0; traffic->fabric != NULL && i < PLAN_RESOURCES; i++) {
        plan_fabric_busiest(traffic->fabric, (enum plan_resource)i, &measured->busy[i]);
    }
    if (traffic->fabric != NULL && run->links_busy != NULL) {
        plan_fabric_links(traffic->fabric, run->links_busy);
    }
}

/* By how much the second half delivered more or less. */
static double drift(uint64_t bytes_a, uint64_t ps_a, uint64_t bytes_b, uint64_t ps_b)
{
    return bytes_a == 0 || ps_a == 0 || ps_b == 0
               ? 0
               : (double)bytes_b / (double)ps_b / ((double)bytes_a / (double)ps_a) - 1;
}

static bool is_at_rest(const struct plan_run *run, const struct plan_measured *measured)
{
    if (run->pattern == PLAN_BARRIER || (run->rate > 0 && measured->refused_count == 0)) {
        return true;
    }
    uint64_t under_way = run->rate > 0 ? BACKLOG_MAX : run->under_way;
    return fabs(measured->drift) <= 0.1 &&
           measured->messages_count >= 2 * under_way * measured->senders_count;
}

void plan_run(const struct plan_run *run, struct sim_cost *cost, const struct plan_costs *costs,
              const struct plan_shape *shape, struct plan_wiring *wiring,
              struct plan_measured *ret_measured)
{
    struct traffic traffic = {
        .run = run,
        .shape = shape,
        .cost = cost,
        .channels_count = costs->channels_count,
        .measured = ret_measured,
    };
    const struct plan_events events = {
        .object = &traffic, .delivered = on_delivered, .ended = on_ended};
    *ret_measured = (struct plan_measured){0};
    if (run->core) {
        traffic.nodes = plan_nodes_new(cost, costs, shape, wiring, &events, run->bytes, run->seed);
    } else {
        traffic.fabric = plan_fabric_new(cost, costs, shape, wiring, &events, run->seed);
    }
    traffic.taken_before = cost->taken_count;
    traffic.senders = sim_alloc(shape->hosts_count * sizeof(*traffic.senders));
    for (unsigned i = 0; i < shape->hosts_count; i++) {
        struct sender *sender = &traffic.senders[i];
        *sender = (struct sender){.traffic = &traffic, .host = (uint16_t)i};
        via_rng_init(&sender->rng, run->seed * UINT64_C(0x9e3779b97f4a7c15) + i);
        sender->next = (uint16_t)via_rng_below(&sender->rng, shape->hosts_count - 1);
        if (is_sending(&traffic, i)) {
            /* Not all at the same picosecond. */
            sim_cost_after(cost, via_rng_below(&sender->rng, 10 * SIM_USEC_PS),
                           (struct sim_call){begin, sender, 0});
        }
    }
    take_events(&traffic, run->events_max / 3);
    uint64_t from_ps = cost->now_ps;
    uint64_t stuck_before = stuck(&traffic);
    if (traffic.fabric != NULL) {
        plan_fabric_mark(traffic.fabric);
    }
    traffic.measuring = true;
    take_events(&traffic, run->events_max * 2 / 3);
    uint64_t half_ps = cost->now_ps;
    uint64_t half_bytes = traffic.got_bytes;
    take_events(&traffic, run->events_max);
    ret_measured->drift = drift(half_bytes, half_ps - from_ps, traffic.got_bytes - half_bytes,
                                cost->now_ps - half_ps);
    measure(&traffic, from_ps, stuck_before);
    ret_measured->at_rest = is_at_rest(run, ret_measured);
    ret_measured->events_count = cost->taken_count - traffic.taken_before;
    traffic.over = true;
    if (traffic.nodes != NULL) {
        plan_nodes_free(traffic.nodes);
    } else {
        plan_fabric_free(traffic.fabric);
    }
    free(traffic.senders);
}
