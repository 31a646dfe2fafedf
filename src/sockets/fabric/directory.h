/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DIRECTORY_H
#define VIA_SOCKETS_DIRECTORY_H

#include <stdbool.h>

#include "sockets/meet/policy.h"

/*
 * Whose address it is: what this process's host knows of the hosts of its fabric
 * (host/hosts_page.h). Which host that is says VIADUCT_HOST, else the run directory. Nothing here
 * waits, and no call is made but to find the page: at first, and every few seconds while there is
 * none.
 */

/* An address of another host: its id, and whether pipes pay on the way to it. */
bool via_directory_find_host(const struct via_address *address, unsigned *ret_host,
                             bool *ret_pipes);

/* The address of this process's host from which the kernel reaches `to`. 0; -EADDRNOTAVAIL: it is
 * none that the hosts of the fabric know, such as one of a container. */
int via_directory_own_address(const struct via_address *to, struct via_address *ret_own);
/* Is it an address of this process's host? */
bool via_directory_is_own(const struct via_address *address);

/* In a child of fork(). */
void via_directory_forked(void);

#endif
