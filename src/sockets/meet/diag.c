/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/meet/diag.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "sockets/process/fds.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_LAST);
static _Atomic int netlink_fd = -1;
static uint32_t sequence;

struct request {
    struct nlmsghdr header;
    struct inet_diag_req_v2 body;
};

static void fill_address(const struct via_address *address, int family, uint32_t *ret_ip,
                         uint16_t *ret_port)
{
    memset(ret_ip, 0, 16);
    if (family == AF_INET) {
        memcpy(ret_ip, address->ip + 12, 4);
    } else {
        memcpy(ret_ip, address->ip, 16);
    }
    *ret_port = htons(address->port);
}

void via_diag_mark(int fd)
{
    VIA_KEEP_ERRNO;
    int off = 0;
    VIA_REAL(setsockopt)(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof(off));
}

/* As RTA_NEXT(), whose cast from char * the compiler rejects (-Wcast-align). */
static const struct rtattr *next_attribute(const struct rtattr *it, size_t *left)
{
    size_t bytes = RTA_ALIGN(it->rta_len);
    *left -= via_min(bytes, *left);
    return (const void *)((const char *)it + bytes);
}

/* True if the socket has the mark. Kernels before 5.10 do not report marks: any socket may then
 * have one. */
static bool is_marked(const struct nlmsghdr *header, const struct inet_diag_msg *message)
{
    const struct rtattr *it = (const struct rtattr *)(message + 1);
    size_t left = header->nlmsg_len - NLMSG_LENGTH(sizeof(*message));
    for (; RTA_OK(it, left); it = next_attribute(it, &left)) {
        if (it->rta_type == INET_DIAG_SOCKOPT &&
            RTA_PAYLOAD(it) >= sizeof(struct inet_diag_sockopt)) {
            const struct inet_diag_sockopt *options = RTA_DATA(it);
            return options->mc_loop == 0;
        }
    }
    return true;
}

/* Sends one request and receives one answer. */
static int query(int fd, const struct via_tuple *tuple, int family, struct via_diag *ret_diag)
{
    struct request request = {
        .header = {.nlmsg_len = sizeof(request),
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST,
                   .nlmsg_seq = ++sequence},
        .body = {.sdiag_family = (uint8_t)family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = ~0u,
                 .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
    };
    /* the request is for the peer's socket, whose source is this end's remote address */
    fill_address(&tuple->remote, family, request.body.id.idiag_src, &request.body.id.idiag_sport);
    fill_address(&tuple->local, family, request.body.id.idiag_dst, &request.body.id.idiag_dport);
    if (VIA_REAL(send)(fd, &request, sizeof(request), 0) != (ssize_t)sizeof(request)) {
        return -errno;
    }
    union {
        struct nlmsghdr header;
        char bytes[1024];
    } answer;
    for (unsigned tries = 0; tries < 16; tries++) {
        ssize_t n = VIA_REAL(recv)(fd, answer.bytes, sizeof(answer), MSG_DONTWAIT);
        if (n < (ssize_t)sizeof(struct nlmsghdr)) {
            return n < 0 ? -errno : -EPROTO;
        }
        if (answer.header.nlmsg_seq != sequence) {
            continue; /* the answer to an earlier request that timed out */
        }
        if (answer.header.nlmsg_type == NLMSG_ERROR) {
            const struct nlmsgerr *error = NLMSG_DATA(&answer.header);
            return error->error < 0 ? error->error : -EPROTO;
        }
        if (answer.header.nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
            return -EPROTO;
        }
        const struct inet_diag_msg *message = NLMSG_DATA(&answer.header);
        ret_diag->cookie =
            (uint64_t)message->id.idiag_cookie[1] << 32 | message->id.idiag_cookie[0];
        ret_diag->uid = message->idiag_uid;
        ret_diag->held = message->idiag_inode != 0;
        ret_diag->marked = is_marked(&answer.header, message);
        return 0;
    }
    return -EPROTO;
}

static int open_netlink(void)
{
    int fd =
        VIA_REAL(socket)(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    return fd < 0 ? -errno : via_hidden_new(fd, &netlink_fd);
}

int via_diag_peer(const struct via_tuple *tuple, struct via_diag *ret_diag)
{
    bool v4 = via_address_is_v4(&tuple->local) && via_address_is_v4(&tuple->remote);
    int rc = 0;
    via_lock(&lock);
    if (netlink_fd < 0) {
        rc = open_netlink();
    }
    if (rc == 0) {
        /* An IPv4 connection of an IPv6 socket is found by its IPv4 addresses. */
        rc = query(netlink_fd, tuple, v4 ? AF_INET : AF_INET6, ret_diag);
    }
    via_unlock(&lock);
    return rc;
}

void via_diag_forked(void)
{
    via_lock_reset(&lock);
    via_hidden_close(&netlink_fd);
}
