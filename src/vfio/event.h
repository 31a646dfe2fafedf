/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_VFIO_EVENT_H
#define VIA_VFIO_EVENT_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Adds 1 to an eventfd that other processes share. They can fill the counter, and clear O_NONBLOCK
 * for all holders. So the caller polls first, and does not write to a full eventfd, whose reader
 * has a wake-up pending. (If a holder fills it between the two calls, the caller still blocks,
 * because the kernel has no per-call non-blocking write for eventfds.)
 */
static inline void via_event_signal(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLOUT};
    uint64_t one = 1;
    if (poll(&look, 1, 0) == 1 && (look.revents & POLLOUT) != 0) {
        (void)!write(fd, &one, sizeof(one));
    }
}

/* Checks a descriptor that another process has passed. A write to another kind of file may block,
 * or raise a signal: SIGPIPE for a pipe without a reader. */
static inline bool via_event_is_eventfd(int fd)
{
    static const char name[] = "anon_inode:[eventfd]";
    char path[32], target[sizeof(name)];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof(target));
    return length == (ssize_t)sizeof(name) - 1 && memcmp(target, name, sizeof(name) - 1) == 0;
}

#endif
