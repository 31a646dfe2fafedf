/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_POLL_SET_H
#define VIA_SOCKETS_POLL_SET_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "sockets/process/fds.h"
#include "sockets/process/memory.h"

/* True if one of these descriptors is a connection, or an epoll set that the library handles. */
static inline bool via_poll_is_any_ours(const struct pollfd *fds, nfds_t count)
{
    /* An array of more entries than the table has descriptors is left to the kernel. */
    if (via_unlikely(count > via_fds_count) ||
        via_unlikely(!via_memory_is_writable(fds, count * sizeof(*fds)))) {
        return false;
    }
    for (nfds_t i = 0; i < count; i++) {
        const struct via_file *file = via_fd_peek(fds[i].fd);
        if (via_unlikely(file != NULL) && file->kind != VIA_FILE_HIDDEN) {
            return true;
        }
    }
    return false;
}

/* poll() on a mixture of descriptors. Results as poll's, or a negative errno. deadline_ns as in
 * via_sleep(). */
int via_poll(struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask);

#endif
