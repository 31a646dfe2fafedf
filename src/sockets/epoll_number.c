/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sets that have several numbers. */
#include "sockets/epoll_internal.h"

void via_ep_dup(struct via_ep_set *set, int new_fd)
{
    atomic_fetch_add_explicit(&set->fds, 1, memory_order_relaxed);
    if (!via_fd_set(new_fd, &set->file)) {
        atomic_fetch_sub_explicit(&set->fds, 1, memory_order_relaxed);
    }
}

void via_ep_dup_plain(int fd, int new_fd)
{
    bool adopted = via_ep_nest_adopt(fd);
    via_ep_lock_links();
    struct via_ep_set *set = via_ep_set_get(fd);
    via_ep_unlock_links();
    if (set == NULL || !adopted || via_fd_is_marked(fd, VIA_FD_IN_RING)) {
        /* Who waits for it elsewhere knows one of the numbers: the kernel carries what comes in. */
        via_fd_mark(fd, VIA_FD_IN_RING, true);
        via_fd_mark(new_fd, VIA_FD_IN_RING, true);
    }
    if (set != NULL) {
        via_ep_dup(set, new_fd);
        via_file_put(&set->file, false);
    }
}

void via_ep_give_up_number(struct via_ep_set *set, int fd)
{
    via_ep_lock_links();
    pthread_mutex_lock(&set->lock);
    unsigned top = via_fds_top();
    for (unsigned other = 0; set->fd == fd && other < top; other++) {
        if (via_fd_peek((int)other) == &set->file) {
            set->fd = (int)other;
        }
    }
    pthread_mutex_unlock(&set->lock);
    via_ep_unlock_links();
}
