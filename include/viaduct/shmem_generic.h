/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The type-generic calls of C11: by the type of the first pointer, with or without a context before
 * it. shmem.h includes it; do not include it by itself.
 */
#ifndef VIADUCT_SHMEM_GENERIC_H
#define VIADUCT_SHMEM_GENERIC_H

#include <viaduct/shmem_types.h>

#define VIADUCT_SHMEM_ARG1(A, ...) (A)
#define VIADUCT_SHMEM_ARG2(A, B, ...) (B)

/* Chosen if the pointer after a context or team has a type that the call does not support: such a
 * call does not compile. */
void viaduct_shmem_no_such_type(void);

#define VIADUCT_SHMEM_CASE(N, T, OP) T * : shmem_##N##OP,
#define VIADUCT_SHMEM_CTX_CASE(N, T, OP) T * : shmem_ctx_##N##OP,
/* For calls that only read from that pointer. */
#define VIADUCT_SHMEM_CONST_CASE(N, T, OP) T * : shmem_##N##OP, const T * : shmem_##N##OP,
#define VIADUCT_SHMEM_CTX_CONST_CASE(N, T, OP) \
    T * : shmem_ctx_##N##OP, const T * : shmem_ctx_##N##OP,

/* clang-format off */

#define VIADUCT_SHMEM_BY_CTX(TYPES, KIND, OP, ...)                                               \
    _Generic(VIADUCT_SHMEM_ARG1(__VA_ARGS__, 0),                                                 \
        TYPES(VIADUCT_SHMEM_##KIND, OP)                                                          \
        shmem_ctx_t: _Generic(VIADUCT_SHMEM_ARG2(__VA_ARGS__, 0),                                \
            TYPES(VIADUCT_SHMEM_CTX_##KIND, OP)                                                  \
            default: viaduct_shmem_no_such_type))(__VA_ARGS__)
#define VIADUCT_SHMEM_BY_POINTER(TYPES, OP, ...)                                                 \
    _Generic(VIADUCT_SHMEM_ARG1(__VA_ARGS__, 0),                                                 \
        TYPES(VIADUCT_SHMEM_CASE, OP)                                                            \
        default: viaduct_shmem_no_such_type)(__VA_ARGS__)
#define VIADUCT_SHMEM_BY_READ_POINTER(TYPES, OP, ...)                                            \
    _Generic(VIADUCT_SHMEM_ARG1(__VA_ARGS__, 0),                                                 \
        TYPES(VIADUCT_SHMEM_CONST_CASE, OP)                                                      \
        default: viaduct_shmem_no_such_type)(__VA_ARGS__)
#define VIADUCT_SHMEM_BY_TEAM(TYPES, OP, ...)                                                    \
    _Generic(VIADUCT_SHMEM_ARG2(__VA_ARGS__, 0),                                                 \
        TYPES(VIADUCT_SHMEM_CASE, OP)                                                            \
        default: viaduct_shmem_no_such_type)(__VA_ARGS__)

#define VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT(X, A)                                                \
    VIADUCT_SHMEM_AMO_DISTINCT(X, A)                                                             \
    VIADUCT_SHMEM_AMO_REAL(X, A)
#define VIADUCT_SHMEM_SUM_DISTINCT(X, A)                                                         \
    VIADUCT_SHMEM_RMA_DISTINCT(X, A)                                                             \
    VIADUCT_SHMEM_COMPLEX_TYPES(X, A)

/* Remote memory access. */
#define shmem_p(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _p, __VA_ARGS__)
#define shmem_put(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _put, __VA_ARGS__)
#define shmem_get(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _get, __VA_ARGS__)
#define shmem_put_nbi(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _put_nbi, __VA_ARGS__)
#define shmem_get_nbi(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _get_nbi, __VA_ARGS__)
#define shmem_iput(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _iput, __VA_ARGS__)
#define shmem_iget(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _iget, __VA_ARGS__)
#define shmem_ibput(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _ibput, __VA_ARGS__)
#define shmem_ibget(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _ibget, __VA_ARGS__)
#define shmem_put_signal(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _put_signal, __VA_ARGS__)
#define shmem_put_signal_nbi(...)                                                                \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CASE, _put_signal_nbi, __VA_ARGS__)
#define shmem_g(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_RMA_DISTINCT, CONST_CASE, _g, __VA_ARGS__)

/* Atomic memory operations. */
#define shmem_atomic_fetch(...)                                                                  \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, CONST_CASE, _atomic_fetch, __VA_ARGS__)
#define shmem_atomic_set(...)                                                                    \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, CASE, _atomic_set, __VA_ARGS__)
#define shmem_atomic_swap(...)                                                                   \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, CASE, _atomic_swap, __VA_ARGS__)
#define shmem_atomic_fetch_nbi(...)                                                              \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, CASE, _atomic_fetch_nbi, __VA_ARGS__)
#define shmem_atomic_swap_nbi(...)                                                               \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, CASE, _atomic_swap_nbi, __VA_ARGS__)
#define shmem_atomic_compare_swap(...)                                                           \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_compare_swap, __VA_ARGS__)
#define shmem_atomic_fetch_inc(...)                                                              \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_fetch_inc, __VA_ARGS__)
#define shmem_atomic_inc(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_inc, __VA_ARGS__)
#define shmem_atomic_fetch_add(...)                                                              \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_fetch_add, __VA_ARGS__)
#define shmem_atomic_add(...) VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_add, __VA_ARGS__)
#define shmem_atomic_compare_swap_nbi(...)                                                       \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_compare_swap_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_inc_nbi(...)                                                          \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_fetch_inc_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_add_nbi(...)                                                          \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_AMO_DISTINCT, CASE, _atomic_fetch_add_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_and(...)                                                              \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_fetch_and, __VA_ARGS__)
#define shmem_atomic_and(...)                                                                    \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_and, __VA_ARGS__)
#define shmem_atomic_fetch_and_nbi(...)                                                          \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_fetch_and_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_or(...)                                                               \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_fetch_or, __VA_ARGS__)
#define shmem_atomic_or(...)                                                                     \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_or, __VA_ARGS__)
#define shmem_atomic_fetch_or_nbi(...)                                                           \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_fetch_or_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_xor(...)                                                              \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_fetch_xor, __VA_ARGS__)
#define shmem_atomic_xor(...)                                                                    \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_xor, __VA_ARGS__)
#define shmem_atomic_fetch_xor_nbi(...)                                                          \
    VIADUCT_SHMEM_BY_CTX(VIADUCT_SHMEM_BITWISE_DISTINCT, CASE, _atomic_fetch_xor_nbi, __VA_ARGS__)

/* Their deprecated names. */
#define shmem_fetch(...)                                                                         \
    VIADUCT_SHMEM_BY_READ_POINTER(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, _fetch, __VA_ARGS__)
#define shmem_set(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, _set, __VA_ARGS__)
#define shmem_swap(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_AMO_EXTENDED_DISTINCT, _swap, __VA_ARGS__)
#define shmem_cswap(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_AMO_DISTINCT, _cswap, __VA_ARGS__)
#define shmem_finc(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_AMO_DISTINCT, _finc, __VA_ARGS__)
#define shmem_inc(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_AMO_DISTINCT, _inc, __VA_ARGS__)
#define shmem_fadd(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_AMO_DISTINCT, _fadd, __VA_ARGS__)
#define shmem_add(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_AMO_DISTINCT, _add, __VA_ARGS__)

/* Point-to-point synchronization. */
#define shmem_wait_until(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _wait_until, __VA_ARGS__)
#define shmem_wait_until_all(...)                                                                \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _wait_until_all, __VA_ARGS__)
#define shmem_wait_until_any(...)                                                                \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _wait_until_any, __VA_ARGS__)
#define shmem_wait_until_some(...)                                                               \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _wait_until_some, __VA_ARGS__)
#define shmem_wait_until_all_vector(...)                                                         \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _wait_until_all_vector, __VA_ARGS__)
#define shmem_wait_until_any_vector(...)                                                         \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _wait_until_any_vector, __VA_ARGS__)
#define shmem_wait_until_some_vector(...)                                                        \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _wait_until_some_vector, __VA_ARGS__)
#define shmem_test(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _test, __VA_ARGS__)
#define shmem_test_all(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _test_all, __VA_ARGS__)
#define shmem_test_any(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _test_any, __VA_ARGS__)
#define shmem_test_some(...) VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _test_some, __VA_ARGS__)
#define shmem_test_all_vector(...)                                                               \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _test_all_vector, __VA_ARGS__)
#define shmem_test_any_vector(...)                                                               \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _test_any_vector, __VA_ARGS__)
#define shmem_test_some_vector(...)                                                              \
    VIADUCT_SHMEM_BY_POINTER(VIADUCT_SHMEM_WAIT_DISTINCT, _test_some_vector, __VA_ARGS__)

/* Collectives. */
#define shmem_broadcast(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_RMA_DISTINCT, _broadcast, __VA_ARGS__)
#define shmem_collect(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_RMA_DISTINCT, _collect, __VA_ARGS__)
#define shmem_fcollect(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_RMA_DISTINCT, _fcollect, __VA_ARGS__)
#define shmem_alltoall(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_RMA_DISTINCT, _alltoall, __VA_ARGS__)
#define shmem_alltoalls(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_RMA_DISTINCT, _alltoalls, __VA_ARGS__)
#define shmem_and_reduce(...)                                                                    \
    VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_REDUCE_BITS_DISTINCT, _and_reduce, __VA_ARGS__)
#define shmem_or_reduce(...)                                                                     \
    VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_REDUCE_BITS_DISTINCT, _or_reduce, __VA_ARGS__)
#define shmem_xor_reduce(...)                                                                    \
    VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_REDUCE_BITS_DISTINCT, _xor_reduce, __VA_ARGS__)
#define shmem_max_reduce(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_RMA_DISTINCT, _max_reduce, __VA_ARGS__)
#define shmem_min_reduce(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_RMA_DISTINCT, _min_reduce, __VA_ARGS__)
#define shmem_sum_reduce(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_SUM_DISTINCT, _sum_reduce, __VA_ARGS__)
#define shmem_prod_reduce(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_SUM_DISTINCT, _prod_reduce, __VA_ARGS__)
#define shmem_sum_inscan(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_SUM_DISTINCT, _sum_inscan, __VA_ARGS__)
#define shmem_sum_exscan(...) VIADUCT_SHMEM_BY_TEAM(VIADUCT_SHMEM_SUM_DISTINCT, _sum_exscan, __VA_ARGS__)

/* Calls that have a context or a team, or, as functions, none. */
#define shmem_sync(...)                                                                          \
    _Generic(VIADUCT_SHMEM_ARG1(__VA_ARGS__, 0), shmem_team_t: shmem_team_sync,                  \
             default: (shmem_sync))(__VA_ARGS__)
#define shmem_signal_set(...)                                                                    \
    _Generic(VIADUCT_SHMEM_ARG1(__VA_ARGS__, 0), shmem_ctx_t: shmem_ctx_signal_set,              \
             default: (shmem_signal_set))(__VA_ARGS__)
#define shmem_signal_add(...)                                                                    \
    _Generic(VIADUCT_SHMEM_ARG1(__VA_ARGS__, 0), shmem_ctx_t: shmem_ctx_signal_add,              \
             default: (shmem_signal_add))(__VA_ARGS__)

/* clang-format on */

#endif
