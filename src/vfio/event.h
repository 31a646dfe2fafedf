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
 * Adds 1 to an eventfd that others have, too: they can fill it, and take O_NONBLOCK away from all
 * who share it. A full one is not written to; its reader has been told. (An owner who fills it
 * between the two calls still blocks the caller: the kernel has no write that says so.)
 */
static inline void via_event_signal(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLOUT};
    uint64_t one = 1;
    if (poll(&look, 1, 0) == 1 && (look.revents & POLLOUT) != 0) {
        (void)!write(fd, &one, sizeof(one));
    }
}

/* Of a descriptor that another process passed. A write to anything else may wait, or end the
 * process by a signal: a pipe that has no reader. */
static inline bool via_event_is_eventfd(int fd)
{
    static const char name[] = "anon_inode:[eventfd]";
    char path[32], target[sizeof(name)];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof(target));
    return length == (ssize_t)sizeof(name) - 1 && memcmp(target, name, sizeof(name) - 1) == 0;
}

#endif
