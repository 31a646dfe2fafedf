/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_NETNS_H
#define VIA_CLI_NETNS_H

#include "cli/fabric.h"

/*
 * A network namespace for each host (via-<fabric>-<id>, 10.77.0.ID/24 on eth0), all on one bridge
 * that lives in a namespace of its own (via-<fabric>-sw), so that nothing of it is seen outside.
 * Without Ethernet there are the hosts' namespaces only, and viaduct-ip(8) makes their devices.
 * The namespaces have names in /run/netns and are made and removed by ip(8).
 */

/* -EPERM without root, -ENOENT without ip(8), -EEXIST when a namespace of this name is there. When
 * it fails, whatever was made is removed by via_netns_remove. */
int via_netns_make(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/* All namespaces of the fabric's name, whatever its state says. Returns how many were there, or
 * negative errno. */
int via_netns_remove(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/* How many namespaces of the fabric's name there are. */
unsigned via_netns_count(const struct via_fabric *fabric);

/* The calling process enters the namespace of a host. */
int via_netns_enter(const struct via_fabric *fabric, unsigned host,
                    struct via_error *err) VIA_MUST_CHECK;

#endif
