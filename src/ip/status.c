/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ip/options.h"

#define CONNECTIONS_MAX 16
/* Enough for 1023 hosts. */
#define ANSWER_BYTES (2 << 20)

/* --- the socket ------------------------------------------------------------------------------ */

static struct sockaddr_un address_of(const struct via_ip_status *status)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _Static_assert(sizeof(address.sun_path) >= sizeof(status->path.text), "paths fit");
    memcpy(address.sun_path, status->path.text, sizeof(status->path.text));
    return address;
}

static bool is_live(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool live = fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
                            errno == EAGAIN);
    if (fd >= 0) {
        close(fd);
    }
    return live;
}

int via_ip_status_open(struct via_ip_status *status, const char *rundir, unsigned host,
                       struct via_error *err)
{
    int bytes =
        snprintf(status->path.text, sizeof(status->path.text), "%s/host-%u.ip", rundir, host);
    status->fd = -1;
    if (bytes < 0 || (size_t)bytes >= sizeof(status->path.text)) {
        return via_error_set(err, -ENAMETOOLONG, "socket %s/host-%u.ip: the path is too long",
                             rundir, host);
    }
    struct sockaddr_un address = address_of(status);
    if (is_live(&address)) {
        return via_error_set(err, -EADDRINUSE,
                             "socket %s: listen: a viaduct-ip for host %u runs already",
                             status->path.text, host);
    }
    unlink(status->path.text);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0177);
    int rc = fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
                     listen(fd, CONNECTIONS_MAX) == 0
                 ? 0
                 : -errno;
    umask(mask);
    if (rc != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return via_error_set(err, rc, "socket %s: listen: %s", status->path.text, strerror(-rc));
    }
    status->fd = fd;
    return 0;
}

bool via_ip_status_is_gone(const struct via_ip_status *status)
{
    struct stat st;
    return lstat(status->path.text, &st) != 0 && errno == ENOENT;
}

void via_ip_status_close(struct via_ip_status *status, bool remove)
{
    if (status->fd >= 0) {
        close(status->fd);
        status->fd = -1;
        if (remove) {
            unlink(status->path.text);
        }
    }
}

/* --- the answer ------------------------------------------------------------------------------ */

static json_int_t read_count(const _Atomic uint64_t *counter)
{
    return (json_int_t)atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_count(json_t *object, const char *key, const _Atomic uint64_t *counter)
{
    json_int_t before = json_integer_value(json_object_get(object, key));
    json_object_set_new(object, key, json_integer(before + read_count(counter)));
}

static void add_drop(json_t *reasons, enum via_ip_drop why, const _Atomic uint64_t *counter)
{
    if (read_count(counter) != 0) {
        add_count(reasons, via_ip_drop_name(why), counter);
    }
}

static void add_drops(json_t *object, const char *key, const _Atomic uint64_t *drops)
{
    json_t *reasons = json_object_get(object, key);
    if (reasons == NULL) {
        reasons = json_object();
        json_object_set_new(object, key, reasons);
    }
    for (unsigned i = VIA_IP_DROP_NONE + 1; i < VIA_IP_DROPS_COUNT; i++) {
        add_drop(reasons, (enum via_ip_drop)i, &drops[i]);
    }
}

static void add_counters(json_t *object, const struct via_ip_counters *counters)
{
    add_count(object, "packets_sent", &counters->packets_sent);
    add_count(object, "bytes_sent", &counters->bytes_sent);
    add_count(object, "packets_received", &counters->packets_received);
    add_count(object, "bytes_received", &counters->bytes_received);
    add_drops(object, "drops_sent", counters->drops_sent);
    add_drops(object, "drops_received", counters->drops_received);
}

static void add_addresses(json_t *object, const struct via_ip_network *network, unsigned host)
{
    char text[INET6_ADDRSTRLEN];
    struct in_addr four = {.s_addr = htonl(via_ip_address4(network, host))};
    struct in6_addr six;
    inet_ntop(AF_INET, &four, text, sizeof(text));
    json_object_set_new(object, "address", json_string(text));
    if (network->bits6 != 0) {
        via_ip_address6(network, host, six.s6_addr);
        inet_ntop(AF_INET6, &six, text, sizeof(text));
        json_object_set_new(object, "address6", json_string(text));
    }
}

/* Adds the kernel's counters. */
static void add_direct(json_t *peer, const struct via_ip_kernel *kernel, unsigned host)
{
    const struct via_ip_kernel_host *entry = kernel->hosts != NULL ? &kernel->hosts[host] : NULL;
    bool open = entry != NULL && atomic_load_explicit(&entry->out_on, memory_order_relaxed) != 0;
    json_object_set_new(peer, "direct", json_boolean(open));
    if (entry != NULL) {
        json_t *drops = json_object_get(peer, "drops_received");
        add_count(peer, "packets_sent", &entry->packets_sent);
        add_count(peer, "bytes_sent", &entry->bytes_sent);
        add_count(peer, "packets_received", &entry->packets_received);
        add_count(peer, "bytes_received", &entry->bytes_received);
        add_drop(drops, VIA_IP_DROP_SPOOFED, &entry->spoofed);
        add_drop(drops, VIA_IP_DROP_FOREIGN, &entry->foreign);
    }
}

/* NULL: no lane to this host. */
static json_t *describe_peer(const struct via_ip_shared *shared,
                             const struct via_ip_worker *workers, unsigned host)
{
    json_t *peer = NULL;
    unsigned up = 0;
    for (unsigned i = 0; i < shared->tun.queues * VIA_IP_QUEUES_MAX; i++) {
        const struct via_ip_worker *worker = &workers[i / VIA_IP_QUEUES_MAX];
        /* Pairs with the release in via_ip_worker_lane(). */
        const struct via_ip_lane *lane =
            atomic_load_explicit(&worker->lanes[host][i % VIA_IP_QUEUES_MAX], memory_order_acquire);
        if (lane == NULL) {
            continue;
        }
        if (peer == NULL) {
            peer = json_pack("{s:i}", "host", (int)host);
            add_addresses(peer, &shared->options->network, host);
        }
        up += via_ip_lane_is_up(lane) ? 1 : 0;
        add_count(peer, "sessions", &lane->sessions);
        add_counters(peer, &lane->counters);
    }
    if (peer != NULL) {
        add_direct(peer, &shared->kernel, host);
        json_object_set_new(peer, "up", json_boolean(up != 0));
        json_object_set_new(peer, "lanes_up", json_integer(up));
    }
    return peer;
}

static json_t *describe(const struct via_ip_shared *shared, const struct via_ip_worker *workers)
{
    const struct via_ip_options *options = shared->options;
    uint32_t offloads = atomic_load_explicit(&shared->offloads, memory_order_relaxed);
    json_t *root = json_pack("{s:b, s:i, s:i, s:s, s:i, s:i, s:b, s:b}", "ok", 1, "host",
                             (int)shared->host, "pid", (int)getpid(), "device", shared->tun.name,
                             "mtu", (int)options->mtu, "queues", (int)shared->tun.queues,
                             "tcp_segments", (offloads & VIA_IP_OFFLOAD_TCP) != 0, "udp_segments",
                             (offloads & VIA_IP_OFFLOAD_UDP) != 0);
    json_t *peers = json_array();
    bool attached = true;
    add_addresses(root, &options->network, shared->host);
    for (unsigned i = 0; i < shared->tun.queues; i++) {
        attached = attached && atomic_load_explicit(&workers[i].attached, memory_order_relaxed);
        add_count(root, "reattached", &workers[i].reattached);
        add_drops(root, "drops_sent", workers[i].counters.drops_sent);
    }
    json_object_set_new(root, "attached", json_boolean(attached));
    for (unsigned host = 0; host < VIA_IP_HOSTS_MAX; host++) {
        json_t *peer = describe_peer(shared, workers, host);
        if (peer != NULL) {
            json_array_append_new(peers, peer);
        }
    }
    json_object_set_new(root, "peers", peers);
    return root;
}

static void answer(int fd, const char *text, size_t bytes)
{
    int room = ANSWER_BYTES;
    /* Writes the whole answer at once or nothing, to not wait for a slow reader. */
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) != 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    }
    (void)!send(fd, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void via_ip_status_serve(const struct via_ip_status *status, const struct via_ip_shared *shared,
                         const struct via_ip_worker *workers)
{
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        int fd = accept4(status->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        json_t *root = describe(shared, workers);
        char *text = json_dumps(root, JSON_COMPACT);
        if (text != NULL) {
            size_t bytes = strlen(text);
            text[bytes] = '\n'; /* in place of the NUL */
            answer(fd, text, bytes + 1);
        }
        free(text);
        json_decref(root);
        close(fd);
    }
}
