/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * System calls of the client library on its own descriptors. The library also runs inside the
 * socket preload, which has functions of its own under the names close, recvmsg, epoll_wait, ...;
 * so these ask the kernel without going by those names.
 */
#ifndef VIA_HOST_CLIENT_SYS_H
#define VIA_HOST_CLIENT_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

/* timeout_ms -1 = for ever */
static inline int via_sys_epoll_wait(int epoll_fd, struct epoll_event *events, int count,
                                     int timeout_ms)
{
    return (int)via_sys_result(
        syscall(SYS_epoll_pwait, epoll_fd, events, count, timeout_ms, NULL, 8));
}

/*
 * Bells. Count and O_NONBLOCK of an eventfd belong to all who hold it, processes that mean harm
 * among them. So the count is half of what it can hold from the beginning, and a ring adds nothing:
 * that wakes all who watch edge-triggered, never blocks whatever the flags, and leaves the count as
 * it is. A read takes only 1 (EFD_SEMAPHORE): nobody can empty it, and a bell without a count would
 * wake nobody.
 */
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
    uint64_t nothing = 0;
    (void)!syscall(SYS_write, fd, &nothing, sizeof(nothing));
}

static inline void via_sys_futex_wake(_Atomic uint32_t *word, int waiters)
{
    (void)!syscall(SYS_futex, word, FUTEX_WAKE, waiters, NULL, NULL, 0);
}

#endif
