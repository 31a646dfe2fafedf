/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/types.h"

void *sim_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

void *sim_alloc_lines(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, VIA_CACHELINE, bytes == 0 ? 1 : bytes) != 0) {
        abort();
    }
    memset(memory, 0, bytes == 0 ? 1 : bytes);
    return memory;
}

void *sim_realloc(void *memory, size_t bytes)
{
    void *moved = realloc(memory, bytes == 0 ? 1 : bytes);
    if (moved == NULL) {
        abort();
    }
    return moved;
}

static void *map(size_t bytes, int flags, int fd)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) {
        perror("viaduct-sim: mmap");
        abort();
    }
    return memory;
}

void *sim_map(size_t bytes)
{
    return map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

void *sim_map_again(size_t bytes, int fd)
{
    return map(bytes, MAP_SHARED, fd);
}

void *sim_map_shared(size_t bytes, int *ret_fd)
{
    *ret_fd = memfd_create("viaduct-sim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*ret_fd < 0 || ftruncate(*ret_fd, (off_t)bytes) != 0 ||
        fcntl(*ret_fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        perror("viaduct-sim: memfd_create");
        abort();
    }
    return sim_map_again(bytes, *ret_fd);
}

#define SLAB_OBJECTS 64u
#define SLAB_HEAD_BYTES 16u

/* Puts an object before a list whose links are the first words of its members. */
static void push(void **list, void *object)
{
    memcpy(object, list, sizeof(*list));
    *list = object;
}

static void *pop(void **list)
{
    void *object = *list;
    if (object != NULL) {
        memcpy(list, object, sizeof(*list));
    }
    return object;
}

void *sim_objects_new(struct sim_objects *objects)
{
    void *object = pop(&objects->spare);
    if (object == NULL) {
        unsigned char *slab = sim_alloc(SLAB_HEAD_BYTES + SLAB_OBJECTS * objects->bytes);
        push(&objects->slabs, slab);
        for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
            push(&objects->spare, slab + SLAB_HEAD_BYTES + i * objects->bytes);
        }
        object = pop(&objects->spare);
    }
    memset(object, 0, objects->bytes);
    return object;
}

void sim_objects_free(struct sim_objects *objects, void *object)
{
    push(&objects->spare, object);
}

void sim_objects_fini(struct sim_objects *objects)
{
    for (void *slab; (slab = pop(&objects->slabs)) != NULL;) {
        free(slab);
    }
    objects->spare = NULL;
}

/* splitmix64 of (seed, word number): any word can be computed without the previous ones. */
static uint64_t content_word(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void sim_content_fill(unsigned char *data, size_t bytes, uint64_t seed)
{
    for (size_t off = 0; off < bytes; off += 8) {
        uint64_t word = content_word(seed, off / 8);
        memcpy(data + off, &word, via_min(bytes - off, (size_t)8));
    }
}

size_t sim_content_check(const unsigned char *data, size_t bytes, uint64_t seed)
{
    for (size_t off = 0; off < bytes; off += 8) {
        uint64_t word = content_word(seed, off / 8);
        const unsigned char *expected = (const unsigned char *)&word;
        size_t part = via_min(bytes - off, (size_t)8);
        if (memcmp(data + off, expected, part) != 0) {
            while (data[off] == *expected) {
                off++;
                expected++;
            }
            return off;
        }
    }
    return bytes;
}
