/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/pool.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/types.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"

#define SCRATCH_MAX 4096u

struct via_pool via_scratch = VIA_POOL_INIT(VIA_SCRATCH_BYTES, SCRATCH_MAX);

struct via_mutex via_pool_lock = VIA_MUTEX_INIT(VIA_RANK_POOLS);

static void **link_of(const struct via_pool *pool, void *object)
{
    return (void **)(void *)((unsigned char *)object + pool->size - sizeof(void *));
}

#define STEP_BYTES ((size_t)64 * 1024) /* a multiple of the page size, whatever that is */

static size_t to_steps(size_t bytes)
{
    return (bytes + STEP_BYTES - 1) & ~(STEP_BYTES - 1);
}

static size_t reserved_bytes(const struct via_pool *pool)
{
    return to_steps(pool->size * pool->count_max);
}

/* Reserved address space is not charged, but writable memory is, under strict overcommit. So a pool
 * becomes writable in steps of a quarter of its size: few system calls, and two mappings. */
static bool make_writable(struct via_pool *pool, size_t bytes)
{
    size_t step = via_max(bytes - pool->writable_bytes, pool->writable_bytes / 4);
    step = via_min(to_steps(step), reserved_bytes(pool) - pool->writable_bytes);
    if (mprotect(pool->base + pool->writable_bytes, step, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    pool->writable_bytes += step;
    return true;
}

/* An object that was never handed out; NULL: there is none. */
static void *new_object(struct via_pool *pool)
{
    if (pool->base == NULL) {
        void *memory = mmap(NULL, reserved_bytes(pool), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        pool->base = memory == MAP_FAILED ? NULL : memory;
    }
    size_t end = pool->size * (pool->count + 1);
    if (pool->base == NULL || pool->count == pool->count_max ||
        (end > pool->writable_bytes && !make_writable(pool, end))) {
        return NULL;
    }
    return pool->base + pool->size * pool->count++;
}

void *via_pool_get(struct via_pool *pool)
{
    VIA_KEEP_ERRNO;
    via_lock(&via_pool_lock);
    void *object = pool->free;
    if (object != NULL) {
        pool->free = *link_of(pool, object);
    } else {
        object = new_object(pool);
    }
    via_unlock(&via_pool_lock);
    return object;
}

void via_pool_put(struct via_pool *pool, void *object)
{
    if (object == NULL) {
        return;
    }
    via_lock(&via_pool_lock);
    *link_of(pool, object) = pool->free;
    pool->free = object;
    via_unlock(&via_pool_lock);
}

bool via_pool_is_owner(const struct via_pool *pool, unsigned long long address)
{
    uintptr_t base = (uintptr_t)pool->base;
    return base != 0 && address >= base && address < base + pool->size * pool->count &&
           (address - base) % pool->size == 0;
}

size_t via_pool_index(const struct via_pool *pool, const void *object)
{
    return (size_t)((const unsigned char *)object - pool->base) / pool->size;
}
