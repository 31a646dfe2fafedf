/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_SIZE_H
#define VIA_SHMEM_SIZE_H

#include <stdint.h>

#include "base/types.h"

/*
 * Parses a size as specified in OpenSHMEM 1.6, section 8 (SHMEM_SYMMETRIC_SIZE): a non-negative
 * number, integer or not, and an optional k, m, g or t of either case, a power of 1024. Characters
 * behind the multiplier are ignored ("20kk" is 20k), as the standard says; anything else after the
 * number is an error. The product is rounded up. 0, -EINVAL, or -ERANGE for more than 64 bits.
 */
int via_size_parse(const char *text, uint64_t *ret_bytes) VIA_MUST_CHECK;

#endif
