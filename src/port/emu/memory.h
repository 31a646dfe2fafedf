/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Shared memory of the emulated port: sealed memfds, and address ranges whose mapping is replaced
 * while threads use them.
 */
#ifndef VIA_PORT_EMU_MEMORY_H
#define VIA_PORT_EMU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

/* A zeroed memfd that can neither shrink nor grow. bytes: a multiple of the page size. */
VIA_MUST_CHECK int via_emu_memfd_new(const char *name, uint64_t bytes, int *ret_fd);

/*
 * Checks that fd, received from another process, is memory of at least `bytes` that cannot shrink.
 * -EPERM: fd is not a memfd, is sealed against writes, is not sealed against shrinking, or has huge
 * pages; with the last two its owner could kill this process by SIGBUS. -EMSGSIZE: too small.
 */
VIA_MUST_CHECK int via_emu_memfd_check(int fd, uint64_t bytes);

/* Reserves a range of addresses without memory. NULL: no address space is left. */
void *via_emu_range_new(size_t bytes);
void via_emu_range_free(void *range, size_t bytes);

/*
 * Replaces the memory at these addresses. Threads that load or store there during the call access
 * either the old or the new memory. 0, -ENOMEM or another error; after an error the range may be
 * without memory.
 */
VIA_MUST_CHECK int via_emu_range_share(void *range, size_t bytes, int fd);
VIA_MUST_CHECK int via_emu_range_share_at(void *range, size_t bytes, int fd, uint64_t off);
VIA_MUST_CHECK int via_emu_range_zero(void *range, size_t bytes);

/* A memfd of all-ones, with which ranges are filled. */
#define VIA_EMU_ONES_BYTES ((size_t)1 << 20)
VIA_MUST_CHECK int via_emu_ones_new(int *ret_fd);
VIA_MUST_CHECK int via_emu_range_fill_ones(void *range, size_t bytes, int ones_fd);

#endif
