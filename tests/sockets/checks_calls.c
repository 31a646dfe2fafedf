/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Connecting, accepting, options, and the less common calls. */
#include "checks.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

static int error_of(int fd)
{
    int error = -1;
    socklen_t bytes = sizeof(error);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
    return error;
}

static void connect_in_progress(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int rc = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    CHECK(rc == 0 || errno == EINPROGRESS);
    struct pollfd pfd = {fd, POLLOUT, 0};
    CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLOUT);
    CHECK(error_of(fd) == 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EISCONN);
    int server = accept(listen_fd, NULL, NULL);
    CHECK(server >= 0 && fcntl(fd, F_SETFL, 0) == 0);
    talk_both_ways(fd, server);
    close(listen_fd);
    done((struct pair){fd, server});
}

static void connect_refused(void)
{
    struct sockaddr_in addr;
    close(listener(&addr));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == -1 && errno == ECONNREFUSED);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == -1 && errno == EINPROGRESS) {
        struct pollfd pfd = {fd, POLLOUT, 0};
        CHECK(poll(&pfd, 1, 30000) == 1 && (pfd.revents & POLLERR) != 0);
        CHECK(error_of(fd) == ECONNREFUSED && error_of(fd) == 0);
    }
    close(fd);
}

/* connect() to AF_UNSPEC disconnects the socket, which can then connect again. */
static void connect_again(void)
{
    struct sockaddr_in addr;
    struct pair pair = connected();
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    char byte;
    CHECK(connect(pair.client, &nowhere, sizeof(nowhere)) == 0);
    ssize_t n = read(pair.server, &byte, 1);
    CHECK(n == 0 || (n == -1 && errno == ECONNRESET));
    close(pair.server);
    int listen_fd = listener(&addr);
    CHECK(connect(pair.client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    pair.server = accept(listen_fd, NULL, NULL);
    talk_both_ways(pair.client, pair.server);
    close(listen_fd);
    done(pair);
}

static void accepting_with_flags(void)
{
    struct sockaddr_in addr, peer, own;
    int listen_fd = listener(&addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    socklen_t bytes = sizeof(peer), own_bytes = sizeof(own);
    int server = accept4(listen_fd, (struct sockaddr *)&peer, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(server >= 0 && bytes == sizeof(peer));
    CHECK(getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0);
    CHECK(peer.sin_port == own.sin_port && peer.sin_addr.s_addr == own.sin_addr.s_addr);
    CHECK((fcntl(server, F_GETFL) & O_NONBLOCK) != 0 && fcntl(server, F_GETFD) == FD_CLOEXEC);
    char byte;
    CHECK(read(server, &byte, 1) == -1 && errno == EAGAIN);
    CHECK(fcntl(server, F_SETFL, 0) == 0);
    talk_both_ways(fd, server);
    close(fd);
    close(server);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    bytes = 4; /* too short for this address */
    peer.sin_addr.s_addr = 77;
    server = accept(listen_fd, (struct sockaddr *)&peer, &bytes);
    CHECK(server >= 0 && bytes == sizeof(peer) && peer.sin_addr.s_addr == 77);
    close(listen_fd);
    done((struct pair){fd, server});
}

static int shared_listener(struct sockaddr_in *addr)
{
    int on = 1;
    socklen_t bytes = sizeof(*addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0);
    CHECK(bind(fd, (struct sockaddr *)addr, sizeof(*addr)) == 0 && listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)addr, &bytes) == 0);
    return fd;
}

static void listeners_that_share_a_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct pollfd pfds[2] = {{shared_listener(&addr), POLLIN, 0},
                             {shared_listener(&addr), POLLIN, 0}};
    for (int i = 0; i < 20; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        CHECK(poll(pfds, 2, 30000) == 1);
        int server = accept(pfds[pfds[0].revents != 0 ? 0 : 1].fd, NULL, NULL);
        talk_both_ways(fd, server);
        done((struct pair){fd, server});
    }
    close(pfds[0].fd);
    close(pfds[1].fd);
}

static void over_ipv6(void)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, peer;
    socklen_t bytes = sizeof(addr);
    int listen_fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (listen_fd < 0 || bind(listen_fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        return; /* this machine has no such address */
    }
    CHECK(listen(listen_fd, 4) == 0);
    CHECK(getsockname(listen_fd, (struct sockaddr *)&addr, &bytes) == 0);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    bytes = sizeof(peer);
    int server = accept(listen_fd, (struct sockaddr *)&peer, &bytes);
    CHECK(server >= 0 && bytes == sizeof(peer) && peer.sin6_family == AF_INET6);
    talk_both_ways(fd, server);
    bytes = sizeof(peer);
    CHECK(getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0);
    CHECK(peer.sin6_port == addr.sin6_port);
    close(listen_fd);
    done((struct pair){fd, server});
}

/* --- options --------------------------------------------------------------------------------- */

static void the_error_is_reported_once(void)
{
    struct pair pair = connected();
    char data[8];
    write_all(pair.client, "unread", 6);
    sleep_ms(5);
    close(pair.server);
    struct pollfd pfd = {pair.client, POLLIN, 0};
    CHECK(poll(&pfd, 1, 30000) == 1 && (pfd.revents & (POLLERR | POLLHUP)) != 0);
    CHECK(error_of(pair.client) == ECONNRESET && error_of(pair.client) == 0);
    CHECK(read(pair.client, data, 8) == 0);
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(pair.client, "x", 1) == -1 && errno == EPIPE);
    close(pair.client);
}

static void corks(void)
{
    struct pair pair = connected();
    char data[16];
    int on = 1, off = 0, is = -1;
    socklen_t bytes = sizeof(is);
    CHECK(setsockopt(pair.client, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) == 0);
    CHECK(getsockopt(pair.client, IPPROTO_TCP, TCP_CORK, &is, &bytes) == 0 && is == 1);
    write_all(pair.client, "head ", 5);
    write_all(pair.client, "body", 4);
    CHECK(setsockopt(pair.client, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)) == 0);
    read_all(pair.server, data, 9);
    CHECK(memcmp(data, "head body", 9) == 0);
    CHECK(send(pair.client, "more ", 5, MSG_MORE) == 5 && send(pair.client, "all", 3, 0) == 3);
    read_all(pair.server, data, 8);
    CHECK(memcmp(data, "more all", 8) == 0);
    is = -1;
    CHECK(getsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &is, &bytes) == 0 && is != 0);
    done(pair);
}

/* A program that waits until the peer has received everything. */
static void unsent_bytes_become_none(void)
{
    struct pair pair = connected();
    int queued = -1;
    size_t total = fill_up(pair.client);
    drain(pair.server, total);
    double end = now_s() + 30;
    while (ioctl(pair.client, SIOCOUTQ, &queued) == 0 && queued > 0 && now_s() < end) {
        sleep_ms(1);
    }
    CHECK(queued == 0);
    done(pair);
}

static void lingering_close_delivers(void)
{
    struct pair pair = connected();
    struct linger linger = {1, 5};
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
    static char block[40000];
    write_all(pair.client, block, sizeof(block));
    close(pair.client);
    CHECK(drain(pair.server, sizeof(block)) == sizeof(block));
    CHECK(read(pair.server, block, 1) == 0);
    close(pair.server);
}

/* --- calls used less ------------------------------------------------------------------------- */

static void addresses_of_a_stream_are_ignored(void)
{
    struct pair pair = connected();
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t bytes = sizeof(addr);
    char data[16];
    CHECK(sendto(pair.client, "abc", 3, 0, (struct sockaddr *)&addr, sizeof(addr)) == 3);
    CHECK(recvfrom(pair.server, data, 16, 0, (struct sockaddr *)&addr, &bytes) == 3);
    CHECK(bytes == 0);
    struct iovec iov = {data, 16};
    char control[64];
    struct msghdr message = {.msg_name = &addr,
                             .msg_namelen = sizeof(addr),
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    write_all(pair.client, "def", 3);
    CHECK(recvmsg(pair.server, &message, 0) == 3);
    CHECK(message.msg_namelen == 0 && message.msg_controllen == 0 && message.msg_flags == 0);
    done(pair);
}

static void vectors_without_an_offset(void)
{
    struct pair pair = connected();
    char a[4] = "abc", b[4] = "def", in[8];
    struct iovec out[2] = {{a, 3}, {b, 3}};
    struct iovec into[2] = {{in, 2}, {in + 2, 6}};
    CHECK(pwritev2(pair.client, out, 2, -1, 0) == 6);
    sleep_ms(5);
    CHECK(preadv2(pair.server, into, 2, -1, 0) == 6 && memcmp(in, "abcdef", 6) == 0);
    CHECK(preadv2(pair.server, into, 2, 0, 0) == -1 && errno == ESPIPE);
    CHECK(pread(pair.server, in, 1, 0) == -1 && errno == ESPIPE);
    CHECK(lseek(pair.server, 0, SEEK_CUR) == -1 && errno == ESPIPE);
    done(pair);
}

static void messages_as_they_are_there(void)
{
    struct pair pair = connected();
    char in[3][4];
    struct iovec iov[3] = {{in[0], 4}, {in[1], 4}, {in[2], 4}};
    struct mmsghdr messages[3] = {{.msg_hdr = {.msg_iov = &iov[0], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &iov[1], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &iov[2], .msg_iovlen = 1}}};
    write_all(pair.client, "12345678", 8);
    sleep_ms(5);
    CHECK(recvmmsg(pair.server, messages, 3, MSG_WAITFORONE, NULL) == 2);
    CHECK(memcmp(in[0], "1234", 4) == 0 && memcmp(in[1], "5678", 4) == 0);
    CHECK(recvmmsg(pair.server, messages, 3, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
    done(pair);
}

static void a_mark_among_the_bytes(void)
{
    struct pair pair = connected();
    char data[8];
    write_all(pair.client, "ab", 2);
    CHECK(send(pair.client, "!", 1, MSG_OOB) == 1);
    write_all(pair.client, "cd", 2);
    struct pollfd pfd = {pair.server, POLLPRI, 0};
    CHECK(poll(&pfd, 1, 30000) == 1 && (pfd.revents & POLLPRI) != 0);
    CHECK(recv(pair.server, data, 1, MSG_OOB) == 1 && data[0] == '!');
    read_all(pair.server, data, 2);
    CHECK(memcmp(data, "ab", 2) == 0);
    read_all(pair.server, data, 2);
    CHECK(memcmp(data, "cd", 2) == 0);
    done(pair);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void interrupted_calls_return_the_bytes_moved(void)
{
    static char block[32 << 20];
    struct pair pair = connected();
    char data[8];
    ssize_t n;
    every_ms(on_alarm, 0, 100);
    do {
        n = send(pair.client, block, sizeof(block), 0);
    } while (n == -1 && errno == EINTR); /* before its first byte */
    no_more_signals();
    CHECK(n > 0 && n < (ssize_t)sizeof(block) && alarms > 0);
    CHECK(drain(pair.server, (size_t)n) == (size_t)n);
    write_all(pair.server, "abc", 3);
    alarms = 0;
    every_ms(on_alarm, 0, 100);
    CHECK(recv(pair.client, data, 8, MSG_WAITALL) == 3 && alarms > 0);
    no_more_signals();
    struct timeval tv = {0, 50000};
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
    write_all(pair.server, "de", 2);
    CHECK(recv(pair.client, data, 8, MSG_WAITALL) == 2);
    done(pair);
}

/* A signal that is unblocked only during the wait. */
static void waits_with_a_mask(void)
{
    struct pair pair = connected();
    sigset_t blocked, open;
    struct pollfd pfd = {pair.server, POLLIN, 0};
    struct timespec second = {30, 0}, little = {0, 1000000};
    fd_set in;
    struct epoll_event event = {.events = EPOLLIN};
    int epfd = epoll_create1(0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.server, &event) == 0);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigemptyset(&open);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && signal(SIGALRM, on_alarm) != SIG_ERR);
    kill(getpid(), SIGALRM);
    CHECK(ppoll(&pfd, 1, &little, NULL) == 0 && alarms == 0);
    CHECK(ppoll(&pfd, 1, &second, &open) == -1 && errno == EINTR && alarms == 1);
    kill(getpid(), SIGALRM);
    FD_ZERO(&in);
    FD_SET(pair.server, &in);
    CHECK(pselect(pair.server + 1, &in, NULL, NULL, &second, &open) == -1 && errno == EINTR);
    kill(getpid(), SIGALRM);
    CHECK(epoll_pwait(epfd, &event, 1, 30000, &open) == -1 && errno == EINTR);
    write_all(pair.client, "x", 1);
    CHECK(ppoll(&pfd, 1, &second, &open) == 1 && pfd.revents == POLLIN);
    CHECK(pselect(pair.server + 1, &in, NULL, NULL, &second, &open) == 1);
    CHECK(epoll_pwait(epfd, &event, 1, 30000, &open) == 1 && event.events == EPOLLIN);
    close(epfd);
    done(pair);
}

/* In the way libuv closes a connection; the next connection gets its number. */
static void closed_by_number(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    struct pair pair = connected();
    int copy = dup(pair.client);
    char byte;
    CHECK(syscall(SYS_close, pair.client) == 0);
    write_all(copy, "x", 1); /* the connection is open as long as another number refers to it */
    read_all(pair.server, &byte, 1);
    CHECK(syscall(SYS_close, copy) == 0 && syscall(SYS_close, copy) == -1 && errno == EBADF);
    CHECK(read(pair.server, &byte, 1) == 0);
    int fd;
    do {
        fd = socket(AF_INET, SOCK_STREAM, 0);
    } while (fd >= 0 && fd < pair.client);
    CHECK(fd == pair.client && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    int server = accept(listen_fd, NULL, NULL);
    CHECK(server >= 0);
    talk_both_ways(fd, server);
    close(listen_fd);
    close(pair.server);
    done((struct pair){fd, server});
}

const struct check checks_of_calls[] = {
    CHECK_ENTRY(connect_in_progress),
    CHECK_ENTRY(connect_refused),
    CHECK_ENTRY(connect_again),
    CHECK_ENTRY(accepting_with_flags),
    CHECK_ENTRY(listeners_that_share_a_port),
    CHECK_ENTRY(over_ipv6),
    CHECK_ENTRY(the_error_is_reported_once),
    CHECK_ENTRY(corks),
    CHECK_ENTRY(unsent_bytes_become_none),
    CHECK_ENTRY(lingering_close_delivers),
    CHECK_ENTRY(addresses_of_a_stream_are_ignored),
    CHECK_ENTRY(vectors_without_an_offset),
    CHECK_ENTRY(messages_as_they_are_there),
    CHECK_ENTRY(a_mark_among_the_bytes),
    CHECK_ENTRY(interrupted_calls_return_the_bytes_moved),
    CHECK_ENTRY(waits_with_a_mask),
    CHECK_ENTRY(closed_by_number),
    {0},
};
