/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_IP_HOSTS_H
#define VIA_CLI_IP_HOSTS_H

#include <jansson.h>

#include "cli/fabric.h"

/* The viaduct-ip(8) processes of the hosts on this machine: each has a socket in the run
 * directory. */

/*
 * Starts one in the namespace of each host that has none, and waits until its device is up. The
 * text names the host. *ret_host: the host whose host-<id>.ip.log tells more; 0: none.
 */
int via_ip_hosts_start(const struct via_fabric *fabric, uint64_t deadline_ns, unsigned *ret_host,
                       struct via_error *err) VIA_MUST_CHECK;

/* Ends all: SIGTERM, and SIGKILL after 2 s. Returns their number, or a negative errno. */
int via_ip_hosts_end(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/* Their answers as an array of objects, ascending by host. NULL: out of memory. */
json_t *via_ip_hosts_request(const struct via_fabric *fabric) VIA_MUST_CHECK;

/* Prints the last lines of a host's viaduct-ip log. */
void via_ip_hosts_print_log(const struct via_fabric *fabric, unsigned host, FILE *out);

#endif
