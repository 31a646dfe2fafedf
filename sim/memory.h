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
/* Zeroed pages, of which those that are never touched take no memory; munmap() ends them. */
void *sim_map(size_t bytes);

/* Zeroed memory that its descriptor can map again; it can not shrink. munmap() and close() end it.
 */
void *sim_map_shared(size_t bytes, int *ret_fd);
void *sim_map_again(size_t bytes, int fd);

/* Objects of one size: freed ones are used again, and sim_objects_fini() frees all of them. */
struct sim_objects {
    size_t bytes; /* of an object */
    void *slabs;  /* owned; the first word of each leads to the next */
    void *spare;  /* the objects not in use, linked so, too */
};

void *sim_objects_new(struct sim_objects *objects); /* zeroed */
void sim_objects_free(struct sim_objects *objects, void *object);
void sim_objects_fini(struct sim_objects *objects);

/* Fills memory with bytes that follow from a seed, so that a check needs only the seed. */
void sim_content_fill(unsigned char *data, size_t bytes, uint64_t seed);
/* Offset of the first byte that differs from the seed's, or `bytes` if none does. */
size_t sim_content_check(const unsigned char *data, size_t bytes, uint64_t seed);

#endif
