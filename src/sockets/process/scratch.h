/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SCRATCH_H
#define VIA_SOCKETS_SCRATCH_H

/*
 * Memory for one call that needs more than a small stack has. Threads may have 16 KiB
 * (PTHREAD_STACK_MIN), of which signal handlers want their part.
 *
 * May be called by signal handlers.
 */
#define VIA_SCRATCH_BYTES (64u * 1024)

/* VIA_SCRATCH_BYTES of any contents; NULL: there is no memory. */
void *via_scratch_get(void);
/* memory: from via_scratch_get(), or NULL. */
void via_scratch_put(void *memory);

#endif
