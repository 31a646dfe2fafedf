/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_NETNS_H
#define VIA_CLI_NETNS_H

#include "cli/fabric.h"

/*
 * A network namespace for each host (via-<fabric>-<id>, 10.77.0.ID/24 on eth0). All are connected
 * to one bridge in a namespace of its own (via-<fabric>-sw), so that the bridge is invisible
 * outside. Without Ethernet there are only the hosts' namespaces, in which viaduct-ip(8) makes the
 * devices. The namespaces have names in /run/netns; ip(8) makes and removes them.
 */

/* -EPERM without root, -ENOENT without ip(8), -EEXIST if a namespace of this name exists. After a
 * failure via_netns_remove() removes the part that was made. */
int via_netns_make(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/* Removes all namespaces of the fabric's name, whatever the state file says. Returns their number,
 * or a negative errno. */
int via_netns_remove(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/* Number of namespaces of the fabric's name. */
unsigned via_netns_count(const struct via_fabric *fabric);

/* The calling process enters the namespace of a host. */
int via_netns_enter(const struct via_fabric *fabric, unsigned host,
                    struct via_error *err) VIA_MUST_CHECK;

#endif
