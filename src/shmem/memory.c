/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.3: memory management. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "shmem/api.h"
#include "shmem/barrier.h"
#include "shmem/grow.h"
#include "shmem/path.h"

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

VIADUCT_SHMEM_MEMORY_ENTRIES(VIA_ALIAS)

static uint64_t user_off(const char *call, const void *pointer)
{
    uintptr_t off = (uintptr_t)pointer - (uintptr_t)via_heap_base();

    if (off >= via_world.heap.bytes || via_heap_block_bytes(&via_world.heap, off) == 0)
        via_fatal("%s: %p is not the address of allocated symmetric memory", call, pointer);
    return off;
}

static void barrier(void)
{
    via_quiet();
    via_barrier_world();
}

/* After this advice the first access allocates a huge page, if the kernel is configured to
 * (/sys/kernel/mm/transparent_hugepage/shmem_enabled), and random accesses miss the TLB less often.
 * Small blocks would only take more memory. */
static void advise_huge_pages(char *pointer, uint64_t bytes)
{
    uintptr_t begin = via_align_up((uintptr_t)pointer, HUGE_PAGE_BYTES);
    uintptr_t end = via_align_down((uintptr_t)pointer + bytes, HUGE_PAGE_BYTES);

    if (begin < end && madvise((void *)begin, end - begin, MADV_HUGEPAGE) < 0)
        via_debug("symmetric heap: no huge pages for %" PRIu64 " bytes: %s", bytes,
                  strerror(errno));
}

static int allocate_once(uint64_t bytes, uint64_t align, uint64_t *ret_off)
{
    pthread_mutex_lock(&via_world.lock);
    int result = via_heap_alloc(&via_world.heap, bytes, align, ret_off);
    pthread_mutex_unlock(&via_world.lock);
    if (result == -ENOMEM)
        via_fatal("symmetric heap: no private memory for the records of %" PRIu32 " blocks",
                  via_world.heap.blocks_count);
    return result;
}

/* NULL if it does not fit and the heap can not grow. All PEs get the same result, because all make
 * the same calls. */
static void *allocate(uint64_t bytes, uint64_t align)
{
    uint64_t off;
    int result = allocate_once(bytes, align, &off);

    if (result == -ENOSPC && via_grow(bytes, align))
        result = allocate_once(bytes, align, &off);
    if (result < 0)
        via_debug("symmetric heap: %" PRIu64 " bytes of %" PRIu64 ", %" PRIu64
                  " in use, may grow to %" PRIu64 ": %s",
                  bytes, via_world.heap.bytes, via_world.heap.used_bytes, via_grow_max(),
                  strerror(-result));
    if (result < 0)
        return NULL;
    advise_huge_pages(via_heap_base() + off, bytes);
    return via_heap_base() + off;
}

void *pshmem_malloc(size_t size)
{
    via_require_initialized(VIA_CALL);
    if (size == 0)
        return NULL;
    void *pointer = allocate(size, VIA_HEAP_GRANULE);
    barrier();
    return pointer;
}

void *pshmem_malloc_with_hints(size_t size, long hints)
{
    /* The hints need nothing more: blocks never share a cache line, which suits atomics and
     * signals. */
    (void)hints;
    return pshmem_malloc(size);
}

void *pshmem_calloc(size_t count, size_t size)
{
    size_t bytes;

    via_require_initialized(VIA_CALL);
    if (count == 0 || size == 0)
        return NULL;
    void *pointer = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes))
        pointer = allocate(bytes, VIA_HEAP_GRANULE);
    if (pointer)
        memset(pointer, 0, bytes);
    barrier();
    return pointer;
}

void *pshmem_align(size_t alignment, size_t size)
{
    via_require_initialized(VIA_CALL);
    if (size == 0)
        return NULL;
    void *pointer = NULL;
    /* The alignment applies to offsets, so it is at most that of the heap's address. */
    if (via_is_pow2(alignment) && alignment <= VIA_HEAP_ALIGN)
        pointer = allocate(size, alignment);
    barrier();
    return pointer;
}

void pshmem_free(void *ptr)
{
    via_require_initialized(VIA_CALL);
    if (!ptr)
        return;
    uint64_t off = user_off(VIA_CALL, ptr);
    /* After the barrier no PE accesses the block any more. */
    barrier();
    pthread_mutex_lock(&via_world.lock);
    via_heap_free(&via_world.heap, off);
    pthread_mutex_unlock(&via_world.lock);
}

/* Moves to another place: the old block is freed after its contents are copied. */
static void *move(void *ptr, uint64_t off, size_t size)
{
    uint64_t old_bytes = via_heap_block_bytes(&via_world.heap, off);
    void *pointer = allocate(size, VIA_HEAP_GRANULE);

    if (!pointer)
        return NULL;
    memcpy(pointer, ptr, via_min(old_bytes, size));
    pthread_mutex_lock(&via_world.lock);
    via_heap_free(&via_world.heap, off);
    pthread_mutex_unlock(&via_world.lock);
    return pointer;
}

void *pshmem_realloc(void *ptr, size_t size)
{
    via_require_initialized(VIA_CALL);
    if (!ptr)
        return pshmem_malloc(size);
    if (size == 0) {
        pshmem_free(ptr);
        return NULL;
    }
    uint64_t off = user_off(VIA_CALL, ptr);
    barrier();
    pthread_mutex_lock(&via_world.lock);
    int result = via_heap_resize(&via_world.heap, off, size);
    pthread_mutex_unlock(&via_world.lock);
    void *pointer = result == 0 ? ptr : move(ptr, off, size);
    barrier();
    return pointer;
}
