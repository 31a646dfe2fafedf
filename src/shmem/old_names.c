/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, annex F (deprecated API): the names that were used before the prefix shmem_, for
 * older programs. */
#include "shmem/api.h"

int p_my_pe(void)
{
    return pshmem_my_pe();
}

int p_num_pes(void)
{
    return pshmem_n_pes();
}

void *pshmalloc(size_t size)
{
    return pshmem_malloc(size);
}

void *pshmemalign(size_t alignment, size_t size)
{
    return pshmem_align(alignment, size);
}

void *pshrealloc(void *ptr, size_t size)
{
    return pshmem_realloc(ptr, size);
}

void pshfree(void *ptr)
{
    pshmem_free(ptr);
}

VIADUCT_SHMEM_OLD_ENTRIES(VIA_ALIAS)
