/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sets in other sets, sets that a program polls like any other descriptor, and sets that other
 * processes hold. The kernel reports whether such a set is readable, and the kernel does not see
 * pipes. So connections in such a set stay with the kernel, or are demoted.
 */
#include "sockets/conn/demote.h"
#include "sockets/epoll/epoll_internal.h"
#include "sockets/process/lock.h"

/* With the lock of the links, or for a held set. */
static bool is_nested(const struct via_ep_set *set)
{
    return set != NULL && atomic_load_explicit(&set->nested, memory_order_relaxed);
}

bool via_ep_is_nested(int epfd)
{
    const struct via_file *file = via_fd_peek(epfd);
    /* A set that has never held a connection has no object, only a mark of its descriptor. */
    return via_fd_is_marked(epfd, VIA_FD_SEEN_BY_KERNEL) ||
           (file != NULL && file->kind == VIA_FILE_EPOLL &&
            is_nested(via_container_of(file, const struct via_ep_set, file)));
}

bool via_ep_conn_is_nested(const struct via_conn *conn)
{
    bool nested = false;
    via_lock(&via_ep_links);
    via_list_foreach(it, &conn->entries) {
        nested |= is_nested(via_list_entry(it, struct via_ep_entry, in_conn)->set);
    }
    via_unlock(&via_ep_links);
    return nested;
}

/* Makes the kernel watch connections that could not be demoted, because the peer has ended and left
 * bytes in the pipe. The kernel reports these as readable, because of the peer's FIN, as long as
 * the program is registered for input. */
static void watch_all(struct via_ep_set *set)
{
    via_lock(&via_ep_links);
    via_lock(&set->lock);
    via_ep_unpark_members(set);
    via_ep_all_hot(set);
    via_list_foreach_safe(it, &set->entries[VIA_EP_HOT]) {
        via_ep_refresh(via_list_entry(it, struct via_ep_entry, in_set));
    }
    via_unlock(&set->lock);
    via_unlock(&via_ep_links);
}

void via_ep_nest(int fd)
{
    if (via_likely(via_fd_peek(fd) == NULL)) {
        return; /* its descriptor is marked: via_ep_note() */
    }
    uint32_t thread = via_os_thread();
    struct via_file *file = via_file_get(fd, false);
    if (file == NULL) {
        return;
    }
    if (file->kind == VIA_FILE_EPOLL) {
        struct via_ep_set *set = via_container_of(file, struct via_ep_set, file);
        /* With the lock: later registrations see the mark, earlier ones are in the list below. */
        via_lock(&via_ep_links);
        atomic_store_explicit(&set->nested, true, memory_order_relaxed);
        via_unlock(&via_ep_links);
        via_demote_nested();
        via_ep_unwatch_bells(set); /* a bell would be an event of the inner set */
        watch_all(set);
    }
    via_file_put_of(file, false, thread);
}

struct via_ep_stayed via_ep_polled(int fd)
{
    uint32_t thread = via_os_thread();
    struct via_ep_stayed stayed = {0};
    struct via_file *file = via_fd_peek(fd) != NULL ? via_file_get(fd, false) : NULL;
    if (via_likely(file == NULL)) {
        return stayed;
    }
    if (file->kind == VIA_FILE_EPOLL) {
        struct via_ep_set *set = via_container_of(file, struct via_ep_set, file);
        /* Tries once more to demote connections that could not be demoted while their host was cut
         * off. */
        if (!via_ep_is_nested(fd) ||
            atomic_load_explicit(&set->piped_count, memory_order_relaxed) != 0) {
            via_ep_nest(fd);
        }
        stayed = via_ep_check_stayed(set);
    }
    via_file_put_of(file, false, thread);
    return stayed;
}

static void give_program_data(struct via_ep_set *set)
{
    via_lock(&via_ep_links);
    via_lock(&set->lock);
    set->passed = true;
    for (unsigned place = 0; place < VIA_EP_PLACES; place++) {
        via_list_foreach(it, &set->entries[place]) {
            via_ep_update_kernel(via_list_entry(it, struct via_ep_entry, in_set), EPOLL_CTL_MOD);
        }
    }
    via_unlock(&set->lock);
    via_unlock(&via_ep_links);
}

void via_ep_pass(int fd)
{
    uint32_t thread = via_os_thread();
    bool known = via_fd_peek(fd) != NULL || via_fd_is_marked(fd, VIA_FD_IS_SET);
    struct via_ep_set *set = known ? via_ep_hold(fd) : NULL;
    if (set != NULL) {
        via_ep_nest(fd);
        give_program_data(set);
        via_file_put_of(&set->file, false, thread);
    }
}
