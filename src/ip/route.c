/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/route.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Marks routes of viaduct-ip: a protocol number from the range for routing programs. */
#define PROTOCOL 118

struct request {
    struct nlmsghdr head;
    struct rtmsg route;
    uint8_t attributes[128];
};

static void append(struct request *request, unsigned short type, const void *data, size_t bytes)
{
    struct rtattr attribute = {.rta_type = type, .rta_len = (unsigned short)RTA_LENGTH(bytes)};
    uint8_t *at = request->attributes + NLMSG_ALIGN(request->head.nlmsg_len) -
                  offsetof(struct request, attributes);
    memcpy(at, &attribute, sizeof(attribute));
    memcpy(at + RTA_LENGTH(0), data, bytes);
    request->head.nlmsg_len =
        (uint32_t)(NLMSG_ALIGN(request->head.nlmsg_len) + RTA_ALIGN(attribute.rta_len));
}

static int send_request(struct request *request)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        uint8_t more[512]; /* the kernel returns the request */
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) {
        return -errno;
    }
    int rc = send(fd, request, request->head.nlmsg_len, 0) >= 0 ? 0 : -errno;
    ssize_t bytes =
        rc == 0 ? recv(fd, &answer, sizeof(answer), 0) : 0; /* the kernel has answered */
    if (rc == 0) {
        rc = bytes < 0 ? -errno
             : bytes >= (ssize_t)(sizeof(answer.head) + sizeof(answer.error)) &&
                     answer.head.nlmsg_type == NLMSG_ERROR
                 ? answer.error.error
                 : -EPROTO;
    }
    close(fd);
    return rc;
}

static struct request make(const struct via_ip_route *route, unsigned short type,
                           unsigned short flags)
{
    bool four = route->address_bytes == 4;
    struct request request = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
                 .nlmsg_type = type,
                 .nlmsg_flags = (unsigned short)(NLM_F_REQUEST | NLM_F_ACK | flags)},
        .route = {.rtm_family = four ? AF_INET : AF_INET6,
                  .rtm_dst_len = (unsigned char)(8 * route->address_bytes),
                  .rtm_table = RT_TABLE_MAIN,
                  .rtm_protocol = PROTOCOL,
                  .rtm_scope = four ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE,
                  .rtm_type = RTN_UNICAST},
    };
    uint32_t device = route->device;
    append(&request, RTA_DST, route->to, route->address_bytes);
    append(&request, RTA_OIF, &device, sizeof(device));
    return request;
}

int via_ip_route_add(const struct via_ip_route *route)
{
    struct request request = make(route, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
    const struct {
        struct rtattr head;
        uint32_t mtu;
    } metrics = {
        .head = {.rta_type = RTAX_MTU, .rta_len = RTA_LENGTH(sizeof(uint32_t))},
        .mtu = route->mtu,
    };
    append(&request, RTA_PREFSRC, route->from, route->address_bytes);
    append(&request, RTA_METRICS, &metrics, sizeof(metrics));
    return send_request(&request);
}

void via_ip_route_remove(const struct via_ip_route *route)
{
    struct request request = make(route, RTM_DELROUTE, 0);
    (void)!send_request(&request);
}
