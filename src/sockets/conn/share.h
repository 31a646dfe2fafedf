/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SHARE_H
#define VIA_SOCKETS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Limits what connections within one machine use: memory, for a process and for all processes of a
 * user; and mappings, whose number the kernel limits (vm.max_map_count). Beyond the limits new
 * connections stay with the kernel's TCP; those with pipes keep them.
 *
 * Each end counts its half: the pipe that it writes. The amount is an estimate, renewed every
 * second while bytes move (quiet.h).
 */

/* Memory of a quiet end: the page of its segment with the words, its side and other objects. */
#define VIA_SHARE_IDLE_BYTES 6144u

/* True if another connection may have pipes. */
bool via_share_is_map_allowed(void);
/* Called when a connection has mapped its memory, and has unmapped it. */
void via_share_map(void);
void via_share_unmap(void);
/* Number of connections of this process whose memory is mapped. */
unsigned via_share_mapped_count(void);

/* Called when an end uses `bytes` now. *charged: the bytes counted for it so far. */
void via_share_charge(uint32_t *charged, uint32_t bytes);

/* Called when the process exits. */
void via_share_end(void);
/* Called in a child of fork(). The child counts its inherited connections, too. */
void via_share_forked(void);

#endif
