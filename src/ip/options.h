/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_IP_OPTIONS_H
#define VIA_IP_OPTIONS_H

#include <sys/types.h>

#include "base/error.h"
#include "ip/address.h"

/* The command line of viaduct-ip(8). */
struct via_ip_options {
    const char *rundir; /* NULL: as libviaduct finds it */
    const char *fabric;
    int host; /* -1: as libviaduct finds it */
    const char *name;
    struct via_ip_network network;
    unsigned mtu;
    unsigned queues;
    unsigned ring_kib;
    unsigned spin_us;
    bool offload;
    bool forward;
    int ready_fd; /* -1 = none */
    pid_t with;   /* 0 = no process */
};

/* -1 = continue, else the exit code. */
int via_ip_options_take(int argc, char **argv, struct via_ip_options *options);

#endif
