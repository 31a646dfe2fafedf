/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The implementation for Linux: a thread for each hub, which sleeps on an epoll set. */
#include "port/ofi/system.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"
#include "port/ofi/hub.h"
#include "port/ofi/port.h"

#define CONN_NONE 0u /* in place of a connection's number */

/* hub->waiter */
struct waiter {
    struct via_ofi_hub *hub;
    int epoll_fd;
    int wake_fd; /* eventfd, written by kick() */
    pthread_t thread;
    bool thread_started;
    _Atomic bool stopping;
};

uint64_t via_ofi_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
}

static const struct via_ofi_library *get_library(const struct via_ofi_system *system,
                                                 struct via_error *err)
{
    (void)system;
    return via_ofi_library_load(err);
}

static uint64_t get_time(const struct via_ofi_system *system)
{
    (void)system;
    return via_ofi_now_ns();
}

static bool get_random(const struct via_ofi_system *system, void *ret_bytes, size_t bytes)
{
    (void)system;
    return getrandom(ret_bytes, bytes, 0) == (ssize_t)bytes;
}

static void set_event(int fd)
{
    uint64_t one = 1;
    (void)!write(fd, &one, sizeof(one));
}

/* --- the thread ------------------------------------------------------------------------------- */

static void kick(struct via_ofi_hub *hub)
{
    const struct waiter *waiter = hub->waiter;
    set_event(waiter->wake_fd);
}

static void sleep_until(struct waiter *waiter, uint64_t deadline_ns)
{
    struct pollfd any = {.fd = waiter->epoll_fd, .events = POLLIN};
    uint64_t now_ns = via_ofi_now_ns();
    uint64_t wait_ns = via_min(deadline_ns > now_ns ? deadline_ns - now_ns : 0, VIA_SEC_NS);
    const struct timespec wait = {.tv_sec = (time_t)(wait_ns / VIA_SEC_NS),
                                  .tv_nsec = (long)(wait_ns % VIA_SEC_NS)};
    /* ppoll(), because the timeout of epoll_wait() is in milliseconds. */
    (void)ppoll(&any, 1, deadline_ns == VIA_NEVER_NS ? NULL : &wait, NULL);
    uint64_t kicks;
    (void)!read(waiter->wake_fd, &kicks, sizeof(kicks));
}

static void *run(void *argument)
{
    struct waiter *waiter = argument;
    while (!atomic_load_explicit(&waiter->stopping, memory_order_acquire)) {
        sleep_until(waiter, via_ofi_hub_turn(waiter->hub));
    }
    return NULL;
}

static int open_set(struct waiter *waiter)
{
    struct fid_eq *eq = waiter->hub->eq;
    int eq_fd;
    waiter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    waiter->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (waiter->epoll_fd < 0 || waiter->wake_fd < 0) {
        return -errno;
    }
    int rc = fi_control(&eq->fid, FI_GETWAIT, &eq_fd);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = CONN_NONE};
    if (rc == 0 && (epoll_ctl(waiter->epoll_fd, EPOLL_CTL_ADD, eq_fd, &event) != 0 ||
                    epoll_ctl(waiter->epoll_fd, EPOLL_CTL_ADD, waiter->wake_fd, &event) != 0)) {
        rc = -errno;
    }
    return rc;
}

static void stop(struct via_ofi_hub *hub)
{
    struct waiter *waiter = hub->waiter;
    if (waiter == NULL) {
        return;
    }
    if (waiter->thread_started) {
        atomic_store_explicit(&waiter->stopping, true, memory_order_release);
        set_event(waiter->wake_fd);
        pthread_join(waiter->thread, NULL);
    }
    if (waiter->epoll_fd >= 0) {
        close(waiter->epoll_fd);
    }
    if (waiter->wake_fd >= 0) {
        close(waiter->wake_fd);
    }
    free(waiter);
    hub->waiter = NULL;
}

static int start(struct via_ofi_hub *hub, struct via_error *err)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    sigset_t all;
    sigset_t old;
    if (waiter == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    waiter->hub = hub;
    waiter->epoll_fd = waiter->wake_fd = -1;
    hub->waiter = waiter;
    int rc = open_set(waiter);
    if (rc != 0) {
        return via_error_set(err, rc, "descriptors: %s", hub->library->strerror(-rc));
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&waiter->thread, NULL, run, waiter);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0) {
        return via_error_set(err, -code, "thread: %s", strerror(code));
    }
    waiter->thread_started = true;
    pthread_setname_np(waiter->thread, "via-ofi");
    return 0;
}

/* --- completion queues ------------------------------------------------------------------------ */

static int control_set(struct via_ofi_conn *conn, int how, uint32_t events)
{
    const struct waiter *waiter = conn->hub->waiter;
    struct epoll_event event = {.events = events, .data.u64 = conn->number};
    return epoll_ctl(waiter->epoll_fd, how, conn->cq_fd, &event) == 0 ? 0 : -errno;
}

static int watch_open(struct via_ofi_conn *conn)
{
    int rc = fi_control(&conn->cq->fid, FI_GETWAIT, &conn->cq_fd);
    return rc == 0 ? control_set(conn, EPOLL_CTL_ADD, EPOLLIN) : rc;
}

static void watch_set(struct via_ofi_conn *conn, bool watched)
{
    (void)control_set(conn, EPOLL_CTL_MOD, watched ? EPOLLIN : 0u);
}

static void watch_close(struct via_ofi_conn *conn)
{
    (void)control_set(conn, EPOLL_CTL_DEL, 0);
}

/* --- wake-ups of the host's threads
 * ---------------------------------------------------------------------- */

static int open_changed_fd(struct via_ofi_port *port)
{
    port->changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return port->changed_fd < 0 ? -errno : 0;
}

static void changed(struct via_ofi_port *port)
{
    set_event(port->changed_fd);
}

static void pause_thread(struct via_ofi_hub *hub)
{
    (void)hub;
    sched_yield();
}

const struct via_ofi_system via_ofi_system = {
    .load = get_library,
    .now_ns = get_time,
    .random = get_random,
    .start = start,
    .stop = stop,
    .kick = kick,
    .watch_open = watch_open,
    .watch_set = watch_set,
    .watch_close = watch_close,
    .changed_open = open_changed_fd,
    .changed = changed,
    .pause = pause_thread,
};
