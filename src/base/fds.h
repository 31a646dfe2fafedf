/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Descriptors in a message of a Unix socket: SCM_RIGHTS, unix(7) and cmsg(3). */
#ifndef VIA_BASE_FDS_H
#define VIA_BASE_FDS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* The type of a control buffer for `count` descriptors, aligned for their header. The kernel fills
 * whole words of 8 bytes, so for an odd count it may deliver one descriptor more. */
#define VIA_FDS_SPACE(count)                           \
    union {                                            \
        struct cmsghdr align;                          \
        char bytes[CMSG_SPACE(sizeof(int) * (count))]; \
    }

/* Before sendmsg(): adds the descriptors, if any. `space` is a zeroed VIA_FDS_SPACE of at least
 * `count`, and must stay until the message is sent. */
static inline void via_fds_add(struct msghdr *message, void *space, const int *fds, unsigned count)
{
    if (count == 0) {
        return;
    }
    message->msg_control = space;
    message->msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
}

/* The progress of via_fds_next() in a message; all zeros before the first call. */
struct via_fds_place {
    struct cmsghdr *header;
    size_t bytes; /* taken from this header */
    bool has_begun;
};

/* After recvmsg(): the next descriptor of the message, which the caller must close. False: there
 * are no more. */
static inline bool via_fds_next(struct msghdr *message, struct via_fds_place *place, int *ret_fd)
{
    if (!place->has_begun) {
        place->has_begun = true;
        place->header = CMSG_FIRSTHDR(message);
    }
    while (place->header != NULL) {
        struct cmsghdr *header = place->header;
        bool has_fds = header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS;
        if (has_fds && CMSG_LEN(place->bytes + sizeof(int)) <= header->cmsg_len) {
            memcpy(ret_fd, CMSG_DATA(header) + place->bytes, sizeof(int));
            place->bytes += sizeof(int);
            return true;
        }
        place->bytes = 0;
        place->header = CMSG_NXTHDR(message, header);
    }
    return false;
}

#endif
