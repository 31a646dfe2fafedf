/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * From the device to other hosts. A packet is read into a buffer of the pool and written into the
 * inbox of its host. When there is no room its buffer is held for that host alone, within bounds:
 * so a host that does not keep up loses its own packets, and no other waits for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ip/options.h"
#include "ip/unreachable.h"
#include "ip/worker.h"

#define BATCH_PACKETS 16u
/* Announces packets from here on at once, so that both hosts copy at the same time; so is the
 * first of a batch, for which the other host may have to be woken. */
#define EAGER_BYTES 8192u
/* For a host that is met just now, or that no link leads to at the moment: as the kernel does for a
 * neighbour it asks for. */
#define HELD_MEETING_MAX 16u
/* Longest that a packet is held. Without a way for as long, a host counts as dead: packets for it
 * are answered at once. */
#define HELD_NS_MAX VIA_SEC_NS
/* From TAKE_BACK_LENT buffers in use on, the worker collects those that are free again. */
#define TAKE_BACK_LENT 32u
/* A program that floods a dead host gets at most ANSWERS_MAX errors in ANSWERS_NS. */
#define ANSWERS_MAX 64u
#define ANSWERS_NS (100 * VIA_MSEC_NS)

static void release(struct via_ip_worker *worker, struct via_ip_buffer *buffer)
{
    via_list_push_front(&worker->pool, &buffer->link);
    worker->pool_count++;
}

/* Lent buffers come back late. Half of the pool is for packets that wait for room. */
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

/* Tells the kernel that the host of a packet can not be reached. The device may refuse: then it is
 * as if the packet had been lost on the way. */
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

static struct via_ip_buffer *unhold(struct via_ip_lane *lane)
{
    lane->held_count--;
    return via_list_entry(via_list_pop_front(&lane->held), struct via_ip_buffer, link);
}

static void drop_held(struct via_ip_worker *worker, struct via_ip_lane *lane, enum via_ip_drop why)
{
    drop_for(worker, lane, why);
    release(worker, unhold(lane));
}

/* Up, and there is a way: what is put for a host that is cut off would wait in this host's daemon.
 */
static bool is_sending_possible(const struct via_ip_worker *worker, const struct via_ip_lane *lane)
{
    return via_ip_lane_is_up(lane) && via_attach_hops(worker->attach, lane->host) >= 0;
}

/* A host may have half of what is left: several slow ones leave something for each other. */
static bool is_holding_allowed(const struct via_ip_worker *worker, const struct via_ip_lane *lane)
{
    unsigned max = is_sending_possible(worker, lane) ? worker->pool_count / 2 : HELD_MEETING_MAX;
    return lane->held_count < max && worker->pool_count > 1;
}

/* True if no way has led to the host for long enough that it counts as dead. */
static bool is_dead(const struct via_ip_worker *worker, struct via_ip_lane *lane, uint64_t now_ns)
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

/* false: it was dropped. */
static bool hold(struct via_ip_worker *worker, struct via_ip_lane *lane,
                 struct via_ip_buffer *buffer, uint64_t now_ns)
{
    if (is_dead(worker, lane, now_ns)) {
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

/* How many went; negative: the session is broken. */
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

/* The host a packet is for, or -1 and why not. */
static int find_host(const struct via_ip_worker *worker, const struct via_ip_packet *packet,
                     enum via_ip_drop *ret_why)
{
    const struct via_ip_network *network = &worker->shared->options->network;
    bool many = packet->version == 4 ? via_ip_is_many4(network, packet->destination4)
                                     : via_ip_is_many6(packet->destination6);
    int host = packet->version == 4 ? via_ip_host_of4(network, packet->destination4)
                                    : via_ip_host_of6(network, packet->destination6);
    *ret_why = many ? VIA_IP_DROP_MANY : VIA_IP_DROP_NO_HOST;
    return many || host == worker->shared->host ? -1 : host;
}

/* Flows stay on a queue of the device, and a queue with a queue of the peer. NULL: no such host is
 * known. */
static struct via_ip_lane *lane_to(struct via_ip_worker *worker, unsigned host)
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

/* The lane of a record's packet; NULL: it is dropped, and counted. */
static struct via_ip_lane *route(struct via_ip_worker *worker, const struct via_ip_buffer *buffer)
{
    struct via_ip_packet packet;
    const uint8_t *frame = buffer->record + VIA_IP_RECORD_HEADER_BYTES;
    size_t bytes = buffer->bytes - VIA_IP_RECORD_HEADER_BYTES;
    enum via_ip_drop why = via_ip_packet_parse(frame, bytes, bytes, &packet);
    int host = why == VIA_IP_DROP_NONE ? find_host(worker, &packet, &why) : -1;
    struct via_ip_lane *lane = host >= 0 ? lane_to(worker, (unsigned)host) : NULL;
    if (lane == NULL) {
        drop_for(worker, NULL, host >= 0 ? VIA_IP_DROP_UNREACHABLE : why);
    }
    if (lane == NULL && host >= 0) {
        answer_unreachable(worker, buffer, via_ip_now_ns());
    }
    return lane;
}

/* *ret_sent: the buffer is not the caller's any more, also when this fails afterwards. */
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
    return rc == -EAGAIN ? 0 : rc; /* it is published later */
}

/* The buffer is the pool's again, or held. */
static int send_one(struct via_ip_worker *worker, struct via_ip_buffer *buffer, bool first)
{
    struct via_ip_lane *lane = route(worker, buffer);
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
            /* The device was deleted, and epoll reports so again and again. */
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
