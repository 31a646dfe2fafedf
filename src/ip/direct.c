/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/direct.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "host/attach_wire.h"
#include "ip/options.h"
#include "ip/route.h"
#include "ip/worker.h"

#define CARD_MAGIC UINT64_C(0x3150494156524944) /* "DIRVAIP1" */
#define UNDERLAYS_MAX 8u
/* Interval of requests to the daemon for the link's addresses, and to the kernel for their
 * interfaces. */
#define REQUEST_NS (2 * VIA_SEC_NS)
#define PROBE_NS (250 * VIA_MSEC_NS)
/* Interval while the path is closed. */
#define PROBE_CLOSED_NS VIA_SEC_NS
/* After this time without an echo packets go through the inboxes. Covers several lost probes, and a
 * process that does not get the CPU for a while. */
#define SILENT_NS_MAX (2 * VIA_SEC_NS)
#define MESSAGES_MAX 64u
/* The least MTU that IPv6 allows (RFC 8200, section 5). */
#define MTU_MIN 1280u

/* A UDP socket of this host on its address of a link, and the program `in` at that interface. */
struct underlay {
    int fd; /* -1: free */
    int program_fd;
    unsigned interface;
    unsigned mtu; /* longest packet on the path */
    uint32_t local4;
    uint16_t port; /* network byte order, as the address */
};

struct peer {
    uint64_t session; /* of its lane; 0: no path */
    struct underlay *underlay;
    uint32_t peer4;
    uint8_t own_token[VIA_IP_TOKEN_BYTES];
    struct via_tcp_card theirs;    /* magic 0: not received */
    uint64_t request_ns, probe_ns; /* times of the next ones */
    uint64_t echo_ns;              /* time of the last echo */
    uint64_t nonce;                /* of the last probe */
    bool offered, open;
};

struct via_ip_direct {
    const struct via_ip_shared *shared;
    struct via_ip_kernel_host *hosts;
    struct underlay underlays[UNDERLAYS_MAX];
    uint64_t check_ns; /* time of the next check of underlays */
    struct peer peers[VIA_IP_HOSTS_MAX];
};

/* The payload of a probe or an echo: it follows the IP and UDP headers. */
struct message {
    struct via_ip_direct_head head;
    uint32_t zero;
    uint64_t nonce;
};
_Static_assert(sizeof(struct message) == 32, "without gaps");

struct via_ip_direct *via_ip_direct_new(const struct via_ip_shared *shared)
{
    struct via_ip_direct *direct = shared->kernel.hosts != NULL ? calloc(1, sizeof(*direct)) : NULL;
    if (direct != NULL) {
        direct->shared = shared;
        direct->hosts = shared->kernel.hosts;
        for (unsigned i = 0; i < UNDERLAYS_MAX; i++) {
            direct->underlays[i].fd = -1;
        }
    }
    return direct;
}

/* --- underlays ------------------------------------------------------------------------------- */

/* Finds the interface with this address, and its MTU. Accepts only interfaces with Ethernet
 * headers. */
static int find_interface(uint32_t local4, int fd, struct ifreq *ret_request, unsigned *ret_index)
{
    struct ifaddrs *all;
    int rc = -EXDEV;
    if (getifaddrs(&all) != 0) {
        return -errno;
    }
    for (const struct ifaddrs *it = all; it != NULL; it = it->ifa_next) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)it->ifa_addr;
        if (in == NULL || in->sin_family != AF_INET || in->sin_addr.s_addr != local4) {
            continue;
        }
        memset(ret_request, 0, sizeof(*ret_request));
        strncpy(ret_request->ifr_name, it->ifa_name, sizeof(ret_request->ifr_name) - 1);
        *ret_index = if_nametoindex(it->ifa_name);
        if (ioctl(fd, SIOCGIFHWADDR, ret_request) == 0 &&
            ret_request->ifr_hwaddr.sa_family == ARPHRD_ETHER &&
            ioctl(fd, SIOCGIFMTU, ret_request) == 0) {
            rc = 0;
        }
        break;
    }
    freeifaddrs(all);
    return rc;
}

/* MTU for packets, without the head. */
static unsigned mtu_of(const struct ifreq *request, const struct via_ip_direct *direct)
{
    unsigned mtu = (unsigned)request->ifr_mtu;
    mtu = mtu > VIA_IP_DIRECT_BYTES ? mtu - VIA_IP_DIRECT_BYTES : 0;
    return via_min(mtu, direct->shared->options->mtu);
}

static int bind_underlay(struct underlay *underlay, const struct via_ip_direct *direct)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = underlay->local4};
    socklen_t bytes = sizeof(address);
    int probe = IP_PMTUDISC_PROBE; /* never fragmented */
    struct ifreq request;
    int rc = find_interface(underlay->local4, underlay->fd, &request, &underlay->interface);
    if (rc != 0) {
        return rc;
    }
    underlay->mtu = mtu_of(&request, direct);
    if (underlay->mtu < MTU_MIN) {
        return -EMSGSIZE;
    }
    /* Probes leave only through this interface, like the kernel's packets. */
    if (setsockopt(underlay->fd, SOL_SOCKET, SO_BINDTODEVICE, request.ifr_name, IFNAMSIZ) != 0 ||
        setsockopt(underlay->fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe)) != 0 ||
        bind(underlay->fd, (const struct sockaddr *)&address, bytes) != 0 ||
        getsockname(underlay->fd, (struct sockaddr *)&address, &bytes) != 0) {
        return -errno;
    }
    underlay->port = address.sin_port;
    underlay->program_fd = via_ip_kernel_listen(&direct->shared->kernel, underlay->interface,
                                                underlay->local4, underlay->port);
    return via_min(underlay->program_fd, 0);
}

static struct underlay *find_underlay(struct via_ip_direct *direct, uint32_t local4)
{
    for (unsigned i = 0; i < UNDERLAYS_MAX; i++) {
        if (direct->underlays[i].fd >= 0 && direct->underlays[i].local4 == local4) {
            return &direct->underlays[i];
        }
    }
    return NULL;
}

static int open_underlay(struct via_ip_direct *direct, uint32_t local4,
                         struct underlay **ret_underlay)
{
    struct underlay *underlay = find_underlay(direct, local4);
    for (unsigned i = 0; underlay == NULL && i < UNDERLAYS_MAX; i++) {
        if (direct->underlays[i].fd >= 0) {
            continue;
        }
        struct underlay made = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                                .local4 = local4};
        if (made.fd < 0) {
            return -errno;
        }
        int rc = bind_underlay(&made, direct);
        if (rc != 0) {
            close(made.fd);
            return rc;
        }
        direct->underlays[i] = made;
        underlay = &direct->underlays[i];
    }
    *ret_underlay = underlay;
    return underlay != NULL ? 0 : -ENOSPC;
}

static void close_underlay(struct underlay *underlay)
{
    if (underlay->fd >= 0) {
        close(underlay->fd);
        close(underlay->program_fd);
        underlay->fd = -1;
    }
}

/* False if the address was removed or has moved to another interface, or if the MTU has changed:
 * socket and program are bound to the old interface. */
static bool is_current(const struct underlay *underlay, const struct via_ip_direct *direct)
{
    struct ifreq request;
    unsigned interface = 0;
    return find_interface(underlay->local4, underlay->fd, &request, &interface) == 0 &&
           interface == underlay->interface && mtu_of(&request, direct) == underlay->mtu;
}

/* --- opening and closing --------------------------------------------------------------------- */

/* Adds or removes routes with the path's MTU, so that programs send packets that fit. With the
 * device's MTU most packets would be too long for the path. */
static void change_routes(const struct via_ip_direct *direct, unsigned host, unsigned mtu, bool add)
{
    const struct via_ip_shared *shared = direct->shared;
    const struct via_ip_network *network = &shared->options->network;
    if (mtu == shared->options->mtu) {
        return;
    }
    const uint32_t to4 = htonl(via_ip_address4(network, host));
    const uint32_t from4 = htonl(via_ip_address4(network, shared->host));
    struct via_ip_route four = {
        .device = shared->kernel.params.device, .address_bytes = 4, .mtu = mtu};
    struct via_ip_route six = four;
    memcpy(four.to, &to4, sizeof(to4));
    memcpy(four.from, &from4, sizeof(from4));
    six.address_bytes = 16;
    via_ip_address6(network, host, six.to);
    via_ip_address6(network, shared->host, six.from);
    const struct via_ip_route *routes[] = {&four, &six};
    for (unsigned i = 0; i < (network->bits6 != 0 ? 2u : 1u); i++) {
        int rc = 0;
        if (add) {
            rc = via_ip_route_add(routes[i]);
        } else {
            via_ip_route_remove(routes[i]);
        }
        if (rc != 0) {
            via_log(VIA_LOG_INFO, "host %u: add IPv%u route with MTU %u: %s", host,
                    i == 0 ? 4u : 6u, mtu, strerror(-rc));
        }
    }
}

static void close_path(struct via_ip_direct *direct, unsigned host, const char *why)
{
    struct peer *peer = &direct->peers[host];
    if (!peer->open) {
        return;
    }
    peer->open = false;
    atomic_store_explicit(&direct->hosts[host].out_on, 0, memory_order_relaxed);
    change_routes(direct, host, peer->underlay->mtu, false);
    via_log(VIA_LOG_INFO, "host %u: no direct path: %s", host, why);
}

static void reset_peer(struct via_ip_direct *direct, unsigned host, const char *why)
{
    struct peer *peer = &direct->peers[host];
    close_path(direct, host, why);
    atomic_store_explicit(&direct->hosts[host].in_on, 0, memory_order_relaxed);
    *peer = (struct peer){.request_ns = peer->request_ns};
}

static void open_path(struct via_ip_direct *direct, unsigned host)
{
    struct peer *peer = &direct->peers[host];
    struct via_ip_kernel_host *entry = &direct->hosts[host];
    struct via_ip_direct_head head = {
        .host = direct->shared->host,
        .kind = VIA_IP_DIRECT_PACKET,
        .version = VIA_IP_DIRECT_VERSION,
    };
    memcpy(head.token, peer->theirs.token, sizeof(head.token));
    via_ip_kernel_fill_head(entry, peer->underlay->local4, peer->underlay->port, peer->peer4,
                            peer->theirs.port, &head);
    entry->out_interface = peer->underlay->interface;
    entry->out_bytes_max = peer->underlay->mtu;
    change_routes(direct, host, peer->underlay->mtu, true);
    /* Release: the kernel program on another CPU loads out_on before the other fields. */
    atomic_store_explicit(&entry->out_on, 1, memory_order_release);
    peer->open = true;
    via_log(VIA_LOG_INFO, "host %u: direct path of %u bytes", host, peer->underlay->mtu);
}

/* --- agreement ------------------------------------------------------------------------------- */

static uint32_t address4(const char *text)
{
    struct via_tcp_card card = {0};
    struct sockaddr_storage address;
    unsigned bytes;
    uint32_t four = 0;
    if (via_client_tcp_address(text, &card, &address, &bytes) == 0 && card.family == 4) {
        memcpy(&four, card.address, sizeof(four));
    }
    return four;
}

/* Makes a token for the host; the kernel accepts packets with it from then on. */
static int accept_packets(struct via_ip_direct *direct, const struct via_ip_lane *lane,
                          struct peer *peer)
{
    const struct via_ip_network *network = &direct->shared->options->network;
    struct via_ip_kernel_host *entry = &direct->hosts[lane->host];
    if (getrandom(peer->own_token, sizeof(peer->own_token), 0) !=
        (ssize_t)sizeof(peer->own_token)) {
        return -EIO;
    }
    memcpy(entry->in_token, peer->own_token, sizeof(entry->in_token));
    entry->peer4 = peer->peer4;
    entry->inner4 = htonl(via_ip_address4(network, lane->host));
    via_ip_address6(network, lane->host, entry->inner6);
    atomic_store_explicit(&entry->in_on, 1, memory_order_release);
    peer->session = lane->session;
    return 0;
}

/* Requests from the daemon the addresses of the link over TCP, and opens the underlay. */
static void request_addresses(struct via_ip_direct *direct, struct via_ip_lane *lane)
{
    struct peer *peer = &direct->peers[lane->host];
    struct via_attach_tcp where;
    struct underlay *underlay = NULL;
    int rc = via_tcp_request_address(lane->attach, lane->host, &where);
    uint32_t local4 = rc == 0 ? address4(where.local) : 0;
    uint32_t peer4 = rc == 0 ? address4(where.peer) : 0;
    if (local4 == 0 || peer4 == 0) {
        reset_peer(direct, lane->host, "no link over TCP");
        return;
    }
    if (peer->session != 0 && (peer->underlay->local4 != local4 || peer->peer4 != peer4)) {
        reset_peer(direct, lane->host, "the link has other addresses");
    }
    if (peer->session != 0) {
        return;
    }
    rc = open_underlay(direct, local4, &underlay);
    if (rc == 0) {
        peer->underlay = underlay;
        peer->peer4 = peer4;
        rc = accept_packets(direct, lane, peer);
    }
    if (rc != 0) {
        via_log(VIA_LOG_DEBUG, "host %u: no direct path: %s", lane->host, strerror(-rc));
    }
}

/* Writes the card into the peer's inbox. Without room, or after an error, a later tick retries; the
 * lane's next send detects the error, too. */
static void send_card(struct via_ip_lane *lane, struct peer *peer)
{
    struct via_tcp_card card = {.magic = CARD_MAGIC, .family = 4, .port = peer->underlay->port};
    memcpy(card.token, peer->own_token, sizeof(card.token));
    memcpy(card.address, &peer->underlay->local4, sizeof(peer->underlay->local4));
    int rc = via_remote_try_put(lane->remote, offsetof(struct via_ip_inbox, card), &card,
                                sizeof(card), VIADUCT_PUT_LAZY);
    peer->offered = rc == 0;
}

/* Copies the peer's card from the inbox, and checks the copy, because the peer may write there at
 * any time. */
static bool read_card(const struct via_ip_lane *lane, struct peer *peer)
{
    struct via_tcp_card card;
    memcpy(&card, lane->inbox->card, sizeof(card));
    if (card.magic != CARD_MAGIC || card.family != 4 || card.port == 0 ||
        memcmp(card.address, &peer->peer4, sizeof(peer->peer4)) != 0) {
        return false;
    }
    peer->theirs = card;
    return true;
}

/* --- probes ---------------------------------------------------------------------------------- */

static void send_message(const struct via_ip_direct *direct, const struct peer *peer,
                         enum via_ip_direct_kind kind, uint64_t nonce)
{
    static const uint8_t zeros[VIA_IP_PACKET_BYTES_MAX];
    struct message message = {
        .head = {.host = direct->shared->host, .kind = kind, .version = VIA_IP_DIRECT_VERSION},
        .nonce = nonce,
    };
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = peer->theirs.port, .sin_addr.s_addr = peer->peer4};
    struct iovec parts[] = {
        {.iov_base = &message, .iov_len = sizeof(message)},
        {.iov_base = (void *)(uintptr_t)zeros,
         .iov_len = peer->underlay->mtu - (sizeof(message) - sizeof(message.head))},
    };
    struct msghdr datagram = {.msg_name = &to,
                              .msg_namelen = sizeof(to),
                              .msg_iov = parts,
                              .msg_iovlen = kind == VIA_IP_DIRECT_PROBE ? 2 : 1};
    memcpy(message.head.token, peer->theirs.token, sizeof(message.head.token));
    /* A message that can not be sent counts as lost. */
    (void)!sendmsg(peer->underlay->fd, &datagram, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void probe(struct via_ip_direct *direct, unsigned host, uint64_t now_ns)
{
    struct peer *peer = &direct->peers[host];
    if (peer->open && now_ns - peer->echo_ns > SILENT_NS_MAX) {
        close_path(direct, host, "no echo of its probes has arrived");
    }
    if (now_ns < peer->probe_ns) {
        return;
    }
    peer->probe_ns = now_ns + (peer->open ? PROBE_NS : PROBE_CLOSED_NS);
    peer->nonce++;
    send_message(direct, peer, VIA_IP_DIRECT_PROBE, peer->nonce);
}

static void handle_message(struct via_ip_direct *direct, const struct underlay *underlay,
                           const struct message *message, uint32_t from4, uint64_t now_ns)
{
    unsigned host = message->head.host;
    struct peer *peer = host < VIA_IP_HOSTS_MAX ? &direct->peers[host] : NULL;
    uint8_t wrong = 0;
    if (peer == NULL || peer->session == 0 || peer->theirs.magic == 0 ||
        peer->underlay != underlay || peer->peer4 != from4 ||
        message->head.version != VIA_IP_DIRECT_VERSION) {
        return;
    }
    for (unsigned i = 0; i < VIA_IP_TOKEN_BYTES; i++) { /* in constant time */
        wrong |= message->head.token[i] ^ peer->own_token[i];
    }
    if (wrong != 0) {
        return;
    }
    if (message->head.kind == VIA_IP_DIRECT_PROBE) {
        send_message(direct, peer, VIA_IP_DIRECT_ECHO, message->nonce);
    } else if (message->head.kind == VIA_IP_DIRECT_ECHO && message->nonce == peer->nonce) {
        peer->echo_ns = now_ns;
        if (!peer->open) {
            open_path(direct, host);
        }
    }
}

static void check_underlays(struct via_ip_direct *direct)
{
    for (unsigned i = 0; i < UNDERLAYS_MAX; i++) {
        struct underlay *underlay = &direct->underlays[i];
        if (underlay->fd < 0 || is_current(underlay, direct)) {
            continue;
        }
        for (unsigned host = 0; host < VIA_IP_HOSTS_MAX; host++) {
            if (direct->peers[host].session != 0 && direct->peers[host].underlay == underlay) {
                reset_peer(direct, host, "the interface of the link has changed");
                direct->peers[host].request_ns = 0;
            }
        }
        close_underlay(underlay);
    }
}

void via_ip_direct_receive(struct via_ip_direct *direct, uint64_t now_ns)
{
    if (now_ns >= direct->check_ns) {
        check_underlays(direct);
        direct->check_ns = now_ns + REQUEST_NS;
    }
    for (unsigned i = 0; i < UNDERLAYS_MAX; i++) {
        for (unsigned count = 0; direct->underlays[i].fd >= 0 && count < MESSAGES_MAX; count++) {
            struct message message;
            struct sockaddr_in from = {0};
            socklen_t bytes = sizeof(from);
            ssize_t got = recvfrom(direct->underlays[i].fd, &message, sizeof(message), MSG_DONTWAIT,
                                   (struct sockaddr *)&from, &bytes);
            if (got < 0) {
                break;
            }
            if (got == (ssize_t)sizeof(message)) {
                handle_message(direct, &direct->underlays[i], &message, from.sin_addr.s_addr,
                               now_ns);
            }
        }
    }
}

/* --- ticks ----------------------------------------------------------------------------------- */

void via_ip_direct_tick(struct via_ip_direct *direct, struct via_ip_lane *lane, uint64_t now_ns)
{
    struct peer *peer = &direct->peers[lane->host];
    bool possible = via_ip_lane_is_up(lane) && via_attach_hops(lane->attach, lane->host) == 1 &&
                    via_remote_direct(lane->remote) == NULL;
    if (peer->session != 0 && (!possible || peer->session != lane->session)) {
        reset_peer(direct, lane->host, possible ? "another session" : "no link");
        peer->request_ns = 0;
    }
    if (!possible) {
        return;
    }
    if (now_ns >= peer->request_ns) {
        request_addresses(direct, lane);
        peer->request_ns = now_ns + REQUEST_NS;
    }
    if (peer->session != 0 && !peer->offered) {
        send_card(lane, peer);
    }
    /* While the path is closed, the card is read again, because it may change. */
    if (peer->session != 0 && (peer->open || read_card(lane, peer))) {
        probe(direct, lane->host, now_ns);
    }
}

void via_ip_direct_end_all(struct via_ip_direct *direct)
{
    for (unsigned host = 0; host < VIA_IP_HOSTS_MAX; host++) {
        reset_peer(direct, host, "this host's daemon has ended");
        direct->peers[host].request_ns = 0;
    }
    for (unsigned i = 0; i < UNDERLAYS_MAX; i++) {
        close_underlay(&direct->underlays[i]);
    }
}

void via_ip_direct_free(struct via_ip_direct *direct)
{
    if (direct != NULL) {
        via_ip_direct_end_all(direct);
        free(direct);
    }
}
