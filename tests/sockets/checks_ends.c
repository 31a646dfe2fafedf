/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How connections end. */
#include "checks.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void half_close(void)
{
    struct pair pair = connected();
    char data[16];
    write_all(pair.client, "last", 4);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    CHECK(read(pair.server, data, 16) == 4);
    CHECK(read(pair.server, data, 16) == 0);
    CHECK(read(pair.server, data, 16) == 0);
    struct pollfd pfd = {pair.server, POLLIN | POLLRDHUP | POLLOUT, 0};
    CHECK(poll(&pfd, 1, 30000) == 1);
    CHECK(pfd.revents == (POLLIN | POLLRDHUP | POLLOUT));
    for (int i = 0; i < 100; i++) {
        write_all(pair.server, "still here", 10);
        read_all(pair.client, data, 10);
    }
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(pair.client, "x", 1) == -1 && errno == EPIPE);
    close(pair.server);
    CHECK(read(pair.client, data, 16) == 0);
    pfd = (struct pollfd){pair.client, POLLIN, 0};
    CHECK(poll(&pfd, 1, 30000) == 1 && (pfd.revents & POLLHUP) != 0);
    close(pair.client);
}

static volatile sig_atomic_t pipes_broken;

static void on_pipe(int number)
{
    (void)number;
    pipes_broken++;
}

static void writing_to_a_closed_peer(void)
{
    struct pair pair = connected();
    signal(SIGPIPE, on_pipe);
    close(pair.server);
    sleep_ms(20);
    ssize_t n = 0;
    for (int i = 0; i < 100 && n >= 0; i++) {
        n = write(pair.client, "x", 1);
        sleep_ms(1);
    }
    CHECK(n == -1 && errno == EPIPE && pipes_broken == 1);
    CHECK(send(pair.client, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && pipes_broken == 1);
    close(pair.client);
}

static void closing_with_unread_data_resets(void)
{
    struct pair pair = connected();
    char data[16];
    write_all(pair.client, "never read", 10);
    write_all(pair.server, "answer", 6);
    close(pair.server);
    sleep_ms(20);
    ssize_t n = read(pair.client, data, 16);
    if (n == 6) {
        n = read(pair.client, data, 16);
    }
    CHECK(n == -1 && errno == ECONNRESET);
    CHECK(read(pair.client, data, 16) == 0);
    close(pair.client);
}

/* A server that stops reading sends an answer and closes while more input arrives. The writes of
 * the client fail, and the client can still read the answer. */
static void last_words_before_a_reset_arrive(void)
{
    for (int i = 0; i < 40; i++) {
        struct pair pair = connected();
        static char block[1000];
        char word[16];
        signal(SIGPIPE, SIG_IGN);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            close(pair.client);
            drain(pair.server, 40000 + 500 * (size_t)i);
            write_all(pair.server, "enough", 6);
            close(pair.server);
            _exit(0);
        }
        close(pair.server);
        while (write(pair.client, block, sizeof(block)) > 0) {
        }
        CHECK(errno == EPIPE || errno == ECONNRESET);
        CHECK(read(pair.client, word, sizeof(word)) == 6 && memcmp(word, "enough", 6) == 0);
        wait_for(pid);
        close(pair.client);
    }
}

static void what_was_sent_before_close_arrives(void)
{
    struct pair pair = connected();
    size_t total = fill_up(pair.client);
    close(pair.client);
    CHECK(drain(pair.server, total) == total);
    char byte;
    CHECK(read(pair.server, &byte, 1) == 0);
    close(pair.server);
}

/* Also for a set that asks for EPOLLIN alone, without EPOLLRDHUP. */
static void the_last_holder_ends_and_it_is_an_edge(bool by_kill)
{
    struct pair pair = connected();
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int epfd = epoll_create1(0);
    char byte;
    int fds[2];
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.client, &event) == 0);
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.client);
        close(fds[1]);
        (void)!read(fds[0], &byte, 1);
        _exit(0);
    }
    close(fds[0]);
    close(pair.server);
    CHECK(epoll_wait(epfd, &event, 1, 5) == 0);
    if (by_kill) {
        kill(pid, SIGKILL);
    }
    close(fds[1]);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(epoll_wait(epfd, &event, 1, 30000) == 1 && (event.events & EPOLLIN) != 0);
    CHECK(epoll_wait(epfd, &event, 1, 5) == 0);
    CHECK(read(pair.client, &byte, 1) == 0);
    close(epfd);
    close(pair.client);
}

static void an_ending_child_is_an_edge(void)
{
    the_last_holder_ends_and_it_is_an_edge(false);
}

static void a_killed_child_is_an_edge(void)
{
    the_last_holder_ends_and_it_is_an_edge(true);
}

static void a_killed_peer_is_an_end(void)
{
    struct pair pair = connected();
    pid_t pid = fork();
    CHECK(pid >= 0);
    char data[16];
    if (pid == 0) {
        close(pair.client);
        write_all(pair.server, "bye", 3);
        for (;;) {
            pause();
        }
    }
    close(pair.server);
    read_all(pair.client, data, 3);
    kill(pid, SIGKILL);
    CHECK(read(pair.client, data, 16) == 0);
    int status;
    waitpid(pid, &status, 0);
    signal(SIGPIPE, SIG_IGN);
    ssize_t n = 0;
    double before = now_s();
    while (n >= 0 && now_s() - before < 30) {
        n = write(pair.client, data, 16);
    }
    CHECK(n == -1 && (errno == EPIPE || errno == ECONNRESET));
    close(pair.client);
}

/* A thread sleeps for one connection repeatedly, with waits for several descriptors in between, and
 * later for another connection of the same number. It is woken each time. */
static void a_killed_peer_wakes_an_earlier_sleeper(void)
{
    for (int round = 0; round < 3; round++) {
        struct pair pair = connected();
        char byte;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            close(pair.server);
            for (int i = 0; i < 6; i++) {
                sleep_ms(10);
                write_all(pair.client, "x", 1);
            }
            sleep_ms(50);
            raise(SIGKILL);
        }
        close(pair.client);
        for (int i = 0; i < 6; i++) {
            struct pollfd pfd = {pair.server, POLLIN, 0};
            CHECK(i != 3 || round == 1 || poll(&pfd, 1, 5000) == 1);
            read_all(pair.server, &byte, 1);
        }
        alarm(20);
        CHECK(read(pair.server, &byte, 1) == 0);
        alarm(0);
        CHECK(waitpid(pid, NULL, 0) == pid);
        close(pair.server);
    }
}

static void a_killed_peer_wakes_a_writer(void)
{
    struct pair pair = connected();
    signal(SIGPIPE, SIG_IGN);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.client);
        for (;;) {
            pause();
        }
    }
    close(pair.server);
    fill_up(pair.client);
    pid_t killer = fork();
    CHECK(killer >= 0);
    if (killer == 0) {
        sleep_ms(50);
        kill(pid, SIGKILL);
        _exit(0);
    }
    static char block[1 << 20];
    ssize_t n = 0;
    while (n >= 0) {
        n = send(pair.client, block, sizeof(block), 0);
    }
    CHECK(errno == EPIPE || errno == ECONNRESET);
    wait_for(killer);
    waitpid(pid, NULL, 0);
    close(pair.client);
}

static void shutdown_for_reading(void)
{
    struct pair pair = connected();
    char data[8];
    CHECK(shutdown(pair.server, SHUT_RD) == 0);
    CHECK(read(pair.server, data, 8) == 0);
    write_all(pair.server, "out", 3);
    read_all(pair.client, data, 3);
    for (int i = 0; i < 300; i++) {
        write_all(pair.server, "out", 3);
        read_all(pair.client, data, 3);
        if (i % 100 == 0) {
            sleep_ms(3);
        }
    }
    done(pair);
}

static void *shutter(void *of_fd)
{
    sleep_ms(50);
    shutdown(*(int *)of_fd, SHUT_RDWR);
    return NULL;
}

static void shutdown_wakes_a_reader(void)
{
    struct pair pair = connected();
    pthread_t thread;
    char byte;
    CHECK(pthread_create(&thread, NULL, shutter, &pair.server) == 0);
    CHECK(read(pair.server, &byte, 1) == 0);
    pthread_join(thread, NULL);
    done(pair);
}

static void linger_zero_resets(void)
{
    struct pair pair = connected();
    struct linger linger = {1, 0};
    char byte;
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
    close(pair.server);
    CHECK(read(pair.client, &byte, 1) == -1 && errno == ECONNRESET);
    close(pair.client);
}

/* On an end that is shut down in both directions a reset is an error, and so the last edge. */
static void reset_of_what_is_shut_is_an_edge(void)
{
    struct pair pair = connected();
    const uint32_t shut = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP;
    int epfd = set_with(pair.server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    int error = 0;
    socklen_t bytes = sizeof(error);
    CHECK(wait_in(epfd, pair.server, 5000) == EPOLLOUT);
    shutdown(pair.server, SHUT_RDWR);
    CHECK(wait_in(epfd, pair.server, 5000) == shut);
    sleep_ms(100); /* the acknowledgement causes an edge, too */
    wait_in(epfd, pair.server, 0);
    CHECK(wait_in(epfd, pair.server, 0) == 0);
    write_all(pair.client, "x", 1);
    CHECK(wait_in(epfd, pair.server, 5000) == (shut | EPOLLERR));
    CHECK(wait_in(epfd, pair.server, 0) == 0);
    CHECK(getsockopt(pair.server, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
    CHECK(error == ECONNRESET);
    close(pair.client);
    close(epfd);
    close(pair.server);
}

const struct check checks_of_ends[] = {
    CHECK_ENTRY(reset_of_what_is_shut_is_an_edge),
    CHECK_ENTRY(half_close),
    CHECK_ENTRY(writing_to_a_closed_peer),
    CHECK_ENTRY(closing_with_unread_data_resets),
    CHECK_ENTRY(last_words_before_a_reset_arrive),
    CHECK_ENTRY(what_was_sent_before_close_arrives),
    CHECK_ENTRY(an_ending_child_is_an_edge),
    CHECK_ENTRY(a_killed_child_is_an_edge),
    CHECK_ENTRY(a_killed_peer_is_an_end),
    CHECK_ENTRY(a_killed_peer_wakes_an_earlier_sleeper),
    CHECK_ENTRY(a_killed_peer_wakes_a_writer),
    CHECK_ENTRY(shutdown_for_reading),
    CHECK_ENTRY(shutdown_wakes_a_reader),
    CHECK_ENTRY(linger_zero_resets),
    {0},
};
