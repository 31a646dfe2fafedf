/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_POOL_H
#define VIA_SOCKETS_POOL_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Objects of one size that are never returned to the system, so that a stale pointer to one still
 * points to one. Address space is reserved at first use, and charged as objects are used. Not from
 * malloc(): the program may have replaced it, and may call the library from inside its replacement.
 */
struct via_pool {
    unsigned char *base;
    void *free; /* the last 8 bytes of each free object point to the next; the rest keeps its
                   contents */
    size_t size;
    size_t count_max;
    size_t count;          /* objects that were handed out at least once */
    size_t writable_bytes; /* from base on */
};

#define VIA_POOL_INIT(object_size, objects_max)                                                 \
    {                                                                                           \
        .size = ((object_size) + sizeof(void *) + 63) & ~(size_t)63, .count_max = (objects_max) \
    }

/* The object has the contents of its last user; zeros when new. NULL: none left. */
void *via_pool_get(struct via_pool *pool);
void via_pool_put(struct via_pool *pool, void *object); /* NULL is allowed */

/* True if this number is the address of an object of the pool, handed out or free. */
bool via_pool_is_owner(const struct via_pool *pool, unsigned long long address);

/* The index of the object, counted from 0. */
size_t via_pool_index(const struct via_pool *pool, const void *object);

/*
 * Scratch memory for one call that needs more than a small stack has. Threads may have 16 KiB
 * (PTHREAD_STACK_MIN), and signal handlers need a part of that.
 */
#define VIA_SCRATCH_BYTES (64u * 1024)
extern struct via_pool via_scratch;

/* Held around fork(), so that the child does not inherit a lock without a holder. */
extern struct via_mutex via_pool_lock;

#endif
