/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The type-generic calls for C++, as overloads: the same calls by the same names as shmem_generic.h
 * gives C11. An extension, which section 4 of OpenSHMEM 1.6 allows. Included by shmem.h.
 */
#ifndef VIADUCT_SHMEM_OVERLOAD_H
#define VIADUCT_SHMEM_OVERLOAD_H

#include <viaduct/shmem_types.h>

#if defined(__cplusplus) && defined(SHMEM_H)

/* Programs may include shmem.h within extern "C", where there are neither templates nor overloads.
 */
extern "C++" {

#include <complex>

/* clang-format off */

#define VIADUCT_SHMEM_EXPAND(...) __VA_ARGS__

/* P: the parameters, A: their names, both in parentheses. */
#define VIADUCT_SHMEM_CPP(R, N, OP, P, A)                                                                 \
    inline R shmem_##OP(VIADUCT_SHMEM_EXPAND P) { return shmem_##N##_##OP A; }
#define VIADUCT_SHMEM_CPP_PAIR(R, N, OP, P, A)                                                            \
    VIADUCT_SHMEM_CPP(R, N, OP, P, A)                                                                     \
    inline R shmem_##OP(shmem_ctx_t ctx, VIADUCT_SHMEM_EXPAND P)                                          \
    {                                                                                                     \
        return shmem_ctx_##N##_##OP(ctx, VIADUCT_SHMEM_EXPAND A);                                         \
    }

#define VIADUCT_SHMEM_CPP_BLOCK(N, T, OP)                                                                 \
    VIADUCT_SHMEM_CPP_PAIR(void, N, OP, (T *dest, const T *source, size_t nelems, int pe),                \
                           (dest, source, nelems, pe))
#define VIADUCT_SHMEM_CPP_STRIDED(N, T, OP)                                                               \
    VIADUCT_SHMEM_CPP_PAIR(void, N, OP, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst,          \
                                         size_t nelems, int pe),                                          \
                           (dest, source, dst, sst, nelems, pe))
#define VIADUCT_SHMEM_CPP_BLOCKS(N, T, OP)                                                                \
    VIADUCT_SHMEM_CPP_PAIR(void, N, OP, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst,          \
                                         size_t bsize, size_t nblocks, int pe),                           \
                           (dest, source, dst, sst, bsize, nblocks, pe))
#define VIADUCT_SHMEM_CPP_SIGNAL(N, T, OP)                                                                \
    VIADUCT_SHMEM_CPP_PAIR(void, N, OP, (T *dest, const T *source, size_t nelems, uint64_t *sig_addr,     \
                                         uint64_t signal, int sig_op, int pe),                            \
                           (dest, source, nelems, sig_addr, signal, sig_op, pe))

#define VIADUCT_SHMEM_CPP_RMA(N, T, A)                                                                    \
    VIADUCT_SHMEM_CPP_PAIR(void, N, p, (T *dest, T value, int pe), (dest, value, pe))                     \
    VIADUCT_SHMEM_CPP_PAIR(T, N, g, (const T *source, int pe), (source, pe))                              \
    VIADUCT_SHMEM_CPP_BLOCK(N, T, put)                                                                    \
    VIADUCT_SHMEM_CPP_BLOCK(N, T, get)                                                                    \
    VIADUCT_SHMEM_CPP_BLOCK(N, T, put_nbi)                                                                \
    VIADUCT_SHMEM_CPP_BLOCK(N, T, get_nbi)                                                                \
    VIADUCT_SHMEM_CPP_STRIDED(N, T, iput)                                                                 \
    VIADUCT_SHMEM_CPP_STRIDED(N, T, iget)                                                                 \
    VIADUCT_SHMEM_CPP_BLOCKS(N, T, ibput)                                                                 \
    VIADUCT_SHMEM_CPP_BLOCKS(N, T, ibget)                                                                 \
    VIADUCT_SHMEM_CPP_SIGNAL(N, T, put_signal)                                                            \
    VIADUCT_SHMEM_CPP_SIGNAL(N, T, put_signal_nbi)

#define VIADUCT_SHMEM_CPP_AMO_EXTENDED(N, T, A)                                                           \
    VIADUCT_SHMEM_CPP_PAIR(T, N, atomic_fetch, (const T *source, int pe), (source, pe))                   \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_set, (T *dest, T value, int pe), (dest, value, pe))            \
    VIADUCT_SHMEM_CPP_PAIR(T, N, atomic_swap, (T *dest, T value, int pe), (dest, value, pe))              \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_fetch_nbi, (T *fetch, const T *source, int pe),                \
                           (fetch, source, pe))                                                           \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_swap_nbi, (T *fetch, T *dest, T value, int pe),                \
                           (fetch, dest, value, pe))                                                      \
    VIADUCT_SHMEM_CPP(T, N, fetch, (const T *source, int pe), (source, pe))                               \
    VIADUCT_SHMEM_CPP(void, N, set, (T *dest, T value, int pe), (dest, value, pe))                        \
    VIADUCT_SHMEM_CPP(T, N, swap, (T *dest, T value, int pe), (dest, value, pe))

#define VIADUCT_SHMEM_CPP_AMO(N, T, A)                                                                    \
    VIADUCT_SHMEM_CPP_AMO_EXTENDED(N, T, A)                                                               \
    VIADUCT_SHMEM_CPP_PAIR(T, N, atomic_compare_swap, (T *dest, T cond, T value, int pe),                 \
                           (dest, cond, value, pe))                                                       \
    VIADUCT_SHMEM_CPP_PAIR(T, N, atomic_fetch_inc, (T *dest, int pe), (dest, pe))                         \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_inc, (T *dest, int pe), (dest, pe))                            \
    VIADUCT_SHMEM_CPP_PAIR(T, N, atomic_fetch_add, (T *dest, T value, int pe), (dest, value, pe))         \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_add, (T *dest, T value, int pe), (dest, value, pe))            \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_compare_swap_nbi, (T *fetch, T *dest, T cond, T value, int pe),\
                           (fetch, dest, cond, value, pe))                                                \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_fetch_inc_nbi, (T *fetch, T *dest, int pe), (fetch, dest, pe)) \
    VIADUCT_SHMEM_CPP_PAIR(void, N, atomic_fetch_add_nbi, (T *fetch, T *dest, T value, int pe),           \
                           (fetch, dest, value, pe))                                                      \
    VIADUCT_SHMEM_CPP(T, N, cswap, (T *dest, T cond, T value, int pe), (dest, cond, value, pe))           \
    VIADUCT_SHMEM_CPP(T, N, finc, (T *dest, int pe), (dest, pe))                                          \
    VIADUCT_SHMEM_CPP(void, N, inc, (T *dest, int pe), (dest, pe))                                        \
    VIADUCT_SHMEM_CPP(T, N, fadd, (T *dest, T value, int pe), (dest, value, pe))                          \
    VIADUCT_SHMEM_CPP(void, N, add, (T *dest, T value, int pe), (dest, value, pe))

#define VIADUCT_SHMEM_CPP_UPDATE(R, N, T, OP)                                                             \
    VIADUCT_SHMEM_CPP_PAIR(R, N, OP, (T *dest, T value, int pe), (dest, value, pe))
#define VIADUCT_SHMEM_CPP_UPDATE_NBI(N, T, OP)                                                            \
    VIADUCT_SHMEM_CPP_PAIR(void, N, OP, (T *fetch, T *dest, T value, int pe), (fetch, dest, value, pe))
#define VIADUCT_SHMEM_CPP_BITWISE(N, T, A)                                                                \
    VIADUCT_SHMEM_CPP_UPDATE(T, N, T, atomic_fetch_and)                                                   \
    VIADUCT_SHMEM_CPP_UPDATE(T, N, T, atomic_fetch_or)                                                    \
    VIADUCT_SHMEM_CPP_UPDATE(T, N, T, atomic_fetch_xor)                                                   \
    VIADUCT_SHMEM_CPP_UPDATE(void, N, T, atomic_and)                                                      \
    VIADUCT_SHMEM_CPP_UPDATE(void, N, T, atomic_or)                                                       \
    VIADUCT_SHMEM_CPP_UPDATE(void, N, T, atomic_xor)                                                      \
    VIADUCT_SHMEM_CPP_UPDATE_NBI(N, T, atomic_fetch_and_nbi)                                              \
    VIADUCT_SHMEM_CPP_UPDATE_NBI(N, T, atomic_fetch_or_nbi)                                               \
    VIADUCT_SHMEM_CPP_UPDATE_NBI(N, T, atomic_fetch_xor_nbi)

#define VIADUCT_SHMEM_CPP_SET(N, T, SUFFIX, V)                                                            \
    VIADUCT_SHMEM_CPP(void, N, wait_until_all##SUFFIX, (T *ivars, size_t nelems, const int *status,       \
                                                        int cmp, V value),                                \
                      (ivars, nelems, status, cmp, value))                                                \
    VIADUCT_SHMEM_CPP(size_t, N, wait_until_any##SUFFIX, (T *ivars, size_t nelems, const int *status,     \
                                                          int cmp, V value),                              \
                      (ivars, nelems, status, cmp, value))                                                \
    VIADUCT_SHMEM_CPP(size_t, N, wait_until_some##SUFFIX, (T *ivars, size_t nelems, size_t *indices,      \
                                                           const int *status, int cmp, V value),          \
                      (ivars, nelems, indices, status, cmp, value))                                       \
    VIADUCT_SHMEM_CPP(int, N, test_all##SUFFIX, (T *ivars, size_t nelems, const int *status, int cmp,     \
                                                 V value),                                                \
                      (ivars, nelems, status, cmp, value))                                                \
    VIADUCT_SHMEM_CPP(size_t, N, test_any##SUFFIX, (T *ivars, size_t nelems, const int *status, int cmp,  \
                                                    V value),                                             \
                      (ivars, nelems, status, cmp, value))                                                \
    VIADUCT_SHMEM_CPP(size_t, N, test_some##SUFFIX, (T *ivars, size_t nelems, size_t *indices,            \
                                                     const int *status, int cmp, V value),                \
                      (ivars, nelems, indices, status, cmp, value))
#define VIADUCT_SHMEM_CPP_WAIT(N, T, A)                                                                   \
    VIADUCT_SHMEM_CPP(int, N, test, (T *ivar, int cmp, T value), (ivar, cmp, value))                      \
    VIADUCT_SHMEM_CPP_SET(N, T, , T)                                                                      \
    VIADUCT_SHMEM_CPP_SET(N, T, _vector, const T *)
/* That of long is a function of C. */
#define VIADUCT_SHMEM_CPP_WAIT_UNTIL(N, T)                                                                \
    VIADUCT_SHMEM_CPP(void, N, wait_until, (T *ivar, int cmp, T value), (ivar, cmp, value))

#define VIADUCT_SHMEM_CPP_TEAM(N, T, OP)                                                                  \
    VIADUCT_SHMEM_CPP(int, N, OP, (shmem_team_t team, T *dest, const T *source, size_t nelems),           \
                      (team, dest, source, nelems))
#define VIADUCT_SHMEM_CPP_COLLECTIVE(N, T, A)                                                             \
    VIADUCT_SHMEM_CPP(int, N, broadcast, (shmem_team_t team, T *dest, const T *source, size_t nelems,     \
                                          int PE_root),                                                   \
                      (team, dest, source, nelems, PE_root))                                              \
    VIADUCT_SHMEM_CPP_TEAM(N, T, collect)                                                                 \
    VIADUCT_SHMEM_CPP_TEAM(N, T, fcollect)                                                                \
    VIADUCT_SHMEM_CPP_TEAM(N, T, alltoall)                                                                \
    VIADUCT_SHMEM_CPP(int, N, alltoalls, (shmem_team_t team, T *dest, const T *source, ptrdiff_t dst,     \
                                          ptrdiff_t sst, size_t nelems),                                  \
                      (team, dest, source, dst, sst, nelems))                                             \
    VIADUCT_SHMEM_CPP_TEAM(N, T, max_reduce)                                                              \
    VIADUCT_SHMEM_CPP_TEAM(N, T, min_reduce)
#define VIADUCT_SHMEM_CPP_SUM(N, T, A)                                                                    \
    VIADUCT_SHMEM_CPP_TEAM(N, T, sum_reduce)                                                              \
    VIADUCT_SHMEM_CPP_TEAM(N, T, prod_reduce)                                                             \
    VIADUCT_SHMEM_CPP_TEAM(N, T, sum_inscan)                                                              \
    VIADUCT_SHMEM_CPP_TEAM(N, T, sum_exscan)
#define VIADUCT_SHMEM_CPP_BITS(N, T, A)                                                                   \
    VIADUCT_SHMEM_CPP_TEAM(N, T, and_reduce)                                                              \
    VIADUCT_SHMEM_CPP_TEAM(N, T, or_reduce)                                                               \
    VIADUCT_SHMEM_CPP_TEAM(N, T, xor_reduce)

VIADUCT_SHMEM_RMA_DISTINCT(VIADUCT_SHMEM_CPP_RMA, 0)
VIADUCT_SHMEM_AMO_DISTINCT(VIADUCT_SHMEM_CPP_AMO, 0)
VIADUCT_SHMEM_AMO_REAL(VIADUCT_SHMEM_CPP_AMO_EXTENDED, 0)
VIADUCT_SHMEM_BITWISE_DISTINCT(VIADUCT_SHMEM_CPP_BITWISE, 0)
VIADUCT_SHMEM_WAIT_DISTINCT(VIADUCT_SHMEM_CPP_WAIT, 0)
VIADUCT_SHMEM_CPP_WAIT_UNTIL(short, short)
VIADUCT_SHMEM_CPP_WAIT_UNTIL(int, int)
VIADUCT_SHMEM_CPP_WAIT_UNTIL(longlong, long long)
VIADUCT_SHMEM_CPP_WAIT_UNTIL(ushort, unsigned short)
VIADUCT_SHMEM_CPP_WAIT_UNTIL(uint, unsigned int)
VIADUCT_SHMEM_CPP_WAIT_UNTIL(ulong, unsigned long)
VIADUCT_SHMEM_CPP_WAIT_UNTIL(ulonglong, unsigned long long)
VIADUCT_SHMEM_RMA_DISTINCT(VIADUCT_SHMEM_CPP_COLLECTIVE, 0)
VIADUCT_SHMEM_RMA_DISTINCT(VIADUCT_SHMEM_CPP_SUM, 0)
VIADUCT_SHMEM_COMPLEX_TYPES(VIADUCT_SHMEM_CPP_SUM, 0)
VIADUCT_SHMEM_REDUCE_BITS_DISTINCT(VIADUCT_SHMEM_CPP_BITS, 0)

#define VIADUCT_SHMEM_CPP_COMPLEX(N, T, OP)                                                               \
    inline int shmem_##OP(shmem_team_t team, std::complex<T> *dest, const std::complex<T> *source,        \
                          size_t nelems)                                                                  \
    {                                                                                                     \
        return shmem_##N##_##OP(team, reinterpret_cast<viaduct_shmem_##N *>(dest),                        \
                                reinterpret_cast<const viaduct_shmem_##N *>(source), nelems);             \
    }
VIADUCT_SHMEM_CPP_COMPLEX(complexd, double, sum_reduce)
VIADUCT_SHMEM_CPP_COMPLEX(complexd, double, prod_reduce)
VIADUCT_SHMEM_CPP_COMPLEX(complexd, double, sum_inscan)
VIADUCT_SHMEM_CPP_COMPLEX(complexd, double, sum_exscan)
VIADUCT_SHMEM_CPP_COMPLEX(complexf, float, sum_reduce)
VIADUCT_SHMEM_CPP_COMPLEX(complexf, float, prod_reduce)
VIADUCT_SHMEM_CPP_COMPLEX(complexf, float, sum_inscan)
VIADUCT_SHMEM_CPP_COMPLEX(complexf, float, sum_exscan)

inline int shmem_sync(shmem_team_t team) { return shmem_team_sync(team); }
inline void shmem_signal_set(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe)
{
    shmem_ctx_signal_set(ctx, sig_addr, signal, pe);
}
inline void shmem_signal_add(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe)
{
    shmem_ctx_signal_add(ctx, sig_addr, signal, pe);
}

/* clang-format on */

} /* extern "C++" */

#endif

#endif
