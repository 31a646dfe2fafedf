/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Which connection is in which epoll set, and the registrations in the kernel. */
#include "sockets/epoll/epoll_set.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "host/client_sys.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_internal.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/lock.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

#define SETS_MAX 65536u

struct via_pool via_ep_entries = VIA_POOL_INIT(sizeof(struct via_ep_entry), 1u << 18);
const char via_ep_bell_mark;
const char via_ep_cold_mark;
const char via_ep_calls_mark;

static struct via_pool set_pool = VIA_POOL_INIT(sizeof(struct via_ep_set), SETS_MAX);
struct via_mutex via_ep_links = VIA_MUTEX_INIT(VIA_RANK_LINKS);
static struct via_list all = {&all, &all};

/* --- sets ------------------------------------------------------------------------------------ */

static void set_free(struct via_file *file)
{
    struct via_ep_set *set = via_container_of(file, struct via_ep_set, file);
    via_pool_put(&set_pool, set);
}

struct via_ep_set *via_ep_set_get(int epfd, bool alone)
{
    struct via_file *file = via_file_get(epfd, alone);
    if (file != NULL) {
        if (file->kind == VIA_FILE_EPOLL) {
            return via_container_of(file, struct via_ep_set, file);
        }
        via_file_put(file, alone);
        return NULL;
    }
    struct via_ep_set *set = via_pool_get(&set_pool);
    if (set == NULL) {
        return NULL;
    }
    /* Keeps `file`, which a thread with a stale pointer may still load: via_file_get(). */
    memset((unsigned char *)set + sizeof(set->file), 0, sizeof(*set) - sizeof(set->file));
    set->file.kind = VIA_FILE_EPOLL;
    set->file.free = set_free;
    set->fd = epfd;
    set->fds = 1;
    set->number = (uint64_t)via_os_pid() + via_pool_index(&set_pool, set) + 1;
    set->lock = (struct via_mutex)VIA_MUTEX_INIT(VIA_RANK_SET);
    for (unsigned place = 0; place < VIA_EP_PLACES; place++) {
        via_list_init(&set->entries[place]);
    }
    /* The program has already put it into other sets; or the library has not seen its creation:
     * then threads may already wait in the kernel's set, without this object. */
    set->nested =
        via_fd_is_marked(epfd, VIA_FD_SEEN_BY_KERNEL) || !via_fd_is_marked(epfd, VIA_FD_IS_SET);
    via_list_push_back(&all, &set->all);
    /* One reference of the table, one of the caller. */
    atomic_store_explicit(&set->file.users, alone ? 1 : 2, memory_order_release);
    if (!via_fd_set(epfd, &set->file)) {
        via_list_remove(&set->all);
        via_file_put(&set->file, alone);
        via_file_put_slowly(&set->file);
        return NULL;
    }
    return set;
}

struct via_ep_set *via_ep_hold(int epfd)
{
    via_lock(&via_ep_links);
    struct via_ep_set *set = via_ep_set_get(epfd, false);
    via_unlock(&via_ep_links);
    return set;
}

/* op: EPOLL_CTL_ADD or EPOLL_CTL_DEL. */
static void control_bell(const struct via_ep_set *set, int op, int fd, const char *mark)
{
    struct epoll_event event = {.events = VIA_BELL_EVENTS,
                                .data = {.ptr = (void *)(uintptr_t)mark}};
    if (fd >= 0) {
        VIA_REAL(epoll_ctl)(set->fd, op, fd, &event);
    }
}

void via_ep_watch_bells(struct via_ep_set *set)
{
    uint64_t bells = set->bells;
    if (via_unlikely(set->nested)) {
        return; /* a ring would make this set readable in the outer set */
    }
    for (uint64_t new = bells & ~set->watched; new != 0; new &= new - 1) {
        unsigned index = (unsigned)__builtin_ctzll(new);
        control_bell(set, EPOLL_CTL_ADD, via_sock_bell_fd(index), &via_ep_bell_mark);
        control_bell(set, EPOLL_CTL_ADD, via_sock_bell_cold_fd(index), &via_ep_cold_mark);
    }
    set->watched = bells;
    if (!set->watches_calls && bells != 0 && via_steward_is_wanted()) {
        control_bell(set, EPOLL_CTL_ADD, via_sock_bell_calls(), &via_ep_calls_mark);
        set->watches_calls = true;
    }
}

/* Adds bells to those of the set, and counts its sleepers for them. With the set's lock. */
static void add_bells(struct via_ep_set *set, uint64_t bells)
{
    uint32_t sleepers = atomic_load_explicit(&set->sleepers, memory_order_relaxed);
    if (sleepers != 0) {
        via_sock_bell_add_sleepers(bells & ~set->bells, sleepers);
    }
    set->bells |= bells;
    if (sleepers != 0) {
        via_ep_watch_bells(set);
    }
}

/* With the set's lock. Removes the bells from the kernel's set, which other processes or outer sets
 * may poll: to them a ring would look like an event of the program's. */
static void remove_bells(struct via_ep_set *set)
{
    for (uint64_t left = set->watched; left != 0; left &= left - 1) {
        unsigned index = (unsigned)__builtin_ctzll(left);
        control_bell(set, EPOLL_CTL_DEL, via_sock_bell_fd(index), NULL);
        control_bell(set, EPOLL_CTL_DEL, via_sock_bell_cold_fd(index), NULL);
    }
    set->watched = 0;
    if (set->watches_calls) {
        control_bell(set, EPOLL_CTL_DEL, via_sock_bell_calls(), NULL);
        set->watches_calls = false;
        set->call_due = true;
    }
}

bool via_ep_has_sleepers(struct via_ep_set *set)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&set->sleepers, memory_order_seq_cst) != 0 ||
           (via_unlikely(set->forked) && via_sock_bell_has_sleepers(set->bells));
}

void via_ep_unwatch_bells(struct via_ep_set *set)
{
    via_lock(&set->lock);
    if (atomic_load_explicit(&set->sleepers, memory_order_seq_cst) == 0) {
        remove_bells(set);
        /* Store watched, load sleepers; a thread that goes to sleep stores sleepers, loads watched:
         * at least one of the two threads registers the bells again. */
        if (atomic_load_explicit(&set->sleepers, memory_order_seq_cst) != 0) {
            via_ep_watch_bells(set);
        }
    }
    via_unlock(&set->lock);
}

/* With the set's lock: wakes threads that sleep in the set, because the state of a connection with
 * pipes has changed. */
static void wake_sleepers(struct via_ep_set *set)
{
    uint64_t bells = set->bells;
    if (bells != 0 && via_ep_has_sleepers(set)) {
        via_sock_bell_ring((unsigned)__builtin_ctzll(bells));
    }
}

void via_ep_wake(struct via_ep_set *set)
{
    via_lock(&set->lock);
    wake_sleepers(set);
    via_unlock(&set->lock);
}

/* --- entries --------------------------------------------------------------------------------- */

struct via_op via_ep_op(const struct via_ep_entry *entry)
{
    return via_conn_op(entry->conn, via_ep_fd(entry));
}

/* The events for which the kernel should watch the entry's descriptor. */
static uint32_t kernel_events(const struct via_ep_entry *entry)
{
    if (!via_conn_has_pipes(entry->conn) || via_unlikely(entry->set->nested)) {
        /* An exclusive registration can not be changed later. */
        return entry->spent ? (uint32_t)EPOLLET : entry->events & ~(uint32_t)EPOLLEXCLUSIVE;
    }
    struct via_op op = via_ep_op(entry);
    uint32_t events = entry->spent ? 0 : via_io_kernel_events(&op, entry->events);
    /* When bytes arrive, the kernel reports an edge with all events that are ready then, EPOLLOUT
     * among them. */
    if ((entry->events & EPOLLET) != 0 && (events & VIA_EDGE_IN) != 0) {
        events |= entry->events & VIA_EDGE_OUT;
    }
    /* Edge-triggered is enough for hangups, which the side records (shadow). Bytes in the kernel
     * are watched level-triggered unless the program registered for edges. */
    bool level = !entry->spent && (entry->events & EPOLLET) == 0 &&
                 (events & (EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM)) != 0;
    return events | (level ? 0 : (uint32_t)EPOLLET);
}

int via_ep_update_kernel(struct via_ep_entry *entry, int op)
{
    /* The kernel still reports EPOLLHUP and EPOLLERR for a one-shot registration that was reported
     * and has no pipes. With the data of a bell, via_ep_sort_out() drops these reports, even if it
     * sees them after the program has armed the entry again. */
    bool is_spent = entry->spent && !via_conn_has_pipes(entry->conn);
    uint64_t own = is_spent ? (uint64_t)(uintptr_t)&via_ep_bell_mark
                            : (uint64_t)(uintptr_t)entry | (uint64_t)entry->arms << 48;
    struct epoll_event event = {.events = entry->kernel_events,
                                .data = {.u64 = entry->set->passed ? entry->data : own}};
    return VIA_REAL(epoll_ctl)(entry->set->fd, op, entry->fd, &event) == 0 ? 0 : -errno;
}

void via_ep_refresh(struct via_ep_entry *entry)
{
    bool piped = via_conn_has_pipes(entry->conn);
    bool left = entry->piped && !piped;
    via_ep_make_hot(entry);
    if (piped != entry->piped) {
        entry->piped = piped;
        entry->set->piped_count += piped ? 1 : UINT32_MAX;
        via_ep_move(entry, piped ? VIA_EP_HOT : VIA_EP_PLAIN);
        entry->reported.recheck = true; /* an event may have come meanwhile */
        entry->reported.sequence = via_ep_sequence(entry);
        if (piped && via_conn_is_local(entry->conn)) {
            via_side_request_times(entry->conn->side, entry->set->number);
        }
        add_bells(entry->set, via_conn_bells(entry->conn));
        wake_sleepers(entry->set);
    }
    uint32_t events = kernel_events(entry);
    /* If the kernel has reported an event while the connection had pipes, via_ep_sort_out() has
     * dropped it: EPOLL_CTL_MOD makes the kernel report again what is ready. */
    if (events != entry->kernel_events || left) {
        entry->kernel_events = events;
        via_ep_update_kernel(entry, EPOLL_CTL_MOD);
        atomic_store_explicit(&entry->set->poll_due, true, memory_order_relaxed);
    }
}

static struct via_ep_entry *find(struct via_ep_set *set, const struct via_conn *conn, int fd)
{
    via_list_foreach(it, &conn->entries) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_conn);
        if (entry->set == set && entry->fd == fd) {
            return entry;
        }
    }
    return NULL;
}

/* [with both locks] */
static void entry_free(struct via_ep_entry *entry)
{
    struct via_ep_set *set = entry->set;
    if (entry->piped) {
        set->piped_count--;
    }
    set->entries_count -= entry->place == VIA_EP_PARKED ? 0 : 1;
    via_ep_move(entry, VIA_EP_PLAIN); /* takes it out of warm_count */
    via_list_remove(&entry->in_set);
    via_list_remove(&entry->in_conn);
    entry->set = NULL;
    via_pool_put(&via_ep_entries, entry);
}

/*
 * Programs that register for writing, then for reading, then for writing, spend most of their time
 * in epoll_ctl(). For a connection with pipes the kernel watches the same event, the peer's hangup,
 * whatever the program registers for. So when the program removes such a connection
 * (EPOLL_CTL_DEL), the kernel keeps its registration and the entry is parked; adding the connection
 * again costs no system call. Only for a connection with one descriptor, in one process: then
 * close() ends the kernel's registration, too. And not in a set that is polled by another process
 * or through an outer set.
 */
#define PARKED_EVENTS ((uint32_t)(EPOLLRDHUP | EPOLLET))

/* [with both locks] */
static bool is_park_allowed(const struct via_ep_entry *entry)
{
    const struct via_conn *conn = entry->conn;
    return entry->piped && entry->kernel_events == PARKED_EVENTS && !entry->set->nested &&
           !conn->side->ever_forked && (entry->events & EPOLLEXCLUSIVE) == 0 &&
           atomic_load_explicit(&conn->fds, memory_order_relaxed) == 1;
}

static void park(struct via_ep_entry *entry)
{
    struct via_ep_set *set = entry->set;
    entry->idle_polls = 0;
    entry->piped = false;
    set->piped_count--;
    set->entries_count--;
    via_ep_move(entry, VIA_EP_PARKED);
}

/* With both locks: removes a parked entry from the kernel's set, too. */
static void unpark(struct via_ep_entry *entry)
{
    via_ep_update_kernel(entry, EPOLL_CTL_DEL);
    entry_free(entry);
}

void via_ep_unpark_members(struct via_ep_set *set)
{
    via_list_foreach_safe(it, &set->entries[VIA_EP_PARKED]) {
        unpark(via_list_entry(it, struct via_ep_entry, in_set));
    }
}

/* Makes the connection's entries hot before it gets a second one: the ring for a cold connection
 * wakes threads of one set only. With the lock of the links, and the lock of `set`. */
static void make_others_hot(struct via_conn *conn, struct via_ep_set *set)
{
    via_list_foreach(it, &conn->entries) {
        struct via_ep_entry *other = via_list_entry(it, struct via_ep_entry, in_conn);
        if (other->set == set) {
            via_ep_make_hot(other);
        } else {
            via_lock(&other->set->lock);
            via_ep_make_hot(other);
            via_unlock(&other->set->lock);
        }
    }
}

/* op: EPOLL_CTL_MOD if the connection is in the kernel's set already. */
static int entry_add(struct via_ep_set *set, int op, struct via_conn *conn, int fd,
                     const struct epoll_event *event)
{
    struct via_ep_entry *entry = via_pool_get(&via_ep_entries);
    if (entry == NULL) {
        return -ENOMEM;
    }
    uint16_t arms = (uint16_t)(entry->arms + 1); /* the pool leaves it: via_ep_is_own_event() */
    *entry = (struct via_ep_entry){.set = set,
                                   .conn = conn,
                                   .fd = fd,
                                   .events = event->events,
                                   .data = event->data.u64,
                                   .arms = arms,
                                   .first_arms = arms};
    entry->place = VIA_EP_PLAIN; /* until via_ep_refresh() */
    entry->reported.due = true;
    entry->kernel_events = kernel_events(entry);
    /* Counts the entry before the kernel has the registration. A thread that sleeps in the set,
     * which has held no connection so far, may wake at once, and must then know that the event has
     * an entry as data. It waits for the set's lock, so it finds the entry complete. */
    set->entries_count++;
    atomic_store_explicit(&set->added_ticks, via_os_ticks(), memory_order_relaxed);
    int rc = via_ep_update_kernel(entry, op);
    if (rc != 0) {
        set->entries_count--;
        entry->set = NULL;
        via_pool_put(&via_ep_entries, entry);
        return rc;
    }
    via_list_push_back(&set->entries[VIA_EP_PLAIN], &entry->in_set);
    via_list_push_back(&conn->entries, &entry->in_conn);
    make_others_hot(conn, set);
    if (via_conn_has_pipes(conn) || via_conn_is_undecided(conn)) {
        add_bells(set, via_conn_bells(conn));
    }
    via_ep_refresh(entry);
    return 0;
}

/* The program adds a parked entry again. */
static void entry_revive(struct via_ep_entry *entry, const struct epoll_event *event)
{
    struct via_ep_set *set = entry->set;
    entry->events = event->events;
    entry->data = event->data.u64;
    entry->spent = false;
    entry->reported.due = true;
    entry->reported.ends = 0;
    set->entries_count++;
    via_ep_move(entry, VIA_EP_PLAIN); /* until via_ep_refresh() */
    make_others_hot(entry->conn, set);
    via_ep_refresh(entry);
}

static void entry_change(struct via_ep_entry *entry, const struct epoll_event *event)
{
    uint32_t before = entry->kernel_events;
    via_ep_make_hot(entry);
    entry->events = event->events;
    entry->data = event->data.u64;
    entry->spent = false;
    entry->arms++;
    if (via_unlikely(entry->arms == entry->first_arms)) {
        entry->first_arms++; /* `arms` has wrapped: from now on any count may be of this entry */
    }
    entry->reported.due = true;
    entry->reported.ends = 0;
    entry->kernel_events = kernel_events(entry);
    /* EPOLL_CTL_MOD makes the kernel report again what is ready. Not needed for hangups, which the
     * side records (shadow). */
    if (!entry->piped || entry->kernel_events != before || before != PARKED_EVENTS) {
        via_ep_update_kernel(entry, EPOLL_CTL_MOD);
    }
    if (entry->piped) {
        wake_sleepers(entry->set);
    }
}

/* MOD or DEL of a connection that has no entry. The kernel may have a registration nevertheless: a
 * registered descriptor was closed, and one of the same socket, which came from another process,
 * got its number. */
static int change_unknown(struct via_ep_set *set, int op, struct via_conn *conn, int fd,
                          const struct epoll_event *event)
{
    if (op == EPOLL_CTL_DEL) {
        return VIA_REAL(epoll_ctl)(set->fd, op, fd, NULL) == 0 ? 0 : -errno;
    }
    return event == NULL ? -EFAULT : entry_add(set, op, conn, fd, event);
}

int via_ep_ctl(int epfd, int op, struct via_conn *conn, int fd, const struct epoll_event *event)
{
    int rc = 0;
    const struct via_file *file = via_fd_peek(epfd);
    if (file != NULL && file->kind == VIA_FILE_CONN) {
        return -EINVAL;
    }
    bool alone = via_is_alone();
    via_lock(&via_ep_links);
    struct via_ep_set *set = via_ep_set_get(epfd, alone);
    if (set == NULL) {
        via_unlock(&via_ep_links);
        bool closed = via_fd_peek(epfd) != NULL || VIA_REAL(fcntl)(epfd, F_GETFD) < 0;
        return closed ? -EBADF : -ENOMEM;
    }
    via_lock(&set->lock);
    struct via_ep_entry *entry = find(set, conn, fd);
    bool parked = entry != NULL && entry->place == VIA_EP_PARKED;
    if (parked && op == EPOLL_CTL_ADD && event != NULL) {
        entry_revive(entry, event);
    } else if (parked) {
        rc = op == EPOLL_CTL_ADD ? -EFAULT : -ENOENT;
    } else if (op == EPOLL_CTL_ADD) {
        rc = entry != NULL   ? -EEXIST
             : event == NULL ? -EFAULT
                             : entry_add(set, EPOLL_CTL_ADD, conn, fd, event);
    } else if (entry == NULL) {
        rc = change_unknown(set, op, conn, fd, event);
    } else if (op == EPOLL_CTL_MOD) {
        rc = event == NULL ? -EFAULT : (entry->events & EPOLLEXCLUSIVE) != 0 ? -EINVAL : 0;
        if (rc == 0) {
            entry_change(entry, event);
        }
    } else if (is_park_allowed(entry)) {
        park(entry);
    } else {
        rc = via_ep_update_kernel(entry, EPOLL_CTL_DEL);
        entry_free(entry);
    }
    via_unlock(&set->lock);
    /* Before via_unlock() runs a signal handler that was deferred, and that may fork. */
    via_file_put(&set->file, alone);
    via_unlock(&via_ep_links);
    return rc;
}

/* Makes an entry for a descriptor that the program added to the set epfd before it was a
 * connection. */
int via_ep_add_connected(int epfd, struct via_conn *conn, int fd, const struct epoll_event *event)
{
    int rc = -EBADF;
    via_lock(&via_ep_links);
    struct via_ep_set *set = via_ep_set_get(epfd, false);
    if (set != NULL && !via_ep_is_nested(epfd)) {
        via_lock(&set->lock);
        rc = entry_add(set, EPOLL_CTL_MOD, conn, fd, event);
        via_unlock(&set->lock);
    }
    if (set != NULL) {
        via_file_put(&set->file, false);
    }
    via_unlock(&via_ep_links);
    return rc;
}

/* --- events of connections and sets ---------------------------------------------------------- */

/* Removes parked entries from the kernel's sets. refreshing: updates the other entries. */
static void unpark_all(struct via_conn *conn, bool refreshing)
{
    via_list_foreach_safe(it, &conn->entries) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_conn);
        struct via_ep_set *set = entry->set;
        via_lock(&set->lock);
        if (entry->place == VIA_EP_PARKED) {
            unpark(entry);
        } else if (refreshing) {
            via_ep_refresh(entry);
        }
        via_unlock(&set->lock);
    }
}

void via_ep_conn_changed(struct via_conn *conn)
{
    VIA_KEEP_ERRNO;
    via_lock(&via_ep_links);
    atomic_store_explicit(&conn->spans, via_conn_spans(conn), memory_order_relaxed);
    unpark_all(conn, true);
    via_unlock(&via_ep_links);
}

void via_ep_conn_woken(struct via_conn *conn)
{
    if (via_list_is_empty(&conn->entries)) {
        return;
    }
    via_lock(&via_ep_links);
    via_list_foreach(it, &conn->entries) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_conn);
        via_lock(&entry->set->lock);
        /* While the connection has no pipes the kernel reports it. If the connection gets pipes
         * before the kernel is polled, the library has to report it. */
        entry->reported.due = true;
        if (entry->piped) {
            via_ep_make_hot(entry);
            wake_sleepers(entry->set);
        }
        via_unlock(&entry->set->lock);
    }
    via_unlock(&via_ep_links);
}

void via_ep_unpark(struct via_conn *conn)
{
    via_lock(&via_ep_links);
    unpark_all(conn, false);
    via_unlock(&via_ep_links);
}

void via_ep_remove(struct via_ep_entry *entry, enum via_ep_fate fate)
{
    struct via_ep_set *set = entry->set;
    via_lock(&set->lock);
    if (fate == VIA_EP_IS_HANDED_BACK) {
        via_ep_hand_back(entry);
    } else if (fate == VIA_EP_IS_REMOVED) {
        via_ep_update_kernel(entry, EPOLL_CTL_DEL);
    }
    entry_free(entry);
    via_unlock(&set->lock);
}

void via_ep_conn_closing(struct via_conn *conn)
{
    if (via_list_is_empty(&conn->entries)) {
        return;
    }
    via_lock(&via_ep_links);
    /* The kernel drops a registration when the last descriptor of the socket is closed, in any
     * process (epoll(7)). Another process may hold one: then the registration lives on. So it does
     * while the steward keeps a descriptor, which the program does not know: then it is removed. */
    bool lives_on = conn->side->forked != 0 || conn->passed;
    enum via_ep_fate fate = lives_on     ? VIA_EP_IS_HANDED_BACK
                            : conn->kept ? VIA_EP_IS_REMOVED
                                         : VIA_EP_ENDS;
    via_list_foreach_safe(it, &conn->entries) {
        via_ep_remove(via_list_entry(it, struct via_ep_entry, in_conn), fate);
    }
    via_unlock(&via_ep_links);
}

void via_ep_closed(struct via_ep_set *set, int fd)
{
    if (atomic_fetch_sub_explicit(&set->fds, 1, memory_order_acq_rel) != 1) {
        via_ep_replace_fd(set, fd);
        return;
    }
    via_lock(&via_ep_links);
    for (unsigned place = 0; place < VIA_EP_PLACES; place++) {
        via_list_foreach_safe(it, &set->entries[place]) {
            via_ep_remove(via_list_entry(it, struct via_ep_entry, in_set), VIA_EP_ENDS);
        }
    }
    via_list_remove(&set->all);
    via_unlock(&via_ep_links);
    via_ep_wake(set); /* threads that wait there must not use the closed descriptor */
    via_file_put_slowly(&set->file);
}

/* The child must not inherit lists that another thread is changing, so the forking thread holds the
 * lock of each set. */
void via_ep_fork_prepare(void)
{
    via_lock(&via_ep_links);
    via_list_foreach(it, &all) {
        struct via_ep_set *set = via_list_entry(it, struct via_ep_set, all);
        via_lock(&set->lock);
        via_ep_unpark_members(set);
    }
}

void via_ep_fork_parent(void)
{
    /* A ring is for one process only, so no entry becomes cold any more: is_cold_allowed(). */
    via_list_foreach(it, &all) {
        struct via_ep_set *set = via_list_entry(it, struct via_ep_set, all);
        via_ep_all_hot(set);
        set->forked = true;
        via_unlock(&set->lock);
    }
    via_unlock(&via_ep_links);
}

static void mark_inherited(struct via_ep_set *set)
{
    for (unsigned place = 0; place < VIA_EP_PLACES; place++) {
        via_list_foreach(it, &set->entries[place]) {
            via_list_entry(it, struct via_ep_entry, in_set)->inherited = true;
        }
    }
}

void via_ep_fork_child(void)
{
    via_list_foreach(it, &all) {
        struct via_ep_set *set = via_list_entry(it, struct via_ep_set, all);
        via_lock_reset(&set->lock);
        set->sleepers = 0;
        set->forked = true;
        set->watches_calls = false; /* the descriptor for calls was the parent's */
        via_ep_all_hot(set);
        mark_inherited(set);
        atomic_store_explicit(&set->file.users, 1, memory_order_relaxed);
    }
    via_unlock(&via_ep_links);
}
