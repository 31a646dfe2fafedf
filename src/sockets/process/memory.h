/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_MEMORY_H
#define VIA_SOCKETS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

/*
 * Checks whether a pointer of the program points to memory. If not, the kernel's call returns
 * EFAULT, while a read by the library would end the program. A check by the kernel takes some
 * 100 ns, so a thread caches a few checked pages: a page that is unmapped later is not noticed.
 *
 * Used for small data that the library reads before the kernel does: vectors, message headers,
 * arrays of poll(). The bytes of a message are not checked.
 */
#define VIA_MEMORY_PAGE 4096u
#define VIA_MEMORY_READABLE 1u
#define VIA_MEMORY_WRITABLE 3u /* and readable */

#define VIA_MEMORY_KNOWN 8u
/* Set in a process that a seccomp filter confines, and that may not make the calls which check. */
extern bool via_memory_is_unchecked;

extern __thread uintptr_t via_memory_known[VIA_MEMORY_KNOWN]
    __attribute__((tls_model("initial-exec")));

/* way: VIA_MEMORY_READABLE or _WRITABLE. bytes > 0. */
bool via_memory_is_accessible_slowly(uintptr_t from, size_t bytes, unsigned way);

static inline bool via_memory_is_accessible(const void *from, size_t bytes, unsigned way)
{
    uintptr_t first = (uintptr_t)from & ~(uintptr_t)(VIA_MEMORY_PAGE - 1);
    uintptr_t known = via_memory_known[first / VIA_MEMORY_PAGE % VIA_MEMORY_KNOWN];
    bool one_page = (uintptr_t)from - first + bytes <= VIA_MEMORY_PAGE;
    /* `known` is a page's address plus its ways: only for this page is the difference below a
     * page. */
    return (via_likely(one_page) &&
            via_likely(known - first < VIA_MEMORY_PAGE && (known & way) == way)) ||
           bytes == 0 || via_memory_is_accessible_slowly((uintptr_t)from, bytes, way);
}

static inline bool via_memory_is_readable(const void *from, size_t bytes)
{
    return via_memory_is_accessible(from, bytes, VIA_MEMORY_READABLE);
}

static inline bool via_memory_is_writable(const void *from, size_t bytes)
{
    return via_memory_is_accessible(from, bytes, VIA_MEMORY_WRITABLE);
}

#endif
