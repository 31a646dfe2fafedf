/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sets in sets. The kernel's outer set has the kernel's inner one, which refuses circles and tells
 * what only the kernel knows; what pipes bring is found out here, at any depth. A thread that waits
 * in the outer set watches the bells of all sets inside.
 *
 * An outer set that wants edges gets one whenever something comes in the inner set, ready before or
 * not, as by ep_poll_callback() of Linux: so what comes is counted (`edges`).
 *
 * All of it with the lock of the links, and inner sets' own locks one after the other.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/bits.h"
#include "sockets/conn/demote.h"
#include "sockets/epoll/epoll_internal.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

#define NESTS_MAX 65536u
#define IN_EVENTS ((uint32_t)(EPOLLIN | EPOLLRDNORM))

struct via_ep_nest {
    struct via_list in_outer;
    struct via_list in_inner;
    struct via_ep_set *_Atomic outer; /* NULL: free */
    struct via_ep_set *inner;
    int fd; /* the inner set's number by which it was put in */
    uint32_t events;
    uint64_t data;
    uint64_t seen_edges; /* edge-triggered: those before have been reported */
    bool edge;           /* report what there is: the program has just asked for it */
    bool spent;          /* one-shot, and reported */
    _Atomic bool look;   /* the kernel has said something of it */
};

struct via_pool via_ep_nests = VIA_POOL_INIT(sizeof(struct via_ep_nest), NESTS_MAX);

static struct via_ep_nest *nest_at(struct via_list *it)
{
    return via_list_entry(it, struct via_ep_nest, in_outer);
}

static struct via_ep_set *outer_of(const struct via_ep_nest *nest)
{
    return atomic_load_explicit(&nest->outer, memory_order_relaxed);
}

/* --- what comes --------------------------------------------------------------------------------
 */

static bool entry_is_ready(struct via_ep_entry *entry)
{
    if (via_ep_is_quiet(entry)) {
        return false;
    }
    if (via_unlikely(via_side_is_in(entry->conn->side, VIA_PHASES_GONE))) {
        via_ep_refresh(entry); /* the kernel's from now on, which tells edges, too */
        return false;
    }
    struct via_op op = via_ep_op(entry);
    struct via_ep_before before = via_ep_before(entry);
    uint32_t sequence = via_edge_next_record(&op.side->rx.pipe, entry->come.sequence);
    uint32_t bits = via_io_ready(&op, entry->events);
    struct via_edge_now now = via_ep_now(entry, bits, &before);
    entry->set->edges += via_edge_has_come(&entry->come, &now, sequence) ? 1 : 0;
    return (entry->events & EPOLLET) != 0 ? via_ep_is_news(entry, &now) : bits != 0;
}

bool via_ep_own_is_ready(struct via_ep_set *set, bool all)
{
    bool ready = false;
    via_lock(&set->lock);
    bool nested = atomic_load_explicit(&set->nested, memory_order_relaxed);
    via_ep_check_cold(set);
    via_ep_check_warm(set, all ? VIA_EP_ALL : 1);
    via_list_foreach_safe(it, &set->entries[VIA_EP_HOT]) {
        ready |= entry_is_ready(via_list_entry(it, struct via_ep_entry, in_set));
        if (ready && !nested) {
            break; /* else all edges are to be counted */
        }
    }
    via_unlock(&set->lock);
    return ready;
}

void via_ep_nest_entry(struct via_ep_set *set, struct via_ep_entry *entry)
{
    if (entry != NULL && entry->piped && atomic_load_explicit(&set->nested, memory_order_relaxed)) {
        struct via_op op = via_ep_op(entry);
        set->edges += via_io_ready(&op, entry->events) != 0 ? 1 : 0;
    }
}

/* --- looking inside ----------------------------------------------------------------------------
 */

/* Is anything ready in the set, by pipe? *edges: counts all that has come. */
static bool is_ready_inside(struct via_ep_set *set, bool all, uint64_t *edges)
{
    bool ready = via_ep_own_is_ready(set, all);
    *edges += set->edges;
    via_list_foreach(it, &set->inner) {
        struct via_ep_nest *nest = nest_at(it);
        uint64_t deeper = 0;
        bool inner = is_ready_inside(nest->inner, all, &deeper);
        *edges += deeper;
        ready |= inner && !nest->spent && (nest->events & IN_EVENTS) != 0 &&
                 ((nest->events & EPOLLET) == 0 || nest->edge || deeper != nest->seen_edges);
    }
    return ready;
}

static void unwatch_inside(struct via_ep_set *set)
{
    via_ep_unwatch_bells(set);
    via_list_foreach(it, &set->inner) {
        unwatch_inside(nest_at(it)->inner);
    }
}

static void take_in_inside(struct via_ep_set *set)
{
    via_ep_take_in_ends_locked(set);
    via_list_foreach(it, &set->inner) {
        take_in_inside(nest_at(it)->inner);
    }
}

/* The kernel has said that there is something in the inner set: for the program to see? */
static bool is_ready_for_kernel(const struct via_ep_nest *nest)
{
    struct pollfd pfd = {.fd = nest->fd, .events = POLLIN};
    unwatch_inside(nest->inner);
    if (VIA_REAL(poll)(&pfd, 1, 0) <= 0) {
        return false;
    }
    take_in_inside(nest->inner);
    return VIA_REAL(poll)(&pfd, 1, 0) > 0;
}

void via_ep_nest_quiet(struct via_ep_set *set)
{
    if (atomic_load_explicit(&set->inner_count, memory_order_relaxed) != 0) {
        via_ep_lock_links();
        via_list_foreach(it, &set->inner) {
            unwatch_inside(nest_at(it)->inner);
            take_in_inside(nest_at(it)->inner);
        }
        via_ep_unlock_links();
    }
}

/* The events to report now, or 0. */
static uint32_t nest_events(struct via_ep_nest *nest, bool all)
{
    uint64_t edges = 0;
    if (nest->spent) {
        return 0;
    }
    bool ready = is_ready_inside(nest->inner, all, &edges);
    /* What has come may have become the kernel's meanwhile. */
    bool look = atomic_exchange_explicit(&nest->look, false, memory_order_acq_rel) ||
                (!ready && edges != nest->seen_edges);
    bool kernel = look && is_ready_for_kernel(nest);
    if (look && !kernel && !ready) {
        edges = 0; /* an end has been taken in, of which nobody had heard */
        ready = is_ready_inside(nest->inner, all, &edges);
    }
    ready |= kernel;
    bool level = (nest->events & EPOLLET) == 0;
    bool news = level || kernel || nest->edge || edges != nest->seen_edges;
    nest->seen_edges = edges;
    if (kernel && level) {
        nest->look = true; /* it is there until the program has taken it */
    }
    nest->edge &= !ready;
    return ready && news ? nest->events & IN_EVENTS : 0;
}

static void update_kernel(struct via_ep_nest *nest)
{
    struct epoll_event event = {.events = nest->spent ? (uint32_t)EPOLLET
                                                      : nest->events & ~(uint32_t)EPOLLONESHOT,
                                .data = {.u64 = (uint64_t)(uintptr_t)nest}};
    VIA_REAL(epoll_ctl)(outer_of(nest)->fd, EPOLL_CTL_MOD, nest->fd, &event);
}

int via_ep_nest_collect(struct via_ep_set *set, struct epoll_event *events, int max, bool all)
{
    int count = 0;
    struct via_list reported;
    if (via_likely(atomic_load_explicit(&set->inner_count, memory_order_relaxed) == 0)) {
        return 0;
    }
    via_list_init(&reported);
    via_ep_lock_links();
    via_list_foreach_safe(it, &set->inner) {
        struct via_ep_nest *nest = nest_at(it);
        uint32_t bits = count < max ? nest_events(nest, all) : 0;
        if (bits == 0) {
            continue;
        }
        events[count].events = bits;
        events[count++].data.u64 = nest->data;
        if ((nest->events & EPOLLONESHOT) != 0) {
            nest->spent = true;
            update_kernel(nest);
        }
        via_list_remove(&nest->in_outer);
        via_list_push_back(&reported, &nest->in_outer);
    }
    via_list_splice_back(&set->inner, &reported);
    via_ep_unlock_links();
    return count;
}

bool via_ep_nest_is_ready(struct via_ep_set *set)
{
    bool ready = false;
    if (atomic_load_explicit(&set->inner_count, memory_order_relaxed) != 0) {
        uint64_t edges = 0;
        via_ep_lock_links();
        ready = is_ready_inside(set, true, &edges);
        via_ep_unlock_links();
    }
    return ready;
}

static bool has_news_inside(struct via_ep_set *set)
{
    via_list_foreach(it, &set->inner) {
        struct via_ep_set *inner = nest_at(it)->inner;
        if (via_ep_own_has_news(inner) || has_news_inside(inner)) {
            return true;
        }
    }
    return false;
}

bool via_ep_nest_has_news(struct via_ep_set *set)
{
    if (via_likely(atomic_load_explicit(&set->inner_count, memory_order_relaxed) == 0) ||
        !via_ep_try_lock_links()) {
        return false;
    }
    bool news = has_news_inside(set);
    via_ep_unlock_links();
    return news;
}

static bool has_pipes_inside(struct via_ep_set *set)
{
    via_list_foreach(it, &set->inner) {
        struct via_ep_set *inner = nest_at(it)->inner;
        if (inner->piped_count != 0 || has_pipes_inside(inner)) {
            return true;
        }
    }
    return false;
}

bool via_ep_nest_has_pipes(struct via_ep_set *set)
{
    if (via_likely(atomic_load_explicit(&set->inner_count, memory_order_relaxed) == 0)) {
        return false;
    }
    via_ep_lock_links();
    bool pipes = has_pipes_inside(set);
    via_ep_unlock_links();
    return pipes;
}

static void arm_inside(struct via_ep_set *set, int *fds, unsigned *count, unsigned max)
{
    via_list_foreach(it, &set->inner) {
        struct via_ep_set *inner = nest_at(it)->inner;
        via_ep_own_arm(inner, fds, count, max);
        arm_inside(inner, fds, count, max);
    }
}

void via_ep_nest_arm(struct via_ep_set *set, int *fds, unsigned *count, unsigned max)
{
    if (via_unlikely(atomic_load_explicit(&set->inner_count, memory_order_relaxed) != 0)) {
        via_ep_lock_links();
        arm_inside(set, fds, count, max);
        via_ep_unlock_links();
    }
}

void via_ep_nest_mark_due(struct via_ep_set *set, uint64_t data)
{
    struct via_ep_nest *nest = (void *)(uintptr_t)data;
    if (outer_of(nest) == set) {
        atomic_store_explicit(&nest->look, true, memory_order_release);
    }
}

/* --- registrations -----------------------------------------------------------------------------
 */

void via_ep_wake_outer(struct via_ep_set *set)
{
    via_list_foreach(it, &set->outer) {
        struct via_ep_nest *nest = via_list_entry(it, struct via_ep_nest, in_inner);
        via_ep_wake_sleepers(outer_of(nest), set->bells);
        via_ep_wake_outer(outer_of(nest));
    }
}

static struct via_ep_nest *find(struct via_ep_set *outer, const struct via_ep_set *inner, int fd)
{
    via_list_foreach(it, &outer->inner) {
        if (nest_at(it)->inner == inner && nest_at(it)->fd == fd) {
            return nest_at(it);
        }
    }
    return NULL;
}

/* Checked by threads that wait outside, which check no cold ones. */
static void make_nested(struct via_ep_set *inner)
{
    via_lock(&inner->lock);
    inner->nested = true;
    via_ep_all_hot(inner);
    via_unlock(&inner->lock);
}

/* op: EPOLL_CTL_MOD when the kernel has it in the outer set already. */
static int nest_add(struct via_ep_set *outer, int op, struct via_ep_set *inner, int fd,
                    const struct epoll_event *event, bool spent)
{
    struct via_ep_nest *nest = via_pool_get(&via_ep_nests);
    if (nest == NULL) {
        return -ENOMEM;
    }
    struct epoll_event kernels = {.events = spent ? (uint32_t)EPOLLET
                                                  : event->events & ~(uint32_t)EPOLLONESHOT,
                                  .data = {.u64 = (uint64_t)(uintptr_t)nest}};
    nest->inner = inner;
    nest->fd = fd;
    nest->events = event->events;
    nest->data = event->data.u64;
    nest->seen_edges = 0;
    nest->edge = true;
    nest->spent = spent;
    nest->look = false;
    /* Before the kernel has it: its first event may come at once. */
    atomic_store_explicit(&nest->outer, outer, memory_order_release);
    outer->entries_count++;
    if (VIA_REAL(epoll_ctl)(outer->fd, op, fd, &kernels) != 0) {
        int error = errno;
        outer->entries_count--;
        nest->outer = NULL;
        via_pool_put(&via_ep_nests, nest);
        return -error;
    }
    via_list_push_back(&outer->inner, &nest->in_outer);
    via_list_push_back(&inner->outer, &nest->in_inner);
    outer->inner_count++;
    make_nested(inner);
    via_ep_wake_outer(inner);
    return 0;
}

static void nest_free(struct via_ep_nest *nest)
{
    struct via_ep_set *outer = outer_of(nest);
    outer->inner_count--;
    outer->entries_count--;
    via_list_remove(&nest->in_outer);
    via_list_remove(&nest->in_inner);
    nest->outer = NULL;
    via_pool_put(&via_ep_nests, nest);
}

static int nest_change(struct via_ep_nest *nest, const struct epoll_event *event)
{
    if (event == NULL) {
        return -EFAULT;
    }
    if ((event->events & EPOLLEXCLUSIVE) != 0) {
        return -EINVAL;
    }
    nest->events = event->events;
    nest->data = event->data.u64;
    nest->spent = false;
    nest->edge = true;
    update_kernel(nest);
    via_ep_wake_outer(nest->inner);
    return 0;
}

void via_ep_nest_closed(struct via_ep_set *set)
{
    via_list_foreach_safe(it, &set->inner) {
        nest_free(nest_at(it));
    }
    via_list_foreach_safe(it, &set->outer) {
        nest_free(via_list_entry(it, struct via_ep_nest, in_inner));
    }
}

struct adopted {
    struct via_ep_set *inner;
    int fd;
};

static int adopt_outer(int epfd, const struct epoll_event *event, void *context);

/* With the lock of the links. */
static int adopt(int epfd)
{
    struct adopted adopted = {.inner = via_ep_set_get(epfd), .fd = epfd};
    /* A ring that polls it is the kernel's affair. */
    int rc = adopted.inner == NULL || via_fd_is_marked(epfd, VIA_FD_IN_RING) ? -EBADF : 0;
    if (rc == 0 && via_fd_is_marked(epfd, VIA_FD_IN_EPOLL)) {
        rc = via_ep_noted(epfd, adopt_outer, &adopted);
    }
    if (adopted.inner != NULL) {
        via_file_put(&adopted.inner->file, false);
    }
    return rc;
}

static int adopt_outer(int epfd, const struct epoll_event *event, void *context)
{
    const struct adopted *adopted = context;
    bool spent = false;
    int rc = adopt(epfd); /* that one may be in others, too */
    if (rc != 0) {
        return rc;
    }
    struct via_ep_set *outer = via_ep_set_get(epfd);
    if (outer == NULL) {
        return -EBADF;
    }
    if ((event->events & EPOLLONESHOT) != 0) {
        rc = via_ep_is_waited_in(outer) ? -EBUSY : via_ep_kernel_armed(outer->fd, adopted->fd);
        spent = rc == 0;
    }
    if (rc >= 0 && find(outer, adopted->inner, adopted->fd) == NULL) {
        rc = nest_add(outer, EPOLL_CTL_MOD, adopted->inner, adopted->fd, event, spent);
    }
    via_file_put(&outer->file, false);
    return via_min(rc, 0);
}

bool via_ep_nest_adopt(int epfd)
{
    if (via_likely(!via_fd_is_marked(epfd, VIA_FD_IN_EPOLL))) {
        return true;
    }
    via_ep_lock_links();
    int rc = adopt(epfd);
    via_ep_unlock_links();
    return rc == 0;
}

/* --- what can not be nested --------------------------------------------------------------------
 */

struct numbers {
    int *fds;
    size_t count;
    size_t max;
};

static void list_inside(struct via_ep_set *set, struct numbers *numbers)
{
    via_lock(&set->lock);
    for (unsigned place = 0; place < VIA_EP_PARKED; place++) {
        via_list_foreach(it, &set->entries[place]) {
            if (numbers->count < numbers->max) {
                numbers->fds[numbers->count] =
                    via_ep_number(via_list_entry(it, struct via_ep_entry, in_set));
            }
            numbers->count++;
        }
    }
    via_unlock(&set->lock);
    via_list_foreach(it, &set->inner) {
        list_inside(nest_at(it)->inner, numbers);
    }
}

/* All connections in it and in the sets in it go back to the kernel. */
static void demote_inside(struct via_ep_set *set)
{
    struct numbers numbers = {.count = 0};
    via_ep_lock_links();
    list_inside(set, &numbers);
    numbers = (struct numbers){.fds = malloc(numbers.count * sizeof(int)), .max = numbers.count};
    if (numbers.fds != NULL) {
        list_inside(set, &numbers);
    }
    via_ep_unlock_links();
    for (size_t i = 0; i < via_min(numbers.count, numbers.max); i++) {
        via_fd_demote(numbers.fds[i], VIA_REASON_NESTED);
    }
    free(numbers.fds);
}

int via_ep_nest_ctl(int epfd, int op, struct via_ep_set *inner, int fd,
                    const struct epoll_event *event)
{
    int rc = -EAGAIN;
    if ((op == EPOLL_CTL_ADD && event == NULL) || via_fd_is_hidden(epfd)) {
        return rc; /* the kernel says what is wrong */
    }
    via_ep_lock_links();
    struct via_ep_set *outer = via_ep_set_get(epfd);
    struct via_ep_nest *nest = outer != NULL ? find(outer, inner, fd) : NULL;
    bool known = op != EPOLL_CTL_ADD || adopt(epfd) == 0;
    if (!known) {
        /* Nobody would hear of what comes by pipe: the kernel is asked, and has it all. */
    } else if (outer != NULL && op == EPOLL_CTL_ADD && nest == NULL) {
        rc = nest_add(outer, op, inner, fd, event, false);
    } else if (nest != NULL && op == EPOLL_CTL_MOD) {
        rc = nest_change(nest, event);
    } else if (nest != NULL && op == EPOLL_CTL_DEL) {
        rc = VIA_REAL(epoll_ctl)(epfd, op, fd, NULL) == 0 ? 0 : -errno;
        nest_free(nest);
    }
    via_ep_unlock_links();
    if (outer != NULL) {
        via_file_put(&outer->file, false);
    }
    if (!known) {
        demote_inside(inner);
    }
    return rc;
}
