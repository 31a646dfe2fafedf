/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Moves packets from the device to other hosts. A packet is read into a buffer of the pool, and
 * written into the inbox of its host. If the inbox is full, the buffer is held for that host, up to
 * a limit. So a slow host loses only its own packets, and other hosts do not wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ip/options.h"
#include "ip/unreachable.h"
#include "ip/worker.h"

#define BATCH_PACKETS 16u
/* Packets from this size on are published at once, so that both hosts copy at the same time. The
 * first packet of a batch too, because the receiver may have to be woken. */
#define EAGER_BYTES 8192u
/* Limit of held packets for a host without a session or route at the moment, as the kernel limits
 * packets for a neighbour that it is resolving. */
#define HELD_MEETING_MAX 16u
/* Longest time that a packet is held. If no route leads to a host for this time, the host counts as
 * dead: packets for it get an ICMP error at once. */
#define HELD_NS_MAX VIA_SEC_NS
/* Number of lent buffers from which on the worker collects free ones. */
#define TAKE_BACK_LENT 32u
/* Limits ICMP errors to ANSWERS_MAX in ANSWERS_NS. */
#define ANSWERS_MAX 64u
#define ANSWERS_NS (100 * VIA_MSEC_NS)

static void release(struct via_ip_worker *worker, struct via_ip_buffer *buffer)
{
    via_list_push_front(&worker->pool, &buffer->link);
    worker->pool_count++;
}

/* Lent buffers return late, so half of the pool is reserved for packets that wait for room. */
static bool is_lending_allowed(const struct via_ip_worker *worker)
{
    return worker->pool_count >= VIA_IP_BUFFERS_COUNT / 2;
}

void via_ip_worker_take_back(struct via_ip_worker *worker)
{
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        for (struct via_ip_buffer *buffer;
             via_ip_lane_is_up(lane) && (buffer = via_ip_lane_take_back(lane)) != NULL;) {
            release(worker, buffer);
        }
    }
}

static void release_all(struct via_ip_worker *worker, struct via_list *buffers)
{
    for (struct via_list *link; (link = via_list_pop_front(buffers)) != NULL;) {
        release(worker, via_list_entry(link, struct via_ip_buffer, link));
    }
}

void via_ip_worker_empty_limbo(struct via_ip_worker *worker, bool all)
{
    via_list_foreach_safe(it, &worker->lending.limbo) {
        struct via_ip_limbo *limbo = via_list_entry(it, struct via_ip_limbo, link);
        if (all || via_remote_pending(limbo->remote) == 0) {
            via_remote_close(limbo->remote);
            release_all(worker, &limbo->lent);
            via_list_remove(&limbo->link);
            free(limbo);
        }
    }
}

static void drop_for(struct via_ip_worker *worker, struct via_ip_lane *lane, enum via_ip_drop why)
{
    struct via_ip_counters *counters = lane != NULL ? &lane->counters : &worker->counters;
    via_ip_count(&counters->drops_sent[why], 1);
}

/* Sends an ICMP error to the kernel for a packet whose host can not be reached. If the device
 * refuses it, the packet counts as lost. */
static void answer_unreachable(struct via_ip_worker *worker, const struct via_ip_buffer *buffer,
                               uint64_t now_ns)
{
    uint8_t answer[VIA_IP_UNREACHABLE_BYTES_MAX];
    struct via_ip_packet packet;
    const uint8_t *frame = buffer->record + VIA_IP_RECORD_HEADER_BYTES;
    size_t bytes = buffer->bytes - VIA_IP_RECORD_HEADER_BYTES;
    if (now_ns - worker->answers_ns >= ANSWERS_NS) {
        worker->answers_ns = now_ns;
        worker->answers_count = 0;
    }
    if (worker->answers_count == ANSWERS_MAX ||
        via_ip_packet_parse(frame, bytes, bytes, &packet) != VIA_IP_DROP_NONE) {
        return;
    }
    size_t answer_bytes = via_ip_unreachable_make(frame, bytes, &packet, answer);
    if (answer_bytes != 0 && write(worker->tun_fd, answer, answer_bytes) > 0) {
        worker->answers_count++;
    }
}

static void count_sent(struct via_ip_lane *lane, size_t record_bytes)
{
    via_ip_count(&lane->counters.packets_sent, 1);
    via_ip_count(&lane->counters.bytes_sent,
                 record_bytes - VIA_IP_RECORD_HEADER_BYTES - VIA_IP_VNET_BYTES);
}

/* --- held packets ---------------------------------------------------------------------------- */

static struct via_ip_buffer *take_held(struct via_ip_lane *lane)
{
    lane->held_count--;
    return via_list_entry(via_list_pop_front(&lane->held), struct via_ip_buffer, link);
}

static void drop_held(struct via_ip_worker *worker, struct via_ip_lane *lane, enum via_ip_drop why)
{
    drop_for(worker, lane, why);
    release(worker, take_held(lane));
}

/* True if the lane is up and a route exists. Without a route puts would wait in this host's daemon.
 */
static bool is_sending_possible(const struct via_ip_worker *worker, const struct via_ip_lane *lane)
{
    return via_ip_lane_is_up(lane) && via_attach_hops(worker->attach, lane->host) >= 0;
}

/* At most half of the remaining pool may be held for one host, so that slow hosts leave buffers for
 * other hosts. */
static bool is_holding_allowed(const struct via_ip_worker *worker, const struct via_ip_lane *lane)
{
    unsigned max = is_sending_possible(worker, lane) ? worker->pool_count / 2 : HELD_MEETING_MAX;
    return lane->held_count < max && worker->pool_count > 1;
}

/* True if no route has led to the host for HELD_NS_MAX. */
static bool check_dead(const struct via_ip_worker *worker, struct via_ip_lane *lane,
                       uint64_t now_ns)
{
    if (via_attach_hops(worker->attach, lane->host) >= 0) {
        lane->lost_ns = 0;
        return false;
    }
    if (lane->lost_ns == 0) {
        lane->lost_ns = now_ns;
    }
    return now_ns - lane->lost_ns >= HELD_NS_MAX;
}

/* False: the packet was dropped. */
static bool hold(struct via_ip_worker *worker, struct via_ip_lane *lane,
                 struct via_ip_buffer *buffer, uint64_t now_ns)
{
    if (check_dead(worker, lane, now_ns)) {
        answer_unreachable(worker, buffer, now_ns);
        drop_for(worker, lane, VIA_IP_DROP_UNREACHABLE);
        release(worker, buffer);
        return false;
    }
    if (!is_holding_allowed(worker, lane)) {
        drop_for(worker, lane,
                 is_sending_possible(worker, lane) ? VIA_IP_DROP_FULL : VIA_IP_DROP_UNREACHABLE);
        release(worker, buffer);
        return false;
    }
    buffer->since_ns = now_ns;
    via_list_push_back(&lane->held, &buffer->link);
    lane->held_count++;
    return true;
}

/* Number of packets sent; negative: the session is broken. */
static int flush(struct via_ip_worker *worker, struct via_ip_lane *lane)
{
    int sent = 0;
    while (lane->held_count != 0) {
        struct via_ip_buffer *buffer =
            via_list_entry(via_list_first(&lane->held), struct via_ip_buffer, link);
        via_list_remove(&buffer->link);
        int rc = via_ip_lane_send(lane, buffer, is_lending_allowed(worker), lane->held_count == 1);
        if (rc < 0) {
            via_list_push_front(&lane->held, &buffer->link);
        }
        if (rc == -EAGAIN) {
            break;
        }
        if (rc < 0) {
            return rc;
        }
        lane->held_count--;
        count_sent(lane, buffer->bytes);
        if (rc == 0) {
            release(worker, buffer);
        }
        sent++;
    }
    int rc = via_ip_lane_publish(lane);
    return rc == 0 || rc == -EAGAIN ? sent : rc;
}

static void drop_old(struct via_ip_worker *worker, struct via_ip_lane *lane, uint64_t now_ns)
{
    while (lane->held_count != 0) {
        struct via_ip_buffer *buffer =
            via_list_entry(via_list_first(&lane->held), struct via_ip_buffer, link);
        if (now_ns - buffer->since_ns < HELD_NS_MAX) {
            return;
        }
        bool full = is_sending_possible(worker, lane);
        if (!full) {
            answer_unreachable(worker, buffer, now_ns);
        }
        drop_held(worker, lane, full ? VIA_IP_DROP_FULL : VIA_IP_DROP_UNREACHABLE);
    }
}

int via_ip_worker_send_held(struct via_ip_worker *worker, uint64_t now_ns)
{
    int sent = 0;
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        int rc = 0;
        if (lane->held_count != 0) {
            drop_old(worker, lane, now_ns);
        }
        if (is_sending_possible(worker, lane)) {
            lane->lost_ns = 0;
            rc = flush(worker, lane);
            sent += via_max(rc, 0);
        } else if (lane->held_count != 0) {
            rc = via_ip_meet(worker, lane, now_ns);
        }
        if (rc < 0) {
            rc = via_ip_meet_again(worker, lane, rc);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return sent;
}

/* --- from the device ------------------------------------------------------------------------- */

/* The destination host of a packet, or -1 and the reason. */
static int find_host(const struct via_ip_worker *worker, const struct via_ip_packet *packet,
                     enum via_ip_drop *ret_why)
{
    const struct via_ip_network *network = &worker->shared->options->network;
    bool many = packet->version == 4 ? via_ip_is_multicast4(network, packet->destination4)
                                     : via_ip_is_multicast6(packet->destination6);
    int host = packet->version == 4 ? via_ip_host_of4(network, packet->destination4)
                                    : via_ip_host_of6(network, packet->destination6);
    *ret_why = many ? VIA_IP_DROP_MULTICAST : VIA_IP_DROP_NO_HOST;
    return many || host == worker->shared->host ? -1 : host;
}

/* The kernel keeps a flow on one queue of the device, and each queue uses one queue of the peer; so
 * flows stay in order. NULL: unknown host. */
static struct via_ip_lane *get_lane(struct via_ip_worker *worker, unsigned host)
{
    if (host >= VIA_IP_HOSTS_MAX) {
        return NULL;
    }
    unsigned queues = atomic_load_explicit(&worker->shared->queues[host], memory_order_relaxed);
    unsigned queue = queues != 0 ? worker->queue % queues : 0;
    struct via_ip_lane *lane =
        atomic_load_explicit(&worker->lanes[host][queue], memory_order_relaxed);
    if (lane == NULL && via_attach_hops(worker->attach, host) >= 0) {
        lane = via_ip_worker_lane(worker, host, queue);
    }
    return lane;
}

/* The lane for a record's packet; NULL: the packet was counted as dropped. */
static struct via_ip_lane *find_lane(struct via_ip_worker *worker,
                                     const struct via_ip_buffer *buffer)
{
    struct via_ip_packet packet;
    const uint8_t *frame = buffer->record + VIA_IP_RECORD_HEADER_BYTES;
    size_t bytes = buffer->bytes - VIA_IP_RECORD_HEADER_BYTES;
    enum via_ip_drop why = via_ip_packet_parse(frame, bytes, bytes, &packet);
    int host = why == VIA_IP_DROP_NONE ? find_host(worker, &packet, &why) : -1;
    struct via_ip_lane *lane = host >= 0 ? get_lane(worker, (unsigned)host) : NULL;
    if (lane == NULL) {
        drop_for(worker, NULL, host >= 0 ? VIA_IP_DROP_UNREACHABLE : why);
    }
    if (lane == NULL && host >= 0) {
        answer_unreachable(worker, buffer, via_ip_now_ns());
    }
    return lane;
}

/* *ret_sent: the caller does not own the buffer any more, even if this returns an error. */
static int send_now(struct via_ip_worker *worker, struct via_ip_lane *lane,
                    struct via_ip_buffer *buffer, bool first, bool *ret_sent)
{
    size_t bytes = buffer->bytes;
    bool announce = first || bytes >= EAGER_BYTES;
    int rc = via_ip_lane_send(lane, buffer, is_lending_allowed(worker), announce);
    *ret_sent = rc >= 0;
    if (rc < 0) {
        return rc;
    }
    count_sent(lane, bytes);
    if (rc == 0) {
        release(worker, buffer);
    }
    rc = announce ? via_ip_lane_publish(lane) : 0;
    return rc == -EAGAIN ? 0 : rc; /* published later */
}

/* Sends, holds or drops the packet of a buffer, which then belongs to the pool or the lane. */
static int send_one(struct via_ip_worker *worker, struct via_ip_buffer *buffer, bool first)
{
    struct via_ip_lane *lane = find_lane(worker, buffer);
    if (lane == NULL) {
        release(worker, buffer);
        return 0;
    }
    int rc = -EAGAIN;
    if (lane->held_count == 0 && is_sending_possible(worker, lane)) {
        bool sent;
        rc = send_now(worker, lane, buffer, first, &sent);
        if (sent) {
            return rc == 0 ? 0 : via_ip_meet_again(worker, lane, rc);
        }
    }
    uint64_t now_ns = via_ip_now_ns();
    if (rc != -EAGAIN) {
        rc = via_ip_meet_again(worker, lane, rc);
    } else {
        rc = via_ip_meet(worker, lane, now_ns);
    }
    hold(worker, lane, buffer, now_ns);
    return rc;
}

int via_ip_worker_send(struct via_ip_worker *worker)
{
    int taken = 0;
    if (worker->pool_count < VIA_IP_BUFFERS_COUNT - TAKE_BACK_LENT) {
        via_ip_worker_take_back(worker);
    }
    for (unsigned i = 0; i < BATCH_PACKETS && worker->pool_count != 0; i++) {
        struct via_ip_buffer *buffer =
            via_list_entry(via_list_first(&worker->pool), struct via_ip_buffer, link);
        ssize_t bytes = read(worker->tun_fd, buffer->record + VIA_IP_RECORD_HEADER_BYTES,
                             VIA_IP_FRAME_BYTES_MAX);
        if (bytes < 0 && errno == EBADFD) {
            /* The device was deleted, which epoll would report repeatedly. */
            atomic_store_explicit(&worker->shared->device_gone, true, memory_order_relaxed);
            return -ENODEV;
        }
        if (bytes <= 0) {
            break;
        }
        via_list_remove(&buffer->link);
        worker->pool_count--;
        buffer->bytes = VIA_IP_RECORD_HEADER_BYTES + (size_t)bytes;
        int rc = send_one(worker, buffer, i == 0);
        if (rc < 0) {
            return rc;
        }
        taken++;
    }
    return taken;
}

void via_ip_worker_drop_all(struct via_ip_worker *worker)
{
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        while (lane->held_count != 0) {
            drop_held(worker, lane, VIA_IP_DROP_UNREACHABLE);
        }
    }
    struct via_ip_buffer *buffer =
        via_list_entry(via_list_first(&worker->pool), struct via_ip_buffer, link);
    for (unsigned i = 0; i < VIA_IP_BUFFERS_COUNT &&
                         read(worker->tun_fd, buffer->record, VIA_IP_FRAME_BYTES_MAX) > 0;
         i++) {
        drop_for(worker, NULL, VIA_IP_DROP_UNREACHABLE);
    }
}
