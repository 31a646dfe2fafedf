/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Names of machines become addresses in a thread of their own, because asking may take minutes.
 * Addresses that are written as such need none.
 */
#ifndef VIA_PORT_OFI_RESOLVE_H
#define VIA_PORT_OFI_RESOLVE_H

#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/types.h"

#define VIA_OFI_ADDRESS_BYTES 64u /* of an IPv6 address with its scope as text */

struct via_ofi_resolve; /* one question */

/* true: text is an address; copied as it is. */
bool via_ofi_resolve_is_address(const char *text);

/* Asks. 0, or negative errno. */
VIA_MUST_CHECK int via_ofi_resolve_start(const char *name, struct via_ofi_resolve **ret_resolve);

/* -EAGAIN: not yet. Otherwise the end: 0 and the address as text, or -ENOENT and why not. */
int via_ofi_resolve_poll(struct via_ofi_resolve *resolve, char ret_address[VIA_OFI_ADDRESS_BYTES],
                         const char **ret_why);

/* At any time; the thread ends when its question does. NULL is nothing. */
void via_ofi_resolve_drop(struct via_ofi_resolve *resolve);

#endif
