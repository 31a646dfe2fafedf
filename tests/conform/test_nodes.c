/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Two nodes over an emulated link, run as by a host, but in one process: each with a control
 * thread that sleeps on the port's descriptor, and a transfer thread that sleeps on the bell page.
 * Messages and puts go both ways while the link is cut, torn and mended: each message arrives once
 * and in order, and each put at its place.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/node.h"
#include "port/emu/emu.h"
#include "port/emu/like.h"
#include "port/emu/memory.h"
#include "port/fault.h"

#define MESSAGES 4000u
#define MESSAGES_A_TURN 20u /* maximum, so that the work lasts for several cuts */
#define PUTS 40u
#define PUT_BYTES (64u << 10)
#define SEGMENT_BYTES (PUTS * PUT_BYTES)
#define ENDPOINT 7u
#define SPINS 200u
/* Limit of a sleep, because the plan drops doorbells; a host has the same limit. Without such a
 * plan a lost wake-up takes longer than the test waits. */
#define SLEEP_NS_MAX (20 * VIA_MSEC_NS)
#define PATIENCE_NS (60 * VIA_SEC_NS)

enum { COOKIE_MESSAGE = 1, COOKIE_PUT = 2 };

struct message {
    uint32_t number;
    uint32_t check;
    unsigned char filler[100];
};

struct host {
    uint16_t id;
    struct host *peer;
    struct via_port *emu, *port; /* port: emu, or the fault port around it */
    int bell_fd;
    struct via_bell *bell;
    struct via_node *node;
    void *memory;
    unsigned char *segment, *source;
    uint64_t handle;
    pthread_t control, transfer;
    uint64_t sleep_ns_max;
    _Atomic bool stop;
    _Atomic int cut_wish; /* for the control thread: 1 cut, 2 tear the next put, 3 mend */

    _Atomic uint32_t allowed; /* messages, so far */

    /* the transfer thread's */
    struct message outgoing[MESSAGES];
    uint32_t messages_begun, puts_begun;
    _Atomic uint32_t messages_received, messages_done, puts_done;
    _Atomic uint32_t sleeps;
    _Atomic uint32_t wrong; /* what must not happen */
    char what[160];
};

struct fabric {
    char directory[64];
    struct host host[2];
    unsigned running; /* hosts with threads */
};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
}

static void wrong(struct host *host, const char *format, ...) VIA_PRINTF(2, 3);
static void wrong(struct host *host, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (atomic_fetch_add(&host->wrong, 1) == 0) {
        vsnprintf(host->what, sizeof(host->what), format, args);
    }
    va_end(args);
}

/* --- what the node calls --- */

static uint32_t check_of(uint32_t number)
{
    return number * 2654435761u;
}

static int on_deliver(void *ctx, const struct via_delivery *delivery)
{
    struct host *host = ctx;
    struct message message;
    uint32_t expected = atomic_load(&host->messages_received);
    if (delivery->bytes != sizeof(message) || delivery->endpoint != ENDPOINT ||
        delivery->source != host->peer->id) {
        wrong(host, "a message of %u bytes from host %u", delivery->bytes, delivery->source);
        return 0;
    }
    memcpy(&message, delivery->data, sizeof(message));
    if (message.number != expected || message.check != check_of(expected)) {
        wrong(host, "message %u came where %u was due", message.number, expected);
    }
    atomic_store(&host->messages_received, expected + 1);
    return 0;
}

static void on_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct host *host = ctx;
    (void)channel, (void)value;
    if (status != 0) {
        wrong(host, "operation %llu ended with %d", (unsigned long long)cookie, status);
    }
    atomic_fetch_add(cookie == COOKIE_PUT ? &host->puts_done : &host->messages_done, 1);
}

static void on_notify(void *ctx, unsigned channel, uint64_t handle)
{
    (void)ctx, (void)channel, (void)handle;
}

static void on_wake(void *ctx, unsigned channel)
{
    struct host *host = ctx;
    via_bell_ring(&host->bell[channel]);
}

/* --- the threads of a host --- */

static bool submit(struct host *host)
{
    struct via_op op = {.destination = host->peer->id};
    if (host->messages_begun < MESSAGES && host->messages_begun < atomic_load(&host->allowed)) {
        op.kind = VIA_OP_MESSAGE;
        op.endpoint = ENDPOINT;
        op.source = &host->outgoing[host->messages_begun];
        op.bytes = sizeof(struct message);
        op.cookie = COOKIE_MESSAGE;
        if (via_node_submit(host->node, 0, &op) == 0) {
            host->messages_begun++;
            return true;
        }
    }
    /* Messages and puts proceed together, so that both are under way when the link is cut. */
    if (host->puts_begun < PUTS && host->puts_begun * (MESSAGES / PUTS) <= host->messages_begun) {
        op.kind = VIA_OP_PUT;
        op.segment = host->peer->handle;
        op.offset = (uint64_t)host->puts_begun * PUT_BYTES;
        op.source = host->source + op.offset;
        op.bytes = PUT_BYTES;
        op.flow = 1;
        op.cookie = COOKIE_PUT;
        if (via_node_submit(host->node, 0, &op) == 0) {
            host->puts_begun++;
            return true;
        }
    }
    return false;
}

static void sleep_on(struct host *host, uint32_t count, uint64_t deadline_ns)
{
    uint64_t time_ns = now();
    uint64_t wait_ns =
        deadline_ns > time_ns ? via_min(deadline_ns - time_ns, host->sleep_ns_max) : 0;
    struct timespec limit = {.tv_sec = (time_t)(wait_ns / VIA_SEC_NS),
                             .tv_nsec = (long)(wait_ns % VIA_SEC_NS)};
    atomic_fetch_add_explicit(&host->bell->sleepers, 1, memory_order_seq_cst);
    syscall(SYS_futex, &host->bell->count, FUTEX_WAIT, count, &limit, NULL, 0);
    atomic_fetch_sub_explicit(&host->bell->sleepers, 1, memory_order_relaxed);
    atomic_fetch_add(&host->sleeps, 1);
}

static void *transfer(void *arg)
{
    struct host *host = arg;
    unsigned idle = 0;
    while (!atomic_load(&host->stop)) {
        /* Saved before any check, because later events change it. */
        uint32_t count = atomic_load_explicit(&host->bell->count, memory_order_acquire);
        uint64_t deadline_ns;
        unsigned done = via_node_poll(host->node, 0, now(), &deadline_ns);
        done += submit(host);
        idle = done != 0 ? 0 : idle + 1;
        if (idle > SPINS && via_node_arm(host->node, 0) == VIA_ARM_SLEEP) {
            sleep_on(host, count, deadline_ns);
            idle = 0;
        }
    }
    return NULL;
}

static void take_wish(struct host *host)
{
    switch (atomic_exchange(&host->cut_wish, 0)) {
    case 1:
        via_fault_port_cut(host->port, true);
        break;
    case 2:
        via_fault_port_act(host->port, VIA_FAULT_TEAR_NEXT, 0);
        break;
    case 3:
        via_fault_port_cut(host->port, false);
        break;
    default:
        break;
    }
}

static void *control(void *arg)
{
    struct host *host = arg;
    struct pollfd fd = {.fd = via_emu_port_fd(host->emu), .events = POLLIN};
    while (!atomic_load(&host->stop)) {
        uint64_t port_ns, node_ns, fault_ns = VIA_NEVER_NS;
        take_wish(host);
        if (host->port != host->emu) {
            via_fault_port_pump(host->port, now(), &fault_ns);
        }
        via_emu_port_service(host->emu, now(), &port_ns);
        via_node_control(host->node, now(), &node_ns);
        uint64_t deadline_ns = via_min(via_min(port_ns, node_ns), fault_ns);
        uint64_t time_ns = now();
        uint64_t wait_ns = deadline_ns > time_ns ? deadline_ns - time_ns : 0;
        /* The control thread notices a request, or a torn put that needs its cut, within 2 ms. */
        poll(&fd, 1, (int)via_min(wait_ns / VIA_MSEC_NS + (wait_ns != 0), UINT64_C(2)));
    }
    return NULL;
}

/* --- making and ending --- */

static void cut_emu(void *ctx, struct via_port *inner, bool cut)
{
    (void)ctx;
    via_emu_port_cut(inner, cut);
}

static void node_config(struct via_node_config *config, const struct host *host)
{
    via_node_config_init(config);
    config->host = host->id;
    config->hosts_max = 8;
    config->session = 1000u + host->id;
    config->ports_count = 1;
    config->channels_count = 1;
}

/* Of the link. */
struct kind {
    const char *like;
    bool direct;
};

static void open_host(struct fabric *fabric, struct host *host, unsigned side,
                      const struct kind *kind, const struct via_fault_plan *plan)
{
    struct via_node_config config;
    struct via_error err;
    char path[96];

    node_config(&config, host);
    host->sleep_ns_max = plan != NULL && plan->drop_chance != 0 ? SLEEP_NS_MAX : 2 * PATIENCE_NS;
    assert_int_equal(via_emu_memfd_new("bell", 4096, &host->bell_fd), 0);
    host->bell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, host->bell_fd, 0);
    snprintf(path, sizeof(path), "%s/link-1-2-0.sock", fabric->directory);
    struct via_emu_options options = {
        .path = path,
        .side = side,
        .host = host->id,
        .inbox_bytes = via_align_up(via_node_inbox_bytes(&config), 4096),
        .bell_fd = host->bell_fd,
        .bell_lines = 1,
        .direct = kind->direct,
        .like = via_emu_like_find(kind->like),
        .seed = host->id,
    };
    if (via_emu_port_open(&options, &host->emu, &err) != 0) {
        fail_msg("%s", err.text);
    }
    host->port = host->emu;
    if (plan != NULL && side == 0) {
        assert_int_equal(via_fault_port_open(host->emu, plan, &host->port), 0);
    }

    struct via_node_env env = {.ctx = host,
                               .deliver = on_deliver,
                               .complete = on_complete,
                               .notify = on_notify,
                               .wake = on_wake};
    size_t bytes = via_align_up(via_node_bytes(&config), 64);
    host->memory = aligned_alloc(64, bytes);
    assert_int_equal(via_node_init(&host->node, host->memory, &config, &env), 0);
    assert_int_equal(via_node_port_set(host->node, 0, host->port), 0);

    host->segment = calloc(1, SEGMENT_BYTES);
    host->source = malloc(SEGMENT_BYTES);
    for (size_t i = 0; i < SEGMENT_BYTES; i++) {
        host->source[i] = (unsigned char)(i * 7 + i / PUT_BYTES + host->id);
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        host->outgoing[i] = (struct message){.number = i, .check = check_of(i)};
    }
    assert_int_equal(via_node_segment_add(host->node, host->segment, SEGMENT_BYTES,
                                          VIA_SEGMENT_READ | VIA_SEGMENT_WRITE,
                                          UINT64_C(0x1234567890ab), &host->handle),
                     0);
}

static void stop_host(struct host *host)
{
    atomic_store(&host->stop, true);
    via_bell_ring(host->bell);
    pthread_join(host->transfer, NULL);
    pthread_join(host->control, NULL);
    via_node_fini(host->node);
}

static void stop_hosts(struct fabric *fabric)
{
    while (fabric->running != 0) {
        stop_host(&fabric->host[--fabric->running]);
    }
}

static void close_host(struct host *host)
{
    if (host->port == NULL) {
        return;
    }
    host->port->ops->close(host->port);
    munmap(host->bell, 4096);
    close(host->bell_fd);
    free(host->memory);
    free(host->segment);
    free(host->source);
}

static int set_up(void **state)
{
    struct fabric *fabric = calloc(1, sizeof(*fabric));
    snprintf(fabric->directory, sizeof(fabric->directory), "/tmp/via-nodes-XXXXXX");
    *state = fabric;
    return mkdtemp(fabric->directory) != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fabric *fabric = *state;
    stop_hosts(fabric);
    close_host(&fabric->host[0]);
    close_host(&fabric->host[1]);
    int rc = rmdir(fabric->directory);
    free(fabric);
    return rc;
}

static bool all_done(const struct host *host)
{
    return atomic_load(&host->messages_received) == MESSAGES &&
           atomic_load(&host->messages_done) == MESSAGES && atomic_load(&host->puts_done) == PUTS;
}

static void pause_ms(unsigned ms)
{
    struct timespec pause = {.tv_nsec = (long)ms * 1000000};
    nanosleep(&pause, NULL);
}

static void check(struct fabric *fabric)
{
    for (unsigned i = 0; i < 2; i++) {
        struct host *host = &fabric->host[i];
        if (atomic_load(&host->wrong) != 0) {
            fail_msg("host %u: %s", host->id, host->what);
        }
    }
}

/* Opens both hosts, lets `fault` disturb them until all messages and puts have ended, then checks
 * the arrivals. */
static void run(struct fabric *fabric, const struct kind *kind, const struct via_fault_plan *plan,
                void (*disturb)(struct fabric *fabric, unsigned turn))
{
    for (unsigned i = 0; i < 2; i++) {
        fabric->host[i].id = (uint16_t)(i + 1);
        fabric->host[i].peer = &fabric->host[1 - i];
        open_host(fabric, &fabric->host[i], i, kind, plan);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct host *host = &fabric->host[i];
        assert_int_equal(pthread_create(&host->control, NULL, control, host), 0);
        assert_int_equal(pthread_create(&host->transfer, NULL, transfer, host), 0);
        fabric->running++;
    }
    uint64_t limit_ns = now() + PATIENCE_NS;
    for (unsigned turn = 0; !all_done(&fabric->host[0]) || !all_done(&fabric->host[1]); turn++) {
        if (now() > limit_ns) {
            fail_msg("not done: host 1 has %u messages and %u puts, host 2 %u and %u",
                     fabric->host[0].messages_received, fabric->host[0].puts_done,
                     fabric->host[1].messages_received, fabric->host[1].puts_done);
        }
        check(fabric);
        for (unsigned i = 0; i < 2; i++) {
            atomic_store(&fabric->host[i].allowed, (turn + 1) * MESSAGES_A_TURN);
            via_bell_ring(fabric->host[i].bell);
        }
        if (disturb != NULL) {
            disturb(fabric, turn);
        }
        pause_ms(1);
    }
    pause_ms(60); /* idle now: both sleep */
    struct via_fault_stats stats = {0};
    if (plan != NULL) {
        via_fault_port_stats(fabric->host[0].port, &stats);
    }
    uint32_t sleeps = atomic_load(&fabric->host[0].sleeps);
    stop_hosts(fabric);
    check(fabric);
    for (unsigned i = 0; i < 2; i++) {
        assert_memory_equal(fabric->host[i].segment, fabric->host[1 - i].source, SEGMENT_BYTES);
    }
    assert_true(sleeps != 0);
    if (disturb != NULL) {
        assert_true(stats.cuts >= 3 && stats.mends >= 3);
    }
}

static const struct kind memory = {"memory", true};
static const struct kind functions = {"memory", false};
static const struct kind pex = {"pex", true};
static const struct kind ivshmem = {"ivshmem", true};
static const struct kind network = {"network", true};

static void two_nodes_exchange_messages_and_puts(void **state)
{
    run(*state, &memory, NULL, NULL);
}

static void the_same_without_direct_mapping(void **state)
{
    run(*state, &functions, NULL, NULL);
}

static void the_same_like_pex(void **state)
{
    run(*state, &pex, NULL, NULL);
}

static void the_same_like_ivshmem(void **state)
{
    run(*state, &ivshmem, NULL, NULL);
}

static void the_same_like_network(void **state)
{
    run(*state, &network, NULL, NULL);
}

static void cut_and_mend(struct fabric *fabric, unsigned turn)
{
    if (turn % 40 == 10) {
        atomic_store(&fabric->host[0].cut_wish, 1);
    } else if (turn % 40 == 20) {
        atomic_store(&fabric->host[0].cut_wish, 3);
    }
}

static void nothing_is_lost_when_the_link_is_cut_and_mended(void **state)
{
    struct via_fault_plan plan = {.seed = 1, .cut = cut_emu};
    run(*state, &memory, &plan, cut_and_mend);
}

static void nothing_is_lost_like_pex_when_the_link_is_cut_and_mended(void **state)
{
    struct via_fault_plan plan = {.seed = 1, .cut = cut_emu};
    run(*state, &pex, &plan, cut_and_mend);
}

static void nothing_is_lost_like_ivshmem_when_the_link_is_cut_and_mended(void **state)
{
    struct via_fault_plan plan = {.seed = 1, .cut = cut_emu};
    run(*state, &ivshmem, &plan, cut_and_mend);
}

static void tear(struct fabric *fabric, unsigned turn)
{
    if (turn % 30 == 1) {
        atomic_store(&fabric->host[0].cut_wish, 2);
    }
}

static void nothing_is_lost_when_puts_are_torn_and_doorbells_dropped(void **state)
{
    struct via_fault_plan plan = {.seed = 2,
                                  .delay_chance = 2000,
                                  .drop_chance = 100000,
                                  .double_chance = 100000,
                                  .down_ns_max = 5 * VIA_MSEC_NS,
                                  .cut = cut_emu};
    run(*state, &functions, &plan, tear);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(two_nodes_exchange_messages_and_puts),
        TEST(the_same_without_direct_mapping),
        TEST(the_same_like_pex),
        TEST(the_same_like_ivshmem),
        TEST(the_same_like_network),
        TEST(nothing_is_lost_when_the_link_is_cut_and_mended),
        TEST(nothing_is_lost_like_pex_when_the_link_is_cut_and_mended),
        TEST(nothing_is_lost_like_ivshmem_when_the_link_is_cut_and_mended),
        TEST(nothing_is_lost_when_puts_are_torn_and_doorbells_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
