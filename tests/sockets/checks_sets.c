/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Unusual uses of epoll sets. */
#include "checks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "pass_fd.h"

static void two_sets_hold_it(void)
{
    struct pair pair = connected();
    char byte;
    int one = set_with(pair.server, EPOLLIN);
    int other = set_with(pair.server, EPOLLIN | EPOLLET);
    wait_in(other, pair.server, 0);
    for (int i = 0; i < 3; i++) {
        write_all(pair.client, "x", 1);
        CHECK(wait_in(one, pair.server, 5000) == EPOLLIN);
        CHECK(wait_in(other, pair.server, 5000) == EPOLLIN);
        CHECK(wait_in(one, pair.server, 0) == EPOLLIN && wait_in(other, pair.server, 0) == 0);
        read_all(pair.server, &byte, 1);
        CHECK(wait_in(one, pair.server, 0) == 0);
    }
    CHECK(epoll_ctl(one, EPOLL_CTL_DEL, pair.server, NULL) == 0);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(one, pair.server, 20) == 0 && wait_in(other, pair.server, 5000) == EPOLLIN);
    close(one);
    close(other);
    done(pair);
}

/* A copy of a descriptor has a registration of its own, which outlives the original descriptor. */
static void a_copy_is_another_registration(void)
{
    struct pair pair = connected();
    int copy = dup(pair.server);
    int epfd = set_with(pair.server, EPOLLIN);
    struct epoll_event events[4], event = {.events = EPOLLIN, .data = {.fd = copy}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, copy, &event) == 0);
    write_all(pair.client, "x", 1);
    CHECK(poll(&(struct pollfd){pair.server, POLLIN, 0}, 1, 5000) == 1);
    CHECK(epoll_wait(epfd, events, 4, 30000) == 2);
    CHECK(events[0].data.fd + events[1].data.fd == pair.server + copy);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
    close(pair.server);
    CHECK(epoll_wait(epfd, events, 4, 30000) == 1 && events[0].data.fd == copy);
    close(epfd);
    close(copy);
    close(pair.client);
}

/* The number by which the connection was added is closed, and soon belongs to another connection,
 * which ends. */
static void its_number_becomes_another_connection(bool goes_back)
{
    struct pair pair = connected();
    struct pair stranger = connected();
    const int number = pair.server, on = 1;
    char byte;
    int level = set_with(number, EPOLLIN);
    int edge = set_with(number, EPOLLIN | EPOLLET);
    int copy = dup(number);
    CHECK(copy >= 0 && dup2(stranger.server, number) == number);
    shutdown(stranger.server, SHUT_RDWR);
    CHECK(wait_in(level, number, 20) == 0 && wait_in(edge, number, 0) == 0);
    CHECK(!goes_back || setsockopt(copy, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0);
    wait_in(edge, number, 0); /* an edge for this is harmless */
    for (int i = 0; i < 3; i++) {
        write_all(pair.client, "x", 1);
        CHECK(wait_in(level, number, 5000) == EPOLLIN && wait_in(edge, number, 5000) == EPOLLIN);
        CHECK(wait_in(level, number, 0) == EPOLLIN && wait_in(edge, number, 0) == 0);
        read_all(copy, &byte, 1);
        CHECK(wait_in(level, number, 0) == 0 && wait_in(edge, number, 0) == 0);
    }
    close(pair.client);
    CHECK(wait_in(level, number, 5000) == EPOLLIN && wait_in(edge, number, 5000) == EPOLLIN);
    close(copy);
    CHECK(wait_in(level, number, 0) == 0 && wait_in(edge, number, 0) == 0);
    close(level);
    close(edge);
    close(number);
    done(stranger);
}

static void its_number_is_anothers(void)
{
    its_number_becomes_another_connection(false);
}

static void its_number_is_anothers_and_it_goes_back(void)
{
    its_number_becomes_another_connection(true);
}

/* Some programs remove and add the connection for every message. */
static void taken_out_and_put_in_again(void)
{
    struct pair pair = connected();
    char byte;
    int epfd = set_with(pair.server, EPOLLIN);
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = pair.server}};
    for (int i = 0; i < 3; i++) {
        CHECK(wait_in(epfd, pair.server, 0) == 0);
        CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
        CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == -1 && errno == ENOENT);
        CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.server, &event) == -1 && errno == ENOENT);
        write_all(pair.client, "x", 1);
        CHECK(wait_in(epfd, pair.server, 20) == 0);
        CHECK(put_in(epfd, pair.server, EPOLLOUT) == 0);
        CHECK(wait_in(epfd, pair.server, 5000) == EPOLLOUT);
        CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
        CHECK(put_in(epfd, pair.server, EPOLLIN | (i == 1 ? EPOLLET : 0)) == 0);
        CHECK(put_in(epfd, pair.server, EPOLLIN) == -1 && errno == EEXIST);
        CHECK(wait_in(epfd, pair.server, 5000) == EPOLLIN);
        CHECK(wait_in(epfd, pair.server, 0) == (i == 1 ? 0 : EPOLLIN));
        read_all(pair.server, &byte, 1);
    }
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
    close(pair.client);
    CHECK(wait_in(epfd, pair.server, 20) == 0); /* not registered: its end is not reported */
    CHECK(put_in(epfd, pair.server, EPOLLIN | EPOLLRDHUP) == 0);
    CHECK(wait_in(epfd, pair.server, 5000) == (EPOLLIN | EPOLLRDHUP));
    close(pair.server);
    CHECK(wait_in(epfd, pair.server, 0) == 0);
    close(epfd);
}

/* A copy of the descriptor, or the next connection of the same number, does not bring a removed
 * registration back. */
static void taken_out_and_copied(void)
{
    struct pair pair = connected();
    int epfd = set_with(pair.server, EPOLLIN);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
    int copy = dup(pair.server);
    close(pair.server);
    struct pair next = connected();
    CHECK(put_in(epfd, next.client, EPOLLIN) == 0 && put_in(epfd, next.server, EPOLLIN) == 0);
    write_all(pair.client, "x", 1);
    close(pair.client);
    CHECK(wait_in(epfd, -1, 50) == 0);
    write_all(next.client, "x", 1);
    CHECK(wait_in(epfd, next.server, 5000) == EPOLLIN);
    close(copy);
    close(epfd);
    done(next);
}

static void exclusive(void)
{
    struct pair pair = connected();
    char byte;
    int one = set_with(pair.server, EPOLLIN | EPOLLEXCLUSIVE);
    int other = set_with(pair.server, EPOLLIN | EPOLLEXCLUSIVE);
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = pair.server}};
    CHECK(epoll_ctl(one, EPOLL_CTL_MOD, pair.server, &event) == -1 && errno == EINVAL);
    event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    CHECK(epoll_ctl(one, EPOLL_CTL_DEL, pair.server, NULL) == 0);
    CHECK(epoll_ctl(one, EPOLL_CTL_ADD, pair.server, &event) == -1 && errno == EINVAL);
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    CHECK(epoll_ctl(one, EPOLL_CTL_ADD, pair.server, &event) == 0);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(one, pair.server, 5000) == EPOLLIN);
    CHECK(wait_in(other, pair.server, 5000) == EPOLLIN);
    read_all(pair.server, &byte, 1);
    CHECK(wait_in(one, pair.server, 0) == 0 && wait_in(other, pair.server, 0) == 0);
    close(one);
    close(other);
    done(pair);
}

/* A connection that a child closes stays in the set of its parent. */
static void child_closes(struct pair pair)
{
    char byte;
    int epfd = set_with(pair.server, EPOLLIN | EPOLLRDHUP);
    CHECK(wait_in(epfd, pair.server, 0) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.server);
        close(pair.client);
        _exit(0);
    }
    wait_for(pid);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(epfd, pair.server, 30000) == EPOLLIN);
    read_all(pair.server, &byte, 1);
    CHECK(wait_in(epfd, pair.server, 0) == 0);
    close(pair.client);
    CHECK(wait_in(epfd, pair.server, 30000) == (EPOLLIN | EPOLLRDHUP));
    close(epfd);
    close(pair.server);
}

static void a_child_closes_its_copy(void)
{
    child_closes(connected());
    child_closes(just_connected());
}

/* Another number of the same socket, received in a message, takes the place of the first. */
static void replaced_by_a_copy_that_was_passed(void)
{
    struct pair pair = connected();
    char byte;
    int carrier[2];
    int epfd = set_with(pair.server, EPOLLIN);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, carrier) == 0);
    CHECK(pass_fd(carrier[0], pair.server));
    int copy = taken_fd(carrier[1]);
    CHECK(copy >= 0 && dup2(copy, pair.server) == pair.server);
    close(copy);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(epfd, pair.server, 30000) == EPOLLIN && wait_in(epfd, pair.server, 2) == EPOLLIN);
    read_all(pair.server, &byte, 1);
    CHECK(wait_in(epfd, pair.server, 2) == 0);
    close(carrier[0]);
    close(carrier[1]);
    close(epfd);
    done(pair);
}

static int copy_by_dup2(int fd)
{
    return dup2(fd, 90);
}

static int copy_by_dup3(int fd)
{
    return dup3(fd, 90, O_CLOEXEC);
}

static int copy_by_fcntl(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static void set_of_two_numbers(int epfd, int copy)
{
    struct pair pair = connected();
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data = {.fd = pair.server}};
    char byte;
    CHECK(epfd >= 0 && copy >= 0 && put_in(copy, pair.server, EPOLLIN) == 0);
    CHECK(put_in(epfd, pair.server, EPOLLIN) == -1 && errno == EEXIST);
    for (int i = 0; i < 3; i++) {
        CHECK(wait_in(epfd, -1, 20) == 0);
        write_later(pair.client);
        CHECK(wait_in(epfd, pair.server, 30000) == EPOLLIN);
        CHECK(wait_in(copy, pair.server, 0) == EPOLLIN);
        read_all(pair.server, &byte, 1);
    }
    CHECK(close(epfd) == 0);
    int other = open("/dev/null", O_RDONLY); /* gets the free number */
    CHECK(other == epfd && epoll_ctl(copy, EPOLL_CTL_MOD, pair.server, &event) == 0);
    CHECK(wait_in(copy, pair.server, 5000) == EPOLLOUT);
    CHECK(put_in(copy, pair.client, EPOLLIN) == 0);
    CHECK(epoll_ctl(copy, EPOLL_CTL_DEL, pair.server, NULL) == 0);
    CHECK(wait_in(copy, -1, 20) == 0);
    write_all(pair.server, "x", 1);
    CHECK(wait_in(copy, pair.client, 30000) == EPOLLIN);
    close(other);
    close(copy);
    done(pair);
}

/* Event loops in Rust use their sets in this way. */
static void copied_before_anything_is_in_it(void)
{
    int (*const ways[])(int) = {dup, copy_by_dup2, copy_by_dup3, copy_by_fcntl};
    for (int i = 0; i < 4; i++) {
        int epfd = i % 2 == 0 ? epoll_create1(EPOLL_CLOEXEC) : epoll_create(1);
        set_of_two_numbers(epfd, ways[i](epfd));
    }
}

static bool is_readable(int fd, int timeout)
{
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, timeout) == 1;
}

/* poll() on a set reports what epoll_wait() would return. */
static void a_set_is_polled(void)
{
    struct pair pair = connected();
    char byte;
    for (int edge = 0; edge < 2; edge++) {
        int epfd = set_with(pair.server, EPOLLIN | (edge != 0 ? EPOLLET : 0));
        for (int i = 0; i < 3; i++) {
            CHECK(!is_readable(epfd, 0) && !is_readable(epfd, 20));
            write_later(pair.client);
            CHECK(is_readable(epfd, 5000) && is_readable(epfd, 0));
            CHECK(wait_in(epfd, pair.server, 0) == EPOLLIN);
            CHECK(is_readable(epfd, 0) == (edge == 0)); /* reported, and still pending */
            read_all(pair.server, &byte, 1);
            CHECK(!is_readable(epfd, 0) && wait_in(epfd, pair.server, 20) == 0);
            /* The bytes wake the thread that sleeps in the set. When it has read them, the set is
             * not readable. */
            write_later(pair.client);
            CHECK(wait_in(epfd, pair.server, 5000) == EPOLLIN);
            read_all(pair.server, &byte, 1);
            CHECK(!is_readable(epfd, 0));
            /* The bytes are read without a call on the set. */
            write_later(pair.client);
            CHECK(is_readable(pair.server, 5000));
            read_all(pair.server, &byte, 1);
            CHECK(!is_readable(epfd, 0) && !is_readable(epfd, 20));
        }
        close(epfd);
    }
    done(pair);
}

static void change_in(int epfd, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.fd = fd}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &event) == 0);
}

/* A registration that was reported once is valid again when its number is valid again. */
static void one_shot_by_a_number_that_was_closed(void)
{
    struct pair pair = connected();
    const int number = pair.server, on = 1;
    int once = set_with(number, EPOLLIN | EPOLLONESHOT);
    int copy = dup(number);
    CHECK(copy >= 0 && close(number) == 0);
    CHECK(setsockopt(copy, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(once, number, 5000) == EPOLLIN);
    CHECK(dup2(copy, number) == number);
    CHECK(!is_readable(once, 20) && wait_in(once, number, 0) == 0);
    change_in(once, number, EPOLLIN | EPOLLONESHOT);
    CHECK(wait_in(once, number, 5000) == EPOLLIN && wait_in(once, number, 0) == 0);
    close(once);
    close(copy);
    done(pair);
}

/* The peer has ended and left bytes in the pipe, so the connection can not return to the kernel
 * when its number is closed. When the number is valid again, EPOLL_CTL_MOD by it changes the same
 * registration. */
static void change_by_a_number_that_was_closed(void)
{
    struct pair pair = connected();
    struct epoll_event events[2];
    const int number = pair.server;
    int epfd = set_with(number, EPOLLIN);
    write_all(pair.client, "x", 1);
    CHECK(close(pair.client) == 0 && wait_in(epfd, number, 5000) == EPOLLIN);
    int copy = dup(number);
    CHECK(copy >= 0 && close(number) == 0 && epoll_wait(epfd, events, 2, 5000) == 1);
    CHECK(dup2(copy, number) == number && epoll_wait(epfd, events, 2, 5000) == 1);
    change_in(epfd, number, EPOLLIN | EPOLLONESHOT);
    CHECK(epoll_wait(epfd, events, 2, 5000) == 1 && epoll_wait(epfd, events, 2, 0) == 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, number, NULL) == 0 &&
          epoll_ctl(epfd, EPOLL_CTL_DEL, number, NULL) == -1);
    close(epfd);
    close(copy);
    CHECK(close(number) == 0);
}

/* A one-shot event: reported once, and again only after it is rearmed. */
static void one_shot_before_it_connects(void)
{
    for (int reported = 0; reported < 2; reported++) {
        int client = socket(AF_INET, SOCK_STREAM, 0);
        int epfd = set_with(client, EPOLLIN | EPOLLONESHOT);
        CHECK(reported == 0 || wait_in(epfd, client, 5000) == EPOLLHUP);
        struct pair pair = connect_later(client);
        char byte;
        talk_both_ways(pair.client, pair.server);
        CHECK(wait_in(epfd, client, 20) == 0);
        for (int i = 0; i < 3; i++) {
            write_all(pair.server, "x", 1);
            CHECK(poll(&(struct pollfd){client, POLLIN, 0}, 1, 5000) == 1);
            CHECK(wait_in(epfd, client, 0) == (i == 0 && reported != 0 ? 0 : EPOLLIN));
            CHECK(wait_in(epfd, client, 0) == 0);
            read_all(client, &byte, 1);
            change_in(epfd, client, EPOLLIN | EPOLLONESHOT);
            CHECK(wait_in(epfd, client, 0) == 0);
        }
        close(epfd);
        done(pair);
    }
}

static void exclusive_before_it_connects(void)
{
    int client = socket(AF_INET, SOCK_STREAM, 0);
    int epfd = set_with(client, EPOLLIN | EPOLLEXCLUSIVE);
    struct epoll_event event = {.events = EPOLLIN};
    struct pair pair = connect_later(client);
    char byte;
    talk_both_ways(pair.client, pair.server);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, client, &event) == -1 && errno == EINVAL);
    CHECK(wait_in(epfd, client, 20) == 0);
    write_all(pair.server, "x", 1);
    CHECK(wait_in(epfd, client, 5000) == EPOLLIN && wait_in(epfd, client, 0) == EPOLLIN);
    read_all(client, &byte, 1);
    CHECK(wait_in(epfd, client, 0) == 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, client, NULL) == 0);
    close(epfd);
    done(pair);
}

static void in_several_sets_before_it_connects(void)
{
    int client = socket(AF_INET, SOCK_STREAM, 0);
    int level = set_with(client, EPOLLIN);
    int left = set_with(client, EPOLLIN);
    int edge = set_with(client, EPOLLIN | EPOLLET);
    int once = set_with(client, EPOLLIN | EPOLLONESHOT);
    CHECK(epoll_ctl(left, EPOLL_CTL_DEL, client, NULL) == 0);
    struct pair pair = connect_later(client);
    char byte;
    talk_both_ways(pair.client, pair.server);
    wait_in(edge, client, 0);
    for (int i = 0; i < 3; i++) {
        write_all(pair.server, "x", 1);
        CHECK(wait_in(level, client, 5000) == EPOLLIN && wait_in(level, client, 0) == EPOLLIN);
        CHECK(wait_in(edge, client, 5000) == EPOLLIN && wait_in(edge, client, 0) == 0);
        CHECK(wait_in(once, client, 0) == (i == 0 ? EPOLLIN : 0));
        CHECK(wait_in(left, client, 0) == 0);
        read_all(client, &byte, 1);
        CHECK(wait_in(level, client, 0) == 0);
    }
    close(level);
    close(left);
    close(edge);
    close(once);
    done(pair);
}

#define GONE (EPOLLERR | EPOLLHUP)

/* connect() with AF_UNSPEC: the registration stays under all its numbers, whether or not the end of
 * file was reported, and the socket can connect again. */
static void dissolved_and_connected_again(void)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    for (int rearms = 0; rearms < 2; rearms++) {
        struct pair pair = connected();
        int client = pair.client, copy = dup(client);
        int level = set_with(client, EPOLLIN), edge = set_with(client, EPOLLIN | EPOLLET);
        int once = set_with(client, EPOLLIN | EPOLLONESHOT), other = set_with(copy, EPOLLIN);
        char byte;
        talk_both_ways(client, pair.server);
        write_all(pair.server, "x", 1);
        CHECK(wait_in(once, client, 5000) == EPOLLIN && wait_in(edge, client, 0) == EPOLLIN);
        CHECK(connect(client, &nowhere, sizeof(nowhere)) == 0);
        CHECK(wait_in(level, client, 0) == GONE && wait_in(other, copy, 0) == GONE);
        CHECK(wait_in(edge, client, 0) == GONE && wait_in(edge, client, 0) == 0);
        CHECK(wait_in(once, client, 0) == 0);
        if (rearms != 0) {
            change_in(once, client, EPOLLIN | EPOLLONESHOT);
            CHECK(wait_in(once, client, 0) == GONE && wait_in(once, client, 0) == 0);
        }
        close(pair.server);
        pair = connect_later(client);
        talk_both_ways(client, pair.server);
        wait_in(edge, client, 0);
        CHECK(wait_in(level, client, 0) == 0 && wait_in(other, copy, 0) == 0);
        write_all(pair.server, "x", 1);
        CHECK(wait_in(level, client, 5000) == EPOLLIN && wait_in(other, copy, 0) == EPOLLIN);
        CHECK(wait_in(edge, client, 0) == EPOLLIN && wait_in(once, client, 0) == 0);
        change_in(once, client, EPOLLIN | EPOLLONESHOT);
        CHECK(wait_in(once, client, 0) == EPOLLIN && wait_in(once, client, 0) == 0);
        read_all(copy, &byte, 1);
        CHECK(wait_in(level, client, 0) == 0 && wait_in(other, copy, 0) == 0);
        const int fds[] = {level, edge, once, other, copy};
        for (int i = 0; i < 5; i++) {
            close(fds[i]);
        }
        done(pair);
    }
}

static void times_in_nanoseconds(void)
{
    struct pair pair = connected();
    int epfd = set_with(pair.server, EPOLLIN);
    struct epoll_event event;
    struct timespec little = {0, 1500000}, second = {5, 0}, none = {0, 0}, wrong = {0, -1};
    double before = now_s();
    CHECK(epoll_pwait2(epfd, &event, 1, &little, NULL) == 0);
    CHECK(now_s() - before >= 0.0015 && now_s() - before < 4);
    CHECK(epoll_pwait2(epfd, &event, 1, &none, NULL) == 0);
    CHECK(epoll_pwait2(epfd, &event, 1, &wrong, NULL) == -1 && errno == EINVAL);
    write_later(pair.client);
    CHECK(epoll_pwait2(epfd, &event, 1, &second, NULL) == 1 && event.events == EPOLLIN);
    close(epfd);
    done(pair);
}

static void mistakes(void)
{
    struct pair pair = connected();
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.server, &event) == -1 && errno == ENOENT);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, &event) == -1 && errno == ENOENT);
    CHECK(epoll_ctl(epfd, 77, pair.server, &event) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(-1, EPOLL_CTL_ADD, pair.server, &event) == -1 && errno == EBADF);
    CHECK(epoll_ctl(pair.client, EPOLL_CTL_ADD, pair.server, &event) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, epfd, &event) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.server, &event) == 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.server, &event) == -1 && errno == EEXIST);
    CHECK(epoll_wait(epfd, &event, 0, 0) == -1 && errno == EINVAL);
    CHECK(epoll_wait(pair.server, &event, 1, 0) == -1 && errno == EINVAL);
    close(epfd);
    CHECK(epoll_wait(epfd, &event, 1, 0) == -1 && errno == EBADF);
    done(pair);
}

struct sleeper {
    int epfd;
    int count;
    struct epoll_event event;
};

static void *sleep_in(void *arg)
{
    struct sleeper *sleeper = arg;
    sleeper->count = epoll_wait(sleeper->epfd, &sleeper->event, 1, 30000);
    return NULL;
}

/* As in gRPC: one thread sleeps in a set while another adds the first connection, which is writable
 * at once. On one CPU, where the woken thread runs first. */
static void first_one_in_while_a_thread_sleeps(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    for (uint64_t round = 1; round <= 300; round++) {
        struct sleeper sleeper = {.epfd = epoll_create1(0)};
        struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data = {.u64 = round << 32}};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, sleep_in, &sleeper) == 0);
        sched_yield();
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        CHECK(epoll_ctl(sleeper.epfd, EPOLL_CTL_ADD, fd, &event) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(sleeper.count == 1 && sleeper.event.data.u64 == round << 32);
        close(accept(listen_fd, NULL, NULL));
        close(fd);
        close(sleeper.epfd);
    }
    CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
    close(listen_fd);
}

/* Two connections are always ready, and each call has room for one event: the calls report them in
 * turn. */
static void one_place_for_two(int timeout)
{
    struct pair pair = connected();
    int fds[2];
    int set = epoll_create1(0);
    unsigned turns[2] = {0};
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = 0}};
    CHECK(pipe(fds) == 0 && write(fds[1], "x", 1) == 1);
    write_all(pair.client, "x", 1);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
    event.data.u32 = 1;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[0], &event) == 0);
    for (double end = now_s() + 20; now_s() < end && (turns[0] < 100 || turns[1] < 100);) {
        CHECK(epoll_wait(set, &event, 1, timeout) == 1);
        turns[event.data.u32]++;
    }
    CHECK(turns[0] >= 100 && turns[1] >= 100);
    close(set);
    close(fds[0]);
    close(fds[1]);
    done(pair);
}

static void *nothing(void *arg)
{
    return arg;
}

/* Two connections that have returned to the kernel, calls with room for two events, and an event of
 * the library's own, which may come between them. */
static void two_places_for_two(void)
{
    struct pair pairs[3] = {connected(), connected(), connected()};
    struct epoll_event events[2];
    const int on = 1;
    int set = epoll_create1(0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        const int fd = pairs[i].server;
        if (i != 1) {
            CHECK(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0);
            write_all(pairs[i].client, "x", 1);
            CHECK(is_readable(fd, 10000));
        }
        CHECK(put_in(set, fd, EPOLLIN) == 0);
    }
    int n = epoll_wait(set, events, 2, 0);
    n += n == 1 ? epoll_wait(set, &events[1], 1, 0) : 0;
    CHECK(n == 2 && events[0].data.fd != events[1].data.fd);
    close(set);
    for (int i = 0; i < 3; i++) {
        done(pairs[i]);
    }
}

static void one_place_for_two_and_no_time(void)
{
    one_place_for_two(0);
}

static void one_place_for_two_and_time(void)
{
    one_place_for_two(-1);
}

/* --- an edge for bytes that come during a wait on the set ------------------------------------ */

/* At one end, one thread writes many bytes, one waits in a set, and one reads when the set reports
 * input. At the other end, one thread writes few bytes, and one reads. */
struct rally {
    struct pair pair;
    sem_t readable;
    _Atomic bool over;
    _Atomic unsigned got;     /* how many of the few bytes have been read */
    _Atomic unsigned drained; /* ... and how many of the many bytes */
};

#define RALLY_COUNT 2000u

static void spin_us(unsigned us)
{
    for (double end = now_s() + us * 1e-6; now_s() < end;) {
    }
}

/* Sends a few bytes, one at a time, and more when all have been read. */
static void *send_rally(void *argument)
{
    struct rally *rally = argument;
    double end = now_s() + 3;
    unsigned sent = 0;
    for (unsigned round = 0; round < RALLY_COUNT && now_s() < end; round++) {
        for (unsigned byte = 0; byte < 3; byte++) {
            write_all(rally->pair.client, "x", 1);
            sent++;
            spin_us(round * 7 % 19);
        }
        double patience = now_s() + 30;
        while (rally->got < sent) {
            CHECK(now_s() < patience); /* no thread got the event */
            sched_yield();
        }
    }
    rally->over = true;
    return NULL;
}

static void *read_rally(void *argument)
{
    struct rally *rally = argument;
    char data[16];
    while (!rally->over) {
        ssize_t n;
        CHECK(sem_wait(&rally->readable) == 0);
        while ((n = read(rally->pair.server, data, sizeof(data))) > 0) {
            rally->got += (unsigned)n;
        }
        CHECK(n < 0 && errno == EAGAIN);
    }
    return NULL;
}

static void *write_much(void *argument)
{
    struct rally *rally = argument;
    static char block[64 * 1024];
    unsigned written = 0;
    while (!rally->over) {
        if (rally->drained == written) {
            ssize_t n = write(rally->pair.server, block, sizeof(block));
            CHECK(n > 0);
            written += (unsigned)n;
        }
        sched_yield();
    }
    CHECK(shutdown(rally->pair.server, SHUT_WR) == 0);
    return NULL;
}

static void *read_much(void *argument)
{
    struct rally *rally = argument;
    static char block[64 * 1024];
    ssize_t n;
    while ((n = read(rally->pair.client, block, sizeof(block))) > 0) {
        rally->drained += (unsigned)n;
    }
    return NULL;
}

/* As in gRPC: one thread waits in the set while another reads, and meanwhile more bytes arrive. */
static void edges_while_another_thread_reads(void)
{
    struct rally rally = {.pair = just_connected()};
    void *(*const roles[])(void *) = {send_rally, read_rally, write_much, read_much};
    pthread_t threads[4];
    nonblocking(rally.pair.server);
    CHECK(sem_init(&rally.readable, 0, 0) == 0);
    int set = set_with(rally.pair.server, EPOLLIN | EPOLLOUT | EPOLLET);
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, roles[i], &rally) == 0);
    }
    while (!rally.over) {
        if ((wait_in(set, rally.pair.server, 100) & EPOLLIN) != 0) {
            CHECK(sem_post(&rally.readable) == 0);
        }
    }
    CHECK(sem_post(&rally.readable) == 0);
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    close(set);
    done(rally.pair);
}

const struct check checks_of_sets[] = {
    CHECK_ENTRY(edges_while_another_thread_reads),
    CHECK_ENTRY(one_place_for_two_and_no_time),
    CHECK_ENTRY(one_place_for_two_and_time),
    CHECK_ENTRY(two_places_for_two),
    CHECK_ENTRY(one_shot_by_a_number_that_was_closed),
    CHECK_ENTRY(change_by_a_number_that_was_closed),
    CHECK_ENTRY(first_one_in_while_a_thread_sleeps),
    CHECK_ENTRY(two_sets_hold_it),
    CHECK_ENTRY(a_copy_is_another_registration),
    CHECK_ENTRY(copied_before_anything_is_in_it),
    CHECK_ENTRY(its_number_is_anothers),
    CHECK_ENTRY(its_number_is_anothers_and_it_goes_back),
    CHECK_ENTRY(taken_out_and_put_in_again),
    CHECK_ENTRY(taken_out_and_copied),
    CHECK_ENTRY(exclusive),
    CHECK_ENTRY(a_child_closes_its_copy),
    CHECK_ENTRY(replaced_by_a_copy_that_was_passed),
    CHECK_ENTRY(a_set_is_polled),
    CHECK_ENTRY(one_shot_before_it_connects),
    CHECK_ENTRY(exclusive_before_it_connects),
    CHECK_ENTRY(in_several_sets_before_it_connects),
    CHECK_ENTRY(dissolved_and_connected_again),
    CHECK_ENTRY(times_in_nanoseconds),
    CHECK_ENTRY(mistakes),
    {0},
};
