/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sets that have several numbers, and connections whose number in a set is closed before others. */
#include <fcntl.h>

#include "sockets/epoll/epoll_internal.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

void via_ep_dup(struct via_ep_set *set, int new_fd)
{
    atomic_fetch_add_explicit(&set->fds, 1, memory_order_relaxed);
    if (!via_fd_set(new_fd, &set->file)) {
        atomic_fetch_sub_explicit(&set->fds, 1, memory_order_relaxed);
    }
}

void via_ep_dup_plain(int fd, int new_fd)
{
    via_ep_lock_links();
    struct via_ep_set *set = via_ep_set_get(fd);
    via_ep_unlock_links();
    if (set == NULL || via_fd_is_marked(fd, VIA_FD_SEEN_BY_KERNEL)) {
        /* A thread that waits for it elsewhere uses one of the numbers: the kernel carries the
         * input. */
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
    via_lock(&set->lock);
    unsigned top = via_fds_top();
    for (unsigned other = 0; set->fd == fd && other < top; other++) {
        if (via_fd_peek((int)other) == &set->file) {
            set->fd = (int)other;
        }
    }
    via_unlock(&set->lock);
    via_ep_unlock_links();
}

/* --- connections -------------------------------------------------------------------------------
 */

int via_ep_number(const struct via_ep_entry *entry)
{
    return via_ep_fd(entry) == entry->fd ? entry->fd : via_conn_fd(entry->conn);
}

/* Does the kernel have nothing to report? Added again, a one-shot registration that was reported
 * would report the end, or be reported again. */
static bool is_unheard(const struct via_ep_entry *entry)
{
    bool reported = entry->spent && (entry->events & EPOLLONESHOT) != 0 && !entry->piped;
    return entry->unheard || reported;
}

/* The kernel goes on reporting a registration whose number is closed while others refer to the same
 * socket, but no call can change it any more, and the number may soon be another file's. So the
 * kernel gets it by a number of ours. Without one nothing changes. */
static void keep_registration(struct via_ep_entry *entry)
{
    int fd = VIA_REAL(fcntl)(entry->fd, F_DUPFD_CLOEXEC, 0);
    bool unheard = is_unheard(entry);
    if (fd < 0) {
        return;
    }
    via_ep_update_kernel(entry, EPOLL_CTL_DEL);
    (void)!via_hidden_new(fd, &entry->kept_fd);
    entry->unheard = unheard;
    if (!unheard) {
        via_ep_update_kernel(entry, EPOLL_CTL_ADD);
    }
    entry->told.recheck = true; /* between the two an edge may have gone unseen */
}

/* The number is the connection's again: the program may use it for its registration. */
static void return_number(struct via_ep_entry *entry)
{
    bool unheard = is_unheard(entry);
    via_ep_update_kernel(entry, EPOLL_CTL_DEL);
    via_hidden_close(&entry->kept_fd);
    entry->unheard = unheard;
    if (!unheard) {
        via_ep_update_kernel(entry, EPOLL_CTL_ADD);
    }
    entry->told.recheck = true;
}

static void change_number(struct via_conn *conn, int fd, bool gains)
{
    if (via_likely(via_list_is_empty(&conn->entries))) {
        return;
    }
    via_ep_lock_links();
    via_list_foreach(it, &conn->entries) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_conn);
        via_lock(&entry->set->lock);
        bool kept = via_ep_fd(entry) != entry->fd;
        if (entry->fd != fd || entry->inherited || kept != gains) {
            /* nothing changes */
        } else if (gains) {
            return_number(entry);
        } else if (!via_conn_is_plain(conn)) {
            keep_registration(entry);
        }
        via_unlock(&entry->set->lock);
    }
    via_ep_unlock_links();
}

void via_ep_conn_loses(struct via_conn *conn, int fd)
{
    change_number(conn, fd, false);
}

void via_ep_conn_gains(struct via_conn *conn, int fd)
{
    change_number(conn, fd, true);
}
