/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Resolves host names in a separate thread, because getaddrinfo() may block for minutes. Numeric
 * addresses need no thread.
 */
#ifndef VIA_PORT_OFI_RESOLVE_H
#define VIA_PORT_OFI_RESOLVE_H

#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/types.h"

#define VIA_OFI_ADDRESS_BYTES 64u /* of an IPv6 address with its scope as text */

struct via_ofi_resolve; /* one lookup */

/* True if text is a numeric address. */
bool via_ofi_resolve_is_address(const char *text);

/* Starts a lookup. 0, or negative errno. */
VIA_MUST_CHECK int via_ofi_resolve_start(const char *name, struct via_ofi_resolve **ret_resolve);

/* -EAGAIN: not yet. 0: the address as text. -ENOENT: failed; the reason in *ret_why. After either
 * the caller calls via_ofi_resolve_drop(). */
int via_ofi_resolve_poll(struct via_ofi_resolve *resolve, char ret_address[VIA_OFI_ADDRESS_BYTES],
                         const char **ret_why);

/* Ends the caller's use of a lookup, at any time; a thread that still runs ends with the lookup.
 * NULL is ignored. */
void via_ofi_resolve_drop(struct via_ofi_resolve *resolve);

#endif
