/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Both ends send more than pipes hold, and only then read. The kernel's buffers hold the rest. */
#include "checks.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define BYTES 2000000u

/* The ways in which an end waits for room. */
enum how { BY_CALL, BY_TIMER, BY_POLL, BY_SET, BY_EDGE };

struct end {
    int fd;
    enum how how;
    size_t piece;
    unsigned char mark;
};

static unsigned char byte_at(const struct end *end, size_t i)
{
    return (unsigned char)(end->mark + i % 251);
}

static int set_of(const struct end *end)
{
    struct epoll_event event = {.events = EPOLLOUT};
    int set = epoll_create1(0);
    if (end->how == BY_EDGE) {
        event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    }
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, end->fd, &event) == 0);
    return set;
}

static void await_room(const struct end *end, int set)
{
    struct epoll_event event;
    struct pollfd pfd = {.fd = end->fd, .events = POLLOUT};
    if (end->how == BY_TIMER) {
        sleep_ms(5);
    } else if (end->how == BY_POLL) {
        CHECK(poll(&pfd, 1, -1) == 1);
    } else {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
    }
}

static void send_all(const struct end *end, const unsigned char *data)
{
    int set = end->how >= BY_SET ? set_of(end) : -1;
    int flags = end->how == BY_CALL ? 0 : MSG_DONTWAIT;
    for (size_t sent = 0; sent < BYTES;) {
        size_t bytes = BYTES - sent < end->piece ? BYTES - sent : end->piece;
        ssize_t n = send(end->fd, data + sent, bytes, flags);
        CHECK(n > 0 || (n < 0 && errno == EAGAIN && flags != 0));
        if (n > 0) {
            sent += (size_t)n;
        } else {
            await_room(end, set);
        }
    }
    close(set);
}

static void *send_and_read(void *arg)
{
    const struct end *end = arg;
    struct end other = {.mark = (unsigned char)(1 - end->mark)};
    unsigned char *data = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = byte_at(end, i);
    }
    send_all(end, data);
    read_all(end->fd, data, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        CHECK(data[i] == byte_at(&other, i));
    }
    free(data);
    return NULL;
}

static void both_send(enum how one, enum how other, size_t piece, bool process)
{
    struct pair pair = connected();
    struct end client = {.fd = pair.client, .how = one, .piece = piece, .mark = 0};
    struct end server = {.fd = pair.server, .how = other, .piece = piece, .mark = 1};
    pthread_t thread;
    pid_t pid = -1;
    if (process) {
        pid = fork();
        if (pid == 0) {
            close(pair.server);
            send_and_read(&client);
            _exit(0);
        }
        close(pair.client);
        send_and_read(&server);
        wait_for(pid);
        close(pair.server);
        return;
    }
    CHECK(pthread_create(&thread, NULL, send_and_read, &client) == 0);
    send_and_read(&server);
    CHECK(pthread_join(thread, NULL) == 0);
    done(pair);
}

static void both_send_megabytes_and_then_read(void)
{
    both_send(BY_CALL, BY_CALL, BYTES, false);
}

static void both_send_megabytes_in_two_processes(void)
{
    both_send(BY_CALL, BY_CALL, BYTES, true);
}

static void both_send_megabytes_of_small_messages(void)
{
    both_send(BY_CALL, BY_CALL, 40, false);
}

/* Neither end waits for room in a call: each tries again after a while. */
static void both_send_megabytes_and_try_again(void)
{
    both_send(BY_TIMER, BY_TIMER, 20000, false);
    both_send(BY_TIMER, BY_TIMER, 20000, true);
}

static void both_send_megabytes_and_poll(void)
{
    both_send(BY_POLL, BY_POLL, 65536, false);
}

static void both_send_megabytes_by_sets(void)
{
    both_send(BY_SET, BY_EDGE, 65536, true);
}

/* Bytes that were sent through the pipe arrive before later bytes through the kernel, at either
 * end. */
static void both_send_megabytes_and_one_reads_by_stdio(void)
{
    struct pair pair = connected();
    struct end client = {.fd = pair.client, .how = BY_CALL, .piece = BYTES, .mark = 0};
    struct end server = {.fd = pair.server, .how = BY_CALL, .piece = BYTES, .mark = 1};
    pid_t pid = fork();
    if (pid == 0) {
        close(pair.server);
        send_and_read(&client);
        _exit(0);
    }
    close(pair.client);
    unsigned char *data = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = byte_at(&server, i);
    }
    send_all(&server, data);
    FILE *file = fdopen(pair.server, "r");
    CHECK(file != NULL && fread(data, 1, BYTES, file) == BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        CHECK(data[i] == byte_at(&client, i));
    }
    wait_for(pid);
    fclose(file);
    free(data);
}

/* The ends alternate by round: the end with more to send uses the kernel when the next round
 * begins, and the kernel's buffers are then full, too. */
static void rounds(const struct end *end, size_t bytes, size_t peer_bytes)
{
    unsigned char *data = malloc(bytes + peer_bytes);
    for (unsigned round = 0; round < 3; round++) {
        memset(data, (int)round + end->mark, bytes);
        write_all(end->fd, data, bytes);
        read_all(end->fd, data, peer_bytes);
        for (size_t i = 0; i < peer_bytes; i++) {
            CHECK(data[i] == (unsigned char)(round + 1 - end->mark));
        }
    }
    CHECK(shutdown(end->fd, SHUT_WR) == 0);
    CHECK(read(end->fd, data, 1) == 0);
    free(data);
}

static void one_sends_more_than_the_kernel_takes(void)
{
    struct pair pair = connected();
    pid_t pid = fork();
    if (pid == 0) {
        struct end client = {.fd = pair.client, .mark = 0};
        close(pair.server);
        rounds(&client, 24 * BYTES, BYTES);
        _exit(0);
    }
    struct end server = {.fd = pair.server, .mark = 1};
    close(pair.client);
    rounds(&server, BYTES, 24 * BYTES);
    wait_for(pid);
    close(pair.server);
}

static void both_send_megabytes_and_shut_down(void)
{
    struct pair pair = connected();
    pid_t pid = fork();
    struct end end = {.fd = pid == 0 ? pair.client : pair.server, .piece = BYTES, .mark = pid == 0};
    unsigned char *data = malloc(BYTES);
    close(pid == 0 ? pair.server : pair.client);
    memset(data, end.mark, BYTES);
    send_all(&end, data);
    CHECK(shutdown(end.fd, SHUT_WR) == 0);
    read_all(end.fd, data, BYTES);
    CHECK(data[0] == 1 - end.mark && data[BYTES - 1] == 1 - end.mark);
    CHECK(read(end.fd, data, 1) == 0);
    free(data);
    close(end.fd);
    if (pid == 0) {
        _exit(0);
    }
    wait_for(pid);
}

/* An end waits for room while it has bytes to read: this alone is no stall. */
static void a_reader_takes_its_time(void)
{
    struct pair pair = connected();
    char few[100] = {0};
    size_t bytes = 4u << 20;
    write_all(pair.server, few, sizeof(few));
    pid_t pid = fork();
    if (pid == 0) {
        char *data = calloc(1, bytes);
        write_all(pair.client, data, bytes);
        read_all(pair.client, few, sizeof(few));
        exit(0);
    }
    close(pair.client);
    sleep_ms(200);
    CHECK(drain(pair.server, bytes) == bytes);
    wait_for(pid);
    close(pair.server);
}

const struct check checks_of_stalls[] = {
    CHECK_ENTRY(both_send_megabytes_and_then_read),
    CHECK_ENTRY(both_send_megabytes_in_two_processes),
    CHECK_ENTRY(both_send_megabytes_of_small_messages),
    CHECK_ENTRY(both_send_megabytes_and_try_again),
    CHECK_ENTRY(both_send_megabytes_and_poll),
    CHECK_ENTRY(both_send_megabytes_by_sets),
    CHECK_ENTRY(both_send_megabytes_and_one_reads_by_stdio),
    CHECK_ENTRY(one_sends_more_than_the_kernel_takes),
    CHECK_ENTRY(both_send_megabytes_and_shut_down),
    CHECK_ENTRY(a_reader_takes_its_time),
    {.name = NULL},
};
