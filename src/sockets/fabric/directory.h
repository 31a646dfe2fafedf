/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DIRECTORY_H
#define VIA_SOCKETS_DIRECTORY_H

#include <stdbool.h>

#include "sockets/meet/policy.h"

/*
 * The hosts that own IP addresses, from the page of this process's daemon (host/hosts_page.h).
 * VIADUCT_HOST, or else the run directory, names that daemon's host. No function here blocks.
 * System calls are made only to find the page: at first, and every few seconds while there is none.
 */

/* Looks up an address. True if it belongs to another host: *ret_host is its id, and *ret_pipes
 * whether pipes are faster than the kernel's TCP on the path to it. */
bool via_directory_find_host(const struct via_address *address, unsigned *ret_host,
                             bool *ret_pipes);

/* The address of this process's host from which the kernel reaches `to`. 0; -EADDRNOTAVAIL: the
 * directory does not have that address, for example because it is a container's. */
int via_directory_own_address(const struct via_address *to, struct via_address *ret_own);
/* True if the address belongs to this process's host. */
bool via_directory_is_own(const struct via_address *address);

/* Called in a child of fork(). */
void via_directory_forked(void);

#endif
