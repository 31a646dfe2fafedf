/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.10: reductions and scans. */
#include <stdlib.h>

#include "shmem/group.h"

/* A piece that stays in the first-level cache while every PE's part is added to it. */
#define PIECE_BYTES 8192u

/* Where another PE's memory is mapped it is read in place, else fetched into `buffer`. */
static const void *see(const char *call, const void *source, size_t bytes, int pe, void *buffer)
{
    const void *direct = via_direct(source, pe);

    if (via_likely(direct))
        return direct;
    via_path_get(call, buffer, source, bytes, pe);
    return buffer;
}

/* So many elements go with one barrier; 0 = none. */
static size_t exchange_max(const struct via_group *group, size_t bytes)
{
    return via_group_exchange_max(group) / bytes;
}

/* Each PE gets the numbers of all with one barrier, and computes what it wants: the sum of those of
 * PEs 0 to count - 1. */
static void combine_some(struct via_group *group, char *dest, const char *source, size_t elements,
                         size_t bytes, via_reduce_kernel *kernel, int count)
{
    _Alignas(64) char sum[PIECE_BYTES];
    size_t piece_max = PIECE_BYTES / bytes;

    via_group_exchange(group, source, elements * bytes);
    if (count == 0)
        memset(dest, 0, elements * bytes);
    for (size_t at = 0; at < elements && count > 0; at += piece_max) {
        size_t piece = via_min(piece_max, elements - at);
        memcpy(sum, via_group_exchanged(group, 0) + at * bytes, piece * bytes);
        for (int i = 1; i < count; i++)
            kernel(sum, via_group_exchanged(group, i) + at * bytes, piece);
        memcpy(dest + at * bytes, sum, piece * bytes);
    }
}

static void combine_exchanged(struct via_group *group, void *dest, const void *source,
                              size_t elements, size_t bytes, via_reduce_kernel *kernel, int count)
{
    size_t most = exchange_max(group, bytes), at = 0;

    do {
        size_t some = via_min(most, elements - at);
        combine_some(group, (char *)dest + at * bytes, (const char *)source + at * bytes, some,
                     bytes, kernel, count);
        at += some;
    } while (at < elements);
}

/*
 * Where all members are on one host, or all are neighbours, memory that is read in place is better
 * for more than one exchange of numbers. To hosts that are farther every read is a round trip by
 * frames.
 */
static bool is_exchanged(const struct via_group *group, size_t elements, size_t bytes)
{
    size_t most = exchange_max(group, bytes);

    return most > 0 && (elements <= VIA_SYNC_LINE_BYTES / bytes || via_group_is_far(group));
}

/*
 * In the order of the PEs, whoever computes: so every PE gets the same bits. Each PE computes its
 * share of the elements and puts it to all; a share is read by one PE only, which is why dest may
 * be source.
 */
void via_group_reduce(const char *call, struct via_group *group, void *dest, const void *source,
                      size_t elements, size_t bytes, via_reduce_kernel *kernel)
{
    _Alignas(64) char sum[PIECE_BYTES], buffer[PIECE_BYTES];
    if (is_exchanged(group, elements, bytes)) {
        combine_exchanged(group, dest, source, elements, bytes, kernel, group->size);
        return;
    }
    size_t begin = elements * (size_t)group->my_pe / (size_t)group->size;
    size_t end = elements * ((size_t)group->my_pe + 1) / (size_t)group->size;
    size_t piece_max = PIECE_BYTES / bytes;

    /* Everybody's source is ready. */
    via_group_barrier(group);
    for (size_t at = begin; at < end; at += piece_max) {
        size_t piece = via_min(piece_max, end - at);
        const char *from = (const char *)source + at * bytes;
        via_get(call, sum, from, piece * bytes, via_group_pe(group, 0));
        for (int i = 1; i < group->size; i++)
            kernel(sum, see(call, from, piece * bytes, via_group_pe(group, i), buffer), piece);
        for (int i = 0; i < group->size; i++)
            via_put(call, (char *)dest + at * bytes, sum, piece * bytes, via_group_pe(group, i));
    }
    via_group_barrier(group);
}

/* The sum of the sources of PEs 0 to count - 1, in this order. */
static void sum_up(const char *call, const struct via_group *group, char *sum, const void *source,
                   size_t elements, size_t bytes, via_reduce_kernel *kernel, int count)
{
    _Alignas(64) char buffer[PIECE_BYTES];
    size_t piece_max = PIECE_BYTES / bytes;

    memset(sum, 0, count == 0 ? elements * bytes : 0);
    for (size_t at = 0; at < elements && count > 0; at += piece_max) {
        size_t piece = via_min(piece_max, elements - at);
        const char *from = (const char *)source + at * bytes;
        via_get(call, sum + at * bytes, from, piece * bytes, via_group_pe(group, 0));
        for (int i = 1; i < count; i++)
            kernel(sum + at * bytes, see(call, from, piece * bytes, via_group_pe(group, i), buffer),
                   piece);
    }
}

void via_group_scan(const char *call, struct via_group *group, void *dest, const void *source,
                    size_t elements, size_t bytes, via_reduce_kernel *kernel, bool inclusive)
{
    int count = group->my_pe + (inclusive ? 1 : 0);
    if (is_exchanged(group, elements, bytes)) {
        combine_exchanged(group, dest, source, elements, bytes, kernel, count);
        return;
    }
    bool in_place = dest == source;
    /* In place, nobody may write before everybody has read. */
    char *sum = in_place ? malloc(via_max(elements * bytes, (size_t)1)) : dest;

    if (!sum)
        via_fatal("%s: no memory for %zu elements", call, elements);
    via_group_barrier(group);
    sum_up(call, group, sum, source, elements, bytes, kernel, count);
    via_group_barrier(group);
    if (in_place) {
        memcpy(dest, sum, elements * bytes);
        free(sum);
    }
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
        struct via_group group = via_group_of_team(team);                                                 \
        via_group_reduce(VIA_CALL, &group, dest, source, nreduce, sizeof(T), N##_##OP);                   \
        return 0;                                                                                         \
    }
#define VIA_DEFINE_TO_ALL(N, T, OP)                                                                       \
    void pshmem_##N##_##OP##_to_all(T *dest, const T *source, int nreduce, int PE_start,                  \
                                    int logPE_stride, int PE_size, T *pWrk, long *pSync)                  \
    {                                                                                                     \
        struct via_group group =                                                                          \
            via_group_of_active_set(VIA_CALL, PE_start, logPE_stride, PE_size, pSync);                    \
        (void)pWrk;                                                                                       \
        via_group_reduce(VIA_CALL, &group, dest, source, nreduce > 0 ? (size_t)nreduce : 0, sizeof(T),    \
                         N##_##OP);                                                                       \
    }
#define VIA_DEFINE_SCAN(N, T, NAME, INCLUSIVE)                                                            \
    int pshmem_##N##_sum_##NAME(shmem_team_t team, T *dest, const T *source, size_t nelems)               \
    {                                                                                                     \
        struct via_group group = via_group_of_team(team);                                                 \
        via_group_scan(VIA_CALL, &group, dest, source, nelems, sizeof(T), N##_sum, INCLUSIVE);            \
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
