/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_RECEIVE_H
#define VIA_HOST_HOST_RECEIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* As many descriptors as one message can carry (SCM_MAX_FD of Linux). */
#define VIA_HOST_RECEIVE_FDS_MAX 253u

/*
 * A message of a process and all descriptors that came with it. The kernel drops the references of
 * descriptors that find no room in the caller's buffer, in the thread that receives; so there is
 * always room for all, and the caller gives them to a reaper.
 */
struct via_host_received {
    ssize_t bytes;  /* 0 = end of file; or a negative errno */
    bool truncated; /* the message was longer than the buffer */
    unsigned fds_count;
    int fds[VIA_HOST_RECEIVE_FDS_MAX]; /* the caller's; close-on-exec */
};

/* Never blocks. */
void via_host_receive(int fd, void *buffer, size_t bytes, struct via_host_received *ret_received);

#endif
