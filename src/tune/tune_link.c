/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Tunes one link: the store instructions for bodies, the size from which on DMA copies them, and
 * the number of slots of its pipes. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pipe.h"
#include "core/port_target.h"
#include "tune/tune.h"

#define BATCH_NS (150 * VIA_USEC_NS) /* least time of one half of a pair */
#define BATCH_MAX 512u
#define PIPE_BATCH 128u
#define SLOTS_NOW 32u /* the default of hosts */
#define SLOTS_MAX 128u
#define STUCK_NS (5 * VIA_SEC_NS)
#define COMPARISON_PART 30u /* one comparison takes at most 1/30 of ns_max */
/* Polls without a result after which a reader or writer yields the CPU: if both share one, each
 * turn of a pipe would otherwise take a time slice. */
#define IDLE_TRIES 256u
#define CREDIT_BYTES 64u
#define QUEUE 0u

/* Another store has no other cost, so half of the usual margin suffices. */
#define STORE_MARGIN 0.025
#define STORE_CLASS_MIN 8u /* for smaller bodies the lines of the frame dominate */
static const uint64_t pipe_sizes[] = {64, 4096, 32768};
static const unsigned slots_tried[] = {8, 16, 64, 128};

/* Measures one half of a pair: the time of `count` messages. 0 or negative errno. */
typedef int run_half(struct via_tune *tune, const void *setting, uint64_t bytes, unsigned count,
                     double *ret_ns);

static int fail(const struct via_tune *tune, int rc, const char *what, uint64_t bytes,
                struct via_error *err)
{
    return via_error_set(err, rc, "%s: compare %s, %llu bytes: %s",
                         via_pio_link_name(tune->measure->link), what, (unsigned long long)bytes,
                         strerror(-rc));
}

/* The number of messages that take the time of a batch. */
static int choose_count(struct via_tune *tune, run_half *run, const void *setting, uint64_t bytes,
                        unsigned *ret_count)
{
    double ns = 0;
    int rc = run(tune, setting, bytes, 4, &ns); /* warms up */
    rc = rc == 0 ? run(tune, setting, bytes, 4, &ns) : rc;
    double count = ns > 0 ? (double)BATCH_NS / ns : BATCH_MAX;
    *ret_count = count > BATCH_MAX ? BATCH_MAX : count < 2 ? 2 : (unsigned)count;
    return rc;
}

/* Runs twice and keeps the second time, because the other half of the pair may have changed which
 * lines of the window are in the CPU's caches. */
static int run_half_warm(struct via_tune *tune, run_half *run, const void *setting, uint64_t bytes,
                         unsigned count, double *ret_ns)
{
    int rc = run(tune, setting, bytes, count, ret_ns);
    return rc == 0 ? run(tune, setting, bytes, count, ret_ns) : rc;
}

static void show_step(const struct via_tune *tune)
{
    if (tune->step != NULL) {
        tune->step(tune);
    }
}

/* Measures both halves of a pair, in alternating order, and adds their ratio. */
static int run_pair(struct via_tune *tune, run_half *run, const void *const settings[2],
                    uint64_t bytes, unsigned count, struct via_tune_pairs *pairs)
{
    double ns[2] = {0, 0};
    unsigned first = pairs->count % 2;
    int rc = 0;
    for (unsigned i = 0; i < 2 && rc == 0; i++) {
        unsigned half = i == 0 ? first : 1 - first;
        rc = run_half_warm(tune, run, settings[half], bytes, count, &ns[half]);
    }
    if (rc == 0) {
        pairs->ratio[pairs->count++] = ns[1] > 0 ? ns[0] / ns[1] : 1;
    }
    return rc;
}

static void add_row(struct via_tune *tune, const char *what, uint64_t bytes, unsigned pairs_count,
                    const struct via_tune_result *result)
{
    if (tune->rows_count < VIA_TUNE_ROWS_MAX) {
        struct via_tune_row *row = &tune->rows[tune->rows_count++];
        *row = (struct via_tune_row){.bytes = bytes, .pairs = pairs_count, .result = *result};
        snprintf(row->what, sizeof(row->what), "%s", what);
    }
}

/* Compares two settings within the time limit. On a busy machine a pair may take a thousand times
 * longer; a comparison without enough pairs changes no setting. */
static int compare(struct via_tune *tune, run_half *run, const void *now, const void *other,
                   const char *what, uint64_t bytes, double margin,
                   struct via_tune_result *ret_result, struct via_error *err)
{
    const void *const settings[2] = {now, other};
    struct via_tune_pairs pairs = {0};
    uint64_t begin_ns = via_pio_now_ns();
    uint64_t until_ns = tune->until_ns;
    if (tune->ns_max != 0) {
        until_ns = via_min(until_ns, begin_ns + tune->ns_max / COMPARISON_PART);
    }
    unsigned count = 0;
    int rc = begin_ns < until_ns ? choose_count(tune, run, now, bytes, &count) : 0;
    while (rc == 0 && pairs.count < tune->pairs && via_pio_now_ns() < until_ns) {
        rc = run_pair(tune, run, settings, bytes, count, &pairs);
    }
    if (rc != 0) {
        return fail(tune, rc, what, bytes, err);
    }
    tune->steps_done++;
    if (pairs.count < VIA_TUNE_PAIRS_MIN) {
        tune->skipped++;
        *ret_result = (struct via_tune_result){.verdict = VIA_TUNE_SAME};
    } else {
        tune->cut_short += pairs.count < tune->pairs;
        unsigned pairs_count = pairs.count;
        *ret_result = via_tune_decide(&pairs, margin);
        add_row(tune, what, bytes, pairs_count, ret_result);
    }
    show_step(tune);
    return 0;
}

/* --- stores of bodies ------------------------------------------------------------------------- */

static void use_store(struct via_tune *tune, uint64_t bytes, const struct via_store *store)
{
    struct via_pio_end *end = &tune->measure->link->ends[0];
    end->config.driver->use_store(end->port, via_store_class(bytes), store);
}

static int run_store(struct via_tune *tune, const void *setting, uint64_t bytes, unsigned count,
                     double *ret_ns)
{
    static const struct via_pio_way port = {.kind = VIA_PIO_PORT};
    use_store(tune, bytes, setting);
    int rc = via_pio_measure_batch(tune->measure, &port, bytes, count, ret_ns);
    use_store(tune, bytes, NULL);
    return rc;
}

static int compare_store(struct via_tune *tune, const struct via_store *store, uint64_t bytes,
                         struct via_tune_result *ret_result, struct via_error *err)
{
    char what[64];
    snprintf(what, sizeof(what), "stores %s", store->name);
    return compare(tune, run_store, NULL, store, what, bytes, STORE_MARGIN, ret_result, err);
}

/* Skips stores narrower than those in use. */
static bool is_tried(const struct via_store *store)
{
    return via_store_is_there(store) && store->bytes >= 16;
}

/* The best store of each size is compared twice. */
static unsigned stores_max(const struct via_tune *tune)
{
    unsigned tried = 1;
    for (unsigned i = 0; i < via_stores_count; i++) {
        tried += is_tried(&via_stores[i]) ? 1 : 0;
    }
    return tune->measure->link->ends[0].config.driver->use_store == NULL
               ? 0
               : tried * (VIA_STORE_CLASSES - STORE_CLASS_MIN);
}

/* Finds the fastest helpful store for a size. It must help in a second comparison too, because the
 * best of many is partly chosen by chance. */
static int tune_store(struct via_tune *tune, uint64_t bytes, struct via_error *err)
{
    const struct via_store *store = NULL;
    struct via_tune_result result = {0};
    double best = 1;
    int rc = 0;
    for (unsigned i = 0; i < via_stores_count && rc == 0; i++) {
        if (!is_tried(&via_stores[i])) {
            continue;
        }
        rc = compare_store(tune, &via_stores[i], bytes, &result, err);
        if (rc == 0 && result.verdict == VIA_TUNE_HELPS && result.median > best) {
            best = result.median;
            store = &via_stores[i];
        }
    }
    if (rc == 0 && store != NULL) {
        rc = compare_store(tune, store, bytes, &result, err);
        if (rc == 0 && result.verdict == VIA_TUNE_HELPS) {
            tune->stores[via_store_class(bytes)] = store;
            tune->has_stores = true;
        }
    }
    return rc;
}

static int tune_stores(struct via_tune *tune, struct via_error *err)
{
    const struct via_pio_link *link = tune->measure->link;
    int rc = 0;
    if (link->ends[0].config.driver->use_store == NULL) {
        return 0;
    }
    for (unsigned k = STORE_CLASS_MIN; k < VIA_STORE_CLASSES && rc == 0; k++) {
        if (UINT64_C(1) << k <= link->window_bytes) {
            rc = tune_store(tune, UINT64_C(1) << k, err);
        }
    }
    for (unsigned k = 0; k < VIA_STORE_CLASSES && rc == 0; k++) {
        use_store(tune, UINT64_C(1) << k, tune->stores[k]);
    }
    return rc;
}

/* --- DMA -------------------------------------------------------------------------------------- */

static int run_way(struct via_tune *tune, const void *setting, uint64_t bytes, unsigned count,
                   double *ret_ns)
{
    return via_pio_measure_batch(tune->measure, setting, bytes, count, ret_ns);
}

struct dma_search {
    struct via_tune *tune;
    struct via_error *err;
};

static int compare_dma(void *ctx, uint64_t bytes, struct via_tune_result *ret_result)
{
    static const struct via_pio_way port = {.kind = VIA_PIO_PORT}, dma = {.kind = VIA_PIO_DMA};
    const struct dma_search *search = ctx;
    return compare(search->tune, run_way, &port, &dma, "DMA", bytes, VIA_TUNE_MARGIN, ret_result,
                   search->err);
}

static unsigned dma_max(const struct via_tune *tune)
{
    return tune->measure->link->has_dma ? VIA_TUNE_CROSSOVER_MAX : 0;
}

static int tune_dma(struct via_tune *tune, struct via_error *err)
{
    struct dma_search search = {.tune = tune, .err = err};
    uint64_t from = 0;
    if (!tune->measure->link->has_dma) {
        return 0;
    }
    int rc = via_tune_crossover(compare_dma, &search, tune->measure->link->window_bytes, &from);
    tune->dma_bytes_min = (uint32_t)from;
    return rc;
}

/* --- pipes ------------------------------------------------------------------------------------ */

struct pipe_run {
    struct via_port *port; /* of the reader */
    struct via_pipe_reader reader;
    unsigned count, taken;
    uint64_t until_ns; /* time limit, because records lost with the link never arrive */
    _Atomic bool stop;
};

static void rest(unsigned *idle)
{
    if (++*idle >= IDLE_TRIES) {
        *idle = 0;
        sched_yield();
    }
}

static void *sink(void *argument)
{
    struct pipe_run *run = argument;
    unsigned idle = 0;
    while (run->taken < run->count && !atomic_load_explicit(&run->stop, memory_order_relaxed)) {
        struct via_pipe_record record;
        (void)run->port->ops->events(run->port, VIA_PORT_EVENT_DOORBELL(QUEUE));
        if (via_pipe_take(&run->reader, &record) == 1) {
            via_pipe_release(&run->reader, 1);
            run->port->ops->flush(run->port, QUEUE);
            run->taken++;
            idle = 0;
            continue;
        }
        rest(&idle);
        if (idle == 0 && via_pio_now_ns() > run->until_ns) {
            break;
        }
    }
    return NULL;
}

static int send_all(struct via_pio_link *link, struct via_pipe_writer *writer, uint64_t bytes,
                    unsigned count)
{
    uint64_t until_ns = via_pio_now_ns() + STUCK_NS;
    struct via_port *port = link->ends[0].port;
    uint64_t head = 0;
    unsigned idle = 0;
    while (count != 0) {
        int rc = via_pipe_send(writer, &head, sizeof(head), link->source, bytes);
        if (rc == 0) {
            port->ops->flush(port, QUEUE);
            count--;
            idle = 0;
        } else if (rc != -EAGAIN) {
            return rc;
        } else if (via_pio_now_ns() > until_ns) {
            return -ETIMEDOUT;
        } else {
            (void)port->ops->events(port, VIA_PORT_EVENT_DOORBELL(QUEUE));
            rest(&idle);
        }
    }
    return 0;
}

static struct via_pipe_geometry geometry_of(unsigned slots, uint64_t bytes)
{
    return (struct via_pipe_geometry){.slots_count = slots,
                                      .data_bytes = (uint32_t)((slots + 1) * bytes),
                                      .body_bytes_max = (uint32_t)bytes};
}

/* Measures a pipe of `*setting` slots to the other end, where a thread reads it. */
static int run_pipe(struct via_tune *tune, const void *setting, uint64_t bytes, unsigned count,
                    double *ret_ns)
{
    static uint16_t epoch;
    static uint32_t data_ends[SLOTS_MAX];
    struct via_pio_link *link = tune->measure->link;
    struct via_port *far = link->ends[1].port, *near = link->ends[0].port;
    struct via_pipe_geometry geometry = geometry_of(*(const unsigned *)setting, bytes);
    struct via_pipe_target target = via_port_target(near, QUEUE, CREDIT_BYTES);
    struct via_pipe_target credit = via_port_target(far, QUEUE, 0);
    struct via_pipe_writer writer;
    struct pipe_run run = {.port = far, .count = via_max(count, PIPE_BATCH)};
    run.until_ns = via_pio_now_ns() + 2 * STUCK_NS;
    pthread_t thread;
    epoch = epoch >= 0x7000 ? 1 : epoch + 1;
    via_pipe_writer_init(&writer, &geometry, &target,
                         (const _Atomic uint64_t *)(const void *)near->inbox, data_ends, epoch);
    via_pipe_reader_init(&run.reader, &geometry, far->inbox + CREDIT_BYTES, &credit, epoch);
    int rc = -pthread_create(&thread, NULL, sink, &run);
    if (rc != 0) {
        return rc;
    }
    uint64_t begin = via_pio_clock_ticks(&tune->measure->clock);
    rc = send_all(link, &writer, bytes, run.count);
    if (rc != 0) {
        atomic_store_explicit(&run.stop, true, memory_order_relaxed);
    }
    pthread_join(thread, NULL);
    rc = rc == 0 && run.taken != run.count ? -ETIMEDOUT : rc;
    *ret_ns =
        via_pio_clock_ns(&tune->measure->clock, begin, via_pio_clock_ticks(&tune->measure->clock)) /
        run.count;
    return rc;
}

static int compare_slots(struct via_tune *tune, const unsigned *slots, double *ret_gain,
                         struct via_error *err)
{
    static const unsigned now = SLOTS_NOW;
    bool helps = false, hurts = false;
    double gain = 1;
    int rc = 0;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(pipe_sizes) && rc == 0 && !hurts; i++) {
        struct via_pipe_geometry geometry = geometry_of(via_max(*slots, SLOTS_NOW), pipe_sizes[i]);
        struct via_tune_result result = {0};
        char what[64];
        snprintf(what, sizeof(what), "pipes of %u slots", *slots);
        if (via_pipe_memory_bytes(&geometry) + CREDIT_BYTES > tune->measure->link->window_bytes) {
            continue;
        }
        rc = compare(tune, run_pipe, &now, slots, what, pipe_sizes[i], VIA_TUNE_MARGIN, &result,
                     err);
        helps |= result.verdict == VIA_TUNE_HELPS;
        hurts |= result.verdict == VIA_TUNE_HURTS;
        gain *= result.median;
    }
    *ret_gain = helps && !hurts ? gain : 0;
    return rc;
}

/* The best number is compared twice. */
static unsigned slots_max(const struct via_tune *tune)
{
    return tune->measure->link->ends_count != 2 ? 0
                                                : (unsigned)(VIA_ARRAY_COUNT(slots_tried) + 1) *
                                                      (unsigned)VIA_ARRAY_COUNT(pipe_sizes);
}

static int tune_slots(struct via_tune *tune, struct via_error *err)
{
    double best = 0, gain = 0;
    const unsigned *slots = NULL;
    int rc = 0;
    if (tune->measure->link->ends_count != 2) {
        tune->slots_why = "the other end is another process: a pipe needs a reader there";
        return 0;
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(slots_tried) && rc == 0; i++) {
        rc = compare_slots(tune, &slots_tried[i], &gain, err);
        if (rc == 0 && gain > best) {
            best = gain;
            slots = &slots_tried[i];
        }
    }
    if (rc == 0 && slots != NULL) {
        rc = compare_slots(tune, slots, &gain, err);
        tune->slots = gain > 0 ? *slots : 0;
    }
    return rc;
}

int via_tune_link(struct via_tune *tune, struct via_error *err)
{
    static const struct {
        int (*run)(struct via_tune *tune, struct via_error *err);
        unsigned (*comparisons_max)(const struct via_tune *tune);
    } parts[VIA_TUNE_PARTS] = {[VIA_TUNE_STORES] = {tune_stores, stores_max},
                               [VIA_TUNE_DMA] = {tune_dma, dma_max},
                               [VIA_TUNE_PIPES] = {tune_slots, slots_max}};
    unsigned ended = 0;
    int rc = 0;
    tune->steps_done = tune->steps_max = 0;
    tune->begin_ns = via_pio_now_ns();
    tune->until_ns = UINT64_MAX;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(parts); i++) {
        tune->steps_max += parts[i].comparisons_max(tune);
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(parts) && rc == 0; i++) {
        if (tune->ns_max != 0) {
            tune->until_ns = tune->begin_ns + tune->ns_max * (i + 1) / VIA_ARRAY_COUNT(parts);
        }
        unsigned skipped = tune->skipped;
        rc = parts[i].run(tune, err);
        tune->is_partial[i] = tune->skipped != skipped;
        /* A part may end early; its remaining comparisons count as done. */
        ended += parts[i].comparisons_max(tune);
        tune->steps_done = ended;
        show_step(tune);
    }
    return rc;
}
