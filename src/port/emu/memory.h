/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Shared memory of the emulated port: sealed memfds, and ranges of addresses whose memory is
 * exchanged under threads that are using it.
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
 * Is fd, which came from another process, memory of at least `bytes` that cannot shrink? -EPERM
 * when it is no memfd, can still shrink or is of huge pages (then its owner could have us die of
 * SIGBUS), -EMSGSIZE when it is too small.
 */
VIA_MUST_CHECK int via_emu_memfd_check(int fd, uint64_t bytes);

/* A range of addresses without memory. NULL when there is none left. */
void *via_emu_range_new(size_t bytes);
void via_emu_range_free(void *range, size_t bytes);

/*
 * Puts memory in place of what was at these addresses. Threads that load or store there meanwhile
 * meet either the old or the new. 0 or -ENOMEM and others; the range may then be without memory.
 */
VIA_MUST_CHECK int via_emu_range_share(void *range, size_t bytes, int fd);
VIA_MUST_CHECK int via_emu_range_share_at(void *range, size_t bytes, int fd, uint64_t off);
VIA_MUST_CHECK int via_emu_range_zero(void *range, size_t bytes);

/* A memfd to fill ranges with all-ones from. */
#define VIA_EMU_ONES_BYTES ((size_t)1 << 20)
VIA_MUST_CHECK int via_emu_ones_new(int *ret_fd);
VIA_MUST_CHECK int via_emu_range_fill_ones(void *range, size_t bytes, int ones_fd);

#endif
