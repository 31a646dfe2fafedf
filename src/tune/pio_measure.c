/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Measures single messages, their arrival, and messages without a pause. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/types.h"
#include "tune/pio.h"

#define RUNS_MAX 1000u /* as in system E */
#define RUNS_MIN 5u
#define DMA_DEPTH_MAX 8u
#define STUCK_NS (2 * VIA_SEC_NS) /* longer than any operation here */
#define COPY_BYTES VIA_PIO_SOURCE_BYTES
#define MESSAGES_PER_CLOCK 16u /* messages per reading of the clock */

/* State of one thread. */
struct mover {
    struct via_pio_measure *measure;
    const struct via_pio_way *way;
    uint64_t bytes;
    unsigned queue;
    uint64_t base, room; /* its part of the window */
    uint64_t at;
    uint64_t cookie;
    unsigned under_way;
    bool stages; /* DMA: first copies to the engine's memory, as hosts do */
    int rc;
    pthread_barrier_t *start;
    uint64_t done_bytes;
    double ns;
};

/* --- moving --- */

static struct via_port *port_of(const struct mover *mover)
{
    return mover->measure->link->ends[0].port;
}

/* The next offset in the window, cache-line aligned. */
static uint64_t next_place(struct mover *mover)
{
    uint64_t step = via_align_up(mover->bytes, (uint64_t)VIA_CACHELINE);
    if (mover->at + mover->bytes > mover->room) {
        mover->at = 0;
    }
    uint64_t place = mover->base + mover->at;
    mover->at += step;
    return place;
}

/* Takes completed DMAs. */
static int take_dma(struct mover *mover)
{
    uint64_t cookies[DMA_DEPTH_MAX];
    int results[DMA_DEPTH_MAX];
    struct via_port *port = port_of(mover);
    unsigned count = port->ops->dma_take(port, mover->queue, cookies, results, DMA_DEPTH_MAX);
    int rc = 0;
    for (unsigned i = 0; i < count; i++) {
        rc = results[i] != 0 ? results[i] : rc;
    }
    mover->under_way -= via_min(count, mover->under_way);
    return rc;
}

/* Waits until at most `most` DMAs are under way. */
static int drain_dma(struct mover *mover, unsigned most)
{
    uint64_t until_ns = 0;
    int rc = 0;
    while (mover->under_way > most && rc == 0) {
        rc = take_dma(mover);
        uint64_t now_ns = via_pio_now_ns();
        until_ns = until_ns == 0 ? now_ns + STUCK_NS : until_ns;
        if (rc == 0 && now_ns > until_ns) {
            port_of(mover)->ops->dma_abort(port_of(mover), mover->queue);
            rc = -ETIMEDOUT;
        }
    }
    return rc;
}

static int start_piece(struct mover *mover, uint64_t place, const unsigned char *from, size_t bytes)
{
    struct via_port *port = port_of(mover);
    uint64_t until_ns = via_pio_now_ns() + STUCK_NS;
    for (;;) {
        int rc = port->ops->dma(port, mover->queue, place, from, bytes, ++mover->cookie);
        if (rc == 0) {
            mover->under_way++;
        }
        if (rc != -EAGAIN) {
            return rc;
        }
        rc = take_dma(mover);
        if (rc != 0 || via_pio_now_ns() > until_ns) {
            return rc != 0 ? rc : -ETIMEDOUT;
        }
    }
}

/* Starts as many DMAs as the message needs. */
static int start_dma(struct mover *mover, uint64_t place)
{
    uint64_t most = port_of(mover)->caps.dma_bytes_max;
    int rc = 0;
    for (uint64_t done = 0, piece; done < mover->bytes && rc == 0; done += piece) {
        piece = mover->bytes - done;
        piece = most != 0 ? via_min(piece, most) : piece;
        rc = start_piece(mover, place + done, mover->measure->link->source + done, piece);
    }
    return rc;
}

/* Posts one message, without ordering. */
static int post(struct mover *mover)
{
    struct via_pio_link *link = mover->measure->link;
    uint64_t place = next_place(mover);
    switch (mover->way->kind) {
    case VIA_PIO_STORE:
        via_stores[mover->way->store].copy(link->views[mover->way->view].at + place, link->source,
                                           mover->bytes);
        return 0;
    case VIA_PIO_PORT:
        port_of(mover)->ops->body(port_of(mover), mover->queue, place, link->source, mover->bytes);
        return 0;
    case VIA_PIO_DMA:
        if (mover->stages) {
            memcpy(link->source, mover->measure->copy, mover->bytes);
        }
        return start_dma(mover, place);
    case VIA_PIO_MEMCPY:
        break;
    }
    memcpy(mover->measure->copy + place, link->source, mover->bytes);
    __asm__ volatile("" ::: "memory");
    return 0;
}

/* Waits until the messages have left the CPU's buffers, or the engine has ended. */
static int push(struct mover *mover)
{
    switch (mover->way->kind) {
    case VIA_PIO_PORT:
        port_of(mover)->ops->flush(port_of(mover), mover->queue);
        return 0;
    case VIA_PIO_DMA:
        return drain_dma(mover, 0);
    case VIA_PIO_STORE:
        via_store_fence();
        return 0;
    case VIA_PIO_MEMCPY:
        break;
    }
    return 0;
}

/* Waits for the arrival: by a fence of the port, or a load from a BAR. */
static int prove(struct mover *mover)
{
    struct via_pio_link *link = mover->measure->link;
    int rc = push(mover);
    if (rc != 0 || mover->way->kind == VIA_PIO_MEMCPY) {
        return rc;
    }
    if (link->ends_count == 0) {
        atomic_thread_fence(memory_order_seq_cst);
        (void)*(volatile uint32_t *)(void *)(link->views[mover->way->view].at + mover->base);
        return link->pci->ops->gone(link->pci) ? -ENODEV : 0;
    }
    struct via_port *port = port_of(mover);
    uint64_t until_ns = 0;
    rc = port->ops->fence_start(port, mover->queue);
    while (rc == 0) {
        rc = port->ops->fence_poll(port, mover->queue);
        uint64_t now_ns = rc == 0 ? via_pio_now_ns() : 0;
        until_ns = until_ns == 0 ? now_ns + STUCK_NS : until_ns;
        rc = rc == 0 && now_ns > until_ns ? -ETIMEDOUT : rc;
    }
    return rc > 0 ? 0 : rc;
}

/* --- single messages --- */

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median_of(double *ns, unsigned count)
{
    qsort(ns, count, sizeof(ns[0]), by_value);
    return count % 2 != 0 ? ns[count / 2] : (ns[count / 2 - 1] + ns[count / 2]) / 2;
}

/* The mean of the values within one standard deviation of the overall mean. */
static double mean_of(const double *ns, unsigned count, unsigned *ret_kept)
{
    double sum = 0, squares = 0, kept_sum = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += ns[i];
        squares += ns[i] * ns[i];
    }
    double mean = sum / count, variance = squares / count - mean * mean;
    double most = mean + (variance > 0 ? sqrt(variance) : 0);
    *ret_kept = 0;
    for (unsigned i = 0; i < count; i++) {
        if (ns[i] <= most) {
            kept_sum += ns[i];
            ++*ret_kept;
        }
    }
    return *ret_kept != 0 ? kept_sum / *ret_kept : mean;
}

static int time_single(struct mover *mover, bool proves, double ns[RUNS_MAX], unsigned *ret_count)
{
    const struct via_pio_measure *measure = mover->measure;
    uint64_t until_ns = via_pio_now_ns() + measure->span_ns / 2;
    int rc = post(mover); /* warms up */
    rc = rc == 0 ? prove(mover) : rc;
    *ret_count = 0;
    while (rc == 0 && *ret_count < RUNS_MAX &&
           (*ret_count < RUNS_MIN || via_pio_now_ns() < until_ns)) {
        uint64_t begin = via_pio_clock_ticks(&measure->clock);
        rc = post(mover);
        rc = rc != 0 ? rc : proves ? prove(mover) : push(mover);
        uint64_t end = via_pio_clock_ticks(&measure->clock);
        ns[(*ret_count)++] = via_pio_clock_ns(&measure->clock, begin, end);
        if (!proves && rc == 0) {
            rc = prove(mover); /* so that each message starts on an idle path */
        }
    }
    return rc;
}

/* --- without a pause --- */

static int run_sustained(struct mover *mover)
{
    const struct via_pio_measure *measure = mover->measure;
    unsigned most = DMA_DEPTH_MAX - 1;
    uint64_t until_ns = via_pio_now_ns() + measure->span_ns;
    uint64_t count = 0;
    uint64_t begin = via_pio_clock_ticks(&measure->clock);
    int rc = 0;
    while (rc == 0 &&
           (count % MESSAGES_PER_CLOCK != 0 || via_pio_now_ns() < until_ns || count == 0)) {
        rc = post(mover);
        count++;
        if (rc == 0 && mover->way->kind == VIA_PIO_DMA) {
            rc = drain_dma(mover, most);
        }
    }
    rc = rc == 0 ? prove(mover) : rc;
    mover->ns = via_pio_clock_ns(&measure->clock, begin, via_pio_clock_ticks(&measure->clock));
    mover->done_bytes = count * mover->bytes;
    return rc;
}

static void *move(void *argument)
{
    struct mover *mover = argument;
    pthread_barrier_wait(mover->start);
    mover->rc = run_sustained(mover);
    return NULL;
}

/* Pins a thread to a CPU, modulo their number. */
static void pin(pthread_t thread, unsigned cpu)
{
    cpu_set_t set;
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&set);
    CPU_SET(cpu % (unsigned)(count > 0 ? count : 1), &set);
    (void)pthread_setaffinity_np(thread, sizeof(set), &set);
}

static int time_sustained(struct via_pio_measure *measure, struct mover *movers, double *ret_rate)
{
    pthread_t threads[VIA_PIO_THREADS_MAX];
    pthread_barrier_t start;
    unsigned count = measure->threads, made = 1;
    int rc = -pthread_barrier_init(&start, NULL, count);
    *ret_rate = 0;
    if (rc != 0) {
        return rc;
    }
    for (; made < count && rc == 0; made++) {
        movers[made].start = &start;
        rc = -pthread_create(&threads[made], NULL, move, &movers[made]);
        if (rc == 0) {
            pin(threads[made], measure->cpu + made);
        }
    }
    if (rc != 0) {
        abort(); /* the started threads would wait forever at the barrier */
    }
    movers[0].start = &start;
    (void)move(&movers[0]);
    for (unsigned i = 1; i < made; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&start);
    for (unsigned i = 0; i < count; i++) {
        rc = movers[i].rc != 0 ? movers[i].rc : rc;
        *ret_rate +=
            movers[i].ns > 0 ? (double)movers[i].done_bytes / movers[i].ns * (double)VIA_SEC_NS : 0;
    }
    return rc;
}

/* --- all of it --- */

void via_pio_way_name(const struct via_pio_link *link, const struct via_pio_way *way,
                      char *ret_text, size_t bytes)
{
    static const char *const names[] = {
        [VIA_PIO_PORT] = "port", [VIA_PIO_DMA] = "DMA", [VIA_PIO_MEMCPY] = "memcpy"};
    if (way->kind == VIA_PIO_STORE) {
        snprintf(ret_text, bytes, "%s %s", via_pio_caching_name(link->views[way->view].caching),
                 via_stores[way->store].name);
    } else {
        snprintf(ret_text, bytes, "%s", names[way->kind]);
    }
}

const char *via_pio_caching_name(enum via_port_caching caching)
{
    return caching == VIA_PORT_UNCACHED ? "uc" : caching == VIA_PORT_COMBINING ? "wc" : "mem";
}

unsigned via_pio_measure_ways(const struct via_pio_measure *measure,
                              struct via_pio_way ret_ways[VIA_PIO_WAYS_MAX])
{
    const struct via_pio_link *link = measure->link;
    unsigned count = 0;
    for (unsigned view = 0; view < link->views_count; view++) {
        for (unsigned i = 0; i < via_stores_count; i++) {
            if (via_store_is_there(&via_stores[i])) {
                ret_ways[count++] =
                    (struct via_pio_way){.kind = VIA_PIO_STORE, .view = view, .store = i};
            }
        }
    }
    if (link->ends_count != 0) {
        ret_ways[count++] = (struct via_pio_way){.kind = VIA_PIO_PORT};
        if (link->has_dma) {
            ret_ways[count++] = (struct via_pio_way){.kind = VIA_PIO_DMA};
        }
    }
    ret_ways[count++] = (struct via_pio_way){.kind = VIA_PIO_MEMCPY};
    return count;
}

static bool is_supported(const struct via_pio_measure *measure, const struct via_pio_way *way,
                         uint64_t bytes)
{
    uint64_t room = measure->link->window_bytes / measure->threads;
    return bytes <= VIA_PIO_SIZE_MAX && via_align_up(bytes, (uint64_t)VIA_CACHELINE) <= room &&
           (way->kind != VIA_PIO_STORE || bytes % via_stores[way->store].bytes == 0);
}

int via_pio_measure_one(struct via_pio_measure *measure, const struct via_pio_way *way,
                        uint64_t bytes, struct via_pio_figure *ret_figure, struct via_error *err)
{
    static double ns[RUNS_MAX];
    struct mover movers[VIA_PIO_THREADS_MAX] = {0};
    unsigned count;
    if (!is_supported(measure, way, bytes)) {
        return 0;
    }
    uint64_t room = via_min(measure->link->window_bytes, (uint64_t)COPY_BYTES) / measure->threads &
                    ~(uint64_t)(VIA_CACHELINE - 1);
    for (unsigned i = 0; i < measure->threads; i++) {
        movers[i] = (struct mover){.measure = measure,
                                   .way = way,
                                   .bytes = bytes,
                                   .queue = i,
                                   .base = i * room,
                                   .room = room};
    }
    *ret_figure = (struct via_pio_figure){.way = *way, .bytes = bytes};
    int rc = way->kind == VIA_PIO_STORE ? via_pio_link_use_view(measure->link, way->view) : 0;
    rc = rc == 0 ? time_single(&movers[0], false, ns, &count) : rc;
    if (rc == 0) {
        ret_figure->runs = count;
        ret_figure->mean_ns = mean_of(ns, count, &ret_figure->runs_kept);
        ret_figure->median_ns = median_of(ns, count);
        rc = way->kind != VIA_PIO_MEMCPY ? time_single(&movers[0], true, ns, &count) : 0;
    }
    if (rc == 0) {
        ret_figure->arrival_ns = way->kind != VIA_PIO_MEMCPY ? median_of(ns, count) : 0;
        rc = time_sustained(measure, movers, &ret_figure->bytes_per_sec);
    }
    if (rc != 0) {
        char name[32];
        via_pio_way_name(measure->link, way, name, sizeof(name));
        return via_error_set(err, rc, "%s: %s, %llu bytes: %s", via_pio_link_name(measure->link),
                             name, (unsigned long long)bytes, strerror(-rc));
    }
    return 1;
}

int via_pio_measure_batch(struct via_pio_measure *measure, const struct via_pio_way *way,
                          uint64_t bytes, unsigned count, double *ret_ns)
{
    struct mover mover = {.measure = measure,
                          .way = way,
                          .bytes = bytes,
                          .room = via_min(measure->link->window_bytes, (uint64_t)COPY_BYTES),
                          .stages = true};
    int rc = bytes <= mover.room ? 0 : -EMSGSIZE;
    uint64_t begin = via_pio_clock_ticks(&measure->clock);
    for (unsigned i = 0; i < count && rc == 0; i++) {
        rc = post(&mover);
        if (rc == 0 && way->kind == VIA_PIO_DMA) {
            rc = drain_dma(&mover, DMA_DEPTH_MAX - 1);
        }
    }
    rc = rc == 0 ? prove(&mover) : rc;
    *ret_ns =
        via_pio_clock_ns(&measure->clock, begin, via_pio_clock_ticks(&measure->clock)) / count;
    return rc;
}

int via_pio_measure_begin(struct via_pio_measure *measure, unsigned cpu, struct via_error *err)
{
    cpu_set_t set;
    measure->cpu = cpu >= VIA_PIO_ANY_CPU ? (unsigned)sched_getcpu() : cpu;
    CPU_ZERO(&set);
    CPU_SET(measure->cpu, &set);
    if (cpu != VIA_PIO_ANY_CPU && sched_setaffinity(0, sizeof(set), &set) != 0) {
        return via_error_set(err, -errno, "CPU %u: pin the thread: %s", measure->cpu,
                             strerror(errno));
    }
    measure->copy = mmap(NULL, COPY_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (measure->copy == MAP_FAILED) {
        measure->copy = NULL;
        return via_error_set(err, -errno, "%u bytes of memory: %s", COPY_BYTES, strerror(errno));
    }
    /* Not zero, because CPUs store zeros over zeros faster. */
    for (unsigned i = 0; i < COPY_BYTES; i++) {
        measure->copy[i] = (unsigned char)(i % 251 + 1);
    }
    via_pio_clock_init(&measure->clock);
    return 0;
}

void via_pio_measure_end(struct via_pio_measure *measure)
{
    if (measure->copy != NULL) {
        munmap(measure->copy, COPY_BYTES);
    }
}
