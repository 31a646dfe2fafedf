/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Copies by stores of one width: a window of a link may need a width other than that of memory. */
#ifndef VIA_BASE_STORE_H
#define VIA_BASE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bits.h"
#include "base/types.h"

struct via_store {
    const char *name;
    unsigned bytes; /* of one store */
    bool is_nontemporal;
    bool (*is_there)(void); /* true: this CPU has it; NULL: every CPU has it */
    /* Stores in ascending order, each byte once. bytes is a multiple of the width, `to` is aligned
     * to the width, `from` has any alignment. No fence. */
    void (*copy)(unsigned char *to, const unsigned char *from, size_t bytes);
};
#define VIA_STORES_MAX 10u
extern const struct via_store via_stores[];
extern const unsigned via_stores_count;

static inline bool via_store_is_there(const struct via_store *store)
{
    return store->is_there == NULL || store->is_there();
}

/* NULL: no store has this name, or this CPU does not have it. */
const struct via_store *via_store_find(const char *name);

/* The store for each size of body: class k is for bodies of 2^k to 2^(k+1) - 1 bytes, and the last
 * class for all larger ones. NULL: the driver chooses. */
#define VIA_STORE_CLASSES 16u
#define VIA_STORE_TEXT_BYTES 320u
static inline unsigned via_store_class(size_t bytes)
{
    return via_min(via_log2_u64(bytes | 1), VIA_STORE_CLASSES - 1);
}

/* The text of such a table: "64 from 1024, 64nt from 16384"; "-" for none; "8" is for all sizes. */
void via_store_print(const struct via_store *const stores[VIA_STORE_CLASSES],
                     char ret_text[VIA_STORE_TEXT_BYTES]);

/* Waits until all earlier stores have left the CPU's buffers. */
void via_store_fence(void);

#endif
