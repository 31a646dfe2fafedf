/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "conform_work.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"

#define SLEEP_NS (2 * VIA_SEC_NS)

/* From `off` on: two blocks, their flag, a line, a word, an acknowledgement, an earlier flag. */
#define BLOCK_BYTES 200u
#define BLOCK_OFF(round) (8u + (round) % 2 * 1024u)
#define FLAG_OFF 2048u
#define LINE_OFF 2112u
#define WORD_OFF 2176u
#define ACK_OFF 2240u
#define EARLIER_OFF 2304u

static void violation(struct conform_worker *worker, const char *format, ...) VIA_PRINTF(2, 3);
static void violation(struct conform_worker *worker, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&worker->lock);
    if (worker->report.violations++ == 0) {
        va_start(args, format);
        vsnprintf(worker->report.what, sizeof(worker->report.what), format, args);
        va_end(args);
    }
    pthread_mutex_unlock(&worker->lock);
}

static void progress(struct conform_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->report.steps++;
    pthread_mutex_unlock(&worker->lock);
}

static void body(struct conform_worker *worker, uint64_t off, const void *src, size_t len)
{
    struct via_port *port = worker->end->port;
    port->ops->body(port, worker->queue, worker->off + off, src, len);
}

static void commit(struct conform_worker *worker, uint64_t off, const void *src, size_t len)
{
    struct via_port *port = worker->end->port;
    port->ops->commit(port, worker->queue, worker->off + off, src, len);
}

/* Some ports accept the peer's writes only when they are called. */
static void take_writes(const struct conform_worker *worker)
{
    struct via_port *port = worker->end->port;
    (void)port->ops->events(port, VIA_PORT_EVENT_DOORBELL(worker->queue));
}

/* Pairs with the port's promise: a visible commit comes after all earlier writes. */
static uint64_t load_word(const struct conform_worker *worker, uint64_t off)
{
    const unsigned char *at = worker->end->port->inbox + worker->off + off;
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)at, memory_order_acquire);
}

static unsigned char load_byte(const struct conform_worker *worker, uint64_t off)
{
    const unsigned char *at = worker->end->port->inbox + worker->off + off;
    return atomic_load_explicit((const _Atomic unsigned char *)at, memory_order_relaxed);
}

/*
 * --- order: data in pieces, a flag, and another ---
 *
 * A body may become visible before earlier writes, so the writer reuses memory only after the
 * watcher has reported that it does not need it any more.
 */

/* True if the watcher has finished `round`. */
static bool is_acknowledged(struct conform_worker *worker, uint64_t round)
{
    if (load_word(worker, ACK_OFF) >= round) {
        return true;
    }
    sched_yield();
    return false;
}

static void acknowledge(struct conform_worker *worker, uint64_t round)
{
    struct via_port *port = worker->end->port;
    worker->seen = round;
    commit(worker, ACK_OFF, &round, sizeof(round));
    port->ops->flush(port, worker->queue);
}

static void write_order(struct conform_worker *worker)
{
    struct via_port *port = worker->end->port;
    unsigned char block[BLOCK_BYTES];
    if (worker->round >= 2 && !is_acknowledged(worker, worker->round - 1)) {
        return;
    }
    uint64_t round = ++worker->round;
    memset(block, (int)(round & 0xff), sizeof(block));
    unsigned first = (unsigned)via_rng_between(&worker->rng, 1, sizeof(block) - 1);
    body(worker, BLOCK_OFF(round) + first, block, sizeof(block) - first);
    body(worker, BLOCK_OFF(round), block, first);
    commit(worker, EARLIER_OFF, &round, sizeof(round));
    commit(worker, FLAG_OFF, &round, sizeof(round));
    port->ops->flush(port, worker->queue);
    progress(worker);
}

/* If the word of this round is visible, so are the bytes that were posted before it. */
static void check_bytes(struct conform_worker *worker, uint64_t off, unsigned count, uint64_t round)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned char byte = load_byte(worker, off + i);
        if (byte != (unsigned char)round) {
            violation(worker, "word %llu was seen, but byte %u before it was %u",
                      (unsigned long long)round, i, byte);
            return;
        }
    }
}

static void watch_order(struct conform_worker *worker)
{
    uint64_t round = load_word(worker, FLAG_OFF);
    uint64_t earlier = load_word(worker, EARLIER_OFF);
    if (round == worker->seen) {
        return;
    }
    if (earlier < round) {
        violation(worker, "flag %llu was seen, but the one committed before it was %llu",
                  (unsigned long long)round, (unsigned long long)earlier);
    }
    check_bytes(worker, BLOCK_OFF(round), BLOCK_BYTES, round);
    acknowledge(worker, round);
    progress(worker);
}

/* --- the last word of a line is seen last --- */

static void write_lines(struct conform_worker *worker)
{
    struct via_port *port = worker->end->port;
    unsigned char line[VIA_CACHELINE];
    if (!is_acknowledged(worker, worker->round)) {
        return;
    }
    uint64_t round = ++worker->round;
    memset(line, (int)(round & 0xff), sizeof(line) - sizeof(round));
    memcpy(line + sizeof(line) - sizeof(round), &round, sizeof(round));
    commit(worker, LINE_OFF, line, sizeof(line));
    port->ops->flush(port, worker->queue);
    progress(worker);
}

static void watch_lines(struct conform_worker *worker)
{
    unsigned before = VIA_CACHELINE - sizeof(uint64_t);
    uint64_t round = load_word(worker, LINE_OFF + before);
    if (round == worker->seen) {
        return;
    }
    check_bytes(worker, LINE_OFF, before, round);
    acknowledge(worker, round);
    progress(worker);
}

/* --- 8 bytes are seen whole --- */

static void write_words(struct conform_worker *worker)
{
    uint64_t word = (++worker->round & 0xff) * UINT64_C(0x0101010101010101);
    commit(worker, WORD_OFF, &word, sizeof(word));
    progress(worker);
}

static void watch_words(struct conform_worker *worker)
{
    uint64_t word = load_word(worker, WORD_OFF);
    if (word == worker->seen) {
        return;
    }
    worker->seen = word;
    if (word != (word & 0xff) * UINT64_C(0x0101010101010101)) {
        violation(worker, "a word was seen in part: %016llx", (unsigned long long)word);
        return;
    }
    progress(worker);
}

/* --- caps.writes_ordered: of two bodies the second is not seen first --- */

static void write_bodies(struct conform_worker *worker)
{
    struct via_port *port = worker->end->port;
    uint64_t round = ++worker->round;
    body(worker, EARLIER_OFF, &round, sizeof(round));
    body(worker, FLAG_OFF, &round, sizeof(round));
    port->ops->flush(port, worker->queue);
    progress(worker);
}

static void watch_bodies(struct conform_worker *worker)
{
    uint64_t round = load_word(worker, FLAG_OFF);
    uint64_t earlier = load_word(worker, EARLIER_OFF);
    if (round == worker->seen) {
        return;
    }
    worker->seen = round;
    if (earlier < round) {
        violation(worker, "body %llu was seen, but the one posted before it was %llu",
                  (unsigned long long)round, (unsigned long long)earlier);
    }
    progress(worker);
}

/* --- doorbells --- */

static void ringer(struct conform_worker *worker)
{
    if (load_word(worker, ACK_OFF) != worker->round) {
        sched_yield();
        return;
    }
    struct via_port *port = worker->end->port;
    worker->round++;
    /* Sometimes waits until the other side sleeps. */
    if (worker->threaded && via_rng_chance(&worker->rng, 1, 4)) {
        struct timespec pause = {.tv_nsec = (long)via_rng_below(&worker->rng, 200000)};
        nanosleep(&pause, NULL);
    }
    port->ops->flush(port, worker->queue);
    if (port->ops->ring(port, worker->queue, (unsigned)worker->count) != 0) {
        violation(worker, "ring %llu failed", (unsigned long long)worker->round);
    }
    progress(worker);
}

/* The protocol of emu.h: load count, clear events, check memory, announce, wait for a change. */
static bool sleep_on(struct conform_worker *worker, struct via_bell *bell, uint32_t count)
{
    struct timespec limit = {.tv_sec = SLEEP_NS / VIA_SEC_NS};
    if (atomic_load(&worker->stop)) {
        return true;
    }
    atomic_fetch_add_explicit(&bell->sleepers, 1, memory_order_seq_cst);
    long rc = syscall(SYS_futex, &bell->count, FUTEX_WAIT, count, &limit, NULL, 0);
    bool slept_on = rc != 0 && errno == ETIMEDOUT;
    atomic_fetch_sub_explicit(&bell->sleepers, 1, memory_order_relaxed);
    return !slept_on;
}

static void sleeper(struct conform_worker *worker)
{
    struct via_port *port = worker->end->port;
    struct via_bell *bells = worker->end->bell;
    unsigned bit = (unsigned)worker->count;
    struct via_bell *bell = bells ? &bells[via_emu_bell_line(bit, CONFORM_BELL_LINES)] : NULL;
    uint32_t count = bell ? atomic_load_explicit(&bell->count, memory_order_acquire) : 0;

    uint64_t events = port->ops->events(port, VIA_PORT_EVENT_DOORBELL(bit));
    if ((events & ~VIA_PORT_EVENT_DOORBELL(bit)) != 0) {
        violation(worker, "events %llx are not in the mask", (unsigned long long)events);
    }
    if (events != 0) {
        uint64_t round = ++worker->round;
        commit(worker, ACK_OFF, &round, sizeof(round));
        port->ops->flush(port, worker->queue);
        progress(worker);
        return;
    }
    if (bell == NULL || !worker->threaded || sleep_on(worker, bell, count)) {
        return;
    }
    /* No wake-up came for a long time. If an event is pending now, the wake-up was lost. */
    if ((port->ops->events(port, VIA_PORT_EVENT_DOORBELL(bit))) != 0) {
        violation(worker, "doorbell %u was rung after %llu others, and did not wake", bit,
                  (unsigned long long)worker->round);
    }
}

/* --- everything, at any time --- */

static void hammer(struct conform_worker *worker)
{
    struct via_port *port = worker->end->port;
    unsigned char bytes[256];
    uint64_t off = via_rng_below(&worker->rng, CONFORM_WORK_BYTES - sizeof(bytes));
    size_t len = via_rng_between(&worker->rng, 1, sizeof(bytes));

    memset(bytes, (int)len, sizeof(bytes));
    body(worker, off, bytes, len);
    commit(worker, off & ~UINT64_C(7), bytes, 8);
    commit(worker, off & ~UINT64_C(63), bytes, 64);
    if (port->window != NULL) {
        volatile unsigned char *window = port->window + worker->off + off;
        *window = (unsigned char)len;
        (void)*window;
    }
    (void)port->ops->link_is_up(port);
    (void)port->ops->ring(port, worker->queue, 13);
    (void)port->ops->events(port, VIA_PORT_EVENT_DOORBELL(12));
    (void)port->ops->fence_poll(port, worker->queue);
    if (worker->round++ % 64 == 0) {
        port->ops->flush(port, worker->queue);
        (void)port->ops->fence_start(port, worker->queue);
    }
    progress(worker);
}

void conform_worker_step(struct conform_worker *worker)
{
    if (worker->work != CONFORM_SLEEPER) {
        take_writes(worker);
    }
    switch (worker->work) {
    case CONFORM_WRITE_ORDER:
        write_order(worker);
        break;
    case CONFORM_WATCH_ORDER:
        watch_order(worker);
        break;
    case CONFORM_WRITE_LINES:
        write_lines(worker);
        break;
    case CONFORM_WATCH_LINES:
        watch_lines(worker);
        break;
    case CONFORM_WRITE_WORDS:
        write_words(worker);
        break;
    case CONFORM_WATCH_WORDS:
        watch_words(worker);
        break;
    case CONFORM_WRITE_BODIES:
        write_bodies(worker);
        break;
    case CONFORM_WATCH_BODIES:
        watch_bodies(worker);
        break;
    case CONFORM_RINGER:
        ringer(worker);
        break;
    case CONFORM_SLEEPER:
        sleeper(worker);
        break;
    case CONFORM_HAMMER:
        hammer(worker);
        break;
    }
}

static void *work(void *arg)
{
    struct conform_worker *worker = arg;
    for (unsigned step = 1; !atomic_load(&worker->stop); step++) {
        conform_worker_step(worker);
        /* The watcher must see the writes even on a busy CPU. */
        if (step % 16 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

void conform_worker_start(struct conform_worker *worker, struct conform_end *end, unsigned queue,
                          bool threaded, enum conform_work kind, uint64_t off, uint64_t count)
{
    memset(worker, 0, sizeof(*worker));
    worker->end = end;
    worker->queue = queue;
    worker->work = kind;
    worker->off = off;
    worker->count = count;
    worker->threaded = threaded;
    via_rng_init(&worker->rng, off + count + end->side);
    pthread_mutex_init(&worker->lock, NULL);
    worker->running = !threaded || pthread_create(&worker->thread, NULL, work, worker) == 0;
}

void conform_worker_check(struct conform_worker *worker, struct conform_report *ret_report)
{
    pthread_mutex_lock(&worker->lock);
    *ret_report = worker->report;
    pthread_mutex_unlock(&worker->lock);
}

void conform_worker_stop(struct conform_worker *worker)
{
    if (!worker->running) {
        return;
    }
    worker->running = false;
    atomic_store(&worker->stop, true);
    if (worker->threaded) {
        for (unsigned i = 0; worker->end->bell != NULL && i < CONFORM_BELL_LINES; i++) {
            via_bell_ring(&worker->end->bell[i]);
        }
        pthread_join(worker->thread, NULL);
    }
}
