/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/io/wait.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/pause.h"
#include "host/client_sys.h"
#include "sockets/conn/bell.h"
#include "sockets/conn/shared.h"
#include "sockets/conn/steward.h"
#include "sockets/fabric/fabric.h"
#include "sockets/hooks/signals.h"
#include "sockets/meet/policy.h"
#include "sockets/process/cancel.h"
#include "sockets/process/fds.h"
#include "sockets/process/os.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"
#include "sockets/stream/spin.h"

/* If a spinning thread was off the CPU for longer than this, another thread was running on it. */
#define GAP_US 60u
/* Polls between two readings of the clock, which takes as long as some polls and delays the
 * handling of an event that comes meanwhile. */
#define POLLS_PER_CLOCK 4u
/* How often to poll the kernel's socket, which takes half a microsecond. */
#define KERNEL_POLL_US 20u
/* How often to yield the CPU to other threads. */
#define YIELD_US 8u
/* How long a thread sleeps if it has no descriptor for its bells. */
#define WITHOUT_BELLS_NS VIA_MSEC_NS
/* If a yield takes longer than this, another thread had the CPU. */
#define TAKEN_US 1u

/* Data of the epoll event for calls of peers (steward.h). Other values: 0 for a bell, else the
 * serial number of a connection. */
#define CALLS UINT64_MAX

/* A thread's epoll set, in which it waits for bells; edge-triggered, because a bell's eventfd is
 * never read. */
struct bell_set {
    _Atomic int fd; /* 0: not made yet */
    uint64_t bells; /* registered bells */
    bool calls;     /* the descriptor for calls of peers is registered, too: steward.h */
    uint64_t conn;  /* serial number of the connection of the last sleep, 0 = none */
    int conn_fd;    /* number of that connection's descriptor */
    bool watched;   /* that descriptor is registered, too */
};

static __thread struct via_spin spin __attribute__((tls_model("initial-exec")));
/* The program's setting for this thread: 1: spin, -1: do not spin, 0: follow the rules file. */
static __thread signed char wanted __attribute__((tls_model("initial-exec")));
static __thread struct bell_set *bell_set __attribute__((tls_model("initial-exec")));
__thread int via_cancel_kept __attribute__((tls_model("initial-exec")));

static __thread struct via_wait *innermost __attribute__((tls_model("initial-exec")));

static struct via_pool bell_set_pool = VIA_POOL_INIT(sizeof(struct bell_set), 65536);

/* --- spinning -------------------------------------------------------------------------------- */

void via_wait_set_spin(int spins)
{
    wanted = spins < 0 ? 0 : spins > 0 ? 1 : -1;
}

void via_wait_begin(struct via_wait *wait)
{
    uint64_t now = via_os_ticks();
    if (via_unlikely(spin.us_ticks == 0)) {
        via_spin_init(&spin, via_os_ticks_us);
    }
    bool spins = via_likely(wanted == 0) ? via_policy.rules.spin : wanted > 0;
    uint64_t end = via_likely(spins) ? now + via_spin_budget(&spin, now) : now;
    bool yields = via_unlikely(spin.yields) || spin.exploring;
    *wait = (struct via_wait){
        .begin_ticks = now,
        .end_ticks = end,
        .last_ticks = now,
        .polled_ticks = now,
        .yield_ticks = yields ? now : now + via_os_us_to_ticks(YIELD_US),
        .outer = innermost,
    };
    innermost = wait;
}

/* Yields the CPU to other threads. Returns the time afterwards. */
static uint64_t yield_cpu(struct via_wait *wait, uint64_t before)
{
    sched_yield();
    uint64_t now = via_os_ticks();
    bool taken = now - before > via_os_us_to_ticks(TAKEN_US);
    wait->taken_at = taken ? wait->polls : 0;
    wait->yield_ticks = spin.yields && taken ? now : now + via_os_us_to_ticks(YIELD_US);
    return now;
}

bool via_wait_spin(struct via_wait *wait)
{
    if (wait->end_ticks == wait->begin_ticks) {
        return false;
    }
    if (via_unlikely(wait->was_off)) {
        via_spin_crowded(&spin, wait->last_ticks);
        wait->end_ticks = wait->begin_ticks;
        return false;
    }
    via_cpu_pause();
    if (++wait->polls % POLLS_PER_CLOCK != 0 && via_likely(!spin.yields)) {
        return true;
    }
    uint64_t now = via_os_ticks();
    if (via_unlikely(now > wait->yield_ticks)) {
        now = yield_cpu(wait, now);
    }
    wait->was_off = now - wait->last_ticks > via_os_us_to_ticks(GAP_US);
    wait->last_ticks = now;
    return wait->was_off || now < wait->end_ticks;
}

bool via_wait_take_poll_due(struct via_wait *wait)
{
    if (via_likely(wait->last_ticks - wait->polled_ticks < via_os_us_to_ticks(KERNEL_POLL_US))) {
        return false;
    }
    wait->polled_ticks = wait->last_ticks;
    return true;
}

void via_wait_end(const struct via_wait *wait)
{
    /* After a wait that ended while spinning the clock is not read: some polls more or less do not
     * change the estimate much. */
    uint64_t now = wait->slept_ticks == 0 ? wait->last_ticks : via_os_ticks();
    via_spin_learn(&spin, now - wait->begin_ticks, wait->slept_ticks);
    if (wait->polls != 0) {
        via_spin_learn_yield(&spin, wait->slept_ticks == 0 && wait->taken_at == wait->polls);
    }
    innermost = wait->outer;
    /* A signal handler's wait may have consumed edges that the interrupted wait needs, if that was
     * about to sleep: ring a bell once more. (An outer wait below this one on the stack, which
     * grows down, was left by longjmp().) */
    if (via_unlikely(wait->outer > wait) && wait->slept_ticks != 0 && bell_set != NULL &&
        bell_set->bells != 0) {
        via_sock_bell_ring((unsigned)__builtin_ctzll(bell_set->bells));
    }
}

void via_wait_sleeps(struct via_wait *wait)
{
    wait->last_ticks = via_os_ticks();
}

void via_wait_slept(struct via_wait *wait)
{
    wait->slept_ticks += via_os_ticks() - wait->last_ticks;
}

/* --- sleeping -------------------------------------------------------------------------------- */

static pthread_key_t bell_set_key;
static pthread_once_t bell_set_key_once = PTHREAD_ONCE_INIT;

static void close_bell_set(void *of_thread)
{
    struct bell_set *dead = of_thread;
    via_hidden_close(&dead->fd);
    via_pool_put(&bell_set_pool, dead);
    bell_set = NULL;
}

static void make_bell_set_key(void)
{
    pthread_key_create(&bell_set_key, close_bell_set);
}

static bool open_bell_set(void)
{
    if (bell_set == NULL) {
        pthread_once(&bell_set_key_once, make_bell_set_key);
        bell_set = via_pool_get(&bell_set_pool);
        pthread_setspecific(bell_set_key, bell_set);
    }
    if (bell_set == NULL) {
        return false;
    }
    if (bell_set->fd <= 0) {
        int fd = VIA_REAL(epoll_create1)(EPOLL_CLOEXEC);
        bell_set->bells = 0;
        bell_set->calls = false;
        bell_set->conn = 0;
        bell_set->watched = false;
        if (fd < 0 || via_hidden_new(fd, &bell_set->fd) != 0) {
            return false;
        }
    }
    return true;
}

/* Registers these bells in the thread's set, and returns the set's descriptor, or -1. */
static int watch_bells(uint64_t bells)
{
    if (via_unlikely(bell_set == NULL || bell_set->fd <= 0) && !open_bell_set()) {
        return -1;
    }
    for (uint64_t new = bells & ~bell_set->bells; new != 0; new &= new - 1) {
        struct epoll_event event = {.events = VIA_BELL_EVENTS};
        VIA_REAL(epoll_ctl)
        (bell_set->fd, EPOLL_CTL_ADD, via_sock_bell_fd((unsigned)__builtin_ctzll(new)), &event);
    }
    bell_set->bells |= bells;
    if (!bell_set->calls && via_steward_is_wanted()) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = CALLS}};
        bell_set->calls = true;
        VIA_REAL(epoll_ctl)(bell_set->fd, EPOLL_CTL_ADD, via_sock_bell_calls(), &event);
    }
    return bell_set->fd;
}

/* Handles the events of a thread's set. A call of a peer is for the process, so this thread handles
 * it. Returns the kernel's events of the registered connection. */
static uint32_t handle_events(const struct epoll_event *events, int count, uint64_t conn)
{
    uint32_t seen = 0;
    bool called = false;
    for (int i = 0; i < count; i++) {
        called |= events[i].data.u64 == CALLS;
        seen |= conn != 0 && events[i].data.u64 == conn ? events[i].events : 0;
    }
    if (via_unlikely(called)) {
        via_steward_take_calls();
    }
    return seen;
}

/* Removes the connection from the set: a thread that sleeps on other descriptors ignores its
 * events. */
static void watch_none(void)
{
    if (bell_set != NULL && bell_set->watched) {
        /* Fails if the connection was closed: it is then not registered any more. */
        VIA_REAL(epoll_ctl)(bell_set->fd, EPOLL_CTL_DEL, bell_set->conn_fd, NULL);
        bell_set->watched = false;
    }
}

uint64_t via_sleep_ns_max(void)
{
    return via_min(via_fabric_sleep_ns_max(), via_shared_sleep_ns_max());
}

static uint64_t until_without_bells(uint64_t deadline_ns)
{
    return deadline_ns == 0 ? 0 : via_min(deadline_ns, via_os_now_ns() + WITHOUT_BELLS_NS);
}

/* fds[count] is the thread's set. */
static int poll_with_bells(struct pollfd *fds, unsigned count, uint64_t deadline_ns,
                           const sigset_t *mask)
{
    struct timespec storage;
    int n = VIA_REAL(ppoll)(fds, count + 1, via_os_time_left(deadline_ns, &storage), mask);
    if (via_unlikely(n < 0 && errno == EINVAL)) {
        /* poll(2) refuses more than RLIMIT_NOFILE entries: poll only the program's. */
        deadline_ns = until_without_bells(deadline_ns);
        n = VIA_REAL(ppoll)(fds, count, via_os_time_left(deadline_ns, &storage), mask);
    }
    return n;
}

int via_sleep(struct pollfd *fds, unsigned count, uint64_t bells, uint64_t deadline_ns,
              const sigset_t *mask)
{
    struct timespec storage;
    uint64_t most_ns = via_sleep_ns_max();
    if (most_ns != VIA_NEVER_NS && deadline_ns != 0) {
        deadline_ns = via_min(deadline_ns, via_os_now_ns() + most_ns);
    }
    watch_none();
    int set_fd = bells != 0 || via_steward_is_wanted() ? watch_bells(bells) : -1;
    if (via_unlikely(bells != 0 && set_fd < 0)) {
        deadline_ns = until_without_bells(deadline_ns); /* no bell can wake this thread */
    }
    fds[count] = (struct pollfd){.fd = set_fd, .events = POLLIN};
    via_signals_mark();
    via_cancel_allow();
    int n = poll_with_bells(fds, count, deadline_ns, mask);
    via_cancel_defer();
    if (n < 0) {
        return -errno;
    }
    bool rung = fds[count].revents != 0;
    if (rung) {
        struct epoll_event events[8];
        int taken;
        /* Consumes the edges: otherwise the next sleep would end at once. */
        do {
            taken = VIA_REAL(epoll_wait)(set_fd, events, 8, 0);
            handle_events(events, taken, 0);
        } while (taken == 8);
        n--;
    }
    if (via_unlikely(rung && n == 0 && mask != NULL)) {
        /* A bell, which may have rung earlier, ended the poll before the signals that `mask` allows
         * were delivered. */
        n = VIA_REAL(ppoll)(fds, count, via_os_time_left(0, &storage), mask);
        return n < 0 ? -errno : n;
    }
    return n;
}

static bool watch(int fd, uint64_t conn, uint64_t bells)
{
    if (bells == 0 || via_fabric_sleep_ns_max() != VIA_NEVER_NS || watch_bells(bells) < 0) {
        return false;
    }
    if (bell_set->conn != conn || bell_set->conn_fd != fd) {
        watch_none();
        bell_set->conn = conn; /* registering pays only if the thread waits for it again */
        bell_set->conn_fd = fd;
        return false;
    }
    if (!bell_set->watched) {
        struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data = {.u64 = conn}};
        bell_set->watched = VIA_REAL(epoll_ctl)(bell_set->fd, EPOLL_CTL_ADD, fd, &event) == 0;
    }
    return bell_set->watched;
}

int via_sleep_watching(int fd, uint64_t conn, uint64_t bells, uint64_t most_ns,
                       uint32_t *ret_events)
{
    struct epoll_event events[8];
    if (!watch(fd, conn, bells)) {
        return -EAGAIN;
    }
    most_ns = via_min(most_ns, via_shared_sleep_ns_max());
    int most_ms = most_ns == VIA_NEVER_NS ? -1 : (int)(most_ns / VIA_MSEC_NS);
    via_signals_mark();
    via_cancel_allow();
    int n = VIA_REAL(epoll_wait)(bell_set->fd, events, 8, most_ms);
    via_cancel_defer();
    *ret_events = 0;
    if (n < 0) {
        return -errno;
    }
    *ret_events = handle_events(events, n, conn);
    return 0;
}

void via_wait_forked(void)
{
    /* The child shares the set with its parent, which would miss events that the child consumes. */
    if (bell_set != NULL) {
        via_hidden_close(&bell_set->fd);
    }
}
