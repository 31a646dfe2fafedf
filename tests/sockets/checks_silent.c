/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * One end returns to the kernel while the other has left bytes in the pipe and then makes no call
 * on it: it sleeps, waits for a child or for other descriptors, or ends. The kernel's TCP would
 * already have the bytes, so they must arrive.
 */
#include "checks.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

/* Fewer bytes than a ring holds, so no thread waits for room. */
#define BYTES 200000u
/* Small streams are sent in smaller steps. */
#define STEP 5000u

static unsigned char byte_at(size_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

static void write_pattern(int fd, size_t bytes)
{
    unsigned char block[STEP];
    for (size_t at = 0; at < bytes; at += STEP) {
        for (size_t i = 0; i < STEP; i++) {
            block[i] = byte_at(at + i);
        }
        write_all(fd, block, STEP);
    }
}

/* Reads by stdio, like another program, so the library does not see the reads. */
static void read_pattern(FILE *file, size_t bytes)
{
    for (size_t at = 0; at < bytes; at++) {
        int byte = getc(file);
        CHECK(byte == byte_at(at));
    }
}

/* --- kinds of silence: none ends without a signal, or uses the connection -------------------- */

/* The next call on the connection answers the peer, and then the waiting writer continues. */
static void in_sleep_and_then_a_call(int fd)
{
    struct pollfd pfd = {fd, POLLIN, 0};
    sleep_ms(500);
    poll(&pfd, 1, -1);
}

static void in_poll_of_none(int fd)
{
    (void)fd;
    poll(NULL, 0, -1);
}

static int empty_pipe(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    return ends[0];
}

static void in_poll_of_a_pipe(int fd)
{
    struct pollfd pfd = {empty_pipe(), POLLIN, 0};
    (void)fd;
    poll(&pfd, 1, 1000000);
}

static void in_select(int fd)
{
    fd_set in;
    int other = empty_pipe();
    (void)fd;
    FD_ZERO(&in);
    FD_SET(other, &in);
    select(other + 1, &in, NULL, NULL, NULL);
}

static void in_epoll(int fd)
{
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    (void)fd;
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, empty_pipe(), &event) == 0);
    epoll_wait(epfd, &event, 1, -1);
}

static void in_read_of_a_pipe(int fd)
{
    char byte;
    (void)fd;
    CHECK(read(empty_pipe(), &byte, 1) == 1);
}

static void in_recv_of_another(int fd)
{
    struct pair other = connected();
    char byte;
    (void)fd;
    CHECK(recv(other.client, &byte, 1, 0) == 1);
}

static void *wait_in_vain(void *unused)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&never, &lock);
    return unused;
}

/* Two processes hold the end, and neither makes a call. */
static void in_poll_with_a_child(int fd)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        end_with(parent);
    }
    in_poll_of_none(fd);
}

/* --- */

struct silence {
    void (*in)(int fd);
    size_t bytes;
    bool from_server; /* the end that is silent */
    bool threads;     /* the program has several threads */
    bool small;       /* the kernel's buffers do not hold the unread bytes */
    bool ends;        /* `in` does not sleep, because the stream ends */
};

static void be_silent(const struct silence *how, int fd)
{
    pthread_t thread;
    alarm(50);
    if (how->threads) {
        CHECK(pthread_create(&thread, NULL, wait_in_vain, NULL) == 0);
    }
    write_pattern(fd, how->bytes);
    how->in(fd);
    if (!how->ends) {
        wait_in_vain(NULL);
    }
    _exit(0);
}

static struct pair connected_for(const struct silence *how)
{
    struct pair pair = connected();
    /* More than the library requests at once, and in total less than a ring. */
    int bytes = 66000;
    if (how->small) {
        CHECK(setsockopt(pair.client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
        CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0);
    }
    return pair;
}

static void leaves_a_silent_peer(struct silence how)
{
    if (how.bytes == 0) {
        how.bytes = BYTES;
    }
    struct pair pair = connected_for(&how);
    int silent = how.from_server ? pair.server : pair.client;
    int reader = how.from_server ? pair.client : pair.server;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(reader);
        be_silent(&how, silent);
    }
    close(silent);
    /* By then the pipe holds all bytes, or on a busy machine some of them. */
    sleep_ms(150);
    FILE *file = fdopen(reader, "r");
    CHECK(file != NULL);
    CHECK(fileno(file) == reader || how.ends);
    if (how.small) {
        sleep_ms(100); /* for a while there is no room */
    }
    read_pattern(file, how.bytes);
    if (how.ends) {
        CHECK(getc(file) == EOF && !ferror(file));
        wait_for(pid);
    } else {
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    }
    fclose(file);
}

#define SILENT(how)                                        \
    static void a_peer_##how(void)                         \
    {                                                      \
        leaves_a_silent_peer((struct silence){.in = how}); \
    }
SILENT(in_sleep_and_then_a_call)
SILENT(in_poll_of_none)
SILENT(in_poll_of_a_pipe)
SILENT(in_select)
SILENT(in_epoll)
SILENT(in_read_of_a_pipe)
SILENT(in_recv_of_another)
SILENT(in_poll_with_a_child)

static void a_server_in_poll(void)
{
    leaves_a_silent_peer((struct silence){.in = in_poll_of_none, .from_server = true});
}

static void in_vain(int fd)
{
    (void)fd;
    wait_in_vain(NULL);
}

static void a_peer_of_two_threads(void)
{
    leaves_a_silent_peer((struct silence){.in = in_vain, .threads = true});
}

/* The kernel can not hold all unread bytes of the pipe: the library sends the rest when there is
 * room. */
static void a_peer_in_poll_with_much(void)
{
    leaves_a_silent_peer((struct silence){.in = in_poll_of_none, .bytes = 250000, .small = true});
}

static void a_peer_of_two_threads_with_much(void)
{
    leaves_a_silent_peer(
        (struct silence){.in = in_vain, .bytes = 250000, .small = true, .threads = true});
}

/* Waits until the other end has returned to the kernel: then this end has to send all bytes
 * again. */
static void wait_for_the_changeover(int fd)
{
    struct pollfd pfd = {fd, POLLIN, 0};
    poll(&pfd, 1, 400);
}

static void closes_then(int fd)
{
    wait_for_the_changeover(fd);
    CHECK(close(fd) == 0);
    sleep_ms(300);
}

static void shuts_down(int fd)
{
    wait_for_the_changeover(fd);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    sleep_ms(300);
}

static void a_peer_closes_with_much(void)
{
    leaves_a_silent_peer(
        (struct silence){.in = closes_then, .bytes = 250000, .small = true, .ends = true});
}

static void a_peer_shuts_down_with_much(void)
{
    leaves_a_silent_peer(
        (struct silence){.in = shuts_down, .bytes = 250000, .small = true, .ends = true});
}

static void a_peer_exits_with_much(void)
{
    leaves_a_silent_peer((struct silence){
        .in = wait_for_the_changeover, .bytes = 250000, .small = true, .ends = true});
}

/* --- sleeping is unchanged ------------------------------------------------------------------- */

static volatile sig_atomic_t alarms;

static void count_alarm(int number)
{
    (void)number;
    alarms++;
}

static void sleeps_end_by_signals_and_in_time(void)
{
    struct pair pair = connected();
    every_ms(count_alarm, 0, 20);
    CHECK(poll(NULL, 0, 5000) == -1 && errno == EINTR);
    no_more_signals();
    double begin = now_s();
    CHECK(poll(NULL, 0, 30) == 0);
    CHECK(now_s() - begin >= 0.03);
    done(pair);
}

static void an_error_for_what_is_no_set(void)
{
    struct pair pair = connected();
    struct epoll_event event;
    fd_set in;
    int fd = empty_pipe();
    CHECK(epoll_wait(fd, &event, 1, -1) == -1 && errno == EINVAL);
    CHECK(close(fd) == 0);
    CHECK(epoll_wait(fd, &event, 1, -1) == -1 && errno == EBADF);
    struct pollfd pfd = {fd, POLLIN, 0};
    CHECK(poll(&pfd, 1, -1) == 1 && pfd.revents == POLLNVAL);
    FD_ZERO(&in);
    FD_SET(fd, &in);
    CHECK(select(fd + 1, &in, NULL, NULL, NULL) == -1 && errno == EBADF);
    done(pair);
}

const struct check checks_of_silence[] = {
    CHECK_ENTRY(a_peer_in_sleep_and_then_a_call),
    CHECK_ENTRY(a_peer_in_poll_of_none),
    CHECK_ENTRY(a_peer_in_poll_of_a_pipe),
    CHECK_ENTRY(a_peer_in_select),
    CHECK_ENTRY(a_peer_in_epoll),
    CHECK_ENTRY(a_peer_in_read_of_a_pipe),
    CHECK_ENTRY(a_peer_in_recv_of_another),
    CHECK_ENTRY(a_peer_in_poll_with_a_child),
    CHECK_ENTRY(a_server_in_poll),
    CHECK_ENTRY(a_peer_of_two_threads),
    CHECK_ENTRY(a_peer_in_poll_with_much),
    CHECK_ENTRY(a_peer_of_two_threads_with_much),
    CHECK_ENTRY(a_peer_closes_with_much),
    CHECK_ENTRY(a_peer_shuts_down_with_much),
    CHECK_ENTRY(a_peer_exits_with_much),
    CHECK_ENTRY(sleeps_end_by_signals_and_in_time),
    CHECK_ENTRY(an_error_for_what_is_no_set),
    {0},
};
