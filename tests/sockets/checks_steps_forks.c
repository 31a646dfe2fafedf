/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A signal handler that forks at any instruction of a call. Only one of the two processes returns
 * into the call. */
#include "checks.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "steps.h"

#ifdef STEPS_WORK

#define WARM_UPS 6
#define TOTAL_BYTES 2
#define CHILD_S 20u
#define STRIDE 7

static volatile sig_atomic_t child_returns;
static volatile pid_t child;
static sigjmp_buf left;
static int peer_fd, epfd;
static struct sockaddr_in peer_addr;

/* --- the peer ----------------------------------------------------------------------------------
 */

/* Sends one byte on each connection, and writes the bytes that come on it to the pipe. */
static void serve(int listen_fd, int out_fd)
{
    for (;;) {
        char bytes[TOTAL_BYTES + 1] = {0}, byte;
        int on = 1, fd = accept(listen_fd, NULL, NULL);
        CHECK(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
        for (int i = 0; i < WARM_UPS; i++) {
            read_all(fd, &byte, 1);
            write_all(fd, &byte, 1);
        }
        write_all(fd, "p", 1);
        ssize_t n;
        for (size_t count = 0; (n = read(fd, bytes + count, sizeof(bytes) - count)) > 0;) {
            count += (size_t)n;
            CHECK(count < sizeof(bytes));
        }
        CHECK(n == 0);
        write_all(out_fd, bytes, sizeof(bytes));
        close(fd);
    }
}

static pid_t start_peer(void)
{
    int listen_fd = listener(&peer_addr), fds[2];
    pid_t parent = getpid();
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        end_with(parent);
        serve(listen_fd, fds[1]);
    }
    close(listen_fd);
    close(fds[1]);
    peer_fd = fds[0];
    return pid;
}

/* A connection to the peer, whose byte has arrived. */
static int connect_to_peer(void)
{
    char byte;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    CHECK(connect(fd, (struct sockaddr *)&peer_addr, sizeof(peer_addr)) == 0);
    for (int i = 0; i < WARM_UPS; i++) {
        write_all(fd, "w", 1);
        read_all(fd, &byte, 1);
    }
    CHECK(recv(fd, &byte, 1, MSG_PEEK) == 1 && byte == 'p');
    return fd;
}

/* --- the calls ---------------------------------------------------------------------------------
 */

static bool call_send(int fd)
{
    return send(fd, "x", 1, 0) == 1;
}

static bool call_recv(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) == 1 && byte == 'p';
}

static bool call_poll(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, -1) == 1 && poll_fd.revents == POLLIN;
}

static bool call_epoll_wait(int fd)
{
    struct epoll_event event;
    return epoll_wait(epfd, &event, 1, -1) == 1 && event.data.fd == fd;
}

typedef bool call_t(int fd);

/* What remains to be done on the connection after the call. */
static void finish(call_t *call, int fd)
{
    CHECK(call == call_send || call_send(fd));
    CHECK(call == call_recv || call_recv(fd));
    CHECK(send(fd, "y", 1, 0) == 1);
    close(fd);
}

/* --- the forks ---------------------------------------------------------------------------------
 */

static void fork_here(int number)
{
    (void)number;
    child = fork();
    if (child == 0 && !child_returns) {
        _exit(0);
    }
    if (child == 0) {
        alarm(CHILD_S); /* a call that never ends is a failure */
    } else if (child_returns) {
        siglongjmp(left, 1);
    }
}

/* Forks at one instruction of the call. False: the call ended before that instruction. */
static bool fork_at(call_t *call, int instruction)
{
    char bytes[TOTAL_BYTES + 1];
    int fd = connect_to_peer();
    epfd = call == call_epoll_wait ? set_with(fd, EPOLLIN) : -1;
    child = -1;
    if (sigsetjmp(left, 1) == 0) {
        CHECK(steps_call(call, fd, instruction));
        if (child == 0 || !child_returns || child < 0) {
            finish(call, fd);
        }
        if (child == 0) {
            _exit(0);
        }
    }
    if (child > 0) {
        wait_for(child);
    }
    close(fd);
    close(epfd);
    read_all(peer_fd, bytes, sizeof(bytes));
    CHECK(strcmp(bytes, "xy") == 0);
    return child > 0;
}

static void *wait_forever(void *unused)
{
    for (;;) {
        sleep_ms(1000);
    }
    return unused;
}

/* In a process of several threads, where the library counts its calls. */
static void fork_in_each_call(bool child_continues)
{
    static call_t *const calls[] = {call_send, call_recv, call_poll, call_epoll_wait};
    int stride = steps_stride(STRIDE);
    pthread_t thread;
    pid_t peer = start_peer();
    child_returns = child_continues;
    CHECK(pthread_create(&thread, NULL, wait_forever, NULL) == 0);
    steps_install(fork_here);
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        int instruction = 1 + (int)i % stride;
        fork_at(calls[i], 0); /* the first call finds the symbols */
        while (fork_at(calls[i], instruction)) {
            instruction += stride;
        }
    }
    kill(peer, SIGKILL);
}

static void a_child_returns_from_a_fork_at_any_instruction(void)
{
    fork_in_each_call(true);
}

static void a_parent_returns_from_a_fork_at_any_instruction(void)
{
    fork_in_each_call(false);
}

const struct check checks_of_steps_forks[] = {
    CHECK_ENTRY(a_child_returns_from_a_fork_at_any_instruction),
    CHECK_ENTRY(a_parent_returns_from_a_fork_at_any_instruction),
    {0},
};

#else
const struct check checks_of_steps_forks[] = {{0}};
#endif
