/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/epoll/poll_set.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sockets/epoll/epoll_set.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/stall.h"
#include "sockets/io/wait.h"
#include "sockets/process/cancel.h"
#include "sockets/process/real.h"

/* Interval between polls of the kernel while connections with pipes are ready. */
#define KERNEL_POLL_US 50u
#define ON_STACK 128u
/* Interval between non-blocking calls that do the work of a sleep. */
#define SLEEP_US 1000u
/* Maximum of descriptors for which a spinning thread polls the kernel. */
#define SPIN_FDS_MAX 16u

/* Longest sleep if a polled epoll set contains connections that could not be demoted. */
#define STAYED_NS VIA_MSEC_NS

/* One call. kernel[i] is the kernel's part of fds[i]. */
struct call {
    struct pollfd *fds;
    nfds_t count;
    struct pollfd *kernel;
    nfds_t count_max; /* room in `kernel`: via_sleep() needs one entry more than `count` */
    uint64_t bells;   /* bells to watch */
    bool others;      /* some descriptors are not connections */
    uint64_t most_ns; /* longest sleep: see stall.h */
};

/* Begins an operation on fd if fd is a connection with pipes; else returns false. Adds the bells to
 * watch to *bells, also that of a connection which may still get pipes. */
static bool begin_piped(struct via_op *op, int fd, uint64_t *bells)
{
    if (!via_op_begin(op, fd)) {
        return false;
    }
    if (bells != NULL) {
        *bells |= via_conn_bells(op->conn);
    }
    if (via_conn_has_pipes(op->conn)) {
        return true;
    }
    via_op_end(op);
    return false;
}

/* Fills in revents of connections with pipes, and the events for which to poll the kernel. Returns
 * how many descriptors have events. */
static int fill_revents(struct call *call)
{
    int ready = 0;
    call->others = false;
    call->bells = 0;
    for (nfds_t i = 0; i < call->count; i++) {
        struct via_op op;
        struct pollfd *pfd = &call->fds[i];
        uint32_t wanted = (uint32_t)(unsigned short)pfd->events;
        pfd->revents = 0;
        call->kernel[i] = (struct pollfd){.fd = pfd->fd, .events = pfd->events};
        if (begin_piped(&op, pfd->fd, &call->bells)) {
            pfd->revents = (short)via_io_ready(&op, wanted);
            call->kernel[i].fd = via_io_kernel_fd(&op);
            call->kernel[i].events = (short)via_io_kernel_events(&op, wanted);
            via_op_end(&op);
        } else {
            struct via_ep_stayed stayed = via_ep_polled(pfd->fd);
            call->others = true;
            pfd->revents = stayed.ready ? (short)(wanted & (POLLIN | POLLRDNORM)) : 0;
            if (via_unlikely(stayed.any)) {
                call->most_ns = via_min(call->most_ns, STAYED_NS); /* bells are not watched here */
            }
        }
        ready += pfd->revents != 0 ? 1 : 0;
    }
    return ready;
}

static void arm(struct call *call)
{
    call->most_ns = VIA_NEVER_NS;
    for (nfds_t i = 0; i < call->count; i++) {
        struct via_op op;
        uint32_t wanted = (uint32_t)(unsigned short)call->fds[i].events;
        if (begin_piped(&op, call->fds[i].fd, NULL)) {
            via_io_arm(&op, wanted);
            if ((wanted & (POLLOUT | POLLWRNORM)) != 0) {
                call->most_ns = via_min(call->most_ns, via_stall_watch(&op));
            }
            via_op_end(&op);
        }
    }
}

/* Merges the kernel's result. Returns how many descriptors have events now. */
static int merge(struct call *call)
{
    int ready = 0;
    for (nfds_t i = 0; i < call->count; i++) {
        struct via_op op;
        struct pollfd *pfd = &call->fds[i];
        short seen = call->kernel[i].revents;
        if (seen != 0 && begin_piped(&op, pfd->fd, NULL)) {
            /* The kernel's report is not enough: the pipe's bytes come before an end. */
            via_io_note_kernel_events(&op, (uint32_t)(unsigned short)seen, 0);
            pfd->revents = (short)via_io_ready(&op, (uint32_t)(unsigned short)pfd->events);
            via_op_end(&op);
        } else {
            pfd->revents = (short)(pfd->revents | seen);
        }
        ready += pfd->revents != 0 ? 1 : 0;
    }
    return ready;
}

/* True at most once in `us` microseconds. */
static bool take_due(uint64_t *last_ticks, unsigned us)
{
    uint64_t now = via_os_ticks();
    if (now - *last_ticks < via_os_us_to_ticks(us)) {
        return false;
    }
    *last_ticks = now;
    return true;
}

/* True if the kernel must be polled although connections are ready. */
static bool take_kernel_turn(void)
{
    static __thread uint64_t polled_ticks __attribute__((tls_model("initial-exec")));
    return take_due(&polled_ticks, KERNEL_POLL_US);
}

/*
 * True if this call need not do the work of a sleep (watch bells, arm the peer, handle its calls,
 * watch stalls). A program that polls again and again without waiting does not sleep, so no peer
 * needs to ring; one such call in SLEEP_US does the work.
 */
static bool is_without_sleep(const struct call *call, int ready, uint64_t deadline_ns,
                             const sigset_t *mask)
{
    static __thread uint64_t slept_ticks __attribute__((tls_model("initial-exec")));
    return (ready != 0 || deadline_ns == 0) && mask == NULL &&
           (call->bells & via_sock_bells_adopted()) == 0 && !take_due(&slept_ticks, SLEEP_US);
}

/* Adds the kernel's events. ready: number of connections with pipes that are ready. */
static int poll_kernel(struct call *call, int ready)
{
    int n = VIA_REAL(poll)(call->kernel, call->count, 0);
    return n > 0 ? merge(call) : n == 0 || ready != 0 ? ready : -errno;
}

/* State for a thread that is cancelled in poll(). */
struct sleeper {
    struct call *call;
    const struct via_wait *wait;
    const struct via_bell_sleep *sleep;
};

static void free_kernel(const struct call *call)
{
    if (call->count_max > ON_STACK) {
        free(call->kernel);
    }
}

static void give_up(void *of_sleeper)
{
    const struct sleeper *sleeper = of_sleeper;
    via_sock_bell_leave(sleeper->sleep);
    via_wait_end(sleeper->wait);
    free_kernel(sleeper->call);
}

static int sleep_cancellably(struct call *call, const struct via_bell_sleep *sleep,
                             uint64_t until_ns, const sigset_t *mask, const struct via_wait *wait)
{
    struct sleeper sleeper = {.call = call, .wait = wait, .sleep = sleep};
    struct via_cancel before;
    int n;
    via_cancel_off(&before);
    pthread_cleanup_push(give_up, &sleeper);
    n = via_sleep(call->kernel, (unsigned)call->count, sleep->bells, until_ns, mask);
    pthread_cleanup_pop(0);
    via_cancel_back(&before);
    return n;
}

/* Collects all present events; waits for them until the deadline, or not at all. *ret_over when the
 * deadline has passed. */
static int check_and_sleep(struct call *call, uint64_t deadline_ns, const sigset_t *mask,
                           struct via_wait *wait, bool *ret_over)
{
    arm(call);
    struct via_bell_sleep sleep;
    via_sock_bell_enter(&sleep, call->bells);
    int ready = fill_revents(call);
    uint64_t until_ns = ready != 0 || call->bells != sleep.bells ? 0 : deadline_ns;
    if (via_unlikely(call->most_ns != VIA_NEVER_NS) && until_ns != 0) {
        until_ns = via_min(until_ns, via_os_now_ns() + call->most_ns);
    }
    via_wait_sleeps(wait);
    int n = sleep_cancellably(call, &sleep, until_ns, mask, wait);
    via_wait_slept(wait);
    via_sock_bell_leave(&sleep);
    if (n < 0) {
        return ready != 0 ? ready : n;
    }
    ready = merge(call);
    *ret_over = deadline_ns != VIA_NEVER_NS && via_os_now_ns() >= deadline_ns;
    return ready;
}

/* Polls the kernel, whose events a spinning thread would notice late. */
static int poll_kernel_while_spinning(struct call *call)
{
    return call->count <= SPIN_FDS_MAX && VIA_REAL(poll)(call->kernel, call->count, 0) > 0
               ? merge(call)
               : 0;
}

static int poll_call(struct call *call, uint64_t deadline_ns, const sigset_t *mask)
{
    struct via_wait wait;
    bool over = false;
    int ready = 0;
    via_wait_begin(&wait);
    while (ready == 0 && !over) {
        ready = fill_revents(call);
        if (ready != 0 && (!call->others || !take_kernel_turn())) {
            break;
        }
        if (ready == 0 && deadline_ns != 0 && via_wait_spin(&wait)) {
            if (via_wait_take_poll_due(&wait)) {
                ready = poll_kernel_while_spinning(call);
            }
            continue;
        }
        if (is_without_sleep(call, ready, deadline_ns, mask)) {
            ready = poll_kernel(call, ready);
            over = deadline_ns == 0;
        } else {
            ready = check_and_sleep(call, ready != 0 ? 0 : deadline_ns, mask, &wait, &over);
        }
    }
    via_wait_end(&wait);
    return ready;
}

int via_poll(struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask)
{
    struct pollfd on_stack[ON_STACK];
    struct call call = {.fds = fds, .count = count, .kernel = on_stack, .count_max = 2 * count + 1};
    if (call.count_max > ON_STACK) {
        call.kernel = malloc(call.count_max * sizeof(*call.kernel));
        if (call.kernel == NULL) {
            return -ENOMEM;
        }
    }
    int rc = poll_call(&call, deadline_ns, mask);
    free_kernel(&call);
    return rc;
}
