/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.7: atomic memory operations. */
#include "shmem/api.h"
#include "shmem/path.h"

/*
 * A word that is mapped is updated by the CPU's own atomic instructions; the operation on any other
 * word is executed by its owner's host. All are sequentially consistent, which on x86 costs nothing
 * extra for read-modify-write; a plain store becomes an exchange. On words that are not mapped,
 * operations without a result, and non-blocking ones, complete like puts.
 */

/* clang-format off */

/* A function call in front of the CPU's instruction would cost as much as the instruction, so this
 * is inline. */
#define VIA_FAST static inline __attribute__((always_inline))
#define VIA_FAR static __attribute__((noinline, cold))

#define VIA_WIDTH(T) ((unsigned)sizeof(T))
/* The operand's bits. A narrower operand occupies the lower half; the upper half is ignored. */
#define VIA_BITS(T, VALUE) ((uint64_t)(VALUE))

#define VIA_DEFINE_INTEGER(N, T, A)                                                                       \
    VIA_FAR T N##_update(const char *call, T *dest, enum viaduct_atomic operation, T value, T cond,       \
                               int pe)                                                                    \
    {                                                                                                     \
        return (T)via_path_atomic(call, dest, VIA_WIDTH(T), operation, VIA_BITS(T, value),                \
                                  VIA_BITS(T, cond), pe);                                                 \
    }                                                                                                     \
    VIA_FAR void N##_update_far(const char *call, T *dest, enum viaduct_atomic operation, T value, int pe)\
    {                                                                                                     \
        via_path_update(call, dest, VIA_WIDTH(T), operation, VIA_BITS(T, value), pe);                     \
    }                                                                                                     \
    VIA_FAR void N##_nbi_far(const char *call, T *fetch, T *dest, enum viaduct_atomic operation, T value, \
                             T cond, int pe)                                                              \
    {                                                                                                     \
        via_path_fetch_nbi(call, fetch, dest, VIA_WIDTH(T), operation, VIA_BITS(T, value),                \
                           VIA_BITS(T, cond), pe);                                                        \
    }                                                                                                     \
    VIA_FAST void N##_set_to(const char *call, T *dest, T value, int pe)                                  \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            __atomic_exchange_n(direct, value, __ATOMIC_SEQ_CST);                                         \
        else                                                                                              \
            N##_update_far(call, dest, VIADUCT_ATOMIC_SWAP, value, pe);                                   \
    }                                                                                                     \
    VIA_FAST void N##_add_to(const char *call, T *dest, T value, int pe)                                  \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            __atomic_fetch_add(direct, value, __ATOMIC_SEQ_CST);                                          \
        else                                                                                              \
            N##_update_far(call, dest, VIADUCT_ATOMIC_ADD, value, pe);                                    \
    }                                                                                                     \
    VIA_FAST T N##_do_fetch(const char *call, const T *source, int pe)                                    \
    {                                                                                                     \
        const T *direct = via_direct(source, pe);                                                         \
        if (via_likely(direct))                                                                           \
            return __atomic_load_n(direct, __ATOMIC_SEQ_CST);                                             \
        return N##_update(call, (T *)source, VIADUCT_ATOMIC_FETCH, 0, 0, pe);                             \
    }                                                                                                     \
    VIA_FAST T N##_do_swap(const char *call, T *dest, T value, int pe)                                    \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            return __atomic_exchange_n(direct, value, __ATOMIC_SEQ_CST);                                  \
        return N##_update(call, dest, VIADUCT_ATOMIC_SWAP, value, 0, pe);                                 \
    }                                                                                                     \
    VIA_FAST T N##_do_compare_swap(const char *call, T *dest, T cond, T value, int pe)                    \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_unlikely(!direct))                                                                        \
            return N##_update(call, dest, VIADUCT_ATOMIC_COMPARE_SWAP, value, cond, pe);                  \
        __atomic_compare_exchange_n(direct, &cond, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
        return cond;                                                                                      \
    }                                                                                                     \
    VIA_FAST T N##_do_add(const char *call, T *dest, T value, int pe)                                     \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            return __atomic_fetch_add(direct, value, __ATOMIC_SEQ_CST);                                   \
        return N##_update(call, dest, VIADUCT_ATOMIC_ADD, value, 0, pe);                                  \
    }                                                                                                     \
    VIA_FAST void N##_fetch_nbi(const char *call, T *fetch, const T *source, int pe)                      \
    {                                                                                                     \
        const T *direct = via_direct(source, pe);                                                         \
        if (via_likely(direct))                                                                           \
            *fetch = __atomic_load_n(direct, __ATOMIC_SEQ_CST);                                           \
        else                                                                                              \
            N##_nbi_far(call, fetch, (T *)source, VIADUCT_ATOMIC_FETCH, 0, 0, pe);                        \
    }                                                                                                     \
    VIA_FAST void N##_swap_nbi(const char *call, T *fetch, T *dest, T value, int pe)                      \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            *fetch = __atomic_exchange_n(direct, value, __ATOMIC_SEQ_CST);                                \
        else                                                                                              \
            N##_nbi_far(call, fetch, dest, VIADUCT_ATOMIC_SWAP, value, 0, pe);                            \
    }                                                                                                     \
    VIA_FAST void N##_add_nbi(const char *call, T *fetch, T *dest, T value, int pe)                       \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            *fetch = __atomic_fetch_add(direct, value, __ATOMIC_SEQ_CST);                                 \
        else                                                                                              \
            N##_nbi_far(call, fetch, dest, VIADUCT_ATOMIC_ADD, value, 0, pe);                             \
    }                                                                                                     \
    VIA_FAST void N##_compare_swap_nbi(const char *call, T *fetch, T *dest, T cond, T value, int pe)      \
    {                                                                                                     \
        if (via_likely(via_direct(dest, pe)))                                                             \
            *fetch = N##_do_compare_swap(call, dest, cond, value, pe);                                    \
        else                                                                                              \
            N##_nbi_far(call, fetch, dest, VIADUCT_ATOMIC_COMPARE_SWAP, value, cond, pe);                 \
    }

#define VIA_DEFINE_BITWISE_DO(N, T, OP, OPERATION)                                                        \
    VIA_FAST void N##_##OP##_to(const char *call, T *dest, T value, int pe)                               \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            __atomic_fetch_##OP(direct, value, __ATOMIC_SEQ_CST);                                         \
        else                                                                                              \
            N##_update_far(call, dest, OPERATION, value, pe);                                             \
    }                                                                                                     \
    VIA_FAST T N##_do_##OP(const char *call, T *dest, T value, int pe)                                    \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            return __atomic_fetch_##OP(direct, value, __ATOMIC_SEQ_CST);                                  \
        return N##_update(call, dest, OPERATION, value, 0, pe);                                           \
    }                                                                                                     \
    VIA_FAST void N##_##OP##_nbi(const char *call, T *fetch, T *dest, T value, int pe)                    \
    {                                                                                                     \
        T *direct = via_direct(dest, pe);                                                                 \
        if (via_likely(direct))                                                                           \
            *fetch = __atomic_fetch_##OP(direct, value, __ATOMIC_SEQ_CST);                                \
        else                                                                                              \
            N##_nbi_far(call, fetch, dest, OPERATION, value, 0, pe);                                      \
    }

/* Types without atomic operations of their own use those of an integer of the same width. */
#define VIA_DEFINE_REAL(N, T, WORD, W)                                                                    \
    static inline W N##_bits(T value)                                                                     \
    {                                                                                                     \
        W bits;                                                                                           \
        _Static_assert(sizeof(bits) == sizeof(value), "a real and its word");                             \
        memcpy(&bits, &value, sizeof(bits));                                                              \
        return bits;                                                                                      \
    }                                                                                                     \
    static inline T N##_of(W bits)                                                                        \
    {                                                                                                     \
        T value;                                                                                          \
        memcpy(&value, &bits, sizeof(value));                                                             \
        return value;                                                                                     \
    }                                                                                                     \
    VIA_FAST T N##_do_fetch(const char *call, const T *source, int pe)                                    \
    {                                                                                                     \
        return N##_of(WORD##_do_fetch(call, (const W *)source, pe));                                      \
    }                                                                                                     \
    VIA_FAST void N##_fetch_nbi(const char *call, T *fetch, const T *source, int pe)                      \
    {                                                                                                     \
        WORD##_fetch_nbi(call, (W *)fetch, (const W *)source, pe);                                        \
    }                                                                                                     \
    VIA_FAST void N##_swap_nbi(const char *call, T *fetch, T *dest, T value, int pe)                      \
    {                                                                                                     \
        WORD##_swap_nbi(call, (W *)fetch, (W *)dest, N##_bits(value), pe);                                \
    }                                                                                                     \
    VIA_FAST void N##_set_to(const char *call, T *dest, T value, int pe)                                  \
    {                                                                                                     \
        WORD##_set_to(call, (W *)dest, N##_bits(value), pe);                                              \
    }                                                                                                     \
    VIA_FAST T N##_do_swap(const char *call, T *dest, T value, int pe)                                    \
    {                                                                                                     \
        return N##_of(WORD##_do_swap(call, (W *)dest, N##_bits(value), pe));                              \
    }

#define VIA_DEFINE_EXTENDED(N, T, A)                                                                      \
    VIA_DEFINE_PAIR(T, N##_atomic_fetch, (const T *source, int pe),                                       \
        return N##_do_fetch(VIA_CALL, source, pe);)                                                       \
    VIA_DEFINE_PAIR(void, N##_atomic_set, (T *dest, T value, int pe),                                     \
        N##_set_to(VIA_CALL, dest, value, pe);)                                                           \
    VIA_DEFINE_PAIR(T, N##_atomic_swap, (T *dest, T value, int pe),                                       \
        return N##_do_swap(VIA_CALL, dest, value, pe);)                                                   \
    VIA_DEFINE_PAIR(void, N##_atomic_fetch_nbi, (T *fetch, const T *source, int pe),                      \
        N##_fetch_nbi(VIA_CALL, fetch, source, pe);)                                                      \
    VIA_DEFINE_PAIR(void, N##_atomic_swap_nbi, (T *fetch, T *dest, T value, int pe),                      \
        N##_swap_nbi(VIA_CALL, fetch, dest, value, pe);)                                                  \
    T pshmem_##N##_fetch(const T *source, int pe) { return N##_do_fetch(VIA_CALL, source, pe); }          \
    void pshmem_##N##_set(T *dest, T value, int pe) { N##_set_to(VIA_CALL, dest, value, pe); }            \
    T pshmem_##N##_swap(T *dest, T value, int pe) { return N##_do_swap(VIA_CALL, dest, value, pe); }

#define VIA_DEFINE_STANDARD(N, T, A)                                                                      \
    VIA_DEFINE_EXTENDED(N, T, A)                                                                          \
    VIA_DEFINE_PAIR(T, N##_atomic_compare_swap, (T *dest, T cond, T value, int pe),                       \
        return N##_do_compare_swap(VIA_CALL, dest, cond, value, pe);)                                     \
    VIA_DEFINE_PAIR(T, N##_atomic_fetch_inc, (T *dest, int pe),                                           \
        return N##_do_add(VIA_CALL, dest, 1, pe);)                                                        \
    VIA_DEFINE_PAIR(void, N##_atomic_inc, (T *dest, int pe),                                              \
        N##_add_to(VIA_CALL, dest, 1, pe);)                                                               \
    VIA_DEFINE_PAIR(T, N##_atomic_fetch_add, (T *dest, T value, int pe),                                  \
        return N##_do_add(VIA_CALL, dest, value, pe);)                                                    \
    VIA_DEFINE_PAIR(void, N##_atomic_add, (T *dest, T value, int pe),                                     \
        N##_add_to(VIA_CALL, dest, value, pe);)                                                           \
    VIA_DEFINE_PAIR(void, N##_atomic_compare_swap_nbi, (T *fetch, T *dest, T cond, T value, int pe),      \
        N##_compare_swap_nbi(VIA_CALL, fetch, dest, cond, value, pe);)                                    \
    VIA_DEFINE_PAIR(void, N##_atomic_fetch_inc_nbi, (T *fetch, T *dest, int pe),                          \
        N##_add_nbi(VIA_CALL, fetch, dest, 1, pe);)                                                       \
    VIA_DEFINE_PAIR(void, N##_atomic_fetch_add_nbi, (T *fetch, T *dest, T value, int pe),                 \
        N##_add_nbi(VIA_CALL, fetch, dest, value, pe);)                                                   \
    T pshmem_##N##_cswap(T *dest, T cond, T value, int pe)                                                \
    {                                                                                                     \
        return N##_do_compare_swap(VIA_CALL, dest, cond, value, pe);                                      \
    }                                                                                                     \
    T pshmem_##N##_finc(T *dest, int pe) { return N##_do_add(VIA_CALL, dest, 1, pe); }                    \
    void pshmem_##N##_inc(T *dest, int pe) { N##_add_to(VIA_CALL, dest, 1, pe); }                         \
    T pshmem_##N##_fadd(T *dest, T value, int pe) { return N##_do_add(VIA_CALL, dest, value, pe); }       \
    void pshmem_##N##_add(T *dest, T value, int pe) { N##_add_to(VIA_CALL, dest, value, pe); }

#define VIA_DEFINE_BITWISE_OP(N, T, OP)                                                                   \
    VIA_DEFINE_PAIR(T, N##_atomic_fetch_##OP, (T *dest, T value, int pe),                                 \
        return N##_do_##OP(VIA_CALL, dest, value, pe);)                                                   \
    VIA_DEFINE_PAIR(void, N##_atomic_##OP, (T *dest, T value, int pe),                                    \
        N##_##OP##_to(VIA_CALL, dest, value, pe);)                                                        \
    VIA_DEFINE_PAIR(void, N##_atomic_fetch_##OP##_nbi, (T *fetch, T *dest, T value, int pe),              \
        N##_##OP##_nbi(VIA_CALL, fetch, dest, value, pe);)

#define VIA_DEFINE_BITWISE(N, T, A)                                                                       \
    VIA_DEFINE_BITWISE_DO(N, T, and, VIADUCT_ATOMIC_AND)                                                  \
    VIA_DEFINE_BITWISE_DO(N, T, or, VIADUCT_ATOMIC_OR)                                                    \
    VIA_DEFINE_BITWISE_DO(N, T, xor, VIADUCT_ATOMIC_XOR)                                                  \
    VIA_DEFINE_BITWISE_OP(N, T, and)                                                                      \
    VIA_DEFINE_BITWISE_OP(N, T, or)                                                                       \
    VIA_DEFINE_BITWISE_OP(N, T, xor)

/* clang-format on */

VIADUCT_SHMEM_AMO_TYPES(VIA_DEFINE_INTEGER, 0)
VIA_DEFINE_REAL(float, float, uint32, uint32_t)
VIA_DEFINE_REAL(double, double, uint64, uint64_t)
VIADUCT_SHMEM_AMO_TYPES(VIA_DEFINE_STANDARD, 0)
VIADUCT_SHMEM_AMO_REAL(VIA_DEFINE_EXTENDED, 0)
VIADUCT_SHMEM_BITWISE_TYPES(VIA_DEFINE_BITWISE, 0)

VIADUCT_SHMEM_AMO_TYPES(VIADUCT_SHMEM_AMO_STANDARD_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_AMO_REAL(VIADUCT_SHMEM_AMO_EXTENDED_ENTRIES, VIA_ALIAS)
VIADUCT_SHMEM_BITWISE_TYPES(VIADUCT_SHMEM_AMO_BITWISE_ENTRIES, VIA_ALIAS)
