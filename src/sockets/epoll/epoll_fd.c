/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sets that have several descriptors, and connections whose descriptor in a set is closed before
 * other descriptors of the same socket. */
#include "sockets/conn/demote.h"
#include "sockets/epoll/epoll_internal.h"
#include "sockets/process/lock.h"

void via_ep_dup(struct via_ep_set *set, int new_fd)
{
    atomic_fetch_add_explicit(&set->fds, 1, memory_order_relaxed);
    if (!via_fd_set(new_fd, &set->file)) {
        atomic_fetch_sub_explicit(&set->fds, 1, memory_order_relaxed);
    }
}

void via_ep_dup_plain(int fd, int new_fd)
{
    struct via_ep_set *set = via_ep_hold(fd);
    if (set != NULL) { /* otherwise new_fd has no mark of a set, and stays with the kernel */
        via_ep_dup(set, new_fd);
        via_file_put(&set->file, false);
    }
}

void via_ep_replace_fd(struct via_ep_set *set, int fd)
{
    via_lock(&via_ep_links);
    via_lock(&set->lock);
    unsigned top = via_fds_top();
    for (unsigned other = 0; set->fd == fd && other < top; other++) {
        if (via_fd_peek((int)other) == &set->file) {
            set->fd = (int)other;
        }
    }
    via_unlock(&set->lock);
    via_unlock(&via_ep_links);
}

/* --- connections ----------------------------------------------------------------------------- */

int via_ep_fd(const struct via_ep_entry *entry)
{
    return via_fd_peek(entry->fd) == &entry->conn->file ? entry->fd : via_conn_fd(entry->conn);
}

/* True if the connection is registered in a set with that descriptor. hand_back: removes the
 * entries, and the kernel reports their registrations to the program from now on. */
static bool find_by_fd(struct via_conn *conn, int fd, bool hand_back)
{
    bool found = false;
    via_lock(&via_ep_links);
    via_list_foreach_safe(it, &conn->entries) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_conn);
        if (entry->fd == fd && !entry->inherited) {
            found = true;
            if (hand_back) {
                via_ep_remove(entry, VIA_EP_IS_HANDED_BACK);
            }
        }
    }
    via_unlock(&via_ep_links);
    return found;
}

/* The kernel keeps reporting a registration whose descriptor is closed while other descriptors
 * refer to the same open file description (epoll(7)). But no epoll_ctl() can change that
 * registration any more, which pipes need, and the descriptor may soon refer to another file. So
 * the connection is demoted before the close. If it still has pipes then, the peer has ended and
 * left bytes there, and the kernel reports the connection as readable because of the peer's FIN. */
void via_ep_conn_fd_closing(struct via_conn *conn, int fd)
{
    if (via_unlikely(!via_list_is_empty(&conn->entries)) && find_by_fd(conn, fd, false)) {
        struct via_op op = via_conn_op(conn, via_conn_fd(conn));
        via_conn_demote(&op, VIA_REASON_EPOLL);
        find_by_fd(conn, fd, true);
    }
}
