/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/memory.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sockets/process/os.h"

bool via_memory_is_unchecked;
__thread uintptr_t via_memory_known[VIA_MEMORY_KNOWN] __attribute__((tls_model("initial-exec")));

/* The size of the kernel's sigset_t. */
#define SET_BYTES 8u

/* rt_sigprocmask() reads the set before it rejects the invalid operation, so its error shows
 * whether the page is readable. */
static bool is_readable(uintptr_t page)
{
    return syscall(SYS_rt_sigprocmask, ~0L, page, NULL, SET_BYTES) == 0 || errno != EFAULT;
}

/* A futex operation that wakes no thread, and stores the word's own value there, atomically. */
static bool is_writable(uintptr_t page)
{
    uint32_t none = 0;
    return syscall(SYS_futex, &none, FUTEX_WAKE_OP_PRIVATE, 0, 0, page,
                   FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)) >= 0 ||
           errno != EFAULT;
}

static bool is_page(uintptr_t page, unsigned way)
{
    uintptr_t *known = &via_memory_known[page / VIA_MEMORY_PAGE % VIA_MEMORY_KNOWN];
    if (page == 0 || via_unlikely(via_memory_is_unchecked)) {
        return page != 0;
    }
    if ((*known & way) == way && (*known ^ page) < VIA_MEMORY_PAGE) {
        return true;
    }
    if (way == VIA_MEMORY_WRITABLE ? !is_writable(page) : !is_readable(page)) {
        return false;
    }
    *known = page | way;
    return true;
}

bool via_memory_is_accessible_slowly(uintptr_t from, size_t bytes, unsigned way)
{
    uintptr_t last = from + bytes - 1;
    VIA_KEEP_ERRNO;
    bool is = last >= from;
    for (uintptr_t page = from & ~(uintptr_t)(VIA_MEMORY_PAGE - 1); is && page <= last;
         page += VIA_MEMORY_PAGE) {
        is = is_page(page, way);
    }
    return is;
}
