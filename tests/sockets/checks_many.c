/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Many connections in one epoll set, few of them busy: each event is reported. */
#include "checks.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MANY 150u
#define ROUNDS 3000u

static struct pair pairs[MANY];
static int set;

/* The same numbers in each run. */
static unsigned dice(unsigned below)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state >> 33) % below;
}

static void watch(int op, unsigned i, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = i};
    CHECK(epoll_ctl(set, op, pairs[i].server, &event) == 0);
}

static void open_many(uint32_t events)
{
    set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    for (unsigned i = 0; i < MANY; i++) {
        pairs[i] = connected();
        watch(EPOLL_CTL_ADD, i, events);
    }
    struct epoll_event event;
    while (epoll_wait(set, &event, 1, 0) > 0 && (events & EPOLLET) != 0) {
    }
    /* The connection is quiet during enough calls that the library stops polling it. */
    for (unsigned i = 0; i < 500; i++) {
        CHECK(epoll_wait(set, &event, 1, 0) == 0);
    }
}

static void close_many(void)
{
    for (unsigned i = 0; i < MANY; i++) {
        done(pairs[i]);
    }
    close(set);
}

/* The next event must come soon, and be of this connection. */
static uint32_t expect_event(unsigned i)
{
    struct epoll_event events[4];
    CHECK(epoll_wait(set, events, 4, 30000) == 1);
    CHECK(events[0].data.u32 == i);
    return events[0].events;
}

static void expect_nothing(void)
{
    struct epoll_event event;
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
}

static void write_byte(unsigned i)
{
    write_all(pairs[i].client, "s", 1);
}

static void read_byte(unsigned i)
{
    char byte;
    read_all(pairs[i].server, &byte, 1);
    CHECK(byte == 's');
}

static void each_of_many_is_reported(uint32_t events)
{
    open_many(events);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned i = dice(MANY);
        write_byte(i);
        CHECK((expect_event(i) & EPOLLIN) != 0);
        if (round % 3 == 0) {
            write_byte(i); /* while the first byte is unread */
            CHECK((expect_event(i) & EPOLLIN) != 0);
            read_byte(i);
        }
        read_byte(i);
        if (round % 5 == 0) {
            expect_nothing();
        }
    }
    close_many();
}

static void each_of_many_is_reported_by_level(void)
{
    each_of_many_is_reported(EPOLLIN);
}

static void each_of_many_is_reported_by_edge(void)
{
    each_of_many_is_reported(EPOLLIN | EPOLLET | EPOLLRDHUP);
}

/* Bytes that were read without a call on the set must not consume what the set needs for the next
 * event. */
static void many_are_read_without_asking(void)
{
    open_many(EPOLLIN);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned i = dice(MANY);
        write_byte(i);
        read_byte(i);
        if (round % 4 == 0) {
            expect_nothing();
        }
        if (round % 3 == 0) {
            write_byte(i);
            CHECK((expect_event(i) & EPOLLIN) != 0);
            read_byte(i);
        }
    }
    close_many();
}

/* Because of one connection that always has bytes, the set never waits. */
static void quiet_ones_are_reported_beside_a_busy_one(void)
{
    open_many(EPOLLIN);
    write_byte(0);
    for (unsigned round = 0; round < 300; round++) {
        unsigned i = 1 + dice(MANY - 1);
        bool reported = false;
        write_byte(i);
        for (double end = now_s() + 30; !reported && now_s() < end;) {
            struct epoll_event events[4];
            int n = epoll_wait(set, events, 4, -1);
            CHECK(n > 0);
            while (n > 0 && !reported) {
                reported = events[--n].data.u32 == i;
            }
        }
        CHECK(reported);
        read_byte(i);
    }
    read_byte(0);
    close_many();
}

/* A program that works between its waits, and never sleeps in the set. */
static void many_are_reported_without_sleeping(void)
{
    open_many(EPOLLIN);
    for (unsigned round = 0; round < 300; round++) {
        unsigned i = dice(MANY);
        struct epoll_event event = {0};
        int n = 0;
        if (round % 100 == 50) {
            struct pollfd pfd = {.fd = set, .events = POLLIN};
            CHECK(poll(&pfd, 1, 0) == 0);
            expect_nothing();
        }
        write_byte(i);
        for (double end = now_s() + 30; n == 0 && now_s() < end;) {
            n = epoll_wait(set, &event, 1, 0);
        }
        CHECK(n == 1 && event.data.u32 == i);
        read_byte(i);
        for (unsigned looks = 0; looks < 100; looks++) {
            expect_nothing();
        }
    }
    close_many();
}

static void registrations_of_many_change(void)
{
    open_many(EPOLLIN);
    for (unsigned round = 0; round < 300; round++) {
        unsigned i = dice(MANY);
        watch(EPOLL_CTL_MOD, i, EPOLLOUT);
        CHECK(expect_event(i) == EPOLLOUT);
        watch(EPOLL_CTL_MOD, i, 0);
        write_byte(i);
        expect_nothing();
        watch(EPOLL_CTL_MOD, i, EPOLLIN | EPOLLONESHOT);
        CHECK((expect_event(i) & EPOLLIN) != 0);
        expect_nothing();
        read_byte(i);
        watch(EPOLL_CTL_DEL, i, 0);
        write_byte(i);
        expect_nothing();
        watch(EPOLL_CTL_ADD, i, EPOLLIN);
        CHECK((expect_event(i) & EPOLLIN) != 0);
        read_byte(i);
    }
    close_many();
}

static void two_sets_report_one_connection(void)
{
    open_many(EPOLLIN);
    int first = set;
    int second = epoll_create1(0);
    set = second;
    for (unsigned i = 0; i < MANY; i += 2) {
        watch(EPOLL_CTL_ADD, i, EPOLLIN);
    }
    for (unsigned round = 0; round < 300; round++) {
        unsigned i = dice(MANY);
        write_byte(i);
        set = first;
        expect_event(i);
        set = second;
        if (i % 2 == 0) {
            expect_event(i);
        } else {
            expect_nothing();
        }
        read_byte(i);
    }
    close(second);
    set = first;
    close_many();
}

static void ends_of_many_are_reported(void)
{
    open_many(EPOLLIN | EPOLLRDHUP);
    for (unsigned i = 0; i < MANY; i += 2) {
        if (i % 4 == 0) {
            CHECK(shutdown(pairs[i].client, SHUT_WR) == 0);
        } else {
            close(pairs[i].client);
            pairs[i].client = socket(AF_INET, SOCK_STREAM, 0);
        }
        CHECK((expect_event(i) & (EPOLLIN | EPOLLRDHUP)) != 0);
        char byte;
        CHECK(read(pairs[i].server, &byte, 1) == 0);
        watch(EPOLL_CTL_DEL, i, 0);
        write_byte(i + 1);
        CHECK((expect_event(i + 1) & EPOLLIN) != 0);
        read_byte(i + 1);
    }
    close_many();
}

/* --- between processes ----------------------------------------------------------------------- */

static void ask_at_random(const struct sockaddr_in *addr)
{
    static int fds[MANY];
    int on = 1;
    for (unsigned i = 0; i < MANY; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fds[i], (const struct sockaddr *)addr, sizeof(*addr)) == 0);
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    for (unsigned round = 0; round < ROUNDS + MANY * 6; round++) {
        unsigned i = round < MANY * 6 ? round % MANY : dice(MANY);
        char byte = 'q';
        write_all(fds[i], &byte, 1);
        read_all(fds[i], &byte, 1);
        CHECK(byte == 'q');
        if (round % 100 == 99) {
            sleep_ms(1);
        }
    }
}

static void answer_all(int listen_fd)
{
    set = epoll_create1(0);
    unsigned open = 0;
    for (unsigned i = 0; i < MANY; i++) {
        struct epoll_event event = {.events = EPOLLIN};
        event.data.fd = accept(listen_fd, NULL, NULL);
        CHECK(event.data.fd >= 0);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event) == 0);
        open++;
    }
    while (open > 0) {
        struct epoll_event events[8];
        int n = epoll_wait(set, events, 8, 30000);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            char data[16];
            ssize_t got = recv(events[i].data.fd, data, sizeof(data), MSG_DONTWAIT);
            if (got > 0) {
                write_all(events[i].data.fd, data, (size_t)got);
            } else if (got == 0) {
                close(events[i].data.fd);
                open--;
            } else {
                CHECK(errno == EAGAIN);
            }
        }
    }
}

static void a_server_of_many_answers_each(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(listen_fd);
        ask_at_random(&addr);
        exit(0);
    }
    CHECK(listen(listen_fd, MANY) == 0);
    answer_all(listen_fd);
    wait_for(pid);
}

const struct check checks_of_many[] = {
    CHECK_ENTRY(each_of_many_is_reported_by_level),
    CHECK_ENTRY(each_of_many_is_reported_by_edge),
    CHECK_ENTRY(many_are_read_without_asking),
    CHECK_ENTRY(quiet_ones_are_reported_beside_a_busy_one),
    CHECK_ENTRY(many_are_reported_without_sleeping),
    CHECK_ENTRY(registrations_of_many_change),
    CHECK_ENTRY(two_sets_report_one_connection),
    CHECK_ENTRY(ends_of_many_are_reported),
    CHECK_ENTRY(a_server_of_many_answers_each),
    {0},
};
