/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* epoll sets in epoll sets. */
#include "checks.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "pass_fd.h"

/* A set in a set in a set. */
static void nest(struct pair pair, int inner)
{
    int middle = set_with(inner, EPOLLIN);
    int outer = set_with(middle, EPOLLIN);
    char byte;
    CHECK(wait_in(outer, middle, 20) == 0);
    for (int i = 0; i < 3; i++) {
        write_later(pair.client);
        CHECK(wait_in(outer, middle, 5000) == EPOLLIN);
        CHECK(wait_in(outer, middle, 0) == EPOLLIN); /* level-triggered */
        CHECK(wait_in(middle, inner, 0) == EPOLLIN && wait_in(inner, pair.server, 0) == EPOLLIN);
        read_all(pair.server, &byte, 1);
        CHECK(wait_in(outer, middle, 0) == 0);
    }
    close(outer);
    close(middle);
}

/* The connection is in the other sets under one number, and connect() uses another number. */
static void copied_when_it_was_nested(void)
{
    struct pair pair = connected();
    char byte;
    int inner = epoll_create1(0);
    int outer = set_with(inner, EPOLLIN);
    int copy = dup(inner);
    CHECK(copy >= 0 && put_in(copy, pair.server, EPOLLIN) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(wait_in(outer, -1, 20) == 0);
        write_later(pair.client);
        CHECK(wait_in(outer, inner, 30000) == EPOLLIN);
        CHECK(wait_in(inner, pair.server, 0) == EPOLLIN);
        read_all(pair.server, &byte, 1);
    }
    close(outer);
    close(copy);
    close(inner);
    done(pair);
}

static void nested_after_it_was_filled(void)
{
    struct pair pair = connected();
    int inner = set_with(pair.server, EPOLLIN);
    CHECK(wait_in(inner, pair.server, 0) == 0);
    nest(pair, inner);
    close(inner);
    done(pair);
}

/* The two outer sets exist before the inner set, which contains a connection, is added to them. */
static void nested_from_outside(void)
{
    struct pair pair = connected();
    int inner = set_with(pair.server, EPOLLIN);
    int middle = epoll_create1(0);
    int outer = set_with(middle, EPOLLIN);
    CHECK(put_in(middle, inner, EPOLLIN) == 0);
    CHECK(wait_in(outer, middle, 0) == 0);
    write_later(pair.client);
    CHECK(wait_in(outer, middle, 30000) == EPOLLIN && wait_in(middle, inner, 0) == EPOLLIN);
    close(outer);
    close(middle);
    close(inner);
    done(pair);
}

static void nested_before_it_is_filled(void)
{
    struct pair pair = connected();
    int inner = epoll_create1(0);
    int outer = set_with(inner, EPOLLIN);
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = pair.server}};
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, pair.server, &event) == 0);
    write_later(pair.client);
    CHECK(wait_in(outer, inner, 5000) == EPOLLIN && wait_in(inner, pair.server, 0) == EPOLLIN);
    char byte;
    read_all(pair.server, &byte, 1);
    CHECK(wait_in(outer, inner, 0) == 0);
    close(outer);
    close(inner);
    done(pair);
}

static void nested_before_it_connects(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int inner = set_with(fd, EPOLLIN | EPOLLRDHUP);
    int outer = set_with(inner, EPOLLIN);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    int server = accept(listen_fd, NULL, NULL);
    talk_both_ways(fd, server);
    CHECK(wait_in(outer, inner, 0) == 0);
    write_later(server);
    CHECK(wait_in(outer, inner, 5000) == EPOLLIN && wait_in(inner, fd, 0) == EPOLLIN);
    close(outer);
    close(inner);
    close(listen_fd);
    done((struct pair){fd, server});
}

/* An edge-triggered registration gets one edge for each arrival, and none for old data. */
static void nested_by_edge(void)
{
    struct pair pair = connected();
    char bytes[4];
    int inner = set_with(pair.server, EPOLLIN | EPOLLRDHUP);
    int outer = set_with(inner, EPOLLIN | EPOLLET);
    wait_in(outer, inner, 0);
    for (int i = 0; i < 3; i++) {
        write_all(pair.client, "x", 1);
        CHECK(wait_in(outer, inner, 30000) == EPOLLIN && wait_in(outer, inner, 2) == 0);
        write_all(pair.client, "y", 1);
        CHECK(wait_in(outer, inner, 30000) == EPOLLIN && wait_in(outer, inner, 2) == 0);
        CHECK(wait_in(inner, pair.server, 0) == EPOLLIN);
        CHECK(wait_in(outer, inner, 2) == 0);
        read_all(pair.server, bytes, 2);
        CHECK(wait_in(outer, inner, 2) == 0 && wait_in(inner, pair.server, 0) == 0);
        write_all(pair.client, "z", 1);
        read_all(pair.server, bytes, 1); /* consumed before any call on the set */
        CHECK(wait_in(outer, inner, 2) == 0);
    }
    close(pair.client);
    CHECK(wait_in(outer, inner, 30000) == EPOLLIN);
    CHECK(wait_in(inner, pair.server, 0) == (EPOLLIN | EPOLLRDHUP));
    close(outer);
    close(inner);
    close(pair.server);
}

/* On an end that is shut down in both directions a reset changes no event, but causes an edge, the
 * last one. */
static void nested_when_it_is_reset(void)
{
    struct pair pair = connected();
    int inner = set_with(pair.server, EPOLLIN);
    int outer = set_with(inner, EPOLLIN | EPOLLET);
    int error = 0;
    shutdown(pair.server, SHUT_RDWR);
    CHECK(wait_in(outer, inner, 5000) == EPOLLIN);
    sleep_ms(100); /* the acknowledgement causes an edge, too */
    wait_in(outer, inner, 0);
    CHECK(wait_in(outer, inner, 0) == 0);
    write_all(pair.client, "x", 1);
    for (double end = now_s() + 5; error == 0 && now_s() < end; sleep_ms(1)) {
        socklen_t bytes = sizeof(error);
        CHECK(getsockopt(pair.server, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
    }
    CHECK(error == ECONNRESET);
    CHECK(wait_in(outer, inner, 5000) == EPOLLIN && wait_in(outer, inner, 0) == 0);
    close(pair.client);
    CHECK(wait_in(outer, inner, 20) == 0);
    close(outer);
    close(inner);
    close(pair.server);
}

static void nested_for_one_event(void)
{
    struct pair pair = connected();
    char byte;
    int inner = set_with(pair.server, EPOLLIN | EPOLLET);
    int outer = set_with(inner, EPOLLIN | EPOLLONESHOT);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = inner}};
    wait_in(inner, pair.server, 0);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(outer, inner, 30000) == EPOLLIN && wait_in(outer, inner, 2) == 0);
    CHECK(epoll_ctl(outer, EPOLL_CTL_MOD, inner, &event) == 0);
    CHECK(wait_in(outer, inner, 30000) == EPOLLIN && wait_in(outer, inner, 2) == 0);
    CHECK(wait_in(inner, pair.server, 0) == EPOLLIN && wait_in(inner, pair.server, 0) == 0);
    CHECK(epoll_ctl(outer, EPOLL_CTL_MOD, inner, &event) == 0);
    CHECK(wait_in(outer, inner, 2) == 0); /* the inner set's edge has been reported */
    read_all(pair.server, &byte, 1);
    CHECK(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL) == 0);
    CHECK(epoll_ctl(outer, EPOLL_CTL_MOD, inner, &event) == -1 && errno == ENOENT);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(outer, inner, 2) == 0 && wait_in(inner, pair.server, 0) == EPOLLIN);
    close(outer);
    close(inner);
    done(pair);
}

/* Its bytes stay in the pipe, and it is ready until the bytes and the end of file have been read.
 */
static void nested_when_the_peer_has_ended(void)
{
    struct pair pair = connected();
    char byte;
    int inner = set_with(pair.server, EPOLLIN);
    write_all(pair.client, "abcdef", 6);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    CHECK(wait_in(inner, pair.server, 5000) == EPOLLIN);
    sleep_ms(10);
    int outer = set_with(inner, EPOLLIN);
    for (int i = 0; i < 6; i++) {
        CHECK(wait_in(outer, inner, 5000) == EPOLLIN);
        CHECK(wait_in(inner, pair.server, 0) == EPOLLIN);
        CHECK(read(pair.server, &byte, 1) == 1 && byte == 'a' + i);
    }
    CHECK(wait_in(outer, inner, 5000) == EPOLLIN && read(pair.server, &byte, 1) == 0);
    write_all(pair.server, "back", 4);
    read_all(pair.client, (char[4]){0}, 4);
    close(outer);
    close(inner);
    done(pair);
}

#define NESTS_MAX 4 /* fs/eventpoll.c of Linux */

static void nested_as_deep_as_can_be(void)
{
    struct pair pair = connected();
    int sets[NESTS_MAX + 1];
    char byte;
    struct epoll_event event = {.events = EPOLLIN};
    sets[0] = set_with(pair.server, EPOLLIN);
    for (int i = 1; i <= NESTS_MAX; i++) {
        sets[i] = set_with(sets[i - 1], EPOLLIN);
    }
    int beyond = epoll_create1(0);
    CHECK(epoll_ctl(beyond, EPOLL_CTL_ADD, sets[NESTS_MAX], &event) == -1 && errno == ELOOP);
    CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, sets[2], &event) == -1 && errno == ELOOP);
    CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, sets[0], &event) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(sets[1], EPOLL_CTL_ADD, sets[0], &event) == -1 && errno == EEXIST);
    struct pollfd pfd = {sets[NESTS_MAX], POLLIN, 0};
    for (int i = 0; i < 3; i++) {
        CHECK(poll(&pfd, 1, 0) == 0 && wait_in(sets[NESTS_MAX], sets[NESTS_MAX - 1], 0) == 0);
        write_all(pair.client, "x", 1);
        CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLIN);
        CHECK(wait_in(sets[NESTS_MAX], sets[NESTS_MAX - 1], 30000) == EPOLLIN);
        read_all(pair.server, &byte, 1);
    }
    close(sets[1]); /* the middle set is closed */
    write_all(pair.client, "x", 1);
    CHECK(wait_in(sets[NESTS_MAX], sets[NESTS_MAX - 1], 20) == 0);
    CHECK(wait_in(sets[0], pair.server, 30000) == EPOLLIN);
    for (int i = 0; i <= NESTS_MAX; i++) {
        if (i != 1) {
            close(sets[i]);
        }
    }
    close(beyond);
    done(pair);
}

/* Waits in the outer set, then in the inner one, and answers. */
struct echoer {
    int fd;
    int outer;
    int inner;
    int rounds;
};

static void *echo_by_nested_sets(void *context)
{
    const struct echoer *echoer = context;
    for (int i = 0; i < echoer->rounds; i++) {
        char byte;
        CHECK(wait_in(echoer->outer, echoer->inner, 30000) == EPOLLIN);
        CHECK(wait_in(echoer->inner, echoer->fd, 0) == EPOLLIN);
        read_all(echoer->fd, &byte, 1);
        write_all(echoer->fd, &byte, 1);
    }
    return NULL;
}

/* Threads that sleep each time, threads that hardly ever sleep, and a set in which one thread waits
 * while another adds a connection. */
static void nested_sets_wake_sleepers(void)
{
    for (int slow = 0; slow < 2; slow++) {
        struct pair pair = connected();
        char byte;
        int inner = slow ? epoll_create1(0) : set_with(pair.server, EPOLLIN);
        int outer = set_with(inner, EPOLLIN | (slow ? EPOLLET : 0));
        struct echoer echoer = {pair.server, outer, inner, slow ? 20 : 2000};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, echo_by_nested_sets, &echoer) == 0);
        if (slow) {
            sleep_ms(10);
            CHECK(put_in(inner, pair.server, EPOLLIN) == 0);
        }
        for (int i = 0; i < echoer.rounds; i++) {
            if (slow) {
                sleep_ms(5);
            }
            write_all(pair.client, "x", 1);
            read_all(pair.client, &byte, 1);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        close(outer);
        close(inner);
        done(pair);
    }
}

/* Each waiting process gets the data of the registration. */
static void add_with_data(int epfd, int fd, uint32_t data)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = data}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* The sum of the data of the ready registrations, of which there must be `count`. */
static uint32_t sum_of(int epfd, int count)
{
    struct epoll_event events[4];
    uint32_t sum = 0;
    double deadline = now_s() + 10;
    int n;
    while ((n = epoll_wait(epfd, events, 4, 100)) != count && now_s() < deadline) {
    }
    CHECK(n == count);
    for (int i = 0; i < n; i++) {
        CHECK(events[i].events == EPOLLIN);
        sum += events[i].data.u32;
    }
    return sum;
}

static void a_child_waits_in_it(int channel)
{
    int epfd = taken_fd(channel);
    char byte;
    CHECK(epfd >= 0);
    CHECK(sum_of(epfd, 1) == 1000);
    write_all(channel, "1", 1);
    read_all(channel, &byte, 1);
    CHECK(sum_of(epfd, 2) == 3000);
    write_all(channel, "2", 1);
    _exit(0);
}

static void given_to_another_process(void)
{
    int channel[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    pid_t pid = fork(); /* before there is a connection */
    CHECK(pid >= 0);
    if (pid == 0) {
        close(channel[0]);
        a_child_waits_in_it(channel[1]);
    }
    close(channel[1]);
    struct pair one = connected(), two = connected(), out = connected();
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    add_with_data(epfd, one.server, 1000);
    add_with_data(epfd, out.server, 4000);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, out.server, NULL) == 0);
    CHECK(pass_fd(channel[0], epfd));
    write_all(out.client, "x", 1);
    write_all(one.client, "x", 1);
    CHECK(sum_of(epfd, 1) == 1000);
    read_all(channel[0], &byte, 1);
    add_with_data(epfd, two.server, 2000);
    write_all(two.client, "x", 1);
    write_all(channel[0], "x", 1);
    CHECK(sum_of(epfd, 2) == 3000);
    read_all(channel[0], &byte, 1);
    read_all(one.server, &byte, 1);
    CHECK(sum_of(epfd, 1) == 2000);
    wait_for(pid);
    close(epfd);
    done(one);
    done(two);
    done(out);
}

/* The peer has ended its direction and left bytes in the pipe, so the connection keeps its pipes
 * although the program polls the set. The kernel can not see the room in a pipe. */
static void poll_sees_room_where_the_peer_has_ended(void)
{
    struct pair pair = connected();
    char bytes[16];
    int epfd = epoll_create1(0);
    nonblocking(pair.server);
    write_all(pair.client, "request and more", 16);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    CHECK(put_in(epfd, pair.server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) == 0);
    struct pollfd pfd = {.fd = epfd, .events = POLLIN};
    CHECK(poll(&pfd, 1, 10000) == 1);
    CHECK((wait_in(epfd, pair.server, 0) & EPOLLOUT) != 0);
    read_all(pair.server, bytes, 7);
    drain(pair.client, fill_up(pair.server));
    uint32_t events = 0;
    while ((events & EPOLLOUT) == 0) {
        CHECK(poll(&pfd, 1, 10000) == 1);
        events = wait_in(epfd, pair.server, 0);
    }
    close(epfd);
    done(pair);
}

const struct check checks_of_nested_sets[] = {
    CHECK_ENTRY(poll_sees_room_where_the_peer_has_ended),
    CHECK_ENTRY(copied_when_it_was_nested),
    CHECK_ENTRY(nested_after_it_was_filled),
    CHECK_ENTRY(nested_before_it_is_filled),
    CHECK_ENTRY(nested_before_it_connects),
    CHECK_ENTRY(nested_from_outside),
    CHECK_ENTRY(nested_by_edge),
    CHECK_ENTRY(nested_when_the_peer_has_ended),
    CHECK_ENTRY(nested_for_one_event),
    CHECK_ENTRY(nested_as_deep_as_can_be),
    CHECK_ENTRY(nested_sets_wake_sleepers),
    CHECK_ENTRY(given_to_another_process),
    CHECK_ENTRY(nested_when_it_is_reset),
    {0},
};
