/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SHARE_H
#define VIA_SOCKETS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How much connections within one machine may take: of memory, for a process and for all processes
 * of a user, and of the mappings that the kernel lets a process have. Beyond that new connections
 * stay with the kernel's TCP; those with pipes keep them.
 *
 * Each end counts its half: the pipe that it writes. The amount is an estimate, renewed every
 * second while bytes move (quiet.h).
 */

/* An end that is quiet: the page of its segment with the words, and the first of its side. */
#define VIA_SHARE_IDLE_BYTES 8192u

/* May another connection have pipes? */
bool via_share_is_map_allowed(void);
/* A connection has its memory mapped; has unmapped it. */
void via_share_map(void);
void via_share_unmap(void);

/* An end uses `bytes` now, of which *charged were counted before. */
void via_share_charge(uint32_t *charged, uint32_t bytes);

/* The process ends. */
void via_share_end(void);
/* Called in a child of fork(). The connections that it has inherited count for it, too. */
void via_share_forked(void);

#endif
