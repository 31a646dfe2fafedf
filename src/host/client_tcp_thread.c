/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Direct connections, the end that owns the memory: its threads, opening and closing.
 *
 * One thread at a time, the holder of `lock`, polls the connections. That is the library's thread,
 * which sleeps on them, or a thread of the program that waits. While threads of the program poll,
 * the library's thread rests for REST_NS at a time.
 *
 * A host serves the segments of all its processes in the same way (host_direct.c). There `calls`
 * decide who may connect and which memory a request reaches, no other thread polls, and the thread
 * polls for a while before it sleeps.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "host/client_auto.h"
#include "host/client_sys.h"
#include "host/client_tcp_serve_inside.h"

/* Time for which the library's thread leaves the connections to threads that poll. If such a thread
 * stops before it has taken all requests, the remaining requests wait for this time. */
#define REST_NS (200 * VIA_USEC_NS)
#define FLUSH_AGAIN_MS 1
#define TEND_AGAIN_MS 100
/* Interval between attempts to get a descriptor for a connection that waits in the backlog. */
#define EXHAUSTED_NS (10 * VIA_MSEC_NS)
/* Interval at which a thread that polls checks whether the machine is crowded. */
#define CROWDED_NS VIA_MSEC_NS
#define TAG_WAKE UINT32_MAX
#define TAG_LISTEN (UINT32_MAX - 1)

/* --- turns ------------------------------------------------------------------------------------ */

/* [lock] */
static unsigned serve_events(struct via_client_serve *serve, const struct epoll_event *events,
                             int count)
{
    unsigned work = 0;
    for (int i = 0; i < count; i++) {
        uint32_t tag = events[i].data.u32;
        if (tag == TAG_LISTEN) {
            via_client_serve_accept(serve);
        } else if (tag < serve->conns_end && serve->conns[tag].fd >= 0) {
            work += via_client_serve_conn(serve, &serve->conns[tag]);
        }
    }
    return work;
}

unsigned via_client_serve_poll(struct via_client_serve *serve)
{
    struct epoll_event events[VIA_CLIENT_SERVE_EVENTS_MAX];
    if (serve == NULL || serve->listen_fd < 0) {
        return 0; /* this process does not listen */
    }
    if (!atomic_load_explicit(&serve->polled, memory_order_relaxed)) {
        atomic_store_explicit(&serve->polled, true, memory_order_relaxed);
    }
    if (pthread_mutex_trylock(&serve->lock) != 0) {
        return 0;
    }
    unsigned strangers = serve->strangers;
    int count = via_sys_epoll_wait(serve->epoll_fd, events, VIA_CLIENT_SERVE_EVENTS_MAX, 0);
    unsigned work = serve_events(serve, events, count);
    bool has_stranger = serve->strangers > strangers;
    pthread_mutex_unlock(&serve->lock);
    if (has_stranger) {
        /* the library's thread limits the time of a connection without a token */
        via_client_serve_poke(serve);
    }
    return work;
}

void via_client_serve_poke(struct via_client_serve *serve)
{
    uint64_t one = 1;
    if (!atomic_exchange_explicit(&serve->poked, true, memory_order_seq_cst)) {
        (void)!syscall(SYS_write, serve->wake_fd, &one, sizeof(one));
    }
}

/* Sleeps until a poke, at most for this time. */
static void rest(const struct via_client_serve *serve, long ns)
{
    struct pollfd wake = {.fd = serve->wake_fd, .events = POLLIN};
    struct timespec time = {.tv_nsec = ns};
    (void)!syscall(SYS_ppoll, &wake, 1, &time, NULL, 8);
}

/* Does the work of a poke. Returns how long the thread may sleep, in ms; -1: until an event. */
static int flush(struct via_client_serve *serve)
{
    uint64_t pokes;
    if (serve->attach == NULL && !atomic_load_explicit(&serve->poked, memory_order_relaxed)) {
        return -1;
    }
    (void)!syscall(SYS_read, serve->wake_fd, &pokes, sizeof(pokes));
    /* Before the check for held-back requests: requests that come later poke again. */
    atomic_store_explicit(&serve->poked, false, memory_order_seq_cst);
    if (serve->attach == NULL) {
        return -1;
    }
    bool tends = via_client_auto_tend(serve->attach);
    return !via_client_tcp_all_flush(serve->attach) ? FLUSH_AGAIN_MS : tends ? TEND_AGAIN_MS : -1;
}

/* [lock] Ends the connections that the host does not keep (is_unwanted). */
static void end_unwanted(struct via_client_serve *serve)
{
    if (!atomic_exchange_explicit(&serve->review, false, memory_order_acquire)) {
        return;
    }
    for (unsigned i = 0; i < serve->conns_end; i++) {
        struct via_client_serve_conn *conn = &serve->conns[i];
        if (conn->fd >= 0 && conn->known &&
            serve->calls->is_unwanted(serve->calls->ctx, conn->peer,
                                      serve->now_ns - conn->used_ns)) {
            via_client_serve_end(serve, conn);
        }
    }
}

static bool is_crowded(struct via_client_serve *serve, uint64_t now_ns)
{
    if (now_ns - serve->crowded_at_ns >= CROWDED_NS) {
        serve->crowded_at_ns = now_ns;
        serve->crowded = serve->calls->is_crowded(serve->calls->ctx);
    }
    return serve->crowded;
}

/* Of a host: true if its thread continues to poll instead of sleeping, because a recent turn did
 * something. */
static bool decide_polling(struct via_client_serve *serve, unsigned work)
{
    uint64_t now_ns = serve->calls != NULL ? via_client_now_ns() : 0;
    if (now_ns == 0 || (work == 0 && serve->idle_since_ns == 0)) {
        return false;
    }
    if (work != 0) {
        if (serve->idle_since_ns != 0) {
            via_host_spin_learn(&serve->spin, now_ns - serve->idle_since_ns, !serve->slept);
        }
        serve->idle_since_ns = now_ns;
        serve->slept = false;
        return true;
    }
    serve->slept = serve->slept || now_ns - serve->idle_since_ns >= serve->spin.budget_ns ||
                   is_crowded(serve, now_ns);
    return !serve->slept;
}

/* [lock] A turn of the thread. Returns how much it did. */
static unsigned take_turn(struct via_client_serve *serve, const struct epoll_event *events,
                          int count)
{
    const struct via_client_serve_calls *calls = serve->calls;
    if (calls == NULL) {
        return serve_events(serve, events, count);
    }
    serve->now_ns = via_client_now_ns();
    calls->turn(calls->ctx, true);
    end_unwanted(serve);
    unsigned work = serve_events(serve, events, count);
    calls->turn(calls->ctx, false);
    return work;
}

static void *run(void *argument)
{
    struct via_client_serve *serve = argument;
    struct epoll_event events[VIA_CLIENT_SERVE_EVENTS_MAX];
    int sleep_ms = -1;
    while (!atomic_load_explicit(&serve->stopping, memory_order_acquire)) {
        int count =
            via_sys_epoll_wait(serve->epoll_fd, events, VIA_CLIENT_SERVE_EVENTS_MAX, sleep_ms);
        sleep_ms = flush(serve);
        if (count > 0 && atomic_exchange_explicit(&serve->polled, false, memory_order_relaxed)) {
            rest(serve, REST_NS);
            sleep_ms = 0; /* the next turn also ends strangers, and decides how long to sleep */
            continue;
        }
        pthread_mutex_lock(&serve->lock);
        serve->exhausted = false;
        unsigned work = take_turn(serve, events, count);
        via_client_serve_end_strangers(serve);
        if (decide_polling(serve, work)) {
            sleep_ms = 0;
        } else if (serve->strangers != 0) {
            sleep_ms = sleep_ms < 0 ? (int)(VIA_SEC_NS / VIA_MSEC_NS) : sleep_ms;
        }
        bool exhausted = serve->exhausted;
        pthread_mutex_unlock(&serve->lock);
        if (exhausted) {
            rest(serve, EXHAUSTED_NS);
        }
    }
    return NULL;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static int start(struct via_client_serve *serve)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&serve->thread, NULL, run, serve);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    serve->started = code == 0;
    if (code == 0) {
        pthread_setname_np(serve->thread, "via-direct");
    }
    return -code;
}

static int open_serve(struct via_client_serve *serve, const char *address)
{
    serve->conns = calloc(VIA_CLIENT_SERVE_CONNS_MAX, sizeof(*serve->conns));
    if (serve->conns == NULL) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < VIA_CLIENT_SERVE_CONNS_MAX; i++) {
        serve->conns[i].fd = -1;
    }
    if (getrandom(serve->card.token, sizeof(serve->card.token), 0) !=
        (ssize_t)sizeof(serve->card.token)) {
        return -EIO;
    }
    int fd = address != NULL ? via_client_tcp_listen(address, &serve->card) : -1;
    if (address != NULL && fd < 0) {
        return fd;
    }
    serve->listen_fd = fd;
    int epoll_fd = via_sys_epoll_create();
    if (epoll_fd < 0) {
        return epoll_fd;
    }
    serve->epoll_fd = via_client_fd_keep(epoll_fd);
    int wake_fd = (int)via_sys_result(syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wake_fd < 0) {
        return wake_fd;
    }
    serve->wake_fd = via_client_fd_keep(wake_fd);
    int rc = via_sys_epoll_add(serve->epoll_fd, serve->wake_fd, EPOLLIN, TAG_WAKE);
    if (rc == 0 && serve->listen_fd >= 0) {
        rc = via_sys_epoll_add(serve->epoll_fd, serve->listen_fd, EPOLLIN, TAG_LISTEN);
    }
    serve->card.magic = VIA_TCP_MAGIC;
    return rc == 0 ? start(serve) : rc;
}

static int new_serve(struct via_attach *attach, const struct via_client_serve_calls *calls,
                     const char *address, struct via_client_serve **ret_serve)
{
    struct via_client_serve *serve = calloc(1, sizeof(*serve));
    if (serve == NULL) {
        return -ENOMEM;
    }
    serve->attach = attach;
    serve->calls = calls;
    serve->listen_fd = serve->epoll_fd = serve->wake_fd = -1;
    via_host_spin_init(&serve->spin, calls != NULL ? calls->spin_ns_max : 0);
    pthread_mutex_init(&serve->lock, NULL);
    int rc = open_serve(serve, address);
    if (rc != 0) {
        via_client_serve_close(serve, true);
        return rc;
    }
    *ret_serve = serve;
    return 0;
}

int via_client_serve_open(struct via_attach *attach, const char *address,
                          struct via_client_serve **ret_serve)
{
    return new_serve(attach, NULL, address, ret_serve);
}

int via_client_serve_open_host(const struct via_client_serve_calls *calls, const char *address,
                               struct via_client_serve **ret_serve)
{
    return new_serve(NULL, calls, address, ret_serve);
}

void via_client_serve_review(struct via_client_serve *serve)
{
    /* Pairs with the acquire in end_unwanted(). */
    atomic_store_explicit(&serve->review, true, memory_order_release);
    via_client_serve_poke(serve);
}

const struct via_tcp_card *via_client_serve_card(const struct via_client_serve *serve)
{
    return &serve->card;
}

int via_tcp_offer(struct via_attach *attach, struct via_tcp_card *ret_card)
{
    struct via_attach_tcp where;
    int rc =
        attach->serve != NULL ? -EALREADY : via_tcp_request_address(attach, attach->host, &where);
    struct via_client_serve *serve = NULL;
    if (rc == 0) {
        rc = via_client_serve_open(attach, where.local, &serve);
    }
    if (rc == 0) {
        *ret_card = serve->card;
        attach->serve = serve;
    }
    return rc;
}

int via_tcp_serve(struct via_segment *segment)
{
    struct via_client_serve *serve = segment->attach->serve;
    int rc = serve == NULL || segment->base == NULL ? -EXDEV : 0;
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&serve->lock);
    if (serve->segments_count < VIA_CLIENT_SERVE_SEGMENTS_MAX) {
        serve->segments[serve->segments_count++] = (struct via_client_served){
            .handle = segment->handle, .base = segment->base, .bytes = segment->bytes};
    } else {
        rc = -ENOSPC;
    }
    pthread_mutex_unlock(&serve->lock);
    return rc;
}

void via_client_serve_drop(struct via_client_serve *serve, const struct via_segment *segment)
{
    if (serve == NULL || segment->attach->pid != getpid()) {
        return; /* in a child this copy serves nothing, and its lock may be held forever */
    }
    pthread_mutex_lock(&serve->lock);
    for (unsigned i = 0; i < serve->segments_count; i++) {
        if (serve->segments[i].handle == segment->handle) {
            serve->segments[i] = serve->segments[--serve->segments_count];
            break;
        }
    }
    pthread_mutex_unlock(&serve->lock);
}

void via_client_serve_close(struct via_client_serve *serve, bool own)
{
    if (serve == NULL) {
        return;
    }
    if (serve->started && own) {
        atomic_store_explicit(&serve->stopping, true, memory_order_release);
        atomic_store_explicit(&serve->poked, false, memory_order_seq_cst);
        via_client_serve_poke(serve);
        pthread_join(serve->thread, NULL);
    }
    for (unsigned i = 0; serve->conns != NULL && i < serve->conns_end; i++) {
        struct via_client_serve_conn *conn = &serve->conns[i];
        if (conn->fd >= 0 && own) {
            via_client_serve_end(serve, conn);
        } else if (conn->fd >= 0) {
            via_client_serve_forget(serve, conn);
        }
    }
    const int fds[] = {serve->listen_fd, serve->epoll_fd, serve->wake_fd};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            via_client_fd_close(fds[i]);
        }
    }
    pthread_mutex_destroy(&serve->lock);
    free(serve->conns);
    free(serve);
}
