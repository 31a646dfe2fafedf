/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Records the program's registrations of sockets that are not connected yet; the registrations
 * become entries when the sockets are connected. Also restores the registrations of connections
 * that have left the library's table.
 */
#include <sys/mman.h>

#include "sockets/epoll/epoll_internal.h"
#include "sockets/process/real.h"

/* The program's registration of a descriptor in one set, level- or edge-triggered. Other cases are
 * rare, and such a socket stays with the kernel. */
struct note {
    bool in_set;
    bool others; /* there were more sets, or other kinds of registrations, which are not recorded */
    int epfd;
    struct epoll_event event;
};

/* A note per descriptor, valid while the descriptor has the mark VIA_FD_IN_EPOLL. */
static struct note *_Atomic notes;

static struct note *note_of(int fd)
{
    struct note *table = atomic_load_explicit(&notes, memory_order_acquire);
    if ((unsigned)fd >= via_fds_count) {
        return NULL;
    }
    if (via_unlikely(table == NULL)) {
        size_t bytes = via_fds_count * sizeof(*table);
        struct note *new = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (new == MAP_FAILED) {
            return NULL;
        }
        if (atomic_compare_exchange_strong_explicit(&notes, &table, new, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            table = new;
        } else {
            munmap(new, bytes); /* another thread was first */
        }
    }
    return &table[fd];
}

#define KINDS_NOT_NOTED ((uint32_t)(EPOLLONESHOT | EPOLLEXCLUSIVE))

void via_ep_note(int epfd, int op, int fd, const struct epoll_event *event)
{
    struct note *note = via_policy.on ? note_of(fd) : NULL;
    if (note == NULL) {
        via_fd_mark(fd, VIA_FD_IN_EPOLL, true);
        return;
    }
    if (!via_fd_is_marked(fd, VIA_FD_IN_EPOLL)) {
        *note = (struct note){.in_set = false};
    }
    bool other = note->in_set && note->epfd != epfd;
    if (op == EPOLL_CTL_DEL) {
        note->in_set = other;
    } else if (other || (event->events & KINDS_NOT_NOTED) != 0) {
        note->others = true;
    } else {
        *note =
            (struct note){.in_set = true, .others = note->others, .epfd = epfd, .event = *event};
    }
    via_fd_mark(fd, VIA_FD_IN_EPOLL, note->in_set || note->others);
}

void via_ep_hand_back(struct via_ep_entry *entry)
{
    if (entry->inherited) {
        return;
    }
    if (entry->place == VIA_EP_PARKED) {
        via_ep_update_kernel(entry, EPOLL_CTL_DEL);
        return;
    }
    struct epoll_event event = {.events = entry->events & ~(uint32_t)EPOLLEXCLUSIVE,
                                .data = {.u64 = entry->data}};
    if (entry->spent) {
        event.events &= (uint32_t)(EPOLLONESHOT | EPOLLET);
    }
    if (entry->spent && !entry->set->passed) {
        /* The kernel still reports EPOLLHUP: via_ep_update_kernel(). */
        event.data.u64 = (uint64_t)(uintptr_t)&via_ep_bell_mark;
        atomic_store_explicit(&entry->set->handed_back, true, memory_order_relaxed);
    }
    VIA_REAL(epoll_ctl)
    (entry->set->fd, EPOLL_CTL_MOD, entry->fd, &event);
}

bool via_ep_is_adoptable(int fd)
{
    if (!via_fd_is_marked(fd, VIA_FD_IN_EPOLL)) {
        return true;
    }
    const struct note *note = note_of(fd);
    return note != NULL && !note->others && !via_ep_is_nested(note->epfd);
}

void via_ep_adopt(struct via_conn *conn, int fd)
{
    if (via_likely(!via_fd_is_marked(fd, VIA_FD_IN_EPOLL))) {
        return;
    }
    VIA_KEEP_ERRNO;
    const struct note *note = note_of(fd);
    if (note != NULL && !note->others &&
        via_ep_add_connected(note->epfd, conn, fd, &note->event) == 0) {
        via_fd_mark(fd, VIA_FD_IN_EPOLL, false);
    } else if (via_conn_is_undecided(conn)) {
        /* The set is closed, or has another descriptor now. */
        via_conn_settle_plain(conn, VIA_REASON_EPOLL);
    }
}
