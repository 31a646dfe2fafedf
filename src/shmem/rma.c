/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.6: remote memory access; section 9.8: put with signal. */
#include "base/mutant.h"
#include "shmem/api.h"
#include "shmem/path.h"
#include "shmem/strided.h"

/*
 * Non-blocking calls on mapped memory complete before they return. On other memory, a put has
 * copied its source when it returns, and a get is under way until the next quiet.
 */

static inline void put_signal(const char *call, void *dest, const void *source, size_t bytes,
                              uint64_t *signal, uint64_t value, int operation, int pe)
{
    void *direct = via_direct(dest, pe);
    uint64_t *direct_signal = via_direct(signal, pe);

    if (via_unlikely(!direct_signal || (!direct && bytes > 0))) {
        via_path_put_signal(call, dest, source, bytes, signal, value,
                            operation == SHMEM_SIGNAL_ADD ? VIADUCT_SIGNAL_ADD : VIADUCT_SIGNAL_SET,
                            pe);
        return;
    }
    if (!VIA_MUTANT(SHMEM_SIGNAL_FIRST))
        via_copy(direct, source, bytes);
    /* Release: pairs with the acquire of the waiting PE, which then sees the payload. */
    if (operation == SHMEM_SIGNAL_ADD)
        __atomic_fetch_add(direct_signal, value, __ATOMIC_RELEASE);
    else
        __atomic_store_n(direct_signal, value, __ATOMIC_RELEASE);
    if (VIA_MUTANT(SHMEM_SIGNAL_FIRST))
        via_copy(direct, source, bytes);
}

/* clang-format off */

/* Accesses the whole element by one load or store, because another PE may poll it. The rare case is
 * a separate function, so that the element stays in its register. */
#define VIA_DEFINE_SCALAR(N, T, A)                                                                        \
    static __attribute__((noinline, cold)) void N##_p_far(const char *call, T *dest, T value, int pe)     \
    {                                                                                                     \
        via_path_put(call, dest, &value, sizeof(value), pe);                                              \
    }                                                                                                     \
    static __attribute__((noinline, cold)) T N##_g_far(const char *call, const T *source, int pe)         \
    {                                                                                                     \
        T value;                                                                                          \
        via_path_get(call, &value, source, sizeof(value), pe);                                            \
        return value;                                                                                     \
    }                                                                                                     \
    VIA_DEFINE_PAIR(void, N##_p, (T *dest, T value, int pe),                                              \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            *(volatile T *)direct = value;                                                                \
        else                                                                                              \
            N##_p_far(VIA_CALL, dest, value, pe);)                                                        \
    VIA_DEFINE_PAIR(T, N##_g, (const T *source, int pe),                                                  \
        const T *direct = via_direct(source, pe);                                                         \
        if (via_likely(direct))                                                                           \
            return *(const volatile T *)direct;                                                           \
        return N##_g_far(VIA_CALL, source, pe);)

/* PUT and GET are names of calls: int_put, put8, putmem. */
#define VIA_DEFINE_BLOCKS(PUT, GET, T, BYTES)                                                             \
    VIA_DEFINE_PAIR(void, PUT, (T *dest, const T *source, size_t nelems, int pe),                         \
        via_put(VIA_CALL, dest, source, nelems * (BYTES), pe);)                                           \
    VIA_DEFINE_PAIR(void, PUT##_nbi, (T *dest, const T *source, size_t nelems, int pe),                   \
        via_put(VIA_CALL, dest, source, nelems * (BYTES), pe);)                                           \
    VIA_DEFINE_PAIR(void, GET, (T *dest, const T *source, size_t nelems, int pe),                         \
        via_get(VIA_CALL, dest, source, nelems * (BYTES), pe);)                                           \
    VIA_DEFINE_PAIR(void, GET##_nbi, (T *dest, const T *source, size_t nelems, int pe),                   \
        via_get_nbi(VIA_CALL, dest, source, nelems * (BYTES), pe);)                                           \
    VIA_DEFINE_PAIR(void, PUT##_signal, (T *dest, const T *source, size_t nelems, uint64_t *sig_addr,     \
                                         uint64_t signal, int sig_op, int pe),                            \
        put_signal(VIA_CALL, dest, source, nelems * (BYTES), sig_addr, signal, sig_op, pe);)              \
    VIA_DEFINE_PAIR(void, PUT##_signal_nbi, (T *dest, const T *source, size_t nelems, uint64_t *sig_addr, \
                                             uint64_t signal, int sig_op, int pe),                        \
        put_signal(VIA_CALL, dest, source, nelems * (BYTES), sig_addr, signal, sig_op, pe);)

/* IPUT ... are the names of the four calls. */
#define VIA_DEFINE_STRIDES(IPUT, IGET, IBPUT, IBGET, T, BYTES)                                            \
    VIA_DEFINE_PAIR(void, IPUT, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,   \
                                 int pe),                                                                 \
        via_strided_put(VIA_CALL, dest, source, dst, sst, 1, nelems, BYTES, pe);)                         \
    VIA_DEFINE_PAIR(void, IGET, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,   \
                                 int pe),                                                                 \
        via_strided_get(VIA_CALL, dest, source, dst, sst, 1, nelems, BYTES, pe);)                         \
    VIA_DEFINE_PAIR(void, IBPUT, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize,   \
                                  size_t nblocks, int pe),                                                \
        via_strided_put(VIA_CALL, dest, source, dst, sst, bsize, nblocks, BYTES, pe);)                    \
    VIA_DEFINE_PAIR(void, IBGET, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize,   \
                                  size_t nblocks, int pe),                                                \
        via_strided_get(VIA_CALL, dest, source, dst, sst, bsize, nblocks, BYTES, pe);)

#define VIA_DEFINE_TYPE(N, T, A)                                                                          \
    VIA_DEFINE_SCALAR(N, T, A)                                                                            \
    VIA_DEFINE_BLOCKS(N##_put, N##_get, T, sizeof(T))                                                     \
    VIA_DEFINE_STRIDES(N##_iput, N##_iget, N##_ibput, N##_ibget, T, sizeof(T))

#define VIA_DEFINE_SIZE(S, BYTES, A)                                                                      \
    VIA_DEFINE_BLOCKS(put##S, get##S, void, BYTES)                                                        \
    VIA_DEFINE_STRIDES(iput##S, iget##S, ibput##S, ibget##S, void, BYTES)

/* clang-format on */

VIADUCT_SHMEM_RMA_TYPES(VIA_DEFINE_TYPE, 0)
VIADUCT_SHMEM_RMA_SIZES(VIA_DEFINE_SIZE, 0)
VIA_DEFINE_BLOCKS(putmem, getmem, void, 1)

VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_RMA_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_RMA_SIZES(VIADUCT_SHMEM_SIZE_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_BLOCK_ENTRIES(mem, VIA_ALIAS)
