/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The simulator's memory. The simulator can not go on without it, so these functions end the
 * program instead of failing. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed. bytes may be 0; the result is never NULL. */
void *sim_alloc(size_t bytes);
void *sim_alloc_lines(size_t bytes); /* zeroed and 64-byte aligned; exact, so that ASan sees ends */
void *sim_realloc(void *memory, size_t bytes);

/* Fills memory with bytes that follow from a seed, so that a check needs only the seed. */
void sim_content_fill(unsigned char *data, size_t bytes, uint64_t seed);
/* Offset of the first byte that differs from the seed's, or `bytes` if none does. */
size_t sim_content_check(const unsigned char *data, size_t bytes, uint64_t seed);

#endif
