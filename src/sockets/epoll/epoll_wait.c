/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_internal.h"
#include "sockets/fabric/fabric.h"
#include "sockets/io/io.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/stall.h"
#include "sockets/io/wait.h"
#include "sockets/process/cancel.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

/* Interval between polls of the kernel while connections with pipes have events. */
#define KERNEL_POLL_US 50u
/* Limit of polls of the kernel by one call while the library's own descriptors fill the program's
 * array. */
#define POLL_TRIES 8
/* WARM_US: interval between checks of all warm entries while others are hot; such a check takes
 * about half a microsecond. WARM_POLLS: a spinning thread checks one warm entry at each
 * WARM_POLLS-th check of the hot ones. */
#define WARM_US 20u
#define WARM_POLLS 4u
/* How long after its registration a connection may still get bytes through the kernel, before it
 * gets pipes. */
#define RECENT_US 10000u
/* Limit of connections without room for which one sleep watches stalls (stall.h). */
#define STALLS_MAX 16u

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI &&
                   EPOLLERR == POLLERR && EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP &&
                   EPOLLRDNORM == POLLRDNORM && EPOLLWRNORM == POLLWRNORM,
               "poll's bits and epoll's are the same");

/*
 * A quick check. While bytes still go through the kernel, the kernel's report (`recheck`) decides.
 */
bool via_ep_is_quiet(const struct via_ep_entry *entry)
{
    const struct via_side *side = entry->conn->side;
    const struct via_stream_rx *rx = &side->rx;
    if (!entry->piped || entry->spent) {
        return true;
    }
    if (entry->reported.due || entry->reported.recheck || via_side_is_in(side, VIA_PHASES_GONE) ||
        via_pipe_is_ready(&rx->pipe) || rx->held || rx->ended || rx->broken || rx->avail.held ||
        atomic_load_explicit(&side->shadow, memory_order_relaxed) != 0) {
        return false;
    }
    return (entry->events & (EPOLLOUT | EPOLLWRNORM)) == 0 ||
           (side->tx.span != VIA_SPAN_PIPE && !via_ep_is_missed(entry));
}

/* The last check of this thread could not determine the events of some entry, because another
 * thread held a token: check again soon. */
static __thread bool busy __attribute__((tls_model("initial-exec")));
#define BUSY_NS VIA_MSEC_NS

/* Called for an entry that was not quiet: its events to report now, or 0. With the set's lock. */
static uint32_t entry_events(struct via_ep_entry *entry)
{
    entry->idle_polls = 0;
    if (via_unlikely(via_side_is_in(entry->conn->side, VIA_PHASES_GONE))) {
        via_ep_refresh(entry); /* the kernel reports them from now on */
        return 0;
    }
    struct via_op op = via_ep_op(entry);
    struct via_edge_now now = via_ep_begin_edge(entry);
    uint32_t bits = via_io_ready(&op, entry->events);
    if (via_unlikely(op.busy)) {
        busy = true;
        return 0;
    }
    if (via_unlikely(entry->conn->spans != via_conn_spans(entry->conn))) {
        via_ep_refresh(entry);
        if (!entry->piped) {
            /* The kernel will report the entry and is polled for that; reporting here, too, would
             * report it twice. */
            atomic_store_explicit(&entry->set->poll_due, true, memory_order_relaxed);
            return 0;
        }
    }
    if ((entry->events & EPOLLET) == 0) {
        entry->reported.due = false;
        entry->reported.recheck = false;
        return bits;
    }
    via_ep_end_edge(entry, &now, bits);
    bool news = via_edge_is_news(&entry->reported, &now);
    if (news || bits == 0) {
        via_edge_report(&entry->reported, &now);
    }
    entry->reported.recheck = false;
    return news ? bits : 0;
}

/* Reports the present events of one entry, if any. With the set's lock. */
static bool report(struct via_ep_entry *entry, struct epoll_event *event, uint64_t now,
                   struct via_list *reported)
{
    uint32_t bits = entry_events(entry);
    if (bits == 0) {
        return false;
    }
    entry->reported_ticks = now;
    event->events = bits;
    event->data.u64 = entry->data;
    if ((entry->events & EPOLLONESHOT) != 0) {
        entry->spent = true;
        via_ep_refresh(entry);
    }
    via_list_remove(&entry->in_set);
    via_list_push_back(reported, &entry->in_set);
    return true;
}

/* Reports ready connections, in the order of epoll_order.c; all: also those that have been quiet
 * for a while. */
static int collect(struct via_ep_set *set, struct epoll_event *events, int max, bool all)
{
    int count = 0;
    struct via_ep_found found;
    struct via_ep_entry *entry;
    struct via_list reported;
    busy = false;
    if (atomic_load_explicit(&set->piped_count, memory_order_relaxed) == 0) {
        return 0;
    }
    via_list_init(&reported);
    via_lock(&set->lock);
    if (via_unlikely(set->cold_due)) {
        via_ep_check_cold(set);
    }
    via_ep_check_warm(set, all ? VIA_EP_ALL : 0);
    via_ep_find(set, &found, (unsigned)max, all);
    while (count < max && (entry = via_ep_next(set, &found, count != 0)) != NULL) {
        if (report(entry, &events[count], found.now, &reported)) {
            count++;
        } else if (entry->place == VIA_EP_HOT) {
            via_ep_cool(entry);
        }
    }
    via_ep_found_end(&found);
    via_list_splice_back(&set->entries[VIA_EP_HOT], &reported);
    via_unlock(&set->lock);
    return count;
}

static bool is_entry_ready(struct via_ep_entry *entry)
{
    if (via_ep_is_quiet(entry) || via_side_is_in(entry->conn->side, VIA_PHASES_GONE)) {
        return false;
    }
    struct via_op op = via_ep_op(entry);
    struct via_edge_now now = via_ep_begin_edge(entry);
    uint32_t bits = via_io_ready(&op, entry->events);
    via_ep_end_edge(entry, &now, bits);
    if (via_unlikely(op.busy)) {
        return true; /* it may be */
    }
    return (entry->events & EPOLLET) != 0 ? via_edge_is_news(&entry->reported, &now) : bits != 0;
}

/* True if a hot entry has an event to report. With the set's lock. */
static bool is_any_ready(struct via_ep_set *set)
{
    via_list_foreach(it, &set->entries[VIA_EP_HOT]) {
        if (is_entry_ready(via_list_entry(it, struct via_ep_entry, in_set))) {
            return true;
        }
    }
    return false;
}

struct via_ep_stayed via_ep_check_stayed(struct via_ep_set *set)
{
    struct via_ep_stayed stayed = {0};
    via_lock(&set->lock);
    if (via_unlikely(set->piped_count != 0)) {
        stayed.any = true;
        via_ep_all_hot(set);
        stayed.ready = is_any_ready(set);
    }
    via_unlock(&set->lock);
    return stayed;
}

/* How long a thread may sleep in the set for these connections of it: see stall.h. */
static uint64_t watch_stalls(const int *fds, unsigned count)
{
    uint64_t most_ns = VIA_NEVER_NS;
    while (count > 0) {
        struct via_op op;
        if (via_op_begin(&op, fds[--count])) {
            most_ns = via_min(most_ns, via_stall_watch(&op));
            via_op_end(&op);
        }
    }
    return most_ns;
}

/* Called before sleeping: arms connections to other hosts, and watches stalls. Returns how long to
 * sleep at most, in nanoseconds. No lock is held. */
static uint64_t arm(struct via_ep_set *set)
{
    int full[STALLS_MAX];
    unsigned count = 0;
    bool unarmed = false;
    via_lock(&set->lock);
    via_list_foreach(it, &set->entries[VIA_EP_HOT]) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_set);
        if (entry->spent) {
            continue;
        }
        if (!via_conn_is_local(entry->conn)) {
            struct via_op op = via_ep_op(entry);
            via_io_arm(&op, entry->events);
            unarmed |= op.busy;
        }
        if ((entry->events & (EPOLLOUT | EPOLLWRNORM)) != 0 && count < STALLS_MAX &&
            !via_stall_is_none(entry->conn)) {
            full[count++] = via_ep_fd(entry);
        }
    }
    via_unlock(&set->lock);
    uint64_t most_ns = watch_stalls(full, count);
    return via_unlikely(unarmed) ? via_min(most_ns, BUSY_NS) : most_ns;
}

/* A quick check while spinning: true if there may be an event. */
static bool has_news(struct via_ep_set *set)
{
    bool news = false;
    via_lock(&set->lock);
    via_ep_check_warm(set, ++set->warm_polls % WARM_POLLS == 0 ? 1 : 0);
    via_list_foreach(it, &set->entries[VIA_EP_HOT]) {
        struct via_ep_entry *entry = via_list_entry(it, struct via_ep_entry, in_set);
        const struct via_side *side = entry->conn->side;
        if (!entry->spent &&
            ((entry->events & EPOLLET) != 0
                 ? via_pipe_is_ready_at(&side->rx.pipe, entry->reported.sequence)
                 : side->rx.held || side->rx.avail.held || via_pipe_is_ready(&side->rx.pipe))) {
            news = true;
            break;
        }
    }
    via_unlock(&set->lock);
    return news;
}

/* Handles an event of a connection without pipes. True: the program must see the event. */
static bool accept_kernel_event(struct via_ep_entry *entry, uint16_t arms)
{
    if ((entry->events & EPOLLONESHOT) != 0 && arms == entry->arms) {
        bool spent = entry->spent; /* the library has reported it while it had pipes */
        entry->spent = true;
        return !spent;
    }
    entry->reported.due = false;
    entry->reported.shuts = via_ep_begin_edge(entry).shuts;
    return true;
}

/* Handles one event of the kernel's for an entry. True: the program must see it, in *event. */
static bool translate(struct via_ep_set *set, struct epoll_event *event)
{
    struct via_ep_entry *entry = (void *)(uintptr_t)VIA_EP_ADDRESS(event->data.u64);
    uint16_t arms = VIA_EP_ARMS(event->data.u64);
    if (entry->set != set || !via_ep_is_own_event(entry, arms)) {
        return false; /* the entry was freed meanwhile */
    }
    if (entry->place == VIA_EP_PARKED) {
        struct via_op op = via_ep_op(entry);
        /* The program has removed the connection from the set: records the hangup only. */
        via_io_note_kernel_events(&op, event->events, 0);
        return false;
    }
    if (entry->piped) {
        struct via_op op = via_ep_op(entry);
        via_io_note_kernel_events(&op, event->events, 0);
        via_ep_make_hot(entry);
        entry->reported.recheck = true; /* collect() reports the kernel's edge */
        return false;
    }
    event->data.u64 = entry->data;
    return accept_kernel_event(entry, arms);
}

int via_ep_sort_out(struct via_ep_set *set, struct epoll_event *events, int count)
{
    int kept = 0;
    via_lock(&set->lock);
    for (int i = 0; i < count; i++) {
        uint64_t data = events[i].data.u64;
        bool keep = true;
        if (data == (uint64_t)(uintptr_t)&via_ep_bell_mark) {
            keep = false;
        } else if (data == (uint64_t)(uintptr_t)&via_ep_cold_mark) {
            set->cold_due = true;
            keep = false;
        } else if (data == (uint64_t)(uintptr_t)&via_ep_calls_mark) {
            set->call_due = true;
            keep = false;
        }
        if (keep && via_pool_is_owner(&via_ep_entries, VIA_EP_ADDRESS(data))) {
            keep = translate(set, &events[i]);
        }
        if (keep) {
            events[kept++] = events[i];
        }
    }
    via_unlock(&set->lock);
    return kept;
}

/* The kernel's call, with a time limit in nanoseconds if the kernel has epoll_pwait2(), and no
 * seccomp filter refuses it: filters that the program has installed kill for it (via_policy.on),
 * inherited ones may return EPERM. */
static int kernel_wait(int epfd, struct epoll_event *events, int max, uint64_t deadline_ns,
                       const sigset_t *mask)
{
    struct timespec storage;
    uint64_t most_ns = via_sleep_ns_max();
    if (most_ns != VIA_NEVER_NS && deadline_ns != 0) {
        deadline_ns = via_min(deadline_ns, via_os_now_ns() + most_ns);
    }
    const struct timespec *left = via_os_time_left(deadline_ns, &storage);
    if (left != NULL && left->tv_nsec % (long)VIA_MSEC_NS != 0 && via_real.epoll_pwait2 != NULL &&
        via_policy.on) {
        via_cancel_allow();
        int n = via_real.epoll_pwait2(epfd, events, max, left, mask);
        via_cancel_defer();
        if (n >= 0 || (errno != ENOSYS && errno != EPERM)) {
            return n >= 0 ? n : -errno;
        }
    }
    int timeout = -1;
    if (left != NULL) {
        int64_t ms =
            left->tv_sec * 1000 + (left->tv_nsec + (long)VIA_MSEC_NS - 1) / (long)VIA_MSEC_NS;
        timeout = (int)via_min(ms, (int64_t)INT32_MAX);
    }
    via_cancel_allow();
    int n = VIA_REAL(epoll_pwait)(epfd, events, max, timeout, mask);
    via_cancel_defer();
    return n >= 0 ? n : -errno;
}

/* Polls the kernel for the program's events, without sleeping. Returns how many, or -1 and errno.
 * *ret_ours: there were events for the library, too. */
static int poll_kernel(struct via_ep_set *set, int epfd, struct epoll_event *events, int max,
                       bool *ret_ours)
{
    int kept = 0;
    for (int tries = 0; tries < POLL_TRIES && kept == 0; tries++) {
        int n = VIA_REAL(epoll_wait)(epfd, events, max, 0);
        if (n < 0) {
            return n;
        }
        kept = via_ep_sort_out(set, events, n);
        *ret_ours |= kept < n;
        if (n < max) {
            break; /* otherwise the library's own descriptors may have filled the array */
        }
    }
    return kept;
}

static void note_filled(struct via_ep_set *set, bool filled)
{
    if (via_unlikely(atomic_load_explicit(&set->filled, memory_order_relaxed) != filled)) {
        atomic_store_explicit(&set->filled, filled, memory_order_relaxed);
    }
}

/* A connection's first bytes go through the kernel: for RECENT_US after a connection was added,
 * each call that finds events of connections with pipes polls the kernel, too. */
static bool is_recent(const struct via_ep_set *set, uint64_t now)
{
    return now - atomic_load_explicit(&set->added_ticks, memory_order_relaxed) <
           via_os_us_to_ticks(RECENT_US);
}

/* Moves the kernel's events before those of connections with pipes: bytes take longer through the
 * kernel than through a pipe, so the kernel's were presumably sent first. */
static void put_in_front(struct epoll_event *events, int ours, int kernels)
{
    for (int i = 0; i < kernels; i++) {
        struct epoll_event event = events[ours + i];
        memmove(events + i + 1, events + i, (size_t)ours * sizeof(event));
        events[i] = event;
    }
}

/* True if work that any thread of the set does from time to time is due. */
static bool is_due(const _Atomic uint64_t *last_ticks, uint64_t now, unsigned us)
{
    return now - atomic_load_explicit(last_ticks, memory_order_relaxed) > via_os_us_to_ticks(us);
}

/* Collects all present events without sleeping: those of connections with pipes, and the kernel's
 * if a poll of it is due (poll_due: the caller requires one). If connections with pipes filled the
 * program's array in the last call, the kernel's events come first and get up to half of the array.
 * *ret_consumed: set if the kernel has reported events for the library. */
static int take_ready(struct via_ep_set *set, int epfd, struct epoll_event *events, int max,
                      bool poll_due, bool *ret_consumed)
{
    uint64_t now = via_os_ticks();
    bool all = poll_due || is_due(&set->warm_ticks, now, WARM_US);
    if (all) {
        atomic_store_explicit(&set->warm_ticks, now, memory_order_relaxed);
    }
    bool turn = poll_due || is_due(&set->polled_ticks, now, KERNEL_POLL_US);
    if (turn) {
        via_fabric_handle_results();
        (void)via_fabric_reset_given_up();
    }
    bool ours = false;
    int first = 0;
    if (via_unlikely(turn && atomic_load_explicit(&set->filled, memory_order_relaxed))) {
        atomic_store_explicit(&set->poll_due, false, memory_order_relaxed);
        first = via_max(poll_kernel(set, epfd, events, (max + 1) / 2, &ours), 0);
        *ret_consumed |= ours;
        atomic_store_explicit(&set->polled_ticks, now, memory_order_relaxed);
        turn = false;
    }
    int count = first;
    if (count < max) {
        count += collect(set, events + count, max - count, all);
    }
    note_filled(set, count - first == max);
    bool recent = count != 0 && first == 0 && is_recent(set, now);
    turn |= recent;
    /* A connection was demoted during the check: from now on only the kernel reports it. */
    turn |= atomic_load_explicit(&set->poll_due, memory_order_relaxed);
    if (count < max && turn) {
        atomic_store_explicit(&set->poll_due, false, memory_order_relaxed);
        atomic_store_explicit(&set->polled_ticks, now, memory_order_relaxed);
        int n = poll_kernel(set, epfd, events + count, max - count, &ours);
        *ret_consumed |= ours;
        if (n < 0) {
            return count != 0 ? count : -errno;
        }
        if (via_unlikely(recent)) {
            put_in_front(events, count, n);
        }
        count += n;
    }
    if (count == 0 && ours) {
        count = collect(set, events, max, true); /* the kernel's events were about connections */
        if (count == 0) {
            /* Another process may have demoted the connections meanwhile; or the library's own
             * descriptors have filled the array. */
            count = via_max(poll_kernel(set, epfd, events, max, &ours), 0);
        }
    }
    return count;
}

/* True if there are events that this thread leaves to another one. No lock is held. */
static bool has_left_events(struct via_ep_set *set)
{
    via_lock(&set->lock);
    if (via_unlikely(set->cold_due)) {
        via_ep_check_cold(set);
    }
    via_ep_check_warm(set, VIA_EP_ALL);
    bool left = is_any_ready(set);
    via_unlock(&set->lock);
    return left || set->call_due;
}

/*
 * A ring wakes one of the threads that sleep in the set. Peers ring once per sleep: until another
 * thread begins to sleep, they rely on the woken thread for further events. So a thread that has
 * consumed a ring, or another of the library's events, wakes the next thread before it returns to
 * the program, if there are events left.
 */
static void pass_on(struct via_ep_set *set)
{
    uint64_t bells = set->bells;
    if (!via_ep_has_sleepers(set)) {
        return;
    }
    /* A peer on another host rings once for each connection that a thread has armed. The next
     * thread arms them all, checks, and sleeps again. */
    bool armed = (bells & via_sock_bells_adopted()) != 0;
    via_sock_bell_rearm(bells);
    if (armed || has_left_events(set)) {
        via_ep_wake(set);
    }
}

/*
 * Processes that share a set by fork() wait in the same kernel set, with the same bells, so a ring
 * or an event of the kernel's wakes one of them; and each may have events that the others do not
 * have. So each process checks again this often.
 */
#define FORKED_NS (20 * VIA_MSEC_NS)

/* A thread's sleep in a set. */
struct sleeper {
    struct via_ep_set *set;
    const struct via_wait *wait; /* for the cleanup handler of a thread that is cancelled */
    pid_t pid;                   /* as in struct via_bell_sleep */
};

/* Counts the sleeper with the set's lock held, so that a thread that adds a bell to the set counts
 * the sleepers for that bell, too: add_bells(). */
static void begin_sleep(const struct sleeper *sleeper)
{
    struct via_ep_set *set = sleeper->set;
    via_lock(&set->lock);
    /* Precedes the check for events; pairs with the fence in via_ep_has_sleepers(). */
    atomic_fetch_add_explicit(&set->sleepers, 1, memory_order_seq_cst);
    uint64_t bells = set->bells;
    if (via_unlikely(bells != set->watched) || (!set->watches_calls && via_steward_is_wanted())) {
        via_ep_watch_bells(set);
    }
    via_sock_bell_add_sleepers(bells, 1);
    via_unlock(&set->lock);
    via_sock_bell_begin_sleep(bells);
}

static void end_sleep(const struct sleeper *sleeper)
{
    struct via_ep_set *set = sleeper->set;
    if (via_unlikely(sleeper->pid != via_os_pid())) {
        return; /* a signal handler has forked, and this is the child: the parent's thread ends the
                   sleep that was counted */
    }
    via_lock(&set->lock);
    via_sock_bell_remove_sleeper(set->bells);
    atomic_fetch_sub_explicit(&set->sleepers, 1, memory_order_relaxed);
    via_unlock(&set->lock);
}

static void give_up(void *of_sleeper)
{
    const struct sleeper *sleeper = of_sleeper;
    end_sleep(sleeper);
    via_ep_wake(sleeper->set); /* this thread may have consumed a ring before it was cancelled */
    via_wait_end(sleeper->wait);
    via_file_put(&sleeper->set->file, false);
}

static int sleep_cancellably(struct sleeper *sleeper, int epfd, struct epoll_event *events, int max,
                             uint64_t until_ns, const sigset_t *mask)
{
    struct via_cancel before;
    int n;
    via_cancel_off(&before);
    pthread_cleanup_push(give_up, sleeper);
    n = kernel_wait(epfd, events, max, until_ns, mask);
    pthread_cleanup_pop(0);
    via_cancel_back(&before);
    return n;
}

/* Sleeps in the kernel's set unless an event has come meanwhile. Returns the events, if there are
 * any; *ret_over when the deadline has passed. */
static int sleep_in(struct via_ep_set *set, int epfd, struct epoll_event *events, int max,
                    uint64_t deadline_ns, uint64_t most_ns, const sigset_t *mask, bool alone,
                    struct via_wait *wait, bool *ret_consumed, bool *ret_over)
{
    struct sleeper sleeper = {.set = set, .wait = wait, .pid = via_os_pid()};
    begin_sleep(&sleeper);
    if (via_unlikely(set->forked) && set->bells != 0) {
        most_ns = via_min(most_ns, FORKED_NS);
    }
    int count = collect(set, events, max, true);
    if (count != 0) {
        end_sleep(&sleeper);
        return count;
    }
    via_wait_sleeps(wait);
    uint64_t until_ns = deadline_ns;
    most_ns = via_unlikely(busy) ? via_min(most_ns, BUSY_NS) : most_ns;
    if (via_unlikely(most_ns != VIA_NEVER_NS)) {
        until_ns = via_min(until_ns, via_os_now_ns() + most_ns);
    }
    int n = alone ? kernel_wait(epfd, events, max, until_ns, mask)
                  : sleep_cancellably(&sleeper, epfd, events, max, until_ns, mask);
    via_wait_slept(wait);
    end_sleep(&sleeper);
    if (n < 0) {
        return n;
    }
    atomic_store_explicit(&set->polled_ticks, via_os_ticks(), memory_order_relaxed);
    count = via_ep_sort_out(set, events, n);
    *ret_consumed |= count < n;
    if (count < max) {
        count += collect(set, events + count, max - count, true);
    }
    *ret_over = count == 0 && deadline_ns != VIA_NEVER_NS && via_os_now_ns() >= deadline_ns;
    return count;
}

/* The deadline has passed without an event. On a busy machine it may have passed before this call
 * reached epoll_pwait(); then the kernel has not delivered signals that only this call's mask
 * unblocks. ppoll() does. */
static int deliver_signals(const sigset_t *mask)
{
    const struct timespec none = {.tv_sec = 0};
    return VIA_REAL(ppoll)(NULL, 0, &none, mask) < 0 ? -errno : 0;
}

static void put_set(void *of_set)
{
    struct via_ep_set *set = of_set;
    via_file_put(&set->file, false);
}

/* Another thread has closed the set. As with the kernel's epoll_wait(), a thread that waits in a
 * closed set goes on waiting. It does not use epfd, which may refer to another file by now. */
static int wait_in_closed(struct via_ep_set *set, uint64_t deadline_ns, const sigset_t *mask)
{
    struct timespec storage;
    struct via_cancel before;
    int n;
    via_ep_wake(set); /* a ring wakes only one thread: passes it on */
    via_cancel_off(&before);
    pthread_cleanup_push(put_set, set);
    via_cancel_allow();
    n = VIA_REAL(ppoll)(NULL, 0, via_os_time_left(deadline_ns, &storage), mask);
    via_cancel_defer();
    pthread_cleanup_pop(0);
    via_cancel_back(&before);
    return n < 0 ? -errno : 0;
}

int via_ep_wait(struct via_ep_set *set, int epfd, struct epoll_event *events, int max,
                uint64_t deadline_ns, const sigset_t *mask, bool alone)
{
    struct via_wait wait;
    via_wait_begin(&wait);
    bool poll_due = deadline_ns == 0;
    bool consumed = false;
    for (;;) {
        bool over = false;
        if (via_unlikely(set->call_due)) {
            set->call_due = false;
            via_steward_take_calls(); /* without the set's lock: it may change registrations */
        }
        if (via_unlikely(atomic_load_explicit(&set->fds, memory_order_acquire) == 0)) {
            via_wait_end(&wait);
            return wait_in_closed(set, deadline_ns, mask);
        }
        bool pipes = atomic_load_explicit(&set->piped_count, memory_order_relaxed) != 0;
        int count = 0;
        if (pipes || deadline_ns == 0) { /* otherwise the kernel's call below finds all events */
            count = take_ready(set, epfd, events, max, poll_due, &consumed);
        }
        poll_due = deadline_ns == 0;
        if (count == 0 && deadline_ns != 0) {
            bool news = false;
            uint64_t most_ns = VIA_NEVER_NS;
            if (pipes) {
                while (via_wait_spin(&wait) && !(news = has_news(set)) &&
                       !(poll_due = via_wait_take_poll_due(&wait))) {
                }
                if (news || poll_due) {
                    continue;
                }
                most_ns = arm(set);
            }
            count = sleep_in(set, epfd, events, max, deadline_ns, most_ns, mask, alone, &wait,
                             &consumed, &over);
        }
        if (count != 0 || over || deadline_ns == 0) {
            via_wait_end(&wait);
            if (via_unlikely(consumed)) {
                pass_on(set);
            }
            return over && mask != NULL ? deliver_signals(mask) : count;
        }
    }
}
