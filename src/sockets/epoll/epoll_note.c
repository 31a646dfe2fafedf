/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sockets that the program puts into epoll sets before they are connections: records the program's
 * registrations, which become entries when the sockets are connected. Also connections that have
 * left the library's table.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "sockets/epoll/epoll_internal.h"
#include "sockets/process/real.h"

/* Maximum of sets recorded for one descriptor. */
#define SETS_NOTED 4u

struct note {
    unsigned count;
    bool more; /* there were more sets, which are not recorded */
    struct {
        int epfd;
        struct epoll_event event;
    } of[SETS_NOTED];
};

/* By descriptor; valid while the descriptor is marked. */
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

/* The place of the registration with this set; if there is none, where a new one would go. */
static unsigned place_of(const struct note *note, int epfd)
{
    unsigned at = 0;
    while (at < note->count && note->of[at].epfd != epfd) {
        at++;
    }
    return at;
}

static void note_put(struct note *note, int epfd, const struct epoll_event *event)
{
    unsigned at = place_of(note, epfd);
    if (at == SETS_NOTED) {
        note->more = true;
        return;
    }
    note->of[at].epfd = epfd;
    note->of[at].event = *event;
    note->count = via_max(note->count, at + 1);
}

static void note_remove(struct note *note, int epfd)
{
    unsigned at = place_of(note, epfd);
    if (at < note->count) {
        note->of[at] = note->of[--note->count];
    }
}

void via_ep_note(int epfd, int op, int fd, const struct epoll_event *event)
{
    struct note *note = note_of(fd);
    if (note == NULL) {
        via_fd_mark(fd, VIA_FD_IN_EPOLL, true);
        return;
    }
    if (!via_fd_is_marked(fd, VIA_FD_IN_EPOLL)) {
        note->count = 0;
        note->more = false;
    }
    if (op == EPOLL_CTL_DEL) {
        note_remove(note, epfd);
    } else if (event != NULL) {
        note_put(note, epfd, event);
    }
    via_fd_mark(fd, VIA_FD_IN_EPOLL, note->count != 0 || note->more);
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
    VIA_REAL(epoll_ctl)
    (entry->set->fd, entry->unheard ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, entry->fd, &event);
}

bool via_ep_is_adoptable(int fd)
{
    if (!via_fd_is_marked(fd, VIA_FD_IN_EPOLL)) {
        return true;
    }
    const struct note *note = note_of(fd);
    bool can = note != NULL && !note->more;
    for (unsigned i = 0; can && i < note->count; i++) {
        can = !via_ep_is_nested(note->of[i].epfd);
    }
    return can;
}

void via_ep_adopt(struct via_conn *conn, int fd)
{
    if (via_likely(!via_fd_is_marked(fd, VIA_FD_IN_EPOLL))) {
        return;
    }
    int saved = errno;
    const struct note *note = note_of(fd);
    int rc = note == NULL || note->more ? -EBADF : 0;
    for (unsigned i = 0; rc == 0 && i < note->count; i++) {
        rc = via_ep_take_in(note->of[i].epfd, conn, fd, &note->of[i].event);
    }
    if (rc == 0) {
        via_fd_mark(fd, VIA_FD_IN_EPOLL, false);
    } else if (via_conn_is_unsettled(conn)) {
        /* A set is closed, or has another number; or a thread has just waited in it. */
        via_conn_settle_plain(conn, VIA_REASON_EPOLL);
    }
    errno = saved;
}

/* --- the kernel's table ---------------------------------------------------------------------- */

/* Parses a line of it (proc(5), /proc/pid/fdinfo): "tfd: 5 events: 40000001 data: ...". A one-shot
 * registration that was reported has only the flags left, and no events. */
static bool is_of(const char *line, int fd, unsigned *ret_events)
{
    int tfd;
    return sscanf(line, "tfd: %d events: %x", &tfd, ret_events) == 2 && tfd == fd;
}

int via_ep_kernel_armed(int epfd, int fd)
{
    char path[48];
    char line[256];
    unsigned events = 0;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -errno;
    }
    bool found = false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        found = is_of(line, fd, &events);
    }
    fclose(file);
    const uint32_t how = EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;
    return !found ? -ENOENT : (events & ~how) != 0;
}

#define EXCLUSIVE_EVENTS \
    ((uint32_t)(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE))

bool via_ep_is_valid(int op, const struct epoll_event *event)
{
    uint32_t events = event != NULL ? event->events : 0;
    if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL) {
        return false;
    }
    return op == EPOLL_CTL_DEL || (events & EPOLLEXCLUSIVE) == 0 ||
           (op == EPOLL_CTL_ADD && (events & ~EXCLUSIVE_EVENTS) == 0);
}
