/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The client library against a fake host: messages, boards, barriers. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "core/node.h"
#include "host/client_sys.h"
#include "tests/unit/client_fixture.h"
#include "wire/frame.h"

/* --- messages, boards, barriers ----------------------------------------------------------------*/

static void messages_come_in_order_and_are_cut_to_the_buffer(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char data[600];
    unsigned char buffer[600];
    struct via_message_info info;
    client_fill(data, sizeof(data), 4);
    assert_int_equal(via_message_receive(fixture->attach, buffer, 8, 20, &info), -ETIMEDOUT);
    assert_true(fake_host_message(&fixture->fake, 5, data, 3));
    assert_true(fake_host_message(&fixture->fake, 6, data, sizeof(data)));
    assert_true(fake_host_message(&fixture->fake, 7, data, 0));
    assert_int_equal(via_message_receive(fixture->attach, buffer, sizeof(buffer), -1, &info), 3);
    assert_memory_equal(buffer, data, 3);
    assert_int_equal(info.endpoint, 5);
    assert_int_equal(info.source_host, FAKE_PEER);
    assert_int_equal(info.source_endpoint, 9);
    assert_int_equal(via_message_receive(fixture->attach, buffer, 100, -1, &info), 100);
    assert_int_equal(info.bytes, sizeof(data));
    assert_memory_equal(buffer, data, 100);
    assert_int_equal(via_message_receive(fixture->attach, buffer, 100, 0, &info), 0);
    assert_int_equal(info.endpoint, 7);
}

static void *receive_one(void *ctx)
{
    char buffer[8];
    return (void *)(intptr_t)via_message_receive(ctx, buffer, sizeof(buffer), 60000, NULL);
}

static void threads_that_wait_do_not_take_each_others_replies(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word;
    pthread_t thread;
    void *result;
    for (unsigned round = 0; round < 50; round++) {
        pthread_create(&thread, NULL, receive_one, fixture->attach);
        for (unsigned i = 0; i < 20; i++) {
            assert_int_equal(
                via_remote_atomic(fixture->remote, 0, 8, VIADUCT_ATOMIC_ADD, 1, 0, &word), 0);
            assert_int_equal(word, round * 20 + i);
        }
        assert_true(fake_host_message(&fixture->fake, 5, "x", 1));
        pthread_join(thread, &result);
        assert_int_equal((intptr_t)result, 1);
    }
}

static void the_bell_rings_who_watches_it(void **state)
{
    struct fixture *fixture = *state;
    struct epoll_event event = {.events = VIA_BELL_EVENTS};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int bell_fd = via_attach_bell_fd(fixture->attach);
    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell_fd, &event), 0);
    epoll_wait(epoll_fd, &event, 1, 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(via_attach_poll(fixture->attach), 0);
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
        assert_true(fake_host_message(&fixture->fake, 5, "hello", 5));
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 60000), 1);
        assert_int_equal(via_attach_poll(fixture->attach), 1);
        char buffer[8];
        assert_int_equal(via_message_receive(fixture->attach, buffer, 8, 0, NULL), 5);
    }
    close(epoll_fd);
}

static void *mend_path_later(void *ctx)
{
    client_nap_ms(50);
    fake_host_set_way(ctx, FAKE_PEER, 77, 2, 2, false);
    return NULL;
}

static void boards_barriers_and_endpoints_ask_the_host(void **state)
{
    struct fixture *fixture = *state;
    char value[16];
    const uint16_t hosts[] = {1, 2};
    const uint16_t wrong[] = {2, 1};
    assert_int_equal(via_board_post(fixture->attach, FAKE_PEER, "key", 3, "note", 4, 1000), 0);
    assert_int_equal(via_board_take(fixture->attach, "kex", 3, value, sizeof(value)), -ENOENT);
    assert_int_equal(via_board_take(fixture->attach, "key", 3, value, sizeof(value)), 4);
    assert_memory_equal(value, "note", 4);
    assert_int_equal(via_board_take(fixture->attach, "key", 3, value, sizeof(value)), -ENOENT);
    assert_int_equal(via_board_post(fixture->attach, FAKE_PEER, "", 0, "note", 4, 1000), -EINVAL);
    assert_int_equal(via_board_post(fixture->attach, 9, "key", 3, "note", 4, 1000), -EHOSTUNREACH);
    fake_host_set_way(&fixture->fake, FAKE_PEER, 77, 1, VIA_STATUS_UNREACHABLE, false);
    assert_int_equal(via_board_post(fixture->attach, FAKE_PEER, "key", 3, "note", 4, 1000),
                     -EHOSTUNREACH);
    pthread_t thread;
    pthread_create(&thread, NULL, mend_path_later, &fixture->fake);
    assert_int_equal(via_board_post(fixture->attach, FAKE_PEER, "key", 3, "note", 4, 1000), 0);
    pthread_join(thread, NULL);

    assert_int_equal(via_barrier(fixture->attach, 3, hosts, 2), 0);
    assert_int_equal(via_barrier(fixture->attach, 3, wrong, 2), -EINVAL);
    assert_int_equal(via_barrier(fixture->attach, 3, hosts + 1, 1), -EINVAL);

    assert_int_equal(via_endpoint_open(fixture->attach, 12), 0);
    assert_int_equal(via_endpoint_open(fixture->attach, 13), -EADDRINUSE);
    assert_int_equal(via_endpoint_close(fixture->attach, 12), 0);
    fixture->fake.command_status = -ENOENT;
    assert_int_equal(via_message_send(fixture->attach, FAKE_PEER, 4, 1, "text", 4), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), -ENOENT);
    fixture->fake.command_status = 0;
}

static void *push_messages(void *ctx)
{
    struct fixture *fixture = ctx;
    static const unsigned char data[FAKE_BODY_BYTES];
    uintptr_t pushed = 0;
    /* Sends until no message is accepted for a while. */
    for (unsigned idle = 0; idle < 100;) {
        if (fake_host_message(&fixture->fake, 5, data, sizeof(data))) {
            pushed++;
            idle = 0;
        } else {
            client_nap_ms(1);
            idle++;
        }
    }
    return (void *)pushed;
}

static void *fetch(void *ctx)
{
    uint64_t word;
    return (void *)(intptr_t)via_remote_atomic(ctx, 0, 8, VIADUCT_ATOMIC_FETCH, 0, 0, &word);
}

/* Messages come on channel 1, replies for the peer (an even id) on channel 0, for host 1 on 1. */
static void messages_without_a_receiver_delay_only_later_ones(void **state)
{
    struct fixture *fixture = *state;
    struct via_remote *same;
    pthread_t thread;
    void *pushed;
    void *status;
    uint64_t word;
    char buffer[FAKE_BODY_BYTES];
    fixture->attach->inbox_bytes_max = 100000;
    fixture->attach->stuck_ns_max = 200 * VIA_MSEC_NS;
    fixture->fake.map_status = -EXDEV;
    assert_int_equal(via_remote_open(fixture->attach, 1, FAKE_PEER_HANDLE, FAKE_PEER_BYTES, &same),
                     0);
    pthread_create(&thread, NULL, push_messages, fixture);
    while (pthread_tryjoin_np(thread, &pushed) != 0) {
        assert_true(via_attach_poll(fixture->attach) >= 0);
        sched_yield();
    }
    assert_true((uintptr_t)pushed > 90000 / FAKE_BODY_BYTES);
    assert_int_equal(via_remote_get(fixture->remote, 0, &word, 8), 0);
    assert_int_equal(via_remote_get(same, 0, &word, 8), -ENOBUFS);
    client_assert_text_has("messages");
    assert_int_equal(via_remote_get(fixture->remote, 0, &word, 8), 0);

    pthread_create(&thread, NULL, fetch, same);
    client_nap_ms(20);
    for (uintptr_t i = 0; i < (uintptr_t)pushed; i++) {
        assert_int_equal(via_message_receive(fixture->attach, buffer, sizeof(buffer), 60000, NULL),
                         sizeof(buffer));
    }
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, 0);
    via_remote_close(same);
}

/* A sleeping leader is woken for an event that another thread finds on a bell after draining the
 * bell. */
static void a_drained_bell_loses_no_wake_up(void **state)
{
    struct fixture *fixture = *state;
    int bell_fd = via_attach_bell_fd(fixture->attach);
    for (unsigned i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        uint64_t count;
        pthread_create(&thread, NULL, receive_one, fixture->attach);
        client_nap_ms(2);
        assert_true(fake_host_message(&fixture->fake, 5, "x", 1));
        (void)!read(bell_fd, &count, sizeof(count));
        assert_true(via_attach_poll(fixture->attach) >= 0);
        struct timespec start;
        struct timespec end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        pthread_join(thread, &result);
        clock_gettime(CLOCK_MONOTONIC, &end);
        assert_int_equal((intptr_t)result, 1);
        assert_true((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 <
                    500);
    }
}

int main(void)
{
    alarm(250); /* a wait that never ends must fail the test, too */
    const struct CMUnitTest tests[] = {
        WITH_HOST(messages_come_in_order_and_are_cut_to_the_buffer),
        WITH_HOST(threads_that_wait_do_not_take_each_others_replies),
        WITH_HOST(the_bell_rings_who_watches_it),
        WITH_HOST(boards_barriers_and_endpoints_ask_the_host),
        WITH_HOST(messages_without_a_receiver_delay_only_later_ones),
        WITH_HOST(a_drained_bell_loses_no_wake_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
