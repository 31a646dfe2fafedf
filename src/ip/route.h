/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Routes to single hosts through the device, with their own MTU. They end with the device. */
#ifndef VIA_IP_ROUTE_H
#define VIA_IP_ROUTE_H

#include "base/types.h"

struct via_ip_route {
    unsigned device;        /* interface index */
    unsigned address_bytes; /* 4 or 16 */
    uint8_t to[16];         /* network byte order */
    uint8_t from[16];       /* the preferred source */
    unsigned mtu;
};

/* 0 or negative errno; -EEXIST: another program has made a route to this host. */
int via_ip_route_add(const struct via_ip_route *route) VIA_MUST_CHECK;
/* Removes a route that via_ip_route_add() has made. */
void via_ip_route_remove(const struct via_ip_route *route);

#endif
