/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.10: the deprecated collectives over active sets. */
#include "shmem/group.h"

#define VIA_GROUP via_group_of_active_set(VIA_CALL, PE_start, logPE_stride, PE_size, pSync)

void pshmem_barrier(int PE_start, int logPE_stride, int PE_size, long *pSync)
{
    struct via_group group = VIA_GROUP;

    via_group_barrier(&group);
}

void pshmem_sync(int PE_start, int logPE_stride, int PE_size, long *pSync)
{
    struct via_group group = VIA_GROUP;

    via_group_sync(&group);
}

/* clang-format off */
#define VIA_DEFINE_ACTIVE_SET(S, BYTES)                                                                   \
    void pshmem_broadcast##S(void *dest, const void *source, size_t nelems, int PE_root, int PE_start,    \
                             int logPE_stride, int PE_size, long *pSync)                                  \
    {                                                                                                     \
        struct via_group group = VIA_GROUP;                                                               \
        via_group_broadcast(VIA_CALL, &group, dest, source, nelems * (BYTES), PE_root, false);            \
    }                                                                                                     \
    void pshmem_collect##S(void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, \
                           int PE_size, long *pSync)                                                      \
    {                                                                                                     \
        struct via_group group = VIA_GROUP;                                                               \
        via_group_collect(VIA_CALL, &group, dest, source, nelems * (BYTES));                              \
    }                                                                                                     \
    void pshmem_fcollect##S(void *dest, const void *source, size_t nelems, int PE_start,                  \
                            int logPE_stride, int PE_size, long *pSync)                                   \
    {                                                                                                     \
        struct via_group group = VIA_GROUP;                                                               \
        via_group_fcollect(VIA_CALL, &group, dest, source, nelems * (BYTES));                             \
    }                                                                                                     \
    void pshmem_alltoall##S(void *dest, const void *source, size_t nelems, int PE_start,                  \
                            int logPE_stride, int PE_size, long *pSync)                                   \
    {                                                                                                     \
        struct via_group group = VIA_GROUP;                                                               \
        via_group_alltoalls(VIA_CALL, &group, dest, source, 1, 1, nelems, BYTES);                         \
    }                                                                                                     \
    void pshmem_alltoalls##S(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, \
                             int PE_start, int logPE_stride, int PE_size, long *pSync)                    \
    {                                                                                                     \
        struct via_group group = VIA_GROUP;                                                               \
        via_group_alltoalls(VIA_CALL, &group, dest, source, dst, sst, nelems, BYTES);                     \
    }
/* clang-format on */

VIA_DEFINE_ACTIVE_SET(32, 4)
VIA_DEFINE_ACTIVE_SET(64, 8)

VIA_ALIAS(void, shmem_barrier, (int PE_start, int logPE_stride, int PE_size, long *pSync))
VIA_ALIAS(void, shmem_sync, (int PE_start, int logPE_stride, int PE_size, long *pSync))
VIADUCT_SHMEM_ACTIVE_SET_ENTRIES(32, VIA_ALIAS)
VIADUCT_SHMEM_ACTIVE_SET_ENTRIES(64, VIA_ALIAS)
