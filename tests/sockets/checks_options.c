/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Options set before the connection, and less usual ways to make and to close one. */
#include "checks.h"

#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

/* Two ends that have exchanged bytes; set: called on the sockets before they are connected. */
static struct pair connected_with(void (*set)(int fd), bool at_listener)
{
    struct sockaddr_in addr;
    struct pair pair;
    int on = 1;
    int listen_fd = listener(&addr);
    pair.client = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    set(at_listener ? listen_fd : pair.client);
    CHECK(connect(pair.client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    pair.server = accept(listen_fd, NULL, NULL);
    CHECK(pair.server >= 0);
    setsockopt(pair.server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    close(listen_fd);
    return pair;
}

static struct pair prepared(void (*set)(int fd), bool at_listener)
{
    struct pair pair = connected_with(set, at_listener);
    talk_both_ways(pair.client, pair.server);
    return pair;
}

/* --- time limits and low water --------------------------------------------------------------- */

static void set_timeouts(int fd)
{
    struct timeval tv = {0, 60000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == 0);
}

/* Both time limits apply at this end. */
static void check_timeouts(int fd, int other)
{
    char byte;
    double before = now_s();
    CHECK(read(fd, &byte, 1) == -1 && errno == EAGAIN);
    CHECK(now_s() - before > 0.05 && now_s() - before < 30);
    size_t total = fill_up(fd);
    before = now_s();
    CHECK(write(fd, "x", 1) == -1 && errno == EAGAIN);
    CHECK(now_s() - before > 0.05 && now_s() - before < 30);
    drain(other, total);
}

static void time_limits_set_before_connecting(void)
{
    struct pair pair = prepared(set_timeouts, false);
    check_timeouts(pair.client, pair.server);
    done(pair);
}

static void time_limits_of_the_listener(void)
{
    struct pair pair = prepared(set_timeouts, true);
    check_timeouts(pair.server, pair.client);
    done(pair);
}

static void set_low_water(int fd)
{
    int low = 10;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0);
}

static void check_low_water(int fd, int other)
{
    char data[32];
    write_all(other, "12345", 5);
    struct pollfd pfd = {fd, POLLIN, 0};
    CHECK(poll(&pfd, 1, 30) == 0);
    write_all(other, "67890", 5);
    CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLIN);
    CHECK(recv(fd, data, sizeof(data), 0) == 10);
}

static void nothing(int fd)
{
    (void)fd;
}

/* The peer's bytes come in pieces of at least the low-water mark, unlike those of
 * talk_both_ways(). */
static struct pair prepared_for_low_water(bool at_listener)
{
    struct sockaddr_in addr;
    struct pair pair;
    char data[16];
    int listen_fd = listener(&addr);
    pair.client = socket(AF_INET, SOCK_STREAM, 0);
    set_low_water(at_listener ? listen_fd : pair.client);
    CHECK(connect(pair.client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    pair.server = accept(listen_fd, NULL, NULL);
    close(listen_fd);
    for (int i = 0; i < 20; i++) {
        write_all(pair.client, "ten bytes.", 10);
        read_all(pair.server, data, 10);
        write_all(pair.server, "TEN BYTES.", 10);
        read_all(pair.client, data, 10);
    }
    return pair;
}

static void low_water_set_before_connecting(void)
{
    struct pair pair = prepared_for_low_water(false);
    check_low_water(pair.client, pair.server);
    done(pair);
}

static void low_water_of_the_listener(void)
{
    struct pair pair = prepared_for_low_water(true);
    check_low_water(pair.server, pair.client);
    done(pair);
}

/* --- other options --------------------------------------------------------------------------- */

static void set_nonblocking(int fd)
{
    int on = 1;
    CHECK(ioctl(fd, FIONBIO, &on) == 0);
}

static void not_blocking_since_before_connecting(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set_nonblocking(fd);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EINPROGRESS);
    int server = accept(listen_fd, NULL, NULL);
    char data[8];
    for (int i = 0; i < 40; i++) {
        struct pollfd pfd = {fd, POLLIN, 0};
        write_all(server, "x", 1);
        CHECK(poll(&pfd, 1, 30000) == 1 && read(fd, data, 8) == 1);
        CHECK(read(fd, data, 8) == -1 && errno == EAGAIN);
        CHECK(write(fd, "y", 1) == 1);
        read_all(server, data, 1);
    }
    close(listen_fd);
    done((struct pair){fd, server});
}

static void set_linger_zero(int fd)
{
    struct linger linger = {1, 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
}

static void linger_of_the_listener(void)
{
    struct pair pair = prepared(set_linger_zero, true);
    char byte;
    close(pair.server);
    CHECK(read(pair.client, &byte, 1) == -1 && errno == ECONNRESET);
    close(pair.client);
}

static volatile sig_atomic_t signals;

static void on_io(int number)
{
    (void)number;
    signals++;
}

static void set_async(int fd)
{
    struct sigaction action = {.sa_handler = on_io, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGIO, &action, NULL) == 0 && fcntl(fd, F_SETOWN, getpid()) == 0);
    CHECK(fcntl(fd, F_SETFL, O_ASYNC) == 0);
}

static void signals_asked_for_before_connecting(void)
{
    struct pair pair = prepared(set_async, false);
    double end = now_s() + 30;
    signals = 0;
    write_all(pair.server, "x", 1);
    while (signals == 0 && now_s() < end) {
        sleep_ms(1);
    }
    CHECK(signals != 0);
    done(pair);
}

static void set_zerocopy(int fd)
{
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)); /* not on every machine */
}

static void send_with_notification(struct pair pair)
{
    static char block[20000];
    char control[128];
    int on = 0;
    socklen_t bytes = sizeof(on);
    if (getsockopt(pair.client, SOL_SOCKET, SO_ZEROCOPY, &on, &bytes) == 0 && on != 0) {
        CHECK(send(pair.client, block, sizeof(block), MSG_ZEROCOPY) == sizeof(block));
        drain(pair.server, sizeof(block));
        struct pollfd pfd = {pair.client, 0, 0};
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
        CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLERR);
        CHECK(recvmsg(pair.client, &message, MSG_ERRQUEUE) == 0);
        CHECK(CMSG_FIRSTHDR(&message) != NULL);
    }
}

static void notifications_asked_for_before_connecting(void)
{
    struct pair pair = prepared(set_zerocopy, false);
    send_with_notification(pair);
    done(pair);
}

/* After bytes by pipes. */
static void notifications_asked_for_later(void)
{
    struct pair pair = prepared(set_zerocopy, false);
    talk_both_ways(pair.client, pair.server);
    send_with_notification(pair);
    talk_both_ways(pair.client, pair.server);
    done(pair);
}

/* gRPC sets this option on every listener. */
static void unrequested_notifications(void)
{
    struct pair pair = prepared(set_zerocopy, true);
    set_zerocopy(pair.client);
    talk_both_ways(pair.client, pair.server);
    done(pair);
}

static void set_timestamp(int fd)
{
    int on = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0);
}

/* The first message has its time, too. */
static void timestamps_asked_for_at_the_listener(void)
{
    /* The kernel begins to take times a little after the first socket asks for them
     * (net_enable_timestamp()). */
    int first = socket(AF_INET, SOCK_DGRAM, 0);
    set_timestamp(first);
    sleep_ms(20);
    struct pair pair = connected_with(set_timestamp, true);
    for (int i = 0; i < 20; i++) {
        char byte, control[128];
        struct iovec iov = {&byte, 1};
        struct msghdr message = {.msg_iov = &iov,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        write_all(pair.client, "x", 1);
        CHECK(recvmsg(pair.server, &message, 0) == 1);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        CHECK(header != NULL && header->cmsg_type == SO_TIMESTAMP);
    }
    close(first);
    done(pair);
}

static void set_small_buffers(int fd)
{
    int bytes = 4096;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0);
}

/* Small buffers of a listener make writers wait early. */
static void small_buffers_of_the_listener(void)
{
    struct pair pair = prepared(set_small_buffers, true);
    int bytes = 4096;
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
    CHECK(fill_up(pair.client) < 60000);
    done(pair);
}

/* Requests control data about the unread bytes (the kernel may not have this option). */
static void requests_the_unread_bytes(int fd, int other)
{
    const int on = 1;
    char data[16];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {data, 4};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    int left = 6;
    bool knows = setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)) == 0;
    CHECK(knows || errno == ENOPROTOOPT);
    write_all(other, "0123456789", 10);
    sleep_ms(20);
    CHECK(recvmsg(fd, &message, 0) == 4);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK((header != NULL) == knows);
    if (knows) {
        CHECK(header->cmsg_level == IPPROTO_TCP && header->cmsg_type == TCP_CM_INQ);
        memcpy(&left, CMSG_DATA(header), sizeof(left));
    }
    CHECK(left == 6);
}

static void bytes_left_in_control_data(void)
{
    struct pair pair = prepared(nothing, false);
    requests_the_unread_bytes(pair.server, pair.client);
    done(pair);
}

static void set_inq(int fd)
{
    int on = 1;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)) == 0);
}

static void bytes_left_as_asked_before_connecting(void)
{
    struct pair pair = prepared(set_inq, false);
    requests_the_unread_bytes(pair.client, pair.server);
    done(pair);
    pair = prepared(set_inq, true);
    requests_the_unread_bytes(pair.server, pair.client);
    done(pair);
}

/* --- making and closing ---------------------------------------------------------------------- */

/* A socket that connects to its own address is its own peer. */
static void connected_to_itself(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(addr);
    char data[8];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    for (int i = 0; i < 100; i++) {
        struct pollfd pfd = {fd, POLLIN, 0};
        write_all(fd, "echo", 4);
        CHECK(poll(&pfd, 1, 30000) == 1);
        read_all(fd, data, 4);
        CHECK(memcmp(data, "echo", 4) == 0);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0 && read(fd, data, 8) == 0);
    close(fd);
}

static void both_ends_in_one_thread_at_once(void)
{
    enum { PAIRS = 30 };
    struct sockaddr_in addr;
    struct pair pairs[PAIRS];
    int listen_fd = listener(&addr);
    for (int i = 0; i < PAIRS; i++) {
        pairs[i].client = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(pairs[i].client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        CHECK(write(pairs[i].client, &i, sizeof(i)) == sizeof(i)); /* not accepted yet */
    }
    for (int i = 0; i < PAIRS; i++) {
        int value;
        int fd = accept(listen_fd, NULL, NULL);
        read_all(fd, &value, sizeof(value));
        CHECK(value >= 0 && value < PAIRS);
        pairs[value].server = fd;
    }
    for (int i = 0; i < PAIRS; i++) {
        talk_both_ways(pairs[i].client, pairs[i].server);
        done(pairs[i]);
    }
    close(listen_fd);
}

static void half_closed_both_ways(void)
{
    struct pair pair = connected();
    char data[8];
    write_all(pair.client, "one", 3);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    read_all(pair.server, data, 3);
    write_all(pair.server, "two", 3);
    CHECK(shutdown(pair.server, SHUT_WR) == 0);
    struct pollfd pfd = {pair.server, POLLIN | POLLRDHUP, 0};
    CHECK(poll(&pfd, 1, 30000) == 1 && (pfd.revents & (POLLIN | POLLHUP)) == (POLLIN | POLLHUP));
    CHECK(read(pair.server, data, 8) == 0);
    pfd = (struct pollfd){pair.client, POLLIN | POLLRDHUP, 0};
    sleep_ms(10);
    CHECK(poll(&pfd, 1, 30000) == 1);
    CHECK(pfd.revents == (POLLIN | POLLHUP | POLLRDHUP));
    read_all(pair.client, data, 3);
    CHECK(memcmp(data, "two", 3) == 0 && read(pair.client, data, 8) == 0);
    CHECK(shutdown(pair.client, SHUT_RDWR) == -1 && errno == ENOTCONN);
    done(pair);
}

static void closed_as_one_of_a_range(void)
{
    struct pair pair = connected();
    char byte;
    CHECK(dup2(pair.client, 200) == 200 && dup3(pair.client, 201, O_CLOEXEC) == 201);
    CHECK(fcntl(201, F_GETFD) == FD_CLOEXEC && fcntl(200, F_GETFD) == 0);
    CHECK(dup3(pair.client, pair.client, 0) == -1 && errno == EINVAL);
    CHECK(close_range(200, 200, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(200, F_GETFD) == FD_CLOEXEC);
    close(pair.client);
    write_all(200, "a", 1);
    CHECK(close_range(200, 200, 0) == 0);
    write_all(201, "b", 1);
    CHECK(recv(pair.server, &byte, 1, 0) == 1 && byte == 'a');
    CHECK(recv(pair.server, &byte, 1, 0) == 1 && byte == 'b');
    CHECK(recv(pair.server, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    closefrom(201);
    CHECK(write(201, "c", 1) == -1 && errno == EBADF);
    CHECK(read(pair.server, &byte, 1) == 0);
    close(pair.server);
}

static void a_closed_number_is_invalid(void)
{
    struct pair pair = connected();
    char byte;
    fd_set in;
    struct timeval tv = {0, 0};
    done(pair);
    CHECK(read(pair.client, &byte, 1) == -1 && errno == EBADF);
    CHECK(send(pair.client, "x", 1, MSG_NOSIGNAL) == -1 && errno == EBADF);
    CHECK(shutdown(pair.client, SHUT_WR) == -1 && errno == EBADF);
    CHECK(close(pair.client) == -1 && errno == EBADF);
    CHECK(dup(pair.client) == -1 && errno == EBADF);
    struct pollfd pfds[2] = {{pair.client, POLLIN, 0}, {-1, POLLIN, 0}};
    CHECK(poll(pfds, 2, 0) == 1 && pfds[0].revents == POLLNVAL && pfds[1].revents == 0);
    pair = connected();
    pfds[0] = (struct pollfd){pair.server, POLLOUT, 0};
    int gone = dup(pair.server);
    close(gone);
    pfds[1] = (struct pollfd){gone, POLLIN, 0};
    CHECK(poll(pfds, 2, 0) == 2 && pfds[0].revents == POLLOUT && pfds[1].revents == POLLNVAL);
    FD_ZERO(&in);
    FD_SET(pair.server, &in);
    FD_SET(gone, &in);
    CHECK(select(gone + 1, &in, NULL, NULL, &tv) == -1 && errno == EBADF);
    done(pair);
}

/* --- less usual uses ------------------------------------------------------------------------- */

/* MSG_PEEK, MSG_WAITALL and a time limit together: the call returns the bytes that arrive in time,
 * and they stay unread. */
static void peeks_that_wait(void)
{
    struct pair pair = connected();
    struct timeval tv = {0, 60000};
    char data[8];
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        write_all(pair.client, "abc", 3);
        sleep_ms(30);
        write_all(pair.client, "def", 3);
        _exit(0);
    }
    CHECK(recv(pair.server, data, 6, MSG_PEEK | MSG_WAITALL) == 6 &&
          memcmp(data, "abcdef", 6) == 0);
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
    CHECK(recv(pair.server, data, 8, MSG_WAITALL) == 6);
    CHECK(recv(pair.server, data, 8, MSG_WAITALL) == -1 && errno == EAGAIN);
    wait_for(pid);
    done(pair);
}

static void sending_a_file_without_a_peer(void)
{
    struct pair pair = connected();
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    off_t at = 0;
    ssize_t n = 0;
    CHECK(fd >= 0);
    signal(SIGPIPE, SIG_IGN);
    close(pair.server);
    sleep_ms(20);
    for (int i = 0; i < 100 && n >= 0; i++) {
        at = 0;
        n = sendfile(pair.client, fd, &at, 100);
        sleep_ms(1);
    }
    CHECK(n == -1 && (errno == EPIPE || errno == ECONNRESET));
    close(fd);
    close(pair.client);
}

static void *sleep_in_read(void *of_fd)
{
    char byte;
    ssize_t n = read(*(int *)of_fd, &byte, 1);
    (void)n;
    return NULL;
}

static void cancelled_in_a_read(void)
{
    struct pair pair = connected();
    pthread_t thread;
    void *result;
    char byte;
    for (int i = 0; i < 5; i++) {
        CHECK(pthread_create(&thread, NULL, sleep_in_read, &pair.server) == 0);
        sleep_ms(10);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    write_all(pair.client, "x", 1);
    read_all(pair.server, &byte, 1);
    done(pair);
}

/* A set waits for a non-blocking connect(), and for later events of the same socket. */
static void a_set_waits_for_the_connection(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EINPROGRESS);
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.fd = fd}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(epfd, &event, 1, 30000) == 1 && event.events == EPOLLOUT);
    int server = accept(listen_fd, NULL, NULL);
    char data[8];
    for (int i = 0; i < 40; i++) {
        write_all(server, "x", 1);
        do {
            CHECK(epoll_wait(epfd, &event, 1, 30000) == 1 && (event.events & EPOLLOUT) != 0);
        } while ((event.events & EPOLLIN) == 0);
        CHECK(read(fd, data, 8) == 1 && read(fd, data, 8) == -1 && errno == EAGAIN);
        write_all(fd, "y", 1);
        read_all(server, data, 1);
    }
    close(epfd);
    close(listen_fd);
    done((struct pair){fd, server});
}

const struct check checks_of_options[] = {
    CHECK_ENTRY(time_limits_set_before_connecting),
    CHECK_ENTRY(time_limits_of_the_listener),
    CHECK_ENTRY(low_water_set_before_connecting),
    CHECK_ENTRY(low_water_of_the_listener),
    CHECK_ENTRY(not_blocking_since_before_connecting),
    CHECK_ENTRY(linger_of_the_listener),
    CHECK_ENTRY(signals_asked_for_before_connecting),
    CHECK_ENTRY(notifications_asked_for_before_connecting),
    CHECK_ENTRY(notifications_asked_for_later),
    CHECK_ENTRY(small_buffers_of_the_listener),
    CHECK_ENTRY(bytes_left_in_control_data),
    CHECK_ENTRY(bytes_left_as_asked_before_connecting),
    CHECK_ENTRY(unrequested_notifications),
    CHECK_ENTRY(timestamps_asked_for_at_the_listener),
    CHECK_ENTRY(connected_to_itself),
    CHECK_ENTRY(both_ends_in_one_thread_at_once),
    CHECK_ENTRY(half_closed_both_ways),
    CHECK_ENTRY(closed_as_one_of_a_range),
    CHECK_ENTRY(a_closed_number_is_invalid),
    CHECK_ENTRY(peeks_that_wait),
    CHECK_ENTRY(sending_a_file_without_a_peer),
    CHECK_ENTRY(cancelled_in_a_read),
    CHECK_ENTRY(a_set_waits_for_the_connection),
    {0},
};
