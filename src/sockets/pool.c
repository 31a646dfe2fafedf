/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/pool.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#include "sockets/lock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void **link_of(const struct via_pool *pool, void *object)
{
    return (void **)(void *)((unsigned char *)object + pool->size - sizeof(void *));
}

void *via_pool_get(struct via_pool *pool)
{
    via_lock(&lock);
    if (pool->base == NULL) {
        void *memory = mmap(NULL, pool->size * pool->count_max, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        pool->base = memory == MAP_FAILED ? NULL : memory;
    }
    void *object = pool->free;
    if (object != NULL) {
        pool->free = *link_of(pool, object);
    } else if (pool->base != NULL && pool->count < pool->count_max) {
        object = pool->base + pool->size * pool->count++;
    }
    via_unlock(&lock);
    return object;
}

void via_pool_put(struct via_pool *pool, void *object)
{
    if (object == NULL) {
        return;
    }
    via_lock(&lock);
    *link_of(pool, object) = pool->free;
    pool->free = object;
    via_unlock(&lock);
}

bool via_pool_owns(const struct via_pool *pool, unsigned long long address)
{
    uintptr_t base = (uintptr_t)pool->base;
    return base != 0 && address >= base && address < base + pool->size * pool->count &&
           (address - base) % pool->size == 0;
}

size_t via_pool_index(const struct via_pool *pool, const void *object)
{
    return (size_t)((const unsigned char *)object - pool->base) / pool->size;
}

void via_pool_fork_prepare(void)
{
    via_lock(&lock);
}

void via_pool_fork_done(void)
{
    via_unlock(&lock);
}
