/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/pause.h"
#include "ip/options.h"

#define ATTACH_AGAIN_MS 100
#define TICK_NS (100 * VIA_MSEC_NS)
/* Rounds of the loop per check for messages. A message that rings the bell is also found before
 * each sleep. */
#define ROUNDS_PER_POLL 16u
/* Longest sleep with unsent packets. The bell rings for room in lanes; this time covers causes that
 * ring no bell. */
#define RETRY_MS 1
/* Number of polls of the inboxes that cost as much as one poll of the device. */
#define POLLS_PER_READ 8u
#define MEMORY_BYTES ((size_t)VIA_IP_BUFFERS_COUNT * VIA_IP_BUFFER_BYTES)

uint64_t via_ip_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

struct via_ip_lane *via_ip_worker_lane(struct via_ip_worker *worker, unsigned host, unsigned queue)
{
    if (host >= VIA_IP_HOSTS_MAX || queue >= VIA_IP_QUEUES_MAX) {
        return NULL;
    }
    struct via_ip_lane *lane =
        atomic_load_explicit(&worker->lanes[host][queue], memory_order_relaxed);
    if (lane != NULL) {
        return lane;
    }
    lane = calloc(1, sizeof(*lane));
    if (lane == NULL) {
        return NULL;
    }
    lane->host = (uint16_t)host;
    lane->queue = (uint8_t)queue;
    lane->attach = worker->attach;
    via_list_init(&lane->held);
    via_list_init(&lane->lent);
    lane->lending = &worker->lending;
    via_list_push_back(&worker->all, &lane->link);
    worker->lanes_count++;
    /* Pairs with the acquire in describe_peer() (status.c). */
    atomic_store_explicit(&worker->lanes[host][queue], lane, memory_order_release);
    return lane;
}

/* --- sleeping -------------------------------------------------------------------------------- */

static bool has_news(const struct via_ip_worker *worker)
{
    via_list_foreach(it, &worker->all) {
        const struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        if (via_ip_lane_is_up(lane) && via_ip_lane_has_news(lane)) {
            return true;
        }
    }
    return false;
}

/* True if frames wait for room, or records are not published yet. */
static bool has_unsent(const struct via_ip_worker *worker)
{
    via_list_foreach(it, &worker->all) {
        const struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        if (lane->held_count != 0 ||
            (via_ip_lane_is_up(lane) && lane->published != lane->writer.tail)) {
            return true;
        }
    }
    return false;
}

static bool device_has_packet(const struct via_ip_worker *worker)
{
    struct pollfd pollfd = {.fd = worker->tun_fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) == 1;
}

/* true: there is work. */
static bool spin_for_work(struct via_ip_worker *worker, uint64_t start_ns)
{
    uint64_t end_ns = start_ns + worker->spin.budget_ns;
    for (unsigned i = 0; worker->spin.budget_ns != 0; i++) {
        if (has_news(worker) || (i % POLLS_PER_READ == 0 && device_has_packet(worker))) {
            return true;
        }
        if (via_ip_now_ns() >= end_ns) {
            break;
        }
        via_cpu_pause();
    }
    return false;
}

static int sleep_ms(const struct via_ip_worker *worker, uint64_t now_ns)
{
    if (has_unsent(worker)) {
        return RETRY_MS;
    }
    return worker->tick_ns > now_ns
               ? (int)((worker->tick_ns - now_ns + VIA_MSEC_NS - 1) / VIA_MSEC_NS)
               : 0;
}

static void arm_all(struct via_ip_worker *worker, bool armed)
{
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        if (via_ip_lane_is_up(lane)) {
            (armed ? via_ip_lane_arm : via_ip_lane_disarm)(lane);
        }
    }
}

/* 0, or -ENOTCONN. */
static int sleep_awhile(struct via_ip_worker *worker)
{
    struct epoll_event events[4];
    uint64_t start_ns = via_ip_now_ns();
    if (spin_for_work(worker, start_ns)) {
        via_host_spin_learn(&worker->spin, via_ip_now_ns() - start_ns, true);
        return 0;
    }
    arm_all(worker, true);
    /* Between the stores of armed and wanted, and the last check. Pairs with the fence in
     * ring_if_requested() (lane.c) of the peer, between its position and its load of the word. */
    atomic_thread_fence(memory_order_seq_cst);
    int rc = via_attach_poll(worker->attach);
    if (rc > 0) {
        rc = via_ip_meet_hellos(worker, start_ns);
    } else if (rc == 0 && !has_news(worker)) {
        epoll_wait(worker->epoll_fd, events, VIA_ARRAY_COUNT(events), sleep_ms(worker, start_ns));
        via_host_spin_learn(&worker->spin, via_ip_now_ns() - start_ns, false);
    }
    arm_all(worker, false);
    return via_min(rc, 0);
}

/* --- the loop -------------------------------------------------------------------------------- */

/* Does not spin on an oversubscribed machine, where other threads need the CPU. */
static void adjust_spin(struct via_ip_worker *worker)
{
    uint64_t max_ns = worker->shared->options->spin_us * VIA_USEC_NS;
    bool crowded = worker->cpus < 2 || via_host_spin_is_crowded(worker->loadavg_fd, worker->cpus);
    if ((worker->spin.budget_ns_max == 0) != (max_ns == 0 || crowded)) {
        via_host_spin_init(&worker->spin, crowded ? 0 : max_ns);
    }
}

static void tick_direct(struct via_ip_worker *worker, uint64_t now_ns)
{
    if (worker->direct == NULL) {
        return;
    }
    via_ip_direct_receive(worker->direct, now_ns);
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        if (lane->queue == 0) {
            via_ip_direct_tick(worker->direct, lane, now_ns);
        }
    }
}

static int tick(struct via_ip_worker *worker, uint64_t now_ns)
{
    worker->tick_ns = now_ns + TICK_NS;
    adjust_spin(worker);
    tick_direct(worker, now_ns);
    via_ip_worker_empty_limbo(worker, false);
    return via_ip_meet_all(worker, now_ns);
}

static int poll_messages(struct via_ip_worker *worker)
{
    uint64_t now_ns = via_ip_now_ns();
    int rc = via_attach_poll(worker->attach);
    if (rc >= 0) {
        rc = via_ip_meet_hellos(worker, now_ns);
    }
    if (rc >= 0 && now_ns >= worker->tick_ns) {
        rc = tick(worker, now_ns);
    }
    return via_min(rc, 0);
}

/* Number of packets moved, or -ENOTCONN. */
static int move_packets(struct via_ip_worker *worker)
{
    int received = via_ip_worker_receive(worker);
    int sent = received >= 0 ? via_ip_worker_send(worker) : received;
    int held = sent >= 0 ? via_ip_worker_send_held(worker, via_ip_now_ns()) : sent;
    return held < 0 ? held : received + sent + held;
}

static bool is_stopping(const struct via_ip_worker *worker)
{
    const struct via_ip_shared *shared = worker->shared;
    return atomic_load_explicit(&shared->stop, memory_order_relaxed) ||
           atomic_load_explicit(&shared->device_gone, memory_order_relaxed);
}

/* Runs until the host's daemon has ended, or the worker must stop. */
static void serve(struct via_ip_worker *worker)
{
    unsigned rounds = 0;
    int rc = 0;
    while (rc >= 0 && !is_stopping(worker)) {
        int moved = move_packets(worker);
        rc = moved;
        if (rc >= 0 && (++rounds % ROUNDS_PER_POLL == 0 || via_ip_now_ns() >= worker->tick_ns)) {
            rc = poll_messages(worker);
        }
        if (rc >= 0 && moved == 0) {
            rc = sleep_awhile(worker);
        }
    }
}

/* --- attaching ------------------------------------------------------------------------------- */

static int watch(const struct via_ip_worker *worker, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    return epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int make_epoll(struct via_ip_worker *worker)
{
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int rc = worker->epoll_fd >= 0 ? 0 : -errno;
    rc = rc == 0 ? watch(worker, worker->tun_fd, EPOLLIN) : rc;
    rc = rc == 0 ? watch(worker, worker->shared->stop_fd, EPOLLIN) : rc;
    return rc == 0 ? watch(worker, via_attach_bell_fd(worker->attach), EPOLLIN | EPOLLOUT | EPOLLET)
                   : rc;
}

static void detach(struct via_ip_worker *worker)
{
    atomic_store_explicit(&worker->attached, false, memory_order_relaxed);
    if (worker->direct != NULL) {
        via_ip_direct_end_all(worker->direct);
    }
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        via_ip_lane_close(lane);
        lane->session = lane->broken_session = 0;
        lane->hello_ns = lane->backoff_ns = 0;
        lane->attach = NULL;
    }
    via_ip_worker_empty_limbo(worker, true);
    if (worker->lending.segment != NULL) {
        via_segment_free(worker->lending.segment);
        worker->lending.segment = NULL;
    }
    if (worker->epoll_fd >= 0) {
        close(worker->epoll_fd);
        worker->epoll_fd = -1;
    }
    via_attach_close(worker->attach);
    worker->attach = NULL;
}

/* Registers the buffers as a segment. If that fails, records are copied. */
static void adopt_buffers(struct via_ip_worker *worker)
{
    int rc = via_segment_adopt(worker->attach, worker->memory_fd, MEMORY_BYTES,
                               worker->lending.base, 0, &worker->lending.segment);
    if (rc != 0) {
        worker->lending.segment = NULL;
        via_log(VIA_LOG_INFO, "queue %u: records that go as frames are copied: %s", worker->queue,
                via_error_text());
    }
}

static int attach(struct via_ip_worker *worker)
{
    const struct via_ip_options *options = worker->shared->options;
    struct via_attach_options attach_options = {.size = sizeof(attach_options),
                                                .rundir = options->rundir,
                                                .host = options->host,
                                                .channel = -1};
    int rc = via_attach_open(&attach_options, &worker->attach);
    if (rc != 0) {
        worker->attach = NULL;
        return rc;
    }
    if (via_attach_host(worker->attach) != worker->shared->host) {
        atomic_store_explicit(&worker->shared->other_host, true, memory_order_relaxed);
        detach(worker);
        return -EXDEV;
    }
    via_list_foreach(it, &worker->all) {
        via_list_entry(it, struct via_ip_lane, link)->attach = worker->attach;
    }
    rc = via_endpoint_open(worker->attach, VIA_IP_ENDPOINT + worker->queue);
    rc = rc == 0 ? make_epoll(worker) : rc;
    if (rc != 0) {
        detach(worker);
        return rc;
    }
    adopt_buffers(worker);
    atomic_store_explicit(&worker->attached, true, memory_order_relaxed);
    return 0;
}

static void wait_detached(struct via_ip_worker *worker)
{
    struct pollfd pollfd = {.fd = worker->shared->stop_fd, .events = POLLIN};
    poll(&pollfd, 1, ATTACH_AGAIN_MS);
    via_ip_worker_drop_all(worker);
}

static void *run(void *ctx)
{
    struct via_ip_worker *worker = ctx;
    int last = 0;
    while (!is_stopping(worker)) {
        int rc = attach(worker);
        if (rc != 0) {
            if (rc != last) {
                via_log(VIA_LOG_WARN, "queue %u: %s", worker->queue, via_error_text());
            }
            last = rc;
            wait_detached(worker);
            continue;
        }
        via_log(VIA_LOG_INFO, "queue %u: attached to host %u", worker->queue, worker->shared->host);
        last = 0;
        worker->tick_ns = 0;
        serve(worker);
        if (is_stopping(worker)) {
            via_ip_meet_bye(worker);
        } else {
            via_log(VIA_LOG_WARN, "queue %u: host %u: its daemon has ended", worker->queue,
                    worker->shared->host);
            atomic_fetch_add_explicit(&worker->reattached, 1, memory_order_relaxed);
        }
        detach(worker);
    }
    return NULL;
}

/* Allocates the memory of the records; the kernel provides pages at the first use. */
static int make_memory(struct via_ip_worker *worker)
{
    worker->memory_fd = memfd_create("viaduct-ip", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (worker->memory_fd < 0) {
        return -errno;
    }
    void *memory = MAP_FAILED;
    if (ftruncate(worker->memory_fd, MEMORY_BYTES) == 0 &&
        fcntl(worker->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, worker->memory_fd, 0);
    }
    if (memory == MAP_FAILED) {
        int rc = -errno;
        close(worker->memory_fd);
        return rc;
    }
    worker->lending.base = memory;
    return 0;
}

static int make_buffers(struct via_ip_worker *worker)
{
    worker->buffers = calloc(VIA_IP_BUFFERS_COUNT, sizeof(*worker->buffers));
    int rc = worker->buffers != NULL ? make_memory(worker) : -ENOMEM;
    if (rc != 0) {
        free(worker->buffers);
        return rc;
    }
    for (unsigned i = 0; i < VIA_IP_BUFFERS_COUNT; i++) {
        worker->buffers[i].record = worker->lending.base + (size_t)i * VIA_IP_BUFFER_BYTES;
        via_list_push_back(&worker->pool, &worker->buffers[i].link);
    }
    worker->pool_count = VIA_IP_BUFFERS_COUNT;
    return 0;
}

int via_ip_worker_init(struct via_ip_worker *worker, struct via_ip_shared *shared, unsigned queue)
{
    memset(worker, 0, sizeof(*worker));
    worker->shared = shared;
    worker->queue = queue;
    worker->tun_fd = shared->tun.fds[queue];
    worker->epoll_fd = -1;
    worker->direct = queue == 0 ? via_ip_direct_new(shared) : NULL;
    worker->loadavg_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    worker->cpus = via_host_spin_cpus();
    via_list_init(&worker->all);
    via_list_init(&worker->pool);
    via_list_init(&worker->lending.limbo);
    return make_buffers(worker);
}

int via_ip_worker_start(struct via_ip_worker *worker)
{
    return -pthread_create(&worker->thread, NULL, run, worker);
}

void via_ip_worker_join(struct via_ip_worker *worker)
{
    pthread_join(worker->thread, NULL);
}

void via_ip_worker_fini(struct via_ip_worker *worker)
{
    for (struct via_list *link; (link = via_list_pop_front(&worker->all)) != NULL;) {
        free(via_list_entry(link, struct via_ip_lane, link));
    }
    if (worker->loadavg_fd >= 0) {
        close(worker->loadavg_fd);
    }
    via_ip_direct_free(worker->direct);
    munmap(worker->lending.base, MEMORY_BYTES);
    close(worker->memory_fd);
    free(worker->buffers);
}
