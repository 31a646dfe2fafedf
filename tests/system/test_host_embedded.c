/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Hosts embedded in this process, used through the client library. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/client_sys.h"
#include "host/control.h"
#include "tests/system/host_lab.h"

#define BYTES (1u << 20)

struct pair {
    struct host_lab lab;
    struct via_attach *a;        /* at host 0 */
    struct via_attach *b;        /* at the last host */
    unsigned far;                /* id of the last host */
    struct via_segment *segment; /* of b */
    struct via_remote *remote;   /* a's view of it */
};

static void open_pair_as(struct pair *pair, unsigned hosts, bool direct,
                         void (*change)(struct via_host_options *options))
{
    host_lab_init(&pair->lab, hosts, false, direct);
    for (unsigned i = 0; i < hosts; i++) {
        host_lab_start(&pair->lab, i, change);
    }
    host_lab_wait_routes(&pair->lab);
    pair->far = hosts - 1;
    pair->a = host_lab_attach(&pair->lab, 0);
    pair->b = host_lab_attach(&pair->lab, pair->far);
    assert_int_equal(via_segment_new(pair->b, BYTES, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE,
                                     &pair->segment),
                     0);
    assert_int_equal(via_remote_open(pair->a, pair->far, via_segment_handle(pair->segment), BYTES,
                                     &pair->remote),
                     0);
}

static void open_pair(struct pair *pair, unsigned hosts, bool direct)
{
    open_pair_as(pair, hosts, direct, NULL);
}

static void close_pair(struct pair *pair)
{
    via_remote_close(pair->remote);
    via_segment_free(pair->segment);
    via_attach_close(pair->a);
    via_attach_close(pair->b);
    host_lab_fini(&pair->lab);
}

static void fill(unsigned char *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 7 + seed + (i >> 8));
    }
}

/* All operations, between a and b. */
static void operate(struct pair *pair)
{
    unsigned char *data = malloc(BYTES);
    unsigned char *back = malloc(BYTES);
    fill(data, BYTES, 1);
    assert_int_equal(via_remote_put(pair->remote, 0, data, BYTES, 0), 0);
    assert_int_equal(via_attach_quiet(pair->a), 0);
    assert_memory_equal(via_segment_base(pair->segment), data, BYTES);
    assert_int_equal(via_remote_get(pair->remote, 0, back, BYTES), 0);
    assert_memory_equal(back, data, BYTES);

    struct via_segment *source;
    assert_int_equal(via_segment_new(pair->a, BYTES, VIADUCT_SEGMENT_READ, &source), 0);
    fill(via_segment_base(source), BYTES, 9);
    assert_int_equal(via_remote_put_from(pair->remote, 0, source, 0, BYTES, 0), 0);
    assert_int_equal(via_attach_quiet(pair->a), 0);
    assert_memory_equal(via_segment_base(pair->segment), via_segment_base(source), BYTES);
    via_segment_free(source);

    uint64_t old = 0;
    uint64_t value = 40;
    assert_int_equal(via_remote_put(pair->remote, 64, &value, 8, 0), 0);
    assert_int_equal(via_remote_atomic(pair->remote, 64, 8, VIADUCT_ATOMIC_ADD, 2, 0, &old), 0);
    assert_int_equal(old, 40);
    assert_int_equal(
        via_remote_put_signal(pair->remote, 128, "signal", 7, 64, 100, VIADUCT_SIGNAL_ADD), 0);
    assert_int_equal(via_attach_quiet(pair->a), 0);
    const unsigned char *base = via_segment_base(pair->segment);
    memcpy(&value, base + 64, 8);
    assert_int_equal(value, 142);
    assert_string_equal((const char *)base + 128, "signal");

    free(data);
    free(back);
}

/* All operations through the frames of `hosts` hosts in a row. */
static void all_operations(unsigned hosts, bool direct)
{
    struct pair pair;
    open_pair(&pair, hosts, direct);
    assert_int_equal(via_remote_direct(pair.remote) != NULL, direct && hosts == 2);
    operate(&pair);
    close_pair(&pair);
}

static void operations_between_neighbours_by_frames(void **state)
{
    (void)state;
    all_operations(2, false);
}

static void operations_between_neighbours_direct(void **state)
{
    (void)state;
    all_operations(2, true);
}

static void operations_over_two_relays(void **state)
{
    (void)state;
    all_operations(4, true);
}

static uint64_t link_counter(struct host_lab *lab, unsigned host, unsigned link, const char *name)
{
    json_t *status = host_lab_status(lab, host);
    json_t *value = json_object_get(json_array_get(json_object_get(status, "links"), link), name);
    assert_true(json_is_integer(value));
    uint64_t count = (uint64_t)json_integer_value(value);
    json_decref(status);
    return count;
}

static void by_dma(struct via_host_options *options)
{
    options->dma_bytes_min = 4096;
}

/* The emulated engine, used by the threads of real hosts: for bodies that this host sends, and for
 * relayed ones. */
static void operations_by_dma(void **state)
{
    (void)state;
    struct pair pair;
    open_pair_as(&pair, 3, false, by_dma);
    for (unsigned round = 0; round < 4; round++) {
        operate(&pair);
    }
    const unsigned hosts[] = {0, 1, 1, 2};
    const unsigned links[] = {0, 0, 1, 0};
    for (unsigned i = 0; i < 4; i++) {
        assert_true(link_counter(&pair.lab, hosts[i], links[i], "dma_frames") != 0);
        assert_true(link_counter(&pair.lab, hosts[i], links[i], "dma_bytes") >= 32768);
        assert_int_equal(link_counter(&pair.lab, hosts[i], links[i], "dma_hangs"), 0);
        assert_int_equal(link_counter(&pair.lab, hosts[i], links[i], "dma_fallbacks"), 0);
        assert_int_equal(link_counter(&pair.lab, hosts[i], links[i], "downs"), 0);
    }
    /* A link that goes down during transfers loses nothing either. */
    unsigned char *data = malloc(BYTES);
    for (unsigned round = 0; round < 10; round++) {
        fill(data, BYTES, round);
        assert_int_equal(via_remote_put(pair.remote, 0, data, BYTES, 0), 0);
        host_lab_cut(&pair.lab, 1, 2, "cut");
        host_lab_cut(&pair.lab, 1, 2, "mend");
        assert_int_equal(via_attach_quiet(pair.a), 0);
        assert_memory_equal(via_segment_base(pair.segment), data, BYTES);
    }
    free(data);
    close_pair(&pair);
}

#define MESSAGES 5000u

static void make_message(unsigned number, unsigned char text[200], size_t *ret_bytes)
{
    memset(text, (int)number, 200);
    memcpy(text, &number, sizeof(number));
    *ret_bytes = 4 + number % 190;
}

static void *send_all(void *argument)
{
    struct pair *pair = argument;
    uintptr_t failures = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        unsigned char text[200];
        size_t bytes;
        make_message(i, text, &bytes);
        failures += via_message_send(pair->a, pair->far, 7, 1, text, bytes) != 0;
    }
    return (void *)failures;
}

static void messages_arrive_in_order_and_wait_for_a_slow_receiver(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t sender;
    void *failures;
    open_pair(&pair, 3, true);
    assert_int_equal(via_endpoint_open(pair.b, 7), 0);
    assert_int_equal(via_endpoint_open(pair.a, 7), 0); /* of another host */
    struct via_attach *other = host_lab_attach(&pair.lab, pair.far);
    assert_int_equal(via_endpoint_open(other, 7), -EADDRINUSE);
    via_attach_close(other);

    assert_int_equal(pthread_create(&sender, NULL, send_all, &pair), 0);
    usleep(100000); /* then the pipes between them are full */
    for (unsigned i = 0; i < MESSAGES; i++) {
        unsigned char text[200];
        unsigned char expected[200];
        size_t bytes;
        struct via_message_info info;
        make_message(i, expected, &bytes);
        assert_int_equal(via_message_receive(pair.b, text, sizeof(text), 60000, &info), bytes);
        assert_memory_equal(text, expected, bytes);
        assert_int_equal(info.source_host, 0);
        assert_int_equal(info.source_endpoint, 1);
        assert_int_equal(info.endpoint, 7);
    }
    pthread_join(sender, &failures);
    assert_null(failures);
    assert_int_equal(via_attach_quiet(pair.a), 0);

    assert_int_equal(via_message_send(pair.a, pair.far, 8, 0, "x", 1), 0);
    assert_int_equal(via_attach_quiet(pair.a), -ENOENT);
    assert_int_equal(via_endpoint_close(pair.b, 7), 0);
    assert_int_equal(via_message_send(pair.a, pair.far, 7, 0, "x", 1), 0);
    assert_int_equal(via_attach_quiet(pair.a), -ENOENT);
    close_pair(&pair);
}

static void notes_hang_on_boards_until_taken_or_their_poster_goes(void **state)
{
    (void)state;
    struct pair pair;
    char value[VIADUCT_BOARD_VALUE_MAX];
    open_pair(&pair, 3, true);
    assert_int_equal(via_board_take(pair.b, "key", 3, value, sizeof(value)), -ENOENT);
    assert_int_equal(via_board_post(pair.a, pair.far, "key", 3, "first", 5, 60000), 0);
    assert_int_equal(via_board_post(pair.a, pair.far, "key", 3, "other", 5, 60000), 0);
    assert_int_equal(via_board_take(pair.b, "key", 3, value, sizeof(value)), 5);
    assert_memory_equal(value, "other", 5);
    assert_int_equal(via_board_take(pair.b, "key", 3, value, sizeof(value)), -ENOENT);

    /* Also on the same host; a note ends when its time to live is over. */
    assert_int_equal(via_board_post(pair.b, pair.far, "own", 3, NULL, 0, 60000), 0);
    assert_int_equal(via_board_take(pair.b, "own", 3, value, sizeof(value)), 0);
    assert_int_equal(via_board_post(pair.a, pair.far, "short", 5, "x", 1, 20), 0);
    uint64_t end_ns = host_lab_now_ns() + 40 * VIA_MSEC_NS;
    while (host_lab_now_ns() < end_ns) {
    }
    assert_int_equal(via_board_take(pair.b, "short", 5, value, sizeof(value)), -ENOENT);

    struct via_attach *poster = host_lab_attach(&pair.lab, 0);
    assert_int_equal(via_board_post(poster, pair.far, "gone", 4, "x", 1, 60000), 0);
    assert_int_equal(host_lab_counter(&pair.lab, pair.far, "notes"), 1);
    via_attach_close(poster);
    uint64_t deadline_ns = host_lab_now_ns() + 60 * VIA_SEC_NS;
    while (host_lab_counter(&pair.lab, pair.far, "notes") != 0) {
        assert_true(host_lab_now_ns() < deadline_ns);
    }
    assert_int_equal(via_board_take(pair.b, "gone", 4, value, sizeof(value)), -ENOENT);
    close_pair(&pair);
}

/* An epoll set that reports each ring. */
static int listen_to(const struct via_attach *attach)
{
    struct epoll_event event = {.events = VIA_BELL_EVENTS};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, via_attach_bell_fd(attach), &event), 0);
    return epoll_fd;
}

static bool bell_rings(int epoll_fd, int timeout_ms)
{
    struct epoll_event event;
    return epoll_wait(epoll_fd, &event, 1, timeout_ms) == 1;
}

static void silence_bell(int epoll_fd)
{
    while (bell_rings(epoll_fd, 50)) {
    }
}

static void a_put_with_notify_rings_the_owner_of_the_memory(void **state)
{
    (void)state;
    struct pair pair;
    open_pair(&pair, 3, true);
    int bell = listen_to(pair.b);
    silence_bell(bell);
    assert_int_equal(via_remote_put(pair.remote, 0, "quiet", 6, 0), 0);
    assert_int_equal(via_attach_quiet(pair.a), 0);
    assert_false(bell_rings(bell, 50));
    assert_int_equal(via_remote_put(pair.remote, 0, "loud", 5, VIADUCT_PUT_NOTIFY), 0);
    assert_true(bell_rings(bell, 60000));
    assert_string_equal(via_segment_base(pair.segment), "loud");
    silence_bell(bell);
    /* A change of the path to a host that was queried rings, too. */
    assert_int_equal(via_attach_hops(pair.b, 0), 2);
    silence_bell(bell);
    host_lab_cut(&pair.lab, 0, 1, "cut");
    assert_true(bell_rings(bell, 60000));
    assert_int_equal(via_attach_hops(pair.b, 0), -EHOSTUNREACH);
    close(bell);
    close_pair(&pair);
}

static void notes_of_a_host_go_when_it_restarts(void **state)
{
    (void)state;
    struct host_lab lab;
    char value[VIADUCT_BOARD_VALUE_MAX];
    host_lab_init(&lab, 2, false, true);
    host_lab_start_all(&lab);
    struct via_attach *poster = host_lab_attach(&lab, 0);
    struct via_attach *taker = host_lab_attach(&lab, 1);
    assert_int_equal(via_board_post(poster, 1, "old", 3, "x", 1, 600000), 0);
    host_lab_end(&lab, 0);
    via_attach_close(poster);
    host_lab_start(&lab, 0, NULL);
    host_lab_wait_routes(&lab);
    poster = host_lab_attach(&lab, 0);
    assert_int_equal(via_board_post(poster, 1, "new", 3, "x", 1, 600000), 0);
    assert_int_equal(via_board_take(taker, "old", 3, value, sizeof(value)), -ENOENT);
    assert_int_equal(via_board_take(taker, "new", 3, value, sizeof(value)), 1);
    via_attach_close(poster);
    via_attach_close(taker);
    host_lab_fini(&lab);
}

static void wrong_keys_and_places_are_refused_and_counted(void **state)
{
    (void)state;
    struct pair pair;
    struct via_remote *wrong;
    open_pair(&pair, 2, false);
    uint64_t handle = via_segment_handle(pair.segment) ^ UINT64_C(0x10000);
    assert_int_equal(via_remote_open(pair.a, pair.far, handle, BYTES, &wrong), 0);
    assert_int_equal(via_remote_put(wrong, 0, "x", 1, 0), 0);
    assert_int_equal(via_attach_quiet(pair.a), -EACCES);
    via_remote_close(wrong);
    assert_true(host_lab_counter(&pair.lab, pair.far, "refused_key") >= 1);

    handle = via_segment_handle(pair.segment);
    assert_int_equal(via_remote_open(pair.a, pair.far, handle, 2 * BYTES, &wrong), 0);
    assert_int_equal(via_remote_put(wrong, 2 * BYTES - 1, "x", 1, 0), 0);
    assert_int_equal(via_attach_quiet(pair.a), -ERANGE);
    via_remote_close(wrong);
    assert_true(host_lab_counter(&pair.lab, pair.far, "refused_range") >= 1);
    close_pair(&pair);

    /* For a segment that would be mapped, the open reports the error. */
    open_pair(&pair, 2, true);
    handle = via_segment_handle(pair.segment) ^ UINT64_C(0x10000);
    assert_int_equal(via_remote_open(pair.a, pair.far, handle, BYTES, &wrong), -EACCES);
    assert_true(host_lab_counter(&pair.lab, pair.far, "maps_refused") >= 1);
    close_pair(&pair);
}

static void a_cut_changes_the_route_and_a_mend_restores_it(void **state)
{
    (void)state;
    struct host_lab lab;
    host_lab_init(&lab, 4, true, true);
    host_lab_start_all(&lab);
    struct via_attach *a = host_lab_attach(&lab, 0);
    struct via_attach *b = host_lab_attach(&lab, 1);
    struct via_segment *segment;
    struct via_remote *remote;
    assert_int_equal(
        via_segment_new(b, 4096, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &segment), 0);
    assert_int_equal(via_remote_open(a, 1, via_segment_handle(segment), 4096, &remote), 0);
    assert_non_null(via_remote_direct(remote));

    uint64_t value = 1;
    host_lab_cut(&lab, 0, 1, "cut");
    assert_null(via_remote_direct(remote)); /* returns before the host answers */
    host_lab_wait_hops(&lab, 0, 1, 3);
    assert_int_equal(via_remote_put(remote, 0, &value, 8, 0), 0);
    assert_int_equal(via_attach_quiet(a), 0);
    assert_int_equal(*(uint64_t *)via_segment_base(segment), 1);

    host_lab_cut(&lab, 1, 0, "mend");
    host_lab_wait_hops(&lab, 0, 1, 1);
    value = 2;
    assert_int_equal(via_remote_put(remote, 0, &value, 8, 0), 0);
    assert_int_equal(via_attach_quiet(a), 0);
    assert_int_equal(*(uint64_t *)via_segment_base(segment), 2);
    via_remote_close(remote);
    via_segment_free(segment);
    via_attach_close(a);
    via_attach_close(b);
    host_lab_fini(&lab);
}

struct member {
    struct via_attach *attach;
    pthread_t thread;
    _Atomic unsigned *arrived; /* in this round */
    unsigned failures;
};

static const uint16_t members[] = {0, 1, 2};
#define ROUNDS 200u

static void *meet(void *argument)
{
    struct member *member = argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        atomic_fetch_add(&member->arrived[round], 1);
        member->failures += via_barrier(member->attach, 5, members, 3) != 0;
        member->failures += atomic_load(&member->arrived[round]) != 3;
    }
    return NULL;
}

static void hosts_meet_in_a_barrier(void **state)
{
    (void)state;
    static _Atomic unsigned arrived[ROUNDS];
    static const uint16_t falling[] = {2, 1};
    static const uint16_t others[] = {1, 2};
    struct host_lab lab;
    struct member all[3];
    host_lab_init(&lab, 3, true, true);
    host_lab_start_all(&lab);
    for (unsigned i = 0; i < 3; i++) {
        all[i] = (struct member){.attach = host_lab_attach(&lab, i), .arrived = arrived};
    }
    assert_int_equal(via_barrier(all[1].attach, 5, falling, 2), -EINVAL);
    assert_int_equal(via_barrier(all[0].attach, 5, others, 2), -EINVAL);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&all[i].thread, NULL, meet, &all[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(all[i].thread, NULL);
        assert_int_equal(all[i].failures, 0);
        via_attach_close(all[i].attach);
    }
    host_lab_fini(&lab);
}

static struct via_host_options wrong_options(const struct host_lab *lab)
{
    struct via_host_options options;
    via_host_options_init(&options);
    options.host = 0;
    options.hosts_max = 16;
    options.rundir = lab->rundir;
    return options;
}

static void an_impossible_request_is_refused_with_a_text(void **state)
{
    (void)state;
    struct host_lab lab;
    struct via_host *host = NULL;
    struct via_error err;
    host_lab_init(&lab, 2, false, true);
    host_lab_start(&lab, 0, NULL);

    struct via_host_options options = wrong_options(&lab);
    assert_int_equal(via_host_open(&options, &host, &err), -EBUSY);
    assert_non_null(strstr(err.text, "host 0: is up already: process "));
    options.host = 16;
    assert_int_equal(via_host_open(&options, &host, &err), -EINVAL);
    assert_string_equal(err.text, "host 16: ids of this fabric are 0 to 15");
    options.host = 1;
    struct via_host_link self = {.description = "emu:/tmp/none", .peer = 1};
    options.links = &self;
    options.links_count = 1;
    assert_int_equal(via_host_open(&options, &host, &err), -EINVAL);
    assert_string_equal(err.text, "host 1: link 0 is to the host itself");
    self = (struct via_host_link){.description = "vme:slot3,mode=7", .peer = 2};
    assert_int_equal(via_host_open(&options, &host, &err), -EINVAL);
    assert_non_null(strstr(err.text, "host 1: link 0 to host 2: description 'vme:slot3,mode=7': "
                                     "there is no driver 'vme'; there are: emu"));
    self.description = "emu:/tmp/none,like=water";
    assert_int_equal(via_host_open(&options, &host, &err), -EINVAL);
    assert_string_equal(err.text,
                        "host 1: link 0 to host 2: description 'emu:/tmp/none,like=water': "
                        "driver emu: like 'water': there is no such class of links");
    self.description = "emu:/none/at/all";
    assert_true(via_host_open(&options, &host, &err) < 0);
    assert_non_null(strstr(err.text, "host 1: link 0 to host 2: driver emu: open: "));
    options.links_count = 0;
    options.pipe_slots = 3;
    assert_int_equal(via_host_open(&options, &host, &err), -EINVAL);
    options.pipe_slots = 0;
    options.rundir = "relative";
    assert_int_equal(via_host_open(&options, &host, &err), -EINVAL);
    assert_null(host);
    host_lab_fini(&lab);
}

static void speak_another_version(struct via_host_options *options)
{
    options->protocol_version = 9;
}

struct link_state {
    struct host_lab *lab;
    unsigned host;
    const char *state;
    const char *error;
    int peer_version;
};

static bool link_is(void *ctx)
{
    const struct link_state *want = ctx;
    json_t *status = host_lab_status(want->lab, want->host);
    json_t *link = json_array_get(json_object_get(status, "links"), 0);
    bool is = strcmp(json_string_value(json_object_get(link, "state")), want->state) == 0 &&
              strcmp(json_string_value(json_object_get(link, "error")), want->error) == 0 &&
              json_integer_value(json_object_get(link, "peer_version")) == want->peer_version;
    json_decref(status);
    return is;
}

static void both_sides_report_a_peer_of_another_version(void **state)
{
    (void)state;
    struct host_lab lab;
    host_lab_init(&lab, 2, false, true);
    host_lab_start(&lab, 0, NULL);
    host_lab_start(&lab, 1, speak_another_version);
    char error[2][64];
    snprintf(error[0], sizeof(error[0]), "the peer speaks protocol version 9, this host version %u",
             VIA_PROTOCOL_VERSION);
    snprintf(error[1], sizeof(error[1]), "the peer speaks protocol version %u, this host version 9",
             VIA_PROTOCOL_VERSION);
    struct link_state want = {&lab, 0, "bad-version", error[0], 9};
    host_lab_wait(link_is, &want, "host 0 to see version 9");
    want.host = 1;
    want.error = error[1];
    want.peer_version = VIA_PROTOCOL_VERSION;
    host_lab_wait(link_is, &want, "host 1 to see this version");
    host_lab_fini(&lab);
}

static void closed_hosts_leave_nothing(void **state)
{
    (void)state;
    unsigned fds = host_lab_fds(0);
    for (unsigned i = 0; i < 3; i++) {
        struct pair pair;
        open_pair(&pair, 3, true);
        close_pair(&pair);
    }
    assert_int_equal(host_lab_fds(0), fds);
}

static void with_identity(struct via_host_options *options)
{
    char address[] = "fd00::7";
    const char *addresses[] = {"127.77.0.1", address};
    char name[] = "node-7";
    options->name = name;
    options->fabric = "rack1";
    options->addresses = addresses;
    options->addresses_count = 2;
    options->listen = "127.0.0.1:7471";
    struct via_host *host;
    struct via_error err;
    assert_int_equal(via_host_open(options, &host, &err), 0);
    via_host_close(host);
    memset(name, 'x', sizeof(name) - 1);
    address[0] = 'y';
    assert_int_equal(via_host_open(options, &host, &err), -EINVAL);
    assert_string_equal(err.text, "host 0: address 'yd00::7': neither an IPv4 nor an IPv6 address");
    address[0] = 'f';
    static const char *const kept[] = {"127.77.0.1", "fd00::7"};
    options->addresses = kept;
    options->name = "node-7";
}

static void the_status_identifies_the_host(void **state)
{
    struct host_lab lab;
    (void)state;
    host_lab_init(&lab, 1, false, true);
    host_lab_start(&lab, 0, with_identity);
    json_t *status = host_lab_status(&lab, 0);
    json_t *addresses = json_object_get(status, "addresses");
    assert_string_equal(json_string_value(json_object_get(status, "name")), "node-7");
    assert_string_equal(json_string_value(json_object_get(status, "fabric")), "rack1");
    assert_int_equal(json_array_size(addresses), 2);
    assert_string_equal(json_string_value(json_array_get(addresses, 1)), "fd00::7");
    json_decref(status);
    host_lab_fini(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_status_identifies_the_host),
        cmocka_unit_test(operations_between_neighbours_by_frames),
        cmocka_unit_test(operations_between_neighbours_direct),
        cmocka_unit_test(operations_over_two_relays),
        cmocka_unit_test(operations_by_dma),
        cmocka_unit_test(messages_arrive_in_order_and_wait_for_a_slow_receiver),
        cmocka_unit_test(notes_hang_on_boards_until_taken_or_their_poster_goes),
        cmocka_unit_test(a_put_with_notify_rings_the_owner_of_the_memory),
        cmocka_unit_test(notes_of_a_host_go_when_it_restarts),
        cmocka_unit_test(wrong_keys_and_places_are_refused_and_counted),
        cmocka_unit_test(a_cut_changes_the_route_and_a_mend_restores_it),
        cmocka_unit_test(hosts_meet_in_a_barrier),
        cmocka_unit_test(an_impossible_request_is_refused_with_a_text),
        cmocka_unit_test(both_sides_report_a_peer_of_another_version),
        cmocka_unit_test(closed_hosts_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
