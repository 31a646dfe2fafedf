/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A signal handler that makes a call at any instruction of another call on the same connection. No
 * byte is lost or comes twice. */
#include "checks.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "steps.h"

#ifdef STEPS_WORK

#define POINTS 3 /* signals in each call for each call of the handler */
#define QUESTION "qqq"
#define LARGE_BYTES 2000 /* more than a line of a slot holds; each byte may take a step */
#define HANG_S 20u

static struct pair pair;
static int set_fd, listen_fd;
static struct sockaddr_in listen_addr;
static volatile sig_atomic_t handled;
/* Bytes that the ends have sent and received: [0] in the interrupted call, [1] in the handler. */
struct count {
    volatile ssize_t sent, received;
};
static struct count client[2], server[2];

/* --- calls of the handler ----------------------------------------------------------------------
 */

static void count_one(volatile ssize_t *count, ssize_t n)
{
    CHECK(n == 1 || (n == -1 && errno == EAGAIN));
    *count += n == 1;
}

static void send_at_client(void)
{
    count_one(&client[1].sent, send(pair.client, "h", 1, MSG_DONTWAIT));
}

static void receive_at_client(void)
{
    char byte;
    count_one(&client[1].received, recv(pair.client, &byte, 1, MSG_DONTWAIT));
}

static void send_at_server(void)
{
    count_one(&server[1].sent, send(pair.server, "h", 1, MSG_DONTWAIT));
}

static void receive_at_server(void)
{
    char byte;
    count_one(&server[1].received, recv(pair.server, &byte, 1, MSG_DONTWAIT));
}

static void peek_at_client(void)
{
    char bytes[2];
    CHECK(recv(pair.client, bytes, 2, MSG_PEEK | MSG_DONTWAIT) > 0 || errno == EAGAIN);
}

static void poll_both(void)
{
    struct pollfd fds[] = {{.fd = pair.client, .events = POLLIN | POLLOUT},
                           {.fd = pair.server, .events = POLLIN | POLLOUT}};
    CHECK(poll(fds, 2, 0) >= 0);
}

static void wait_in_the_set(void)
{
    struct epoll_event event;
    CHECK(epoll_wait(set_fd, &event, 1, 0) >= 0);
}

static void change_the_set(void)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.fd = pair.client}};
    CHECK(epoll_ctl(set_fd, EPOLL_CTL_MOD, pair.client, &event) == 0);
}

static void copy_and_close(void)
{
    int copy = dup(pair.client);
    CHECK(copy >= 0 && close(copy) == 0);
}

static void read_state(void)
{
    int value;
    socklen_t bytes = sizeof(value);
    CHECK(ioctl(pair.client, FIONREAD, &value) == 0 && value >= 0);
    CHECK(getsockopt(pair.client, SOL_SOCKET, SO_ERROR, &value, &bytes) == 0 && value == 0);
}

static void connect_another(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&listen_addr, sizeof(listen_addr)) == 0);
    CHECK(close(fd) == 0);
}

static void fork_a_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    wait_for(pid);
}

static void (*const handler_calls[])(void) = {send_at_client,    receive_at_client, send_at_server,
                                              receive_at_server, peek_at_client,    poll_both,
                                              wait_in_the_set,   change_the_set,    copy_and_close,
                                              read_state,        connect_another,   fork_a_child};
static void (*volatile handler_call)(void);

static void make_call(int number)
{
    int saved = errno;
    (void)number;
    handled = 1;
    handler_call();
    errno = saved;
}

/* --- interrupted calls -------------------------------------------------------------------------
 */

static bool do_send(int fd)
{
    client[0].sent = send(fd, "i", 1, 0);
    return client[0].sent == 1;
}

static bool do_large_send(int fd)
{
    static const char bytes[LARGE_BYTES];
    client[0].sent = send(fd, bytes, LARGE_BYTES, 0);
    return client[0].sent == LARGE_BYTES;
}

static bool do_recv(int fd)
{
    char byte;
    client[0].received = recv(fd, &byte, 1, 0);
    return client[0].received == 1;
}

static bool do_readv(int fd)
{
    char one, other;
    struct iovec iov[] = {{&one, 1}, {&other, 1}};
    client[0].received = readv(fd, iov, 2);
    return client[0].received > 0;
}

static bool do_poll(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    return poll(&poll_fd, 1, -1) == 1 && (poll_fd.revents & POLLOUT) != 0;
}

static bool do_select(int fd)
{
    fd_set set;
    struct timeval now = {0, 0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, &now) >= 0;
}

static bool do_epoll_wait(int fd)
{
    struct epoll_event event;
    (void)fd;
    return epoll_wait(set_fd, &event, 1, 0) >= 0;
}

static bool do_epoll_mod(int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data = {.fd = fd}};
    return epoll_ctl(set_fd, EPOLL_CTL_MOD, fd, &event) == 0;
}

static bool do_epoll_add_and_del(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    int other = epoll_create1(0);
    bool succeeded = epoll_ctl(other, EPOLL_CTL_ADD, fd, &event) == 0 &&
                     epoll_ctl(other, EPOLL_CTL_DEL, fd, &event) == 0;
    return close(other) == 0 && succeeded;
}

static bool do_dup_and_close(int fd)
{
    int copy = dup(fd);
    return copy >= 0 && close(copy) == 0;
}

static bool do_connect_and_close(int fd)
{
    int other = socket(AF_INET, SOCK_STREAM, 0);
    (void)fd;
    bool succeeded = connect(other, (struct sockaddr *)&listen_addr, sizeof(listen_addr)) == 0;
    return close(other) == 0 && succeeded;
}

static bool do_accept_and_close(int fd)
{
    (void)fd;
    int other = accept(listen_fd, NULL, NULL);
    return other >= 0 && close(other) == 0;
}

static bool (*const interrupted[])(int fd) = {do_send,
                                              do_large_send,
                                              do_recv,
                                              do_readv,
                                              do_poll,
                                              do_select,
                                              do_epoll_wait,
                                              do_epoll_mod,
                                              do_epoll_add_and_del,
                                              do_dup_and_close,
                                              do_connect_and_close,
                                              do_accept_and_close};

/* --- both --------------------------------------------------------------------------------------
 */

static ssize_t sum_of(const struct count *count, bool sent)
{
    return sent ? count[0].sent + count[1].sent : count[0].received + count[1].received;
}

/* Reads what one end has sent and the other one has not received. */
static void settle(int fd, const struct count *from, const struct count *to)
{
    static char bytes[LARGE_BYTES + 64];
    ssize_t left = sum_of(from, true) - sum_of(to, false);
    CHECK(left >= 0 && (size_t)left <= sizeof(bytes));
    read_all(fd, bytes, (size_t)left);
    CHECK(recv(fd, bytes, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

/* Sends the bytes, or makes the connection, that the interrupted call is to receive or accept. */
static void prepare(bool (*call)(int fd))
{
    memset(client, 0, sizeof(client));
    memset(server, 0, sizeof(server));
    handled = 0;
    if (call == do_recv || call == do_readv) {
        struct pollfd poll_fd = {.fd = pair.client, .events = POLLIN};
        server[0].sent = (ssize_t)strlen(QUESTION);
        write_all(pair.server, QUESTION, strlen(QUESTION));
        CHECK(poll(&poll_fd, 1, -1) == 1);
    }
    if (call == do_accept_and_close) {
        connect_another();
    }
}

static void accept_the_others(void)
{
    struct pollfd poll_fd = {.fd = listen_fd, .events = POLLIN};
    while (poll(&poll_fd, 1, 0) == 1) {
        int fd = accept(listen_fd, NULL, NULL);
        CHECK(fd >= 0 && close(fd) == 0);
    }
}

/* False: the call ended before that instruction. */
static bool interrupt_at(bool (*call)(int fd), int instruction)
{
    prepare(call);
    alarm(HANG_S);
    CHECK(steps_call(call, pair.client, instruction));
    settle(pair.server, client, server);
    settle(pair.client, server, client);
    accept_the_others();
    return handled;
}

static void *wait_forever(void *unused)
{
    for (;;) {
        sleep_ms(1000);
    }
    return unused;
}

static void interrupt_all(void)
{
    pair = connected();
    set_fd = set_with(pair.client, EPOLLIN | EPOLLOUT);
    for (size_t i = 0; i < sizeof(interrupted) / sizeof(*interrupted); i++) {
        interrupt_at(interrupted[i], 0); /* the first call finds the symbols */
        interrupt_at(interrupted[i], INT_MAX);
        int stride = steps_stride(steps_made() / POINTS + 1);
        for (size_t j = 0; j < sizeof(handler_calls) / sizeof(*handler_calls); j++) {
            handler_call = handler_calls[j];
            int instruction = 1 + (int)(i * 31 + j * 127) % stride;
            while (interrupt_at(interrupted[i], instruction)) {
                instruction += stride;
            }
        }
    }
    alarm(0);
    close(set_fd);
    done(pair);
}

/* In a process of one thread and of two: the library counts calls only in the latter. */
static void a_handler_makes_calls_at_any_instruction(void)
{
    pthread_t thread;
    listen_fd = listener(&listen_addr);
    steps_install(make_call);
    interrupt_all();
    CHECK(pthread_create(&thread, NULL, wait_forever, NULL) == 0);
    interrupt_all();
}

const struct check checks_of_steps_calls[] = {
    CHECK_ENTRY(a_handler_makes_calls_at_any_instruction),
    {0},
};

#else
const struct check checks_of_steps_calls[] = {{0}};
#endif
