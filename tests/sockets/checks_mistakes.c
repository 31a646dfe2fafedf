/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A call that fails returns the kernel's error, and moves no byte. */
#define _FORTIFY_SOURCE 0
#include "checks.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

static bool is_readable(int fd)
{
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, 5000) == 1;
}

/* Invalid addresses that the compiler can not recognise as such. */
static void *no_address(int number)
{
    static void *const volatile none[] = {NULL, (void *)16, (void *)-1, (void *)-4096};
    return none[number];
}

static void addresses_that_are_none(void)
{
    for (int i = 0; i < 4; i++) {
        struct pair pair = connected();
        char data[8];
        void *none = no_address(i);
        struct iovec iov = {none, 4};
        CHECK(send(pair.client, none, 4, 0) == -1 && errno == EFAULT);
        CHECK(write(pair.client, none, 4) == -1 && errno == EFAULT);
        CHECK(recv(pair.server, none, 4, MSG_DONTWAIT) == -1);
        CHECK(errno == (i < 2 ? EAGAIN : EFAULT));
        write_all(pair.client, "hello", 5);
        CHECK(is_readable(pair.server));
        CHECK(recv(pair.server, none, 4, 0) == -1 && errno == EFAULT);
        CHECK(read(pair.server, none, 4) == -1 && errno == EFAULT);
        CHECK(readv(pair.server, &iov, 1) == -1 && errno == EFAULT);
        CHECK(readv(pair.server, none, 1) == -1 && errno == EFAULT);
        CHECK(writev(pair.server, &iov, 1) == -1 && errno == EFAULT);
        CHECK(recvmsg(pair.server, none, 0) == -1 && errno == EFAULT);
        CHECK(sendmsg(pair.server, none, 0) == -1 && errno == EFAULT);
        CHECK(ioctl(pair.server, FIONREAD, none) == -1 && errno == EFAULT);
        CHECK(poll(none, 1, 0) == -1 && errno == EFAULT);
        /* A call that discards bytes needs no buffer. */
        CHECK(recv(pair.server, none, 1, MSG_TRUNC) == (i < 2 ? 1 : -1));
        read_all(pair.server, data, i < 2 ? 4 : 5);
        CHECK(memcmp(data, i < 2 ? "ello" : "hello", 4) == 0);
        done(pair);
    }
}

static void addresses_and_control_data_that_are_wrong(void)
{
    struct pair pair = connected();
    char data[8];
    struct sockaddr_in any = {.sin_family = AF_INET};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    char text[] = "abc";
    struct iovec iov = {text, 3};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = sizeof(control);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(sendto(pair.client, "x", 1, 0, (struct sockaddr *)&any, 500) == -1 && errno == EINVAL);
    CHECK(sendto(pair.client, "x", 1, 0, no_address(2), sizeof(any)) == -1 && errno == EFAULT);
    *header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = 9999};
    CHECK(sendmsg(pair.client, &message, 0) == -1 && errno == EINVAL);
    header->cmsg_level = IPPROTO_IP; /* nothing to a stream */
    CHECK(sendmsg(pair.client, &message, 0) == 3);
    CHECK(sendto(pair.client, "d", 1, 0, (struct sockaddr *)&any, sizeof(any)) == 1);
    read_all(pair.server, data, 4);
    CHECK(memcmp(data, "abcd", 4) == 0);
    done(pair);
}

static void flags_that_are_none(void)
{
    struct pair pair = connected();
    char data[4];
    struct iovec iov = {data, 1};
    CHECK(pwritev2(pair.client, &iov, 1, -1, 0x10000) == -1 && errno == EOPNOTSUPP);
    write_all(pair.client, "x", 1);
    CHECK(is_readable(pair.server));
    CHECK(preadv2(pair.server, &iov, 1, -1, 0x10000) == -1 && errno == EOPNOTSUPP);
    CHECK(preadv2(pair.server, &iov, 1, -1, RWF_NOWAIT) == 1);
    CHECK(preadv2(pair.server, &iov, 1, -1, RWF_NOWAIT) == -1 && errno == EAGAIN);
    CHECK(sendfile(pair.client, pair.server, NULL, 1) == -1 && errno == EINVAL);
    done(pair);
}

/* A splice() that is not possible takes no byte from either descriptor. */
static void splices_that_are_none(void)
{
    struct pair pair = connected();
    int fds[2];
    char data[8];
    off64_t at = 0;
    int file = memfd_create("file", MFD_CLOEXEC);
    CHECK(file >= 0 && pipe(fds) == 0);
    CHECK(splice(pair.server, NULL, file, NULL, 4, 0) == -1 && errno == EINVAL);
    write_all(pair.client, "abcd", 4);
    CHECK(is_readable(pair.server));
    CHECK(splice(pair.server, NULL, file, NULL, 4, 0) == -1 && errno == EINVAL);
    CHECK(splice(pair.server, NULL, pair.client, NULL, 4, 0) == -1 && errno == EINVAL);
    CHECK(splice(pair.server, NULL, fds[0], NULL, 4, 0) == -1 && errno == EBADF);
    CHECK(splice(pair.server, NULL, -1, NULL, 4, 0) == -1 && errno == EBADF);
    CHECK(splice(pair.server, NULL, fds[1], &at, 4, 0) == -1 && errno == ESPIPE);
    CHECK(splice(pair.server, &at, fds[1], NULL, 4, 0) == -1 && errno == EINVAL);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 4, 0x1000) == -1 && errno == EINVAL);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 0, 0) == 0);
    CHECK(lseek(file, 0, SEEK_CUR) == 0);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 4, 0) == 4);
    CHECK(splice(fds[1], NULL, pair.client, NULL, 4, 0) == -1 && errno == EBADF);
    CHECK(splice(fds[0], &at, pair.client, NULL, 4, 0) == -1 && errno == ESPIPE);
    CHECK(splice(fds[0], NULL, pair.client, NULL, 4, 0) == 4);
    read_all(pair.server, data, 4);
    CHECK(memcmp(data, "abcd", 4) == 0);
    close(fds[0]);
    close(fds[1]);
    close(file);
    done(pair);
}

static sigjmp_buf before;

static void go_back(int number)
{
    (void)number;
    siglongjmp(before, 1);
}

/* The call fails, or a signal handler leaves it by longjmp(): the set is unchanged. */
static void events_to_where_nothing_can_be_written(void)
{
    struct pair pair = connected();
    int epfd = set_with(pair.server, EPOLLIN);
    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(nowhere != MAP_FAILED && signal(SIGSEGV, go_back) != SIG_ERR);
    for (int i = 0; i < 3; i++) {
        write_all(pair.client, "x", 1);
        CHECK(is_readable(pair.server));
        if (sigsetjmp(before, 1) == 0) {
            CHECK(epoll_wait(epfd, nowhere, 4, 1000) == -1 && errno == EFAULT);
        }
        CHECK(wait_in(epfd, pair.server, 1000) == EPOLLIN);
    }
    CHECK(epoll_pwait2(epfd, no_address(2), 4, NULL, NULL) == -1 && errno == EFAULT);
    CHECK(wait_in(epfd, pair.server, 1000) == EPOLLIN);
    close(epfd);
    done(pair);
}

static void dissolved(void)
{
    struct pair pair = connected();
    struct sockaddr no_peer = {.sa_family = AF_UNSPEC};
    char byte;
    write_all(pair.client, "x", 1);
    CHECK(connect(pair.client, &no_peer, sizeof(no_peer)) == 0);
    CHECK(send(pair.client, "y", 1, MSG_NOSIGNAL) == -1 && errno == ECONNRESET);
    CHECK(send(pair.client, "y", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    read_all(pair.server, &byte, 1);
    CHECK(recv(pair.server, &byte, 1, 0) == -1 && errno == ECONNRESET);
    CHECK(recv(pair.server, &byte, 1, 0) == 0);
    done(pair);
}

/* SO_RCVTIMEO_NEW, which 32-bit programs with 64-bit times use. */
static void the_other_name_of_a_time_out(void)
{
    struct pair pair = connected();
    struct {
        int64_t s, us;
    } little = {0, 20000};
    char byte;
    if (setsockopt(pair.server, SOL_SOCKET, 66, &little, sizeof(little)) == 0) {
        CHECK(recv(pair.server, &byte, 1, 0) == -1 && errno == EAGAIN);
    }
    done(pair);
}

/* With a negative time limit a call does not wait, not even for a first byte if it requests 0
 * bytes; a limit beyond the maximum is no limit. */
static void time_limits_that_are_none(void)
{
    struct pair pair = connected();
    struct timeval past = {.tv_sec = -1}, far = {.tv_sec = INT64_C(1) << 55, .tv_usec = 1000};
    char byte;
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &past, sizeof(past)) == 0);
    CHECK(recv(pair.server, &byte, 1, 0) == -1 && errno == EAGAIN);
    CHECK(recv(pair.server, &byte, 0, 0) == -1 && errno == EAGAIN);
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &far, sizeof(far)) == 0);
    write_later(pair.client);
    CHECK(recv(pair.server, &byte, 1, 0) == 1);
    done(pair);
}

/* A second and a half, given in microseconds only. */
static void select_with_many_microseconds(void)
{
    struct pair pair = connected();
    struct timeval limit = {.tv_usec = 1500000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.client, &set);
    double begin = now_s();
    CHECK(select(pair.client + 1, &set, NULL, NULL, &limit) == 0);
    CHECK(now_s() - begin > 1.4);
    done(pair);
}

/* More nanoseconds than 64 bits hold: no limit. */
static void time_limits_beyond_all_clocks(void)
{
    struct pair pair = connected();
    const struct timespec far = {.tv_sec = INT64_MAX};
    struct pollfd pfd = {.fd = pair.server, .events = POLLIN};
    struct epoll_event event;
    int epfd = set_with(pair.server, EPOLLIN);
    char byte;
    for (int i = 0; i < 2; i++) {
        write_later(pair.client);
        CHECK(i == 0 ? ppoll(&pfd, 1, &far, NULL) == 1
                     : epoll_pwait2(epfd, &event, 1, &far, NULL) == 1);
        CHECK(read(pair.server, &byte, 1) == 1);
    }
    close(epfd);
    done(pair);
}

/* For any contents of the set, invalid arguments fail as with the kernel. */
static void waits_with_arguments_that_are_none(void)
{
    struct pair pair = connected();
    struct epoll_event event;
    int sets[] = {set_with(pair.server, EPOLLIN), epoll_create1(0)};
    volatile int most = INT_MAX, least = INT_MIN; /* compilers warn about such constants */
    write_all(pair.client, "x", 1);
    for (int i = 0; i < 2; i++) {
        CHECK(epoll_wait(sets[i], &event, most, 0) == -1 && errno == EINVAL);
        CHECK(epoll_wait(sets[i], &event, least, 0) == -1 && errno == EINVAL);
        CHECK(epoll_pwait(sets[i], &event, 1, 0, no_address(2)) == -1 && errno == EFAULT);
        CHECK(epoll_pwait2(sets[i], &event, 1, no_address(2), NULL) == -1 && errno == EFAULT);
        CHECK(epoll_pwait2(sets[i], &event, 1, no_address(1), NULL) == -1 && errno == EFAULT);
    }
    CHECK(wait_in(sets[0], pair.server, 5000) == EPOLLIN);
    close(sets[0]);
    close(sets[1]);
    done(pair);
}

/* A call that fails leaves the connection of the number that it would have replaced. */
static void numbers_that_are_not_replaced(void)
{
    struct pair pair = connected();
    struct rlimit limit, usual;
    volatile int no_flag = 0x10;
    int high = 90;
    CHECK(dup3(STDERR_FILENO, pair.server, no_flag) == -1 && errno == EINVAL);
    talk_both_ways(pair.client, pair.server);
    CHECK(dup2(pair.server, high) == high && close(pair.server) == 0);
    pair.server = high;
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    limit = usual;
    limit.rlim_cur = (rlim_t)high;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(dup2(STDERR_FILENO, high) == -1 && errno == EBADF);
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    talk_both_ways(pair.client, pair.server);
    done(pair);
}

static void ranges_that_are_not_closed(void)
{
    struct pair pair = connected();
    volatile int no_flag = 0x10;
    unsigned fd = (unsigned)pair.server;
    CHECK(close_range(fd, fd, no_flag) == -1 && errno == EINVAL);
    CHECK(close_range(fd, fd, CLOSE_RANGE_UNSHARE | no_flag) == -1 && errno == EINVAL);
    talk_both_ways(pair.client, pair.server);
    done(pair);
}

const struct check checks_of_mistakes[] = {
    CHECK_ENTRY(waits_with_arguments_that_are_none),
    CHECK_ENTRY(addresses_that_are_none),
    CHECK_ENTRY(addresses_and_control_data_that_are_wrong),
    CHECK_ENTRY(flags_that_are_none),
    CHECK_ENTRY(splices_that_are_none),
    CHECK_ENTRY(events_to_where_nothing_can_be_written),
    CHECK_ENTRY(dissolved),
    CHECK_ENTRY(the_other_name_of_a_time_out),
    CHECK_ENTRY(time_limits_that_are_none),
    CHECK_ENTRY(select_with_many_microseconds),
    CHECK_ENTRY(time_limits_beyond_all_clocks),
    CHECK_ENTRY(numbers_that_are_not_replaced),
    CHECK_ENTRY(ranges_that_are_not_closed),
    {0},
};
