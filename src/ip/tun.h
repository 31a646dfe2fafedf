/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The TUN device: opening it with its queues, addresses, MTU and offloads. */
#ifndef VIA_IP_TUN_H
#define VIA_IP_TUN_H

#include <net/if.h>

#include "base/error.h"
#include "ip/address.h"
#include "ip/hello.h"

struct via_ip_tun_options {
    const char *name; /* "via0" */
    unsigned queues;
    unsigned mtu;
    unsigned host;
    struct via_ip_network network;
    bool offload; /* false: frames are whole packets */
};

/* One thread opens and closes the device; each queue may be used by a different thread. */
struct via_ip_tun {
    char name[IFNAMSIZ];
    unsigned queues;
    int fds[VIA_IP_QUEUES_MAX]; /* non-blocking */
    uint32_t offloads;          /* VIA_IP_OFFLOAD_* that the kernel accepted */
};

/*
 * Makes and configures the device in this network namespace; it ends with the process. -EPERM,
 * -ENOENT (no /dev/net/tun), -EBUSY (the name is in use), or another error of the kernel; err names
 * the device and the step.
 */
int via_ip_tun_open(const struct via_ip_tun_options *options, struct via_ip_tun *tun,
                    struct via_error *err) VIA_MUST_CHECK;
void via_ip_tun_close(struct via_ip_tun *tun);

/* [any thread] Limits the offloads in frames from the kernel to these, a subset of
 * tun->offloads. */
int via_ip_tun_limit(const struct via_ip_tun *tun, uint32_t offloads) VIA_MUST_CHECK;

#endif
