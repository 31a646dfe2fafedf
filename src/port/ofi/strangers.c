/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/strangers.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/types.h"
#include "port/ofi/port.h"

#define DEFER_S 3

union address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static bool is_same(const union address *a, const union address *b)
{
    if (a->any.sa_family != b->any.sa_family) {
        return false;
    }
    return a->any.sa_family == AF_INET
               ? a->in.sin_port == b->in.sin_port && a->in.sin_addr.s_addr == b->in.sin_addr.s_addr
               : a->in6.sin6_port == b->in6.sin6_port &&
                     memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)) == 0;
}

/* True if a connection with this local address may have been accepted at the listening address. */
static bool is_through(const union address *local, const union address *listening)
{
    union address any = *listening;
    if (any.any.sa_family == AF_INET) {
        any.in.sin_addr = local->in.sin_addr;
    } else {
        any.in6.sin6_addr = local->in6.sin6_addr;
    }
    bool is_wildcard = listening->any.sa_family == AF_INET
                           ? listening->in.sin_addr.s_addr == htonl(INADDR_ANY)
                           : IN6_IS_ADDR_UNSPECIFIED(&listening->in6.sin6_addr);
    return is_same(local,
                   is_wildcard && local->any.sa_family == any.any.sa_family ? &any : listening);
}

static bool is_internet(const union address *address, socklen_t bytes)
{
    return (address->any.sa_family == AF_INET && bytes >= sizeof(address->in)) ||
           (address->any.sa_family == AF_INET6 && bytes >= sizeof(address->in6));
}

static bool find_listener(struct via_ofi_hub *hub, union address *ret_listening)
{
    size_t bytes = sizeof(*ret_listening);
    return fi_getname(&hub->pep->fid, ret_listening, &bytes) == 0 &&
           is_internet(ret_listening, (socklen_t)bytes);
}

/* True if the hub has accepted a connection from this peer. */
static bool is_of_hub(struct via_ofi_hub *hub, const union address *peer)
{
    via_list_foreach(it, &hub->conns) {
        struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
        union address known;
        size_t bytes = sizeof(known);
        if (conn->ep != NULL && !conn->connector && fi_getpeer(conn->ep, &known, &bytes) == 0 &&
            is_same(&known, peer)) {
            return true;
        }
    }
    return false;
}

struct search {
    struct via_ofi_hub *hub;
    union address listening;
    uint64_t now_ns;
    struct via_ofi_strangers found; /* strangers found by this scan and not shut down */
    unsigned ended;
};

static uint64_t seen_since(const struct via_ofi_strangers *strangers, uint64_t cookie,
                           uint64_t now_ns)
{
    for (unsigned i = 0; i < strangers->count; i++) {
        if (strangers->known[i].cookie == cookie) {
            return strangers->known[i].seen_ns;
        }
    }
    return now_ns;
}

static void take_stranger(struct search *search, int fd)
{
    struct via_ofi_strangers *found = &search->found;
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);
    if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) != 0) {
        return;
    }
    uint64_t seen_ns = seen_since(&search->hub->silent, cookie, search->now_ns);
    if (search->now_ns - seen_ns >= VIA_OFI_STRANGER_NS || found->count == VIA_OFI_STRANGERS_MAX) {
        /* libfabric reads end of file, and closes the socket. */
        shutdown(fd, SHUT_RDWR);
        search->ended++;
        return;
    }
    found->known[found->count].cookie = cookie;
    found->known[found->count].seen_ns = seen_ns;
    found->count++;
}

static void take_fd(struct search *search, int fd)
{
    union address local;
    union address peer;
    socklen_t bytes = sizeof(local);
    int listening = 0;
    if (getsockname(fd, &local.any, &bytes) != 0 || !is_internet(&local, bytes) ||
        !is_through(&local, &search->listening)) {
        return;
    }
    bytes = sizeof(listening);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) == 0 && listening != 0) {
        int seconds = DEFER_S;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
        return;
    }
    bytes = sizeof(peer);
    if (getpeername(fd, &peer.any, &bytes) == 0 && !is_of_hub(search->hub, &peer)) {
        take_stranger(search, fd);
    }
}

static void check_all_fds(struct search *search)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && *end == '\0') {
            take_fd(search, (int)fd);
        }
    }
    closedir(folder);
}

void via_ofi_strangers_tick(struct via_ofi_hub *hub, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    if (hub->pep == NULL || strcmp(hub->provider, "tcp") != 0) {
        return; /* other providers do not document their descriptors */
    }
    if (now_ns >= hub->silent.poll_ns) {
        struct search search = {.hub = hub, .now_ns = now_ns};
        if (find_listener(hub, &search.listening)) {
            check_all_fds(&search);
        }
        hub->silent = search.found;
        hub->silent.poll_ns =
            now_ns + (search.found.count >= VIA_OFI_STRANGERS_MAX / 2 ? VIA_OFI_STRANGERS_CROWDED_NS
                                                                      : VIA_OFI_STRANGERS_POLL_NS);
        if (search.ended != 0) {
            via_log_limited(&hub->strangers, now_ns, VIA_LOG_WARN,
                            "ofi %s: %u connections to %s port %u requested no link and are ended",
                            hub->provider, search.ended, hub->listen.host, hub->listen.port);
        }
    }
    *ret_deadline_ns = via_min(*ret_deadline_ns, hub->silent.poll_ns);
}
