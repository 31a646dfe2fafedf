/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/tun.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ip/packet.h"

/* Kernel 6.2; not in all headers. */
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#endif
#ifndef TUN_F_USO6
#define TUN_F_USO6 0x40
#endif

#define TUN_PATH "/dev/net/tun"
/* Length of the kernel's queue. TCP sends large packets, so this is several MiB. */
#define QUEUE_PACKETS 1000

static unsigned kernel_flags(uint32_t offloads)
{
    unsigned flags = 0;
    if ((offloads & VIA_IP_OFFLOAD_TCP) != 0) {
        flags |= TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    }
    if ((offloads & VIA_IP_OFFLOAD_UDP) != 0) {
        flags |= TUN_F_USO4 | TUN_F_USO6;
    }
    return flags;
}

int via_ip_tun_limit(const struct via_ip_tun *tun, uint32_t offloads)
{
    /* The offloads belong to the device; any queue's descriptor works. */
    return ioctl(tun->fds[0], TUNSETOFFLOAD, kernel_flags(offloads)) == 0 ? 0 : -errno;
}

static int fail(const struct via_ip_tun *tun, const char *step, struct via_error *err)
{
    int code = errno;
    return via_error_set(err, -code, "device %s: %s: %s", tun->name, step, strerror(code));
}

static int open_queue(struct via_ip_tun *tun, unsigned queue, const char *name,
                      struct via_error *err)
{
    int one = 1;
    int bytes = VIA_IP_VNET_BYTES;
    struct ifreq request = {
        .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE,
    };
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    int fd = open(TUN_PATH, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return via_error_set(err, -errno, "open " TUN_PATH ": %s", strerror(errno));
    }
    tun->fds[queue] = fd;
    if (ioctl(fd, TUNSETIFF, &request) != 0) {
        return fail(tun, "make", err);
    }
    snprintf(tun->name, sizeof(tun->name), "%s", request.ifr_name);
    if (ioctl(fd, TUNSETVNETHDRSZ, &bytes) != 0 || ioctl(fd, TUNSETVNETLE, &one) != 0) {
        return fail(tun, "set the offload header", err);
    }
    return 0;
}

static int set_offloads(struct via_ip_tun *tun, struct via_error *err)
{
    /* Kernels before 6.2 do not segment UDP. */
    static const uint32_t candidates[] = {VIA_IP_OFFLOAD_TCP | VIA_IP_OFFLOAD_UDP,
                                          VIA_IP_OFFLOAD_TCP};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(candidates); i++) {
        int rc = via_ip_tun_limit(tun, candidates[i]);
        if (rc == 0) {
            tun->offloads = candidates[i];
            return 0;
        }
        if (rc != -EINVAL) {
            errno = -rc;
            return fail(tun, "set offloads", err);
        }
    }
    return via_error_set(err, -EINVAL, "device %s: set offloads: the kernel supports none",
                         tun->name);
}

/* --- addresses ------------------------------------------------------------------------------- */

static struct ifreq interface_request(const struct via_ip_tun *tun)
{
    struct ifreq request = {0};
    memcpy(request.ifr_name, tun->name, sizeof(request.ifr_name));
    return request;
}

static void put_address4(struct sockaddr *to, uint32_t address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    memcpy(to, &in, sizeof(in));
}

static int set_address4(const struct via_ip_tun *tun, const struct via_ip_tun_options *options,
                        int fd, struct via_error *err)
{
    struct ifreq request = interface_request(tun);
    put_address4(&request.ifr_addr, via_ip_address4(&options->network, options->host));
    if (ioctl(fd, SIOCSIFADDR, &request) != 0) {
        return fail(tun, "set the IPv4 address", err);
    }
    put_address4(&request.ifr_netmask, UINT32_MAX << (32 - options->network.bits4));
    if (ioctl(fd, SIOCSIFNETMASK, &request) != 0) {
        return fail(tun, "set the IPv4 network", err);
    }
    return 0;
}

static int set_address6(const struct via_ip_tun *tun, const struct via_ip_tun_options *options,
                        struct via_error *err)
{
    struct in6_ifreq request = {
        .ifr6_prefixlen = options->network.bits6,
        .ifr6_ifindex = (int)if_nametoindex(tun->name),
    };
    via_ip_address6(&options->network, options->host, request.ifr6_addr.s6_addr);
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        /* The kernel has no IPv6. */
        return errno == EAFNOSUPPORT ? 0 : fail(tun, "set the IPv6 address", err);
    }
    int rc = ioctl(fd, SIOCSIFADDR, &request) == 0 ? 0 : -errno;
    close(fd);
    /* IPv6 is disabled by sysctl: the device has no IPv6 address. */
    if (rc == 0 || rc == -EACCES || rc == -EPERM) {
        return 0;
    }
    errno = -rc;
    return fail(tun, "set the IPv6 address", err);
}

static int set_up(const struct via_ip_tun *tun, const struct via_ip_tun_options *options, int fd,
                  struct via_error *err)
{
    struct ifreq request = interface_request(tun);
    request.ifr_mtu = (int)options->mtu;
    if (ioctl(fd, SIOCSIFMTU, &request) != 0) {
        return fail(tun, "set the MTU", err);
    }
    request = interface_request(tun);
    request.ifr_qlen = QUEUE_PACKETS;
    if (ioctl(fd, SIOCSIFTXQLEN, &request) != 0) {
        return fail(tun, "set the length of the queue", err);
    }
    int rc = set_address4(tun, options, fd, err);
    if (rc != 0) {
        return rc;
    }
    request = interface_request(tun);
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) {
        return fail(tun, "read flags", err);
    }
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) {
        return fail(tun, "set up", err);
    }
    return options->network.bits6 != 0 ? set_address6(tun, options, err) : 0;
}

int via_ip_tun_open(const struct via_ip_tun_options *options, struct via_ip_tun *tun,
                    struct via_error *err)
{
    *tun = (struct via_ip_tun){.queues = options->queues};
    snprintf(tun->name, sizeof(tun->name), "%s", options->name);
    for (unsigned i = 0; i < VIA_IP_QUEUES_MAX; i++) {
        tun->fds[i] = -1;
    }
    /* Otherwise this would open a queue of another program's device. */
    if (if_nametoindex(options->name) != 0) {
        return via_error_set(err, -EBUSY, "device %s: make: the name is in use", options->name);
    }
    int rc = 0;
    for (unsigned i = 0; i < options->queues && rc == 0; i++) {
        rc = open_queue(tun, i, options->name, err);
    }
    if (rc == 0 && options->offload) {
        rc = set_offloads(tun, err);
    }
    int fd = rc == 0 ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (rc == 0) {
        rc = fd >= 0 ? set_up(tun, options, fd, err) : fail(tun, "socket", err);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (rc != 0) {
        via_ip_tun_close(tun);
    }
    return rc;
}

void via_ip_tun_close(struct via_ip_tun *tun)
{
    for (unsigned i = 0; i < VIA_IP_QUEUES_MAX; i++) {
        if (tun->fds[i] >= 0) {
            close(tun->fds[i]);
            tun->fds[i] = -1;
        }
    }
}
