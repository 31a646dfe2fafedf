/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.10: reductions and scans. */
#include "shmem/group.h"

static void reduce(const char *call, struct via_group *group, void *dest, const void *source,
                   size_t elements, size_t bytes, via_reduce_kernel *kernel)
{
    const struct via_task task = {.call = call,
                                  .group = group,
                                  .dest = dest,
                                  .source = source,
                                  .bytes = elements * bytes,
                                  .elements = elements,
                                  .element_bytes = bytes,
                                  .kernel = kernel};

    via_group_run(VIA_COLLECTIVE_REDUCE, &task);
}

static void scan(const char *call, struct via_group *group, void *dest, const void *source,
                 size_t elements, size_t bytes, via_reduce_kernel *kernel, bool inclusive)
{
    const struct via_task task = {.call = call,
                                  .group = group,
                                  .dest = dest,
                                  .source = source,
                                  .bytes = elements * bytes,
                                  .elements = elements,
                                  .element_bytes = bytes,
                                  .kernel = kernel,
                                  .inclusive = inclusive};

    via_group_run(VIA_COLLECTIVE_SCAN, &task);
}

/* clang-format off */

#define VIA_OP_and(A, B) ((A) & (B))
#define VIA_OP_or(A, B) ((A) | (B))
#define VIA_OP_xor(A, B) ((A) ^ (B))
#define VIA_OP_max(A, B) ((A) > (B) ? (A) : (B))
#define VIA_OP_min(A, B) ((A) < (B) ? (A) : (B))
#define VIA_OP_sum(A, B) ((A) + (B))
#define VIA_OP_prod(A, B) ((A) * (B))

#define VIA_DEFINE_KERNEL(N, T, OP)                                                                       \
    static void N##_##OP(void *into, const void *from, size_t elements)                                   \
    {                                                                                                     \
        T *a = into;                                                                                      \
        const T *b = from;                                                                                \
        for (size_t i = 0; i < elements; i++)                                                             \
            a[i] = (T)VIA_OP_##OP(a[i], b[i]);                                                            \
    }
#define VIA_DEFINE_REDUCE(N, T, OP)                                                                       \
    int pshmem_##N##_##OP##_reduce(shmem_team_t team, T *dest, const T *source, size_t nreduce)           \
    {                                                                                                     \
        struct via_group group = via_group_of_team(VIA_CALL, team);                                                 \
        reduce(VIA_CALL, &group, dest, source, nreduce, sizeof(T), N##_##OP);                   \
        return 0;                                                                                         \
    }
#define VIA_DEFINE_TO_ALL(N, T, OP)                                                                       \
    void pshmem_##N##_##OP##_to_all(T *dest, const T *source, int nreduce, int PE_start,                  \
                                    int logPE_stride, int PE_size, T *pWrk, long *pSync)                  \
    {                                                                                                     \
        struct via_group group =                                                                          \
            via_group_of_active_set(VIA_CALL, PE_start, logPE_stride, PE_size, pSync);                    \
        (void)pWrk;                                                                                       \
        reduce(VIA_CALL, &group, dest, source, nreduce > 0 ? (size_t)nreduce : 0, sizeof(T),    \
                         N##_##OP);                                                                       \
    }
#define VIA_DEFINE_SCAN(N, T, NAME, INCLUSIVE)                                                            \
    int pshmem_##N##_sum_##NAME(shmem_team_t team, T *dest, const T *source, size_t nelems)               \
    {                                                                                                     \
        struct via_group group = via_group_of_team(VIA_CALL, team);                                                 \
        scan(VIA_CALL, &group, dest, source, nelems, sizeof(T), N##_sum, INCLUSIVE);            \
        return 0;                                                                                         \
    }

#define VIA_BITS(N, T, DEFINE) DEFINE(N, T, and) DEFINE(N, T, or) DEFINE(N, T, xor)
#define VIA_ORDER(N, T, DEFINE) DEFINE(N, T, max) DEFINE(N, T, min)
#define VIA_RING(N, T, DEFINE) DEFINE(N, T, sum) DEFINE(N, T, prod)
#define VIA_SCANS(N, T, DEFINE) DEFINE(N, T, inscan, true) DEFINE(N, T, exscan, false)

/* Kernels: of the team reductions, and of signed integers for active sets. */
VIADUCT_SHMEM_REDUCE_BITS_TYPES(VIA_BITS, VIA_DEFINE_KERNEL)
VIADUCT_SHMEM_RMA_TYPES(VIA_ORDER, VIA_DEFINE_KERNEL)
VIADUCT_SHMEM_RMA_TYPES(VIA_RING, VIA_DEFINE_KERNEL)
VIADUCT_SHMEM_COMPLEX_TYPES(VIA_RING, VIA_DEFINE_KERNEL)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIA_BITS, VIA_DEFINE_KERNEL)

VIADUCT_SHMEM_REDUCE_BITS_TYPES(VIA_BITS, VIA_DEFINE_REDUCE)
VIADUCT_SHMEM_RMA_TYPES(VIA_ORDER, VIA_DEFINE_REDUCE)
VIADUCT_SHMEM_RMA_TYPES(VIA_RING, VIA_DEFINE_REDUCE)
VIADUCT_SHMEM_COMPLEX_TYPES(VIA_RING, VIA_DEFINE_REDUCE)
VIADUCT_SHMEM_RMA_TYPES(VIA_SCANS, VIA_DEFINE_SCAN)
VIADUCT_SHMEM_COMPLEX_TYPES(VIA_SCANS, VIA_DEFINE_SCAN)

VIADUCT_SHMEM_TO_ALL_INTEGERS(VIA_BITS, VIA_DEFINE_TO_ALL)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIA_ORDER, VIA_DEFINE_TO_ALL)
VIADUCT_SHMEM_TO_ALL_REALS(VIA_ORDER, VIA_DEFINE_TO_ALL)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIA_RING, VIA_DEFINE_TO_ALL)
VIADUCT_SHMEM_TO_ALL_REALS(VIA_RING, VIA_DEFINE_TO_ALL)
VIADUCT_SHMEM_COMPLEX_TYPES(VIA_RING, VIA_DEFINE_TO_ALL)

VIADUCT_SHMEM_REDUCE_BITS_TYPES(VIADUCT_SHMEM_REDUCE_BITS_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_REDUCE_ORDER_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_REDUCE_RING_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_COMPLEX_TYPES(VIADUCT_SHMEM_REDUCE_RING_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_BITS_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_ORDER_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_TO_ALL_REALS(VIADUCT_SHMEM_TO_ALL_ORDER_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_TO_ALL_REALS(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_COMPLEX_TYPES(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIA_ALIAS)
