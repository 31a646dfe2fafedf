/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Pointers to unmapped memory: the call fails with EFAULT, whatever the descriptor is. */
#define _FORTIFY_SOURCE 0
#include "checks.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#define PAGE 4096

#define FAULTS(call) CHECK((call) == -1 && errno == EFAULT)

static const struct timespec at_once;

static void *nowhere(void)
{
    void *page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return page;
}

/* The last bytes of a page; the next page is not mapped. */
static void *edge(size_t bytes)
{
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + PAGE, PAGE, PROT_NONE) == 0);
    return pages + PAGE - bytes;
}

static void messages_from_nowhere(int fd)
{
    void *bad = nowhere();
    struct iovec *half = edge(sizeof(*half));
    char data[8] = "x";
    struct iovec good = {data, 1};
    struct msghdr no_vector = {.msg_iov = bad, .msg_iovlen = 1};
    struct msghdr half_vector = {.msg_iov = half, .msg_iovlen = 2};
    struct msghdr no_control = {
        .msg_iov = &good, .msg_iovlen = 1, .msg_control = bad, .msg_controllen = 64};
    struct msghdr no_name = {.msg_iov = &good, .msg_iovlen = 1, .msg_name = bad, .msg_namelen = 16};
    *half = good;
    FAULTS(sendmsg(fd, bad, 0));
    FAULTS(sendmsg(fd, &no_vector, 0));
    FAULTS(sendmsg(fd, &half_vector, 0));
    FAULTS(sendmsg(fd, &no_control, 0));
    FAULTS(sendmsg(fd, &no_name, 0));
    FAULTS(sendmmsg(fd, bad, 1, 0));
    FAULTS(recvmsg(fd, bad, MSG_DONTWAIT));
    FAULTS(recvmmsg(fd, bad, 1, MSG_DONTWAIT, NULL));
    FAULTS(recvmsg(fd, &half_vector, MSG_DONTWAIT));
    FAULTS(writev(fd, bad, 1));
    FAULTS(writev(fd, half, 2));
    FAULTS(readv(fd, bad, 1));
}

static void messages_from_where_nothing_is(void)
{
    struct pair pair = connected();
    int other[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
    messages_from_nowhere(pair.client);
    messages_from_nowhere(other[0]);
    /* No byte was lost, and the connection still works. */
    CHECK(recv(pair.server, other, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    talk_both_ways(pair.client, pair.server);
    done(pair);
}

static void addresses_to_where_nothing_is(void)
{
    struct pair pair = connected();
    struct sockaddr_in addr;
    socklen_t negative = (socklen_t)-1;
    char data[8];
    void *bad = nowhere();
    int listen_fd = listener(&addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    FAULTS(connect(fd, bad, sizeof(addr)));
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    FAULTS(accept(listen_fd, (struct sockaddr *)&addr, bad));
    close(fd);
    write_all(pair.client, "hello", 5);
    FAULTS(recvfrom(pair.server, data, 2, 0, (struct sockaddr *)&addr, bad));
    CHECK(recvfrom(pair.server, data, 2, 0, (struct sockaddr *)&addr, &negative) == -1);
    CHECK(errno == EINVAL);
    FAULTS(ioctl(pair.server, FIONREAD, bad));
    read_all(pair.server, data, 1); /* the calls above have read all other bytes */
    CHECK(data[0] == 'o');
    close(listen_fd);
    done(pair);
}

static void waiting_for_what_is_nowhere(void)
{
    struct pair pair = connected();
    void *bad = nowhere();
    struct timeval soon = {0};
    struct pollfd pfd = {.fd = pair.server, .events = POLLIN};
    struct pollfd *half = edge(sizeof(*half));
    *half = pfd;
    FAULTS(poll(bad, 1, 0));
    FAULTS(poll(half, 2, 0));
    FAULTS(ppoll(bad, 1, &at_once, NULL));
    FAULTS(ppoll(&pfd, 1, &at_once, bad));
    FAULTS(select(pair.server + 1, bad, NULL, NULL, &soon));
    int epfd = epoll_create1(0);
    FAULTS(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.server, bad));
    FAULTS(epoll_ctl(epfd, EPOLL_CTL_ADD, epfd, bad));
    CHECK(put_in(epfd, pair.server, EPOLLIN) == 0);
    FAULTS(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.server, bad));
    write_all(pair.client, "x", 1);
    CHECK(poll(&pfd, 1, 5000) == 1);
    FAULTS(epoll_wait(epfd, bad, 1, 1000));
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, bad) == 0);
    close(epfd);
    done(pair);
}

const struct check checks_of_addresses[] = {
    CHECK_ENTRY(messages_from_where_nothing_is),
    CHECK_ENTRY(addresses_to_where_nothing_is),
    CHECK_ENTRY(waiting_for_what_is_nowhere),
    {0},
};
