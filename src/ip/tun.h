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

/* One thread opens and closes it; each queue may have a thread of its own. */
struct via_ip_tun {
    char name[IFNAMSIZ];
    unsigned queues;
    int fds[VIA_IP_QUEUES_MAX]; /* do not block */
    uint32_t offloads;          /* VIA_IP_OFFLOAD_*: what the kernel agreed to */
};

/*
 * Makes the device in this network namespace, sets it up. It goes when the process ends. -EPERM,
 * -ENOENT (no /dev/net/tun), -EBUSY (the name is taken), or what the kernel says; the text names
 * the device and the step.
 */
int via_ip_tun_open(const struct via_ip_tun_options *options, struct via_ip_tun *tun,
                    struct via_error *err) VIA_MUST_CHECK;
void via_ip_tun_close(struct via_ip_tun *tun);

/* From now on the kernel gives frames with these offloads only; a subset of tun->offloads. From
 * any thread. */
int via_ip_tun_limit(const struct via_ip_tun *tun, uint32_t offloads) VIA_MUST_CHECK;

#endif
