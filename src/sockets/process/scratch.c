/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/scratch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

/* So many calls at a time get memory that has been in use before, without a system call. */
#define SPARE_MAX 4u

static void *_Atomic spare[SPARE_MAX];

void *via_scratch_get(void)
{
    for (unsigned i = 0; i < SPARE_MAX; i++) {
        void *memory = atomic_exchange_explicit(&spare[i], NULL, memory_order_acquire);
        if (memory != NULL) {
            return memory;
        }
    }
    void *memory =
        mmap(NULL, VIA_SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void via_scratch_put(void *memory)
{
    for (unsigned i = 0; i < SPARE_MAX && memory != NULL; i++) {
        /* Pairs with the acquire in via_scratch_get(). */
        memory = atomic_exchange_explicit(&spare[i], memory, memory_order_acq_rel);
    }
    if (memory != NULL) {
        int saved = errno;
        munmap(memory, VIA_SCRATCH_BYTES);
        errno = saved;
    }
}
