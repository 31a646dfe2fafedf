/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The C library's calls that wait for several descriptors. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/epoll/poll_set.h"
#include "sockets/hooks/hooks.h"
#include "sockets/io/io.h"
#include "sockets/process/cancel.h"
#include "sockets/process/memory.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

VIA_HOOK_AS(poll) int __poll(struct pollfd *fds, nfds_t count, int timeout);
VIA_HOOK int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
VIA_HOOK int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                         const sigset_t *mask, size_t room);

static uint64_t deadline_of_ms(int timeout)
{
    return timeout < 0    ? VIA_NEVER_NS
           : timeout == 0 ? 0
                          : via_os_now_ns() + (uint64_t)timeout * VIA_MSEC_NS;
}

/* Longer times count as no limit, so that the sum does not overflow. */
#define SECONDS_MAX (INT64_C(100) * 366 * 24 * 3600)

/* Returns the deadline; *ret_error is -EINVAL for an invalid time, else 0. */
static uint64_t deadline_of(const struct timespec *timeout, int *ret_error)
{
    *ret_error = 0;
    if (timeout == NULL) {
        return VIA_NEVER_NS;
    }
    if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= (long)VIA_SEC_NS) {
        *ret_error = -EINVAL;
        return 0;
    }
    if (timeout->tv_sec == 0 && timeout->tv_nsec == 0) {
        return 0;
    }
    if (timeout->tv_sec > SECONDS_MAX) {
        return VIA_NEVER_NS;
    }
    return via_os_now_ns() + (uint64_t)timeout->tv_sec * VIA_SEC_NS + (uint64_t)timeout->tv_nsec;
}

/* --- no connection of ours ------------------------------------------------------------------- */

#define ELSEWHERE_MAX 64u

/* True if a thread that waits for other descriptors than connections must also handle calls of
 * peers. */
static bool is_listening(const void *where, nfds_t count, uint64_t deadline_ns)
{
    return via_unlikely(via_steward_is_wanted()) && deadline_ns != 0 && count < ELSEWHERE_MAX &&
           via_memory_is_readable(where, count);
}

static int poll_elsewhere(struct pollfd *fds, nfds_t count, uint64_t deadline_ns,
                          const sigset_t *mask)
{
    struct pollfd with_calls[ELSEWHERE_MAX];
    for (nfds_t i = 0; i < count; i++) {
        with_calls[i] = fds[i];
    }
    int n = via_steward_sleep(with_calls, (unsigned)count, deadline_ns, mask);
    for (nfds_t i = 0; i < count && n >= 0; i++) {
        fds[i].revents = with_calls[i].revents;
    }
    return n;
}

/* --- poll ------------------------------------------------------------------------------------ */

static int wait_for(struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask,
                    bool ours)
{
    int saved = errno;
    int rc = ours ? via_poll(fds, count, deadline_ns, mask)
                  : poll_elsewhere(fds, count, deadline_ns, mask);
    errno = saved;
    return (int)via_hooks_result(rc);
}

VIA_HOOK int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    via_cancel_point();
    bool ours = via_poll_is_any_ours(fds, count);
    if (via_likely(!ours) && !is_listening(fds, count, (uint64_t)timeout)) {
        return VIA_REAL(poll)(fds, count, timeout);
    }
    return wait_for(fds, count, deadline_of_ms(timeout), NULL, ours);
}

VIA_HOOK int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                   const sigset_t *mask)
{
    via_cancel_point();
    int error;
    bool ours = via_poll_is_any_ours(fds, count);
    if (via_likely(!ours) && !is_listening(fds, count, VIA_NEVER_NS)) {
        return VIA_REAL(ppoll)(fds, count, timeout, mask);
    }
    uint64_t deadline_ns = deadline_of(timeout, &error);
    return error != 0 ? (int)via_hooks_result(error)
                      : wait_for(fds, count, deadline_ns, mask, ours);
}

VIA_HOOK int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    return poll(fds, via_hooks_check_room(count, room / sizeof(*fds)), timeout);
}

VIA_HOOK int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                         const sigset_t *mask, size_t room)
{
    return ppoll(fds, via_hooks_check_room(count, room / sizeof(*fds)), timeout, mask);
}

/* --- select ---------------------------------------------------------------------------------- */

/* select(2), "Correspondence between select() and poll() notifications". */
#define SELECT_IN (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define SELECT_OUT (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define SELECT_EXCEPT POLLPRI

static bool is_in_set(int fd, const fd_set *set)
{
    return set != NULL && FD_ISSET(fd, set);
}

static bool is_any_of_select_ours(int count, const fd_set *in, const fd_set *out,
                                  const fd_set *except)
{
    for (int fd = 0; fd < count && (unsigned)fd < via_fds_count; fd++) {
        const struct via_file *file = via_fd_peek(fd);
        if (via_unlikely(file != NULL) && file->kind != VIA_FILE_HIDDEN &&
            (is_in_set(fd, in) || is_in_set(fd, out) || is_in_set(fd, except))) {
            return true;
        }
    }
    return false;
}

/* Fills `fds`, which has room for `count` entries. Returns the number of entries. */
static nfds_t from_sets(int count, const fd_set *in, const fd_set *out, const fd_set *except,
                        struct pollfd *fds)
{
    nfds_t used = 0;
    for (int fd = 0; fd < count; fd++) {
        short events =
            (short)((is_in_set(fd, in) ? POLLIN : 0) | (is_in_set(fd, out) ? POLLOUT : 0) |
                    (is_in_set(fd, except) ? POLLPRI : 0));
        if (events != 0) {
            fds[used++] = (struct pollfd){.fd = fd, .events = events};
        }
    }
    return used;
}

static int keep_bit(int fd, fd_set *set, bool keeps)
{
    if (set == NULL || !FD_ISSET(fd, set)) {
        return 0;
    }
    if (!keeps) {
        FD_CLR(fd, set);
    }
    return keeps ? 1 : 0;
}

/* Writes the events into the sets. Returns the number of bits; -EBADF if a descriptor is not
 * open. */
static int write_sets(const struct pollfd *fds, nfds_t used, fd_set *in, fd_set *out,
                      fd_set *except)
{
    int bits = 0;
    for (nfds_t i = 0; i < used; i++) {
        if ((fds[i].revents & POLLNVAL) != 0) {
            return -EBADF;
        }
    }
    for (nfds_t i = 0; i < used; i++) {
        bits += keep_bit(fds[i].fd, in, (fds[i].revents & SELECT_IN) != 0);
        bits += keep_bit(fds[i].fd, out, (fds[i].revents & SELECT_OUT) != 0);
        bits += keep_bit(fds[i].fd, except, (fds[i].revents & SELECT_EXCEPT) != 0);
    }
    return bits;
}

/* Sets of at most this size need only memory of the stack. */
#define SELECT_ON_STACK 64u
_Static_assert(FD_SETSIZE * sizeof(struct pollfd) <= VIA_SCRATCH_BYTES, "for all there can be");

static bool is_there(int count, const fd_set *set)
{
    return set == NULL || count <= 0 || via_memory_is_writable(set, (size_t)(count + 63) / 64 * 8);
}

/* True if the kernel's select() can make the call: the sets contain no connection, and no calls of
 * peers have to be handled; or the kernel will return an error. */
static bool is_select_plain(int count, const fd_set *in, const fd_set *out, const fd_set *except)
{
    return count > FD_SETSIZE || !is_there(count, in) || !is_there(count, out) ||
           !is_there(count, except) ||
           (!via_steward_is_wanted() && !is_any_of_select_ours(count, in, out, except));
}

/* For sets larger than RLIMIT_NOFILE, which limits poll() but not select(): leaves the connections
 * and the call to the kernel. */
static int select_by_kernel(const struct pollfd *fds, nfds_t used, int count, fd_set *in,
                            fd_set *out, fd_set *except, uint64_t deadline_ns, const sigset_t *mask)
{
    struct timespec storage;
    for (nfds_t i = 0; i < used; i++) {
        via_fd_demote(fds[i].fd, VIA_REASON_RESOURCES);
    }
    int n =
        VIA_REAL(pselect)(count, in, out, except, via_os_time_left(deadline_ns, &storage), mask);
    return n >= 0 ? n : -errno;
}

static int select_by_poll(int count, fd_set *in, fd_set *out, fd_set *except, uint64_t deadline_ns,
                          const sigset_t *mask)
{
    struct pollfd on_stack[SELECT_ON_STACK];
    struct pollfd *fds = count <= (int)SELECT_ON_STACK ? on_stack : via_pool_get(&via_scratch);
    if (fds == NULL) {
        return -ENOMEM;
    }
    nfds_t used = from_sets(count, in, out, except, fds);
    int rc = via_poll_is_any_ours(fds, used) || !is_listening(fds, used, deadline_ns)
                 ? via_poll(fds, used, deadline_ns, mask)
                 : poll_elsewhere(fds, used, deadline_ns, mask);
    if (via_unlikely(rc == -EINVAL)) {
        rc = select_by_kernel(fds, used, count, in, out, except, deadline_ns, mask);
    } else if (rc >= 0) {
        rc = write_sets(fds, used, in, out, except);
    }
    if (fds != on_stack) {
        via_pool_put(&via_scratch, fds);
    }
    return rc;
}

/* error: of the timeout; 0: none. */
static int select_until(int count, fd_set *in, fd_set *out, fd_set *except, uint64_t deadline_ns,
                        int error, const sigset_t *mask)
{
    int saved = errno;
    int rc = error != 0 ? error : select_by_poll(count, in, out, except, deadline_ns, mask);
    errno = saved;
    return (int)via_hooks_result(rc);
}

VIA_HOOK int select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
    via_cancel_point();
    /* Sets beyond FD_SETSIZE are an extension of the program's own; the kernel's call handles
     * them. */
    if (via_likely(is_select_plain(count, in, out, except))) {
        return VIA_REAL(select)(count, in, out, except, timeout);
    }
    int error;
    struct timespec ts;
    if (timeout != NULL) {
        /* The C library's select() also accepts microseconds of more than a second. */
        ts = (struct timespec){.tv_sec = timeout->tv_sec < 0 || timeout->tv_usec < 0
                                             ? -1
                                             : via_min(timeout->tv_sec, SECONDS_MAX) +
                                                   timeout->tv_usec / 1000000,
                               .tv_nsec = timeout->tv_usec % 1000000 * 1000};
    }
    uint64_t deadline_ns = deadline_of(timeout != NULL ? &ts : NULL, &error);
    int rc = select_until(count, in, out, except, deadline_ns, error, NULL);
    if (timeout != NULL && deadline_ns != 0 && deadline_ns != VIA_NEVER_NS) {
        uint64_t now = via_os_now_ns();
        uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
        timeout->tv_sec = (time_t)(left / VIA_SEC_NS);
        timeout->tv_usec = (suseconds_t)(left % VIA_SEC_NS / VIA_USEC_NS);
    }
    return rc;
}

VIA_HOOK int pselect(int count, fd_set *in, fd_set *out, fd_set *except,
                     const struct timespec *timeout, const sigset_t *mask)
{
    via_cancel_point();
    int error;
    if (via_likely(is_select_plain(count, in, out, except))) {
        return VIA_REAL(pselect)(count, in, out, except, timeout, mask);
    }
    uint64_t deadline_ns = deadline_of(timeout, &error);
    return select_until(count, in, out, except, deadline_ns, error, mask);
}

/* --- epoll ----------------------------------------------------------------------------------- */

/* Marks numbers that are sets: the kernel handles all others (via_ep_set_get()). */
VIA_HOOK int epoll_create1(int flags)
{
    via_hooks_init();
    int epfd = VIA_REAL(epoll_create1)(flags);
    via_fd_mark(epfd, VIA_FD_IS_SET, true);
    return epfd;
}

VIA_HOOK int epoll_create(int size)
{
    via_hooks_init();
    int epfd = VIA_REAL(epoll_create)(size);
    via_fd_mark(epfd, VIA_FD_IS_SET, true);
    return epfd;
}

#define EXCLUSIVE_EVENTS \
    ((uint32_t)(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE))

/* True for what the kernel refuses on any descriptor (epoll_ctl(2), ERRORS). */
static bool is_refused(int operation, const struct epoll_event *event)
{
    return operation != EPOLL_CTL_DEL &&
           ((operation != EPOLL_CTL_ADD && operation != EPOLL_CTL_MOD) ||
            ((event->events & EPOLLEXCLUSIVE) != 0 &&
             (operation != EPOLL_CTL_ADD || (event->events & ~EXCLUSIVE_EVENTS) != 0)));
}

VIA_HOOK int epoll_ctl(int epfd, int operation, int fd, struct epoll_event *event)
{
    struct via_op op;
    if (via_fd_is_hidden(fd)) {
        errno = EBADF;
        return -1;
    }
    if (operation != EPOLL_CTL_DEL && !via_memory_is_readable(event, sizeof(*event))) {
        return VIA_REAL(epoll_ctl)(epfd, operation, fd, event);
    }
    int saved = errno;
    if (!via_op_begin(&op, fd)) {
        int rc = VIA_REAL(epoll_ctl)(epfd, operation, fd, event);
        if (rc == 0) {
            via_ep_note(epfd, operation, fd, event);
        }
        if (rc == 0 && operation == EPOLL_CTL_ADD) {
            via_ep_nest(fd);
            errno = saved;
        }
        return rc;
    }
    if (via_unlikely(is_refused(operation, event))) {
        via_op_end(&op);
        return VIA_REAL(epoll_ctl)(epfd, operation, fd, event);
    }
    int rc = via_ep_ctl(epfd, operation, op.conn, fd, event);
    /* Checked after the call. If another thread nests the set meanwhile, it finds the registration,
     * or this thread finds the set nested. */
    if (rc == 0 && operation == EPOLL_CTL_ADD && via_ep_is_nested(epfd)) {
        via_conn_demote(&op, VIA_REASON_NESTED);
    }
    via_op_end(&op);
    errno = saved;
    return (int)via_hooks_result(rc);
}

/* The set behind epfd, held until via_file_put(). NULL: the kernel's call is enough, because the
 * library has not seen how the set was made; or because no thread can add a connection meanwhile,
 * and the set has neither connections nor bells, which the program must not see. *ret_thread:
 * via_os_thread() before the set was held. */
static struct via_ep_set *set_of(int epfd, bool alone, uint32_t *ret_thread)
{
    bool may_add = !alone && (via_policy.on || !via_conn_is_none());
    bool may_hold = may_add && via_fd_is_marked(epfd, VIA_FD_IS_SET);
    if (via_likely(via_fd_peek(epfd) == NULL) && !may_hold) {
        return NULL; /* without a system call: a seccomp filter may kill for gettid() */
    }
    *ret_thread = via_os_thread();
    struct via_file *file = via_file_get(epfd, alone);
    if (file == NULL) {
        return may_hold ? via_ep_hold(epfd) : NULL;
    }
    if (file->kind == VIA_FILE_EPOLL) {
        struct via_ep_set *set = via_container_of(file, struct via_ep_set, file);
        if (may_add || atomic_load_explicit(&set->entries_count, memory_order_relaxed) != 0 ||
            atomic_load_explicit(&set->bells, memory_order_relaxed) != 0 ||
            atomic_load_explicit(&set->handed_back, memory_order_relaxed) || set->forked) {
            return set;
        }
    }
    via_file_put_of(file, alone, *ret_thread);
    return NULL;
}

/* thread: from set_of(). */
static int wait_in_set(struct via_ep_set *set, int epfd, struct epoll_event *events, int max,
                       uint64_t deadline_ns, const sigset_t *mask, bool alone, uint32_t thread)
{
    int saved = errno;
    int rc = via_memory_is_writable(events, sizeof(*events))
                 ? via_ep_wait(set, epfd, events, max, deadline_ns, mask, alone)
                 : -EFAULT;
    via_file_put_of(&set->file, alone, thread);
    errno = saved;
    return (int)via_hooks_result(rc);
}

/* Waits for an event of the set, and handles calls of peers meanwhile. Then polls the set. */
static int wait_listening(int epfd, struct epoll_event *events, int max, int timeout,
                          const sigset_t *mask)
{
    struct pollfd fds[2] = {{.fd = epfd, .events = POLLIN}};
    uint64_t deadline_ns = deadline_of_ms(timeout);
    int saved = errno;
    int n;
    while ((n = VIA_REAL(epoll_wait)(epfd, events, max, 0)) == 0) {
        n = via_steward_sleep(fds, 1, deadline_ns, mask);
        if (via_unlikely(n == -EINVAL)) { /* RLIMIT_NOFILE is 0 */
            return VIA_REAL(epoll_pwait)(epfd, events, max, timeout, mask);
        }
        if (n <= 0) {
            errno = saved;
            return (int)via_hooks_result(n);
        }
    }
    return n;
}

/* Size of the kernel's signal set, which is shorter than the C library's. */
#define KERNEL_SET_BYTES 8u

/* False if the kernel's call fails on any set. */
static bool is_sound(const struct epoll_event *events, int max, const struct timespec *timeout,
                     const sigset_t *mask)
{
    return max > 0 && (size_t)max <= INT_MAX / sizeof(struct epoll_event) &&
           !via_hooks_is_kernel_address(events) &&
           (timeout == NULL || via_memory_is_readable(timeout, sizeof(*timeout))) &&
           (mask == NULL || via_memory_is_readable(mask, KERNEL_SET_BYTES));
}

/* epoll_wait() and epoll_pwait(). A seccomp filter may permit only one of the two, so the kernel
 * gets the program's call. */
static int wait_for_ms(int epfd, struct epoll_event *events, int max, int timeout,
                       const sigset_t *mask, bool has_mask)
{
    via_cancel_point();
    bool alone = via_is_alone();
    uint32_t thread;
    struct via_ep_set *set =
        is_sound(events, max, NULL, mask) ? set_of(epfd, alone, &thread) : NULL;
    if (set != NULL) {
        return wait_in_set(set, epfd, events, max, deadline_of_ms(timeout), mask, alone, thread);
    }
    if (is_listening(events, 1, (uint64_t)timeout)) {
        return wait_listening(epfd, events, max, timeout, mask);
    }
    return has_mask ? VIA_REAL(epoll_pwait)(epfd, events, max, timeout, mask)
                    : VIA_REAL(epoll_wait)(epfd, events, max, timeout);
}

VIA_HOOK int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
    return wait_for_ms(epfd, events, max, timeout, NULL, false);
}

VIA_HOOK int epoll_pwait(int epfd, struct epoll_event *events, int max, int timeout,
                         const sigset_t *mask)
{
    return wait_for_ms(epfd, events, max, timeout, mask, true);
}

VIA_HOOK int epoll_pwait2(int epfd, struct epoll_event *events, int max,
                          const struct timespec *timeout, const sigset_t *mask)
{
    via_cancel_point();
    int error = 0;
    bool alone = via_is_alone();
    uint32_t thread;
    struct via_ep_set *set =
        is_sound(events, max, timeout, mask) ? set_of(epfd, alone, &thread) : NULL;
    uint64_t deadline_ns = set != NULL ? deadline_of(timeout, &error) : 0;
    if (set != NULL && error == 0) {
        return wait_in_set(set, epfd, events, max, deadline_ns, mask, alone, thread);
    }
    if (set != NULL) {
        via_file_put_of(&set->file, alone, thread);
    }
    return VIA_REAL(epoll_pwait2)(epfd, events, max, timeout, mask);
}
