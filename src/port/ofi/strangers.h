/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connections to a hub's listening address that have sent no request for a link. libfabric's
 * provider tcp accepts each connection and waits forever for its first message, so each silent one
 * would occupy a descriptor of this process. The socket is configured so that the kernel holds back
 * connections that send nothing. The hub's thread shuts down a connection that has not become one
 * of the hub after VIA_OFI_STRANGER_NS, and the oldest ones if there are more than
 * VIA_OFI_STRANGERS_MAX at once.
 *
 * Only the hub's thread calls this, because only that thread makes libfabric accept and close
 * connections.
 */
#ifndef VIA_PORT_OFI_STRANGERS_H
#define VIA_PORT_OFI_STRANGERS_H

#include <stdint.h>

#define VIA_OFI_STRANGER_NS (3 * VIA_SEC_NS)
#define VIA_OFI_STRANGERS_MAX 64u
/* Intervals of scans. A scan makes system calls for each descriptor of the process. */
#define VIA_OFI_STRANGERS_POLL_NS (2 * VIA_SEC_NS)
#define VIA_OFI_STRANGERS_CROWDED_NS (100 * VIA_MSEC_NS)

struct via_ofi_hub;

struct via_ofi_strangers {
    uint64_t poll_ns; /* the next scan; 0: at once */
    unsigned count;
    struct {
        uint64_t cookie; /* the kernel's number of the socket, which no other socket has */
        uint64_t seen_ns;
    } known[VIA_OFI_STRANGERS_MAX];
};

/* With hub->lock. Checks when it is due; the next time goes into *ret_deadline_ns if it is
 * earlier. */
void via_ofi_strangers_tick(struct via_ofi_hub *hub, uint64_t now_ns, uint64_t *ret_deadline_ns);

#endif
