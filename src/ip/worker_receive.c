/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Moves packets from other hosts to the device. A peer can change the inbox at any time. So all
 * headers are copied, and the copy is checked and passed to the kernel; the payload is passed from
 * the inbox.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "ip/options.h"
#include "ip/worker.h"

/* Packets of one lane before the next lane is served. */
#define BATCH_PACKETS 16u

static enum via_ip_drop check_addresses(const struct via_ip_worker *worker,
                                        const struct via_ip_lane *lane,
                                        const struct via_ip_packet *packet)
{
    const struct via_ip_options *options = worker->shared->options;
    const struct via_ip_network *network = &options->network;
    bool four = packet->version == 4;
    int source = four ? via_ip_host_of4(network, packet->source4)
                      : via_ip_host_of6(network, packet->source6);
    int destination = four ? via_ip_host_of4(network, packet->destination4)
                           : via_ip_host_of6(network, packet->destination6);
    if (source != lane->host) {
        return VIA_IP_DROP_SPOOFED;
    }
    return destination == worker->shared->host || options->forward ? VIA_IP_DROP_NONE
                                                                   : VIA_IP_DROP_FOREIGN;
}

static enum via_ip_drop check(const struct via_ip_worker *worker, const struct via_ip_lane *lane,
                              const uint8_t *head, size_t head_bytes, size_t frame_bytes)
{
    struct via_ip_packet packet;
    enum via_ip_drop why = via_ip_packet_parse(head, head_bytes, frame_bytes, &packet);
    if (why == VIA_IP_DROP_NONE) {
        why = check_addresses(worker, lane, &packet);
    }
    if (why == VIA_IP_DROP_NONE) {
        why = via_ip_packet_check_offload(head, head_bytes, frame_bytes, &packet);
    }
    return why;
}

static void give_to_device(struct via_ip_worker *worker, struct via_ip_lane *lane,
                           const uint8_t *frame, size_t bytes)
{
    uint8_t head[VIA_IP_HEAD_BYTES];
    size_t head_bytes = via_min(bytes, sizeof(head));
    memcpy(head, frame, head_bytes);
    enum via_ip_drop why = check(worker, lane, head, head_bytes, bytes);
    if (why == VIA_IP_DROP_NONE) {
        const struct iovec parts[] = {
            {.iov_base = head, .iov_len = head_bytes},
            {.iov_base = (void *)(uintptr_t)(frame + head_bytes), .iov_len = bytes - head_bytes},
        };
        int count = bytes > head_bytes ? 2 : 1;
        why = writev(worker->tun_fd, parts, count) == (ssize_t)bytes ? VIA_IP_DROP_NONE
                                                                     : VIA_IP_DROP_KERNEL;
    }
    if (why != VIA_IP_DROP_NONE) {
        via_ip_count(&lane->counters.drops_received[why], 1);
        return;
    }
    via_ip_count(&lane->counters.packets_received, 1);
    via_ip_count(&lane->counters.bytes_received, bytes - VIA_IP_VNET_BYTES);
}

/* Number of packets taken; negative: the session is broken. */
static int receive_from(struct via_ip_worker *worker, struct via_ip_lane *lane)
{
    int taken = 0;
    int rc = 0;
    for (unsigned i = 0; i < BATCH_PACKETS; i++) {
        const uint8_t *frame;
        size_t bytes;
        uint64_t end;
        rc = via_ip_lane_next(lane, &frame, &bytes, &end);
        if (rc <= 0) {
            break;
        }
        give_to_device(worker, lane, frame, bytes);
        via_ip_lane_advance(lane, end);
        taken++;
    }
    if (rc >= 0) {
        rc = via_ip_lane_give_credit(lane);
    }
    return rc < 0 ? rc : taken;
}

int via_ip_worker_receive(struct via_ip_worker *worker)
{
    int taken = 0;
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        if (!via_ip_lane_is_up(lane)) {
            continue;
        }
        int rc = receive_from(worker, lane);
        if (rc < 0) {
            rc = via_ip_meet_again(worker, lane, rc);
        }
        if (rc < 0) {
            return rc;
        }
        taken += rc;
    }
    return taken;
}
