/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The control thread: cables, sockets, and the part of the node that is not time-critical. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "host/host_private.h"
#include "port/bell.h"

#define EVENTS_PER_TURN 64
#define TIMER_SLACK_NS (1000ul * 1000)
#define TURN_NS (5 * VIA_MSEC_NS)
#define NICE (-10)

uint64_t via_host_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void via_host_poke(struct via_host *host)
{
    uint64_t one = 1;
    (void)!write(host->poke.fd, &one, sizeof(one));
}

void via_host_control_request(struct via_host *host)
{
    if (!atomic_exchange_explicit(&host->node_requested, true, memory_order_acq_rel)) {
        via_host_poke(host);
    }
}

static void poked(struct via_host_source *source, uint32_t events)
{
    uint64_t count;
    (void)events;
    (void)!read(source->fd, &count, sizeof(count));
}

int via_host_source_add(struct via_host *host, struct via_host_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(host->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) == 0 ? 0 : -errno;
}

int via_host_source_modify(struct via_host *host, struct via_host_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(host->epoll_fd, EPOLL_CTL_MOD, source->fd, &event) == 0 ? 0 : -errno;
}

void via_host_source_remove(struct via_host *host, struct via_host_source *source)
{
    if (source->fd >= 0) {
        epoll_ctl(host->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
        source->fd = -1;
    }
}

void via_host_bury(struct via_host *host, struct via_host_grave *grave, void *memory)
{
    grave->memory = memory;
    via_list_push_back(&host->graveyard, &grave->link);
}

static void free_buried(struct via_host *host)
{
    for (struct via_list *link; (link = via_list_pop_front(&host->graveyard)) != NULL;) {
        free(via_list_entry(link, struct via_host_grave, link)->memory);
    }
}

uint64_t via_host_sync(struct via_host *host)
{
    /* Release: a thread that loads this target finds the tables without the entries that were
     * removed before. */
    uint64_t target = atomic_fetch_add_explicit(&host->sync_target, 1, memory_order_acq_rel) + 1;
    for (unsigned i = 0; i < host->config.channels_count; i++) {
        via_bell_ring(host->transfers[i].bell);
    }
    return target;
}

bool via_host_is_synced(const struct via_host *host, uint64_t target)
{
    for (unsigned i = 0; i < host->config.channels_count; i++) {
        /* Pairs with the release in catch_up(). */
        if (atomic_load_explicit(&host->transfers[i].synced, memory_order_acquire) < target) {
            return false;
        }
    }
    return via_host_direct_is_synced(host, target);
}

int via_host_control_open(struct via_host *host, struct via_error *err)
{
    via_list_init(&host->graveyard);
    host->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (host->epoll_fd < 0) {
        return via_error_set(err, -errno, "epoll_create1: %s", strerror(errno));
    }
    host->poke.ready = poked;
    host->poke.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (host->poke.fd < 0) {
        return via_error_set(err, -errno, "eventfd: %s", strerror(errno));
    }
    int rc = via_host_source_add(host, &host->poke, EPOLLIN);
    return rc != 0 ? via_error_set(err, rc, "epoll: %s", strerror(-rc)) : 0;
}

void via_host_control_close(struct via_host *host)
{
    if (host->poke.fd >= 0) {
        int fd = host->poke.fd;
        via_host_source_remove(host, &host->poke);
        close(fd);
    }
    if (host->epoll_fd >= 0) {
        free_buried(host);
        close(host->epoll_fd);
    }
}

uint64_t via_host_fabric_tick(struct via_host *host)
{
    uint64_t deadline_ns = via_host_cables_tick(host);
    /* Before the node polls: a request that arrives from now on is served in the next turn. */
    bool requested = atomic_load_explicit(&host->node_requested, memory_order_relaxed) &&
                     atomic_exchange_explicit(&host->node_requested, false, memory_order_acq_rel);
    if (requested || host->node_due || host->now_ns >= host->node_deadline_ns) {
        host->node_due = false;
        host->node_deadline_ns = VIA_NEVER_NS;
        via_node_control(host->node, host->now_ns, &host->node_deadline_ns);
    }
    deadline_ns = via_min(deadline_ns, host->node_deadline_ns);
    if (host->changed) {
        host->changed = false;
        via_host_cables_changed(host);
        via_host_board_changed(host);
        via_host_directory_changed(host);
        via_attach_server_changed(host);
        via_host_direct_changed(host);
    }
    return deadline_ns;
}

/* Handles expired deadlines, and requests of other threads and hosts; returns the next deadline. */
static uint64_t tick(struct via_host *host)
{
    uint64_t deadline_ns = via_host_fabric_tick(host);
    deadline_ns = via_min(deadline_ns, via_host_messages_tick(host));
    via_reaper_tick(host->reaper);
    deadline_ns = via_min(deadline_ns, via_host_board_tick(host));
    deadline_ns = via_min(deadline_ns, via_attach_server_tick(host));
    deadline_ns = via_min(deadline_ns, via_tenants_tick(host));
    deadline_ns = via_min(deadline_ns, via_host_warnings_tick(host));
    deadline_ns = via_min(deadline_ns, via_host_aperture_tick(host));
    deadline_ns = via_min(deadline_ns, via_host_directory_tick(host));
    via_host_ids_tick(host);
    deadline_ns = via_min(deadline_ns, via_control_remote_tick(host));
    deadline_ns = via_min(deadline_ns, via_host_change_tick(host));
    deadline_ns = via_min(deadline_ns, via_control_server_tick(host));
    return deadline_ns;
}

static int timeout_ms(uint64_t now_ns, uint64_t deadline_ns)
{
    if (deadline_ns == VIA_NEVER_NS) {
        return -1;
    }
    if (deadline_ns <= now_ns) {
        return 0;
    }
    /* Rounded up; otherwise the thread would spend the last millisecond polling. */
    return (int)via_min((deadline_ns - now_ns + VIA_MSEC_NS - 1) / VIA_MSEC_NS, 60000u);
}

/* Serves at most events_max sources. True: the time of the turn ended before all reported sources
 * were served. */
static bool sleep_and_serve(struct via_host *host, uint64_t deadline_ns, int events_max)
{
    struct epoll_event events[EVENTS_PER_TURN];
    bool is_cut = false;
    int count =
        epoll_wait(host->epoll_fd, events, events_max, timeout_ms(via_host_now_ns(), deadline_ns));
    host->now_ns = via_host_now_ns();
    for (int i = 0; i < count; i++) {
        struct via_host_source *source = events[i].data.ptr;
        /* A source that an earlier event of this turn has removed must not be called any more. */
        if (source->fd >= 0) {
            source->ready(source, events[i].events);
        }
        /* Memory for many processes takes long. Heartbeats come first; epoll reports the remaining
         * events again. */
        if (via_host_now_ns() - host->now_ns > TURN_NS) {
            is_cut = i + 1 < count;
            break;
        }
    }
    free_buried(host);
    return is_cut;
}

void via_host_control_loop(struct via_host *host)
{
    /* Lets the kernel combine the heartbeats of all hosts of a machine into fewer wake-ups. */
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    /* Raises the priority of this thread (setpriority(2)), if allowed, so that peers on a crowded
     * machine do not regard its link as dead. */
    (void)!setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    host->now_ns = via_host_now_ns();
    host->node_due = true;
    bool is_cut = false;
    while (!atomic_load_explicit(&host->stopping, memory_order_acquire)) {
        /* epoll reports sources that stay ready in the same order each time, and moves those that
         * it has reported behind the others. After a turn that ended early this thread requests one
         * source only, so that each source becomes the first of a turn. */
        is_cut = sleep_and_serve(host, tick(host), is_cut ? 1 : EVENTS_PER_TURN);
    }
}
