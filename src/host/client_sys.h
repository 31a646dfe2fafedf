/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * System calls of the client library on its own descriptors. The library also runs inside the
 * socket preload, which has functions of its own under the names close, recvmsg, epoll_wait, ...;
 * so these functions make the system calls themselves.
 */
#ifndef VIA_HOST_CLIENT_SYS_H
#define VIA_HOST_CLIENT_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* All return the result, or a negative errno. */
static inline long via_sys_result(long rc)
{
    return rc == -1 ? -errno : rc;
}

static inline int via_sys_close(int fd)
{
    return (int)via_sys_result(syscall(SYS_close, fd));
}

static inline int via_sys_fcntl(int fd, int command, long argument)
{
    return (int)via_sys_result(syscall(SYS_fcntl, fd, command, argument));
}

static inline int via_sys_socket(int domain, int type)
{
    return (int)via_sys_result(syscall(SYS_socket, domain, type, 0));
}

static inline int via_sys_connect(int fd, const void *address, socklen_t bytes)
{
    return (int)via_sys_result(syscall(SYS_connect, fd, address, bytes));
}

/* Ends both directions of the connection, even if another process also has the descriptor. */
static inline void via_sys_shutdown(int fd)
{
    (void)!syscall(SYS_shutdown, fd, SHUT_RDWR);
}

/* Ends a TCP connection at once: the kernel discards bytes that it has not sent, and the peer gets
 * a reset (tcp(7): connect() with AF_UNSPEC). The descriptor stays open. */
static inline void via_sys_tcp_reset(int fd)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    (void)!via_sys_connect(fd, &none, sizeof(none));
}

/* The kernel ends the connection when a silent peer's machine answers none of `probes` probes,
 * which begin after idle_s seconds and are interval_s apart. */
static inline void via_sys_tcp_keep_alive(int fd, int idle_s, int interval_s, int probes)
{
    int one = 1;
    (void)!syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)!syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    (void)!syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    (void)!syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

/* The kernel ends the connection when sent bytes, or probes after as long without any traffic, were
 * not acknowledged for this time. */
static inline void via_sys_tcp_limit_silence(int fd, unsigned ms)
{
    int seconds = (int)(ms / 1000u);
    via_sys_tcp_keep_alive(fd, seconds, 1, seconds);
    (void)!syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

static inline void via_sys_tcp_set_prompt(int fd)
{
    int one = 1;
    (void)!syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    /* After a partition the interval between retransmissions of a few bytes does not grow. */
    (void)!syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &one, sizeof(one));
}

static inline long via_sys_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return via_sys_result(syscall(SYS_sendmsg, fd, message, flags));
}

static inline long via_sys_recvmsg(int fd, struct msghdr *message, int flags)
{
    return via_sys_result(syscall(SYS_recvmsg, fd, message, flags));
}

static inline int via_sys_epoll_create(void)
{
    return (int)via_sys_result(syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
}

static inline int via_sys_epoll_add(int epoll_fd, int fd, uint32_t events, uint32_t tag)
{
    struct epoll_event event = {.events = events, .data.u32 = tag};
    return (int)via_sys_result(syscall(SYS_epoll_ctl, epoll_fd, EPOLL_CTL_ADD, fd, &event));
}

/* timeout_ms -1 = forever */
static inline int via_sys_epoll_wait(int epoll_fd, struct epoll_event *events, int count,
                                     int timeout_ms)
{
    return (int)via_sys_result(
        syscall(SYS_epoll_pwait, epoll_fd, events, count, timeout_ms, NULL, 8));
}

/*
 * Bells: eventfds by which processes that do not trust each other wake each other. The count and
 * the O_NONBLOCK of an eventfd belong to all holders, hostile ones among them: a holder can fill
 * the count so that every write blocks, also that of 0. So a ring is a read that never blocks
 * (RWF_NOWAIT), which wakes those that watch for room (EPOLLOUT) whatever the count is. A watcher
 * also requests EPOLLIN and watches edge-triggered: if a hostile holder fills the count again at
 * once there is no room to report, but always something to read, and the edge is reported as that.
 * A read takes 1 (EFD_SEMAPHORE) of the 2^63 that a new bell has, so no holder can empty it.
 */
#define VIA_BELL_EVENTS ((uint32_t)EPOLLIN | (uint32_t)EPOLLOUT | (uint32_t)EPOLLET)

static inline int via_sys_bell_new(void)
{
    uint64_t count = UINT64_C(1) << 63;
    int fd =
        (int)via_sys_result(syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
    if (fd >= 0 && syscall(SYS_write, fd, &count, sizeof(count)) != (long)sizeof(count)) {
        int rc = -errno;
        via_sys_close(fd);
        return rc;
    }
    return fd;
}

static inline void via_sys_bell_ring(int fd)
{
    uint64_t one = 0;
    struct iovec iov = {.iov_base = &one, .iov_len = sizeof(one)};
    if (syscall(SYS_preadv2, fd, &iov, 1, -1L, -1L, RWF_NOWAIT) == -1 &&
        (errno == EOPNOTSUPP || errno == ENOSYS || errno == EPERM)) {
        /* Linux before 5.8, or a sandbox: a write of 0 wakes as well, and blocks if the bell is
         * full. */
        one = 0;
        (void)!syscall(SYS_write, fd, &one, sizeof(one));
    }
}

static inline void via_sys_futex_wake(_Atomic uint32_t *word, int waiters)
{
    (void)!syscall(SYS_futex, word, FUTEX_WAKE, waiters, NULL, NULL, 0);
}

#endif
