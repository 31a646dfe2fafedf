/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Copies by stores of one width: a window of a link may want another one than memory does. */
#ifndef VIA_BASE_STORE_H
#define VIA_BASE_STORE_H

#include <stdbool.h>
#include <stddef.h>

struct via_store {
    const char *name;
    unsigned bytes; /* of one store */
    bool is_nontemporal;
    bool (*is_there)(void); /* in this CPU; NULL: in all of them */
    /* Ascending, each byte once. bytes is a multiple of the width, `to` is aligned to it, `from`
     * to anything. No fence. */
    void (*copy)(unsigned char *to, const unsigned char *from, size_t bytes);
};
#define VIA_STORES_MAX 10u
extern const struct via_store via_stores[];
extern const unsigned via_stores_count;

static inline bool via_store_is_there(const struct via_store *store)
{
    return store->is_there == NULL || store->is_there();
}

/* NULL: there is none of this name, or not in this CPU. */
const struct via_store *via_store_find(const char *name);

/* All earlier stores have left the CPU's buffers. */
void via_store_fence(void);

#endif
