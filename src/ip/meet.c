/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sessions. The host with the lower id is the leader: only the leader begins a session, so both
 * always agree on the newest one. An end that detects a broken session sends a hello. Hellos are
 * repeated often while packets wait, otherwise rarely.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "ip/options.h"
#include "ip/worker.h"

#define HELLO_NS (250 * VIA_MSEC_NS)
#define HELLO_NS_MAX (8 * VIA_SEC_NS)
/* Limits the rate of new sessions of a host, which would otherwise keep this thread busy. */
#define RENEW_NS_MIN (20 * VIA_MSEC_NS)
/* Number of hosts with which sessions begin before there are packets for them. */
#define EAGER_MAX 32u
#define HELLOS_MAX 64u

static bool is_leader(const struct via_ip_worker *worker, const struct via_ip_lane *lane)
{
    return worker->shared->host < lane->host;
}

static uint64_t random_session(void)
{
    uint64_t session = 0;
    while (session == 0 && getrandom(&session, sizeof(session), 0) != sizeof(session)) {
    }
    return session;
}

static int send_hello(struct via_ip_worker *worker, struct via_ip_lane *lane,
                      enum via_ip_hello_type type, uint64_t session)
{
    struct via_ip_hello hello = {
        .magic = VIA_IP_HELLO_MAGIC,
        .version = VIA_IP_HELLO_VERSION,
        .type = (uint16_t)type,
        .session = session,
        .handle = lane->segment != NULL ? via_segment_handle(lane->segment) : 0,
        .ring_bytes = lane->segment != NULL ? lane->reader.ring_bytes : 0,
        .offloads = worker->shared->tun.offloads,
        .queues = (uint16_t)worker->shared->tun.queues,
    };
    int rc = via_message_send(worker->attach, lane->host, VIA_IP_ENDPOINT + lane->queue,
                              VIA_IP_ENDPOINT + worker->queue, &hello, sizeof(hello));
    return rc == -ENOTCONN ? rc : 0;
}

/* In the leader: makes an empty inbox, and offers it with a new session. */
static int offer(struct via_ip_worker *worker, struct via_ip_lane *lane)
{
    int rc = via_ip_lane_new_inbox(lane, (size_t)worker->shared->options->ring_kib << 10);
    if (rc != 0) {
        via_log(VIA_LOG_WARN, "host %u: inbox: %s", lane->host, via_error_text());
        return rc == -ENOTCONN ? rc : 0;
    }
    lane->session = random_session();
    return send_hello(worker, lane, VIA_IP_HELLO_OFFER, lane->session);
}

static int begin(struct via_ip_worker *worker, struct via_ip_lane *lane)
{
    if (!is_leader(worker, lane)) {
        return send_hello(worker, lane, VIA_IP_HELLO_REQUEST, lane->broken_session);
    }
    /* Repeats an offer that was not accepted. */
    if (atomic_load_explicit(&lane->state, memory_order_relaxed) == VIA_IP_LANE_MEETING) {
        return send_hello(worker, lane, VIA_IP_HELLO_OFFER, lane->session);
    }
    return offer(worker, lane);
}

int via_ip_meet(struct via_ip_worker *worker, struct via_ip_lane *lane, uint64_t now_ns)
{
    if (via_ip_lane_is_up(lane) || now_ns < lane->hello_ns ||
        via_attach_hops(worker->attach, lane->host) < 0) {
        return 0;
    }
    lane->backoff_ns = via_min(via_max(2 * lane->backoff_ns, HELLO_NS), HELLO_NS_MAX);
    lane->hello_ns = now_ns + lane->backoff_ns;
    return begin(worker, lane);
}

int via_ip_meet_again(struct via_ip_worker *worker, struct via_ip_lane *lane, int rc)
{
    if (rc == -ENOTCONN) {
        return rc;
    }
    via_log(VIA_LOG_INFO, "host %u: session ended: %s", lane->host,
            rc == -EPROTO ? "the peer has written invalid data into the inbox" : strerror(-rc));
    lane->broken_session = lane->session;
    lane->session = 0;
    via_ip_lane_close(lane);
    lane->backoff_ns = 0;
    uint64_t now_ns = via_ip_now_ns();
    lane->hello_ns = via_max(lane->renewed_ns + HELLO_NS, now_ns);
    return via_ip_meet(worker, lane, now_ns);
}

/* --- received hellos ------------------------------------------------------------------------- */

static int open_lane(struct via_ip_lane *lane, const struct via_ip_hello *hello, uint64_t now_ns)
{
    int rc = via_ip_lane_open(lane, hello->handle, hello->ring_bytes);
    if (rc != 0) {
        via_log(VIA_LOG_WARN, "host %u: open the peer's inbox: %s", lane->host, via_error_text());
        via_ip_lane_close(lane);
        lane->session = 0;
        return rc == -ENOTCONN ? rc : 0;
    }
    lane->renewed_ns = now_ns;
    lane->backoff_ns = 0;
    lane->broken_session = 0;
    via_log(VIA_LOG_INFO, "host %u queue %u: up", lane->host, lane->queue);
    return 0;
}

static int handle_offer(struct via_ip_worker *worker, struct via_ip_lane *lane,
                        const struct via_ip_hello *hello, uint64_t now_ns)
{
    if (is_leader(worker, lane) || hello->session == lane->broken_session) {
        return 0;
    }
    if (hello->session != lane->session) {
        if (lane->session != 0 && now_ns - lane->renewed_ns < RENEW_NS_MIN) {
            return 0; /* the peer repeats it */
        }
        int rc = via_ip_lane_new_inbox(lane, (size_t)worker->shared->options->ring_kib << 10);
        if (rc != 0) {
            via_log(VIA_LOG_WARN, "host %u: inbox: %s", lane->host, via_error_text());
            return rc == -ENOTCONN ? rc : 0;
        }
        lane->session = hello->session;
        rc = open_lane(lane, hello, now_ns);
        if (rc != 0) {
            return rc;
        }
    }
    return via_ip_lane_is_up(lane) ? send_hello(worker, lane, VIA_IP_HELLO_ACCEPT, lane->session)
                                   : 0;
}

static int handle_accept(struct via_ip_worker *worker, struct via_ip_lane *lane,
                         const struct via_ip_hello *hello, uint64_t now_ns)
{
    bool meeting = atomic_load_explicit(&lane->state, memory_order_relaxed) == VIA_IP_LANE_MEETING;
    return is_leader(worker, lane) && meeting && hello->session == lane->session
               ? open_lane(lane, hello, now_ns)
               : 0;
}

static int handle_request(struct via_ip_worker *worker, struct via_ip_lane *lane,
                          const struct via_ip_hello *hello, uint64_t now_ns)
{
    bool up = via_ip_lane_is_up(lane);
    bool mine = hello->session != 0 && hello->session == lane->session;
    if (!is_leader(worker, lane) || (up && !mine && hello->session != 0)) {
        return 0; /* about an ended session */
    }
    if (up && now_ns - lane->renewed_ns < RENEW_NS_MIN) {
        return 0; /* the peer repeats it */
    }
    if (up || mine) {
        via_ip_lane_close(lane);
    }
    lane->hello_ns = now_ns + HELLO_NS;
    return begin(worker, lane);
}

static int handle_bye(struct via_ip_lane *lane, const struct via_ip_hello *hello, uint64_t now_ns)
{
    if (hello->session == lane->session && lane->session != 0) {
        via_log(VIA_LOG_INFO, "host %u queue %u: its viaduct-ip ends", lane->host, lane->queue);
        via_ip_lane_close(lane);
        lane->session = 0;
        lane->backoff_ns = HELLO_NS;
        lane->hello_ns = now_ns + HELLO_NS;
    }
    return 0;
}

/* Limits the offloads to those that all hosts met so far accept, because a kernel drops segments of
 * unknown kinds. */
static void limit_offloads(struct via_ip_worker *worker, uint32_t offloads)
{
    struct via_ip_shared *shared = worker->shared;
    uint32_t before = atomic_fetch_and_explicit(&shared->offloads, offloads, memory_order_relaxed);
    if ((before & offloads) != before) {
        int rc = via_ip_tun_limit(&shared->tun, before & offloads);
        via_log(VIA_LOG_INFO, "device %s: limit offloads to those that another host accepts: %s",
                shared->tun.name, rc != 0 ? strerror(-rc) : "done");
    }
}

static int handle_hello(struct via_ip_worker *worker, const struct via_message_info *info,
                        const struct via_ip_hello *hello, uint64_t now_ns)
{
    unsigned queue = info->source_endpoint - VIA_IP_ENDPOINT;
    if (info->source_host == worker->shared->host || queue >= hello->queues) {
        return 0;
    }
    struct via_ip_lane *lane = via_ip_worker_lane(worker, info->source_host, queue);
    if (lane == NULL) {
        return 0;
    }
    atomic_store_explicit(&worker->shared->queues[lane->host], (uint8_t)hello->queues,
                          memory_order_relaxed);
    switch (hello->type) {
    case VIA_IP_HELLO_OFFER:
        limit_offloads(worker, hello->offloads);
        return handle_offer(worker, lane, hello, now_ns);
    case VIA_IP_HELLO_ACCEPT:
        limit_offloads(worker, hello->offloads);
        return handle_accept(worker, lane, hello, now_ns);
    case VIA_IP_HELLO_REQUEST:
        return handle_request(worker, lane, hello, now_ns);
    default:
        return handle_bye(lane, hello, now_ns);
    }
}

/* Warns each time: the peer repeats its hello. */
static void warn_of_hello(unsigned host, int rc, unsigned version)
{
    if (rc == -EPROTONOSUPPORT) {
        via_log(VIA_LOG_WARN,
                "host %u: hello: its viaduct-ip has version %u of the protocol, this one %u", host,
                version, VIA_IP_HELLO_VERSION);
    } else {
        via_log(VIA_LOG_WARN, "host %u: hello: invalid", host);
    }
}

int via_ip_meet_hellos(struct via_ip_worker *worker, uint64_t now_ns)
{
    for (unsigned i = 0; i < HELLOS_MAX; i++) {
        uint8_t data[2 * sizeof(struct via_ip_hello)];
        struct via_message_info info;
        struct via_ip_hello hello;
        int bytes = via_message_receive(worker->attach, data, sizeof(data), 0, &info);
        if (bytes < 0) {
            return bytes == -ENOTCONN ? bytes : 0;
        }
        uint16_t version = 0;
        int rc = info.bytes > sizeof(data)
                     ? -EPROTO
                     : via_ip_hello_check(data, (size_t)bytes, &hello, &version);
        if (rc != 0) {
            warn_of_hello(info.source_host, rc, version);
            continue;
        }
        rc = handle_hello(worker, &info, &hello, now_ns);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int via_ip_meet_all(struct via_ip_worker *worker, uint64_t now_ns)
{
    uint16_t hosts[VIA_IP_HOSTS_MAX];
    if (worker->queue != 0) {
        return 0; /* other queues begin sessions when they have packets */
    }
    int count = via_attach_hosts(worker->attach, hosts, VIA_IP_HOSTS_MAX);
    int rc = count == -ENOTCONN ? count : 0;
    for (int i = 0; i < via_min(count, (int)EAGER_MAX) && rc == 0; i++) {
        struct via_ip_lane *lane =
            hosts[i] != worker->shared->host ? via_ip_worker_lane(worker, hosts[i], 0) : NULL;
        if (lane != NULL) {
            rc = via_ip_meet(worker, lane, now_ns);
        }
    }
    return rc;
}

void via_ip_meet_bye(struct via_ip_worker *worker)
{
    via_list_foreach(it, &worker->all) {
        struct via_ip_lane *lane = via_list_entry(it, struct via_ip_lane, link);
        if (via_ip_lane_is_up(lane) && via_attach_hops(worker->attach, lane->host) > 0 &&
            send_hello(worker, lane, VIA_IP_HELLO_BYE, lane->session) != 0) {
            return;
        }
    }
}
