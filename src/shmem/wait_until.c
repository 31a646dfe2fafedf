/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.11: point-to-point synchronization. */
#include <stdbool.h>

#include "shmem/api.h"
#include "shmem/path.h"

static __attribute__((noreturn)) void refuse_comparison(const char *call, int cmp)
{
    via_fatal("%s: %d is not a comparison: expected one of SHMEM_CMP_EQ, NE, GT, LE, LT, GE", call,
              cmp);
}

/*
 * Where a search for any element that satisfies the comparison begins. The start advances by one
 * from call to call on the same variables, so that repeated calls find every such element, as
 * section 9.11 requires. The starts of some arrays are remembered. The search of any other array
 * starts at a random element, which also finds every such element in time.
 */
#define STARTS_COUNT 16u

static size_t next_start(const volatile void *ivars, size_t nelems)
{
    static _Thread_local struct {
        const volatile void *ivars;
        uint64_t random;
        size_t next;
    } starts[STARTS_COUNT];
    uint64_t hash = (uintptr_t)ivars * UINT64_C(0x9e3779b97f4a7c15);
    unsigned i = (unsigned)(hash >> 60);

    _Static_assert(STARTS_COUNT == 1u << 4, "the upper four bits of a product");
    if (starts[i].ivars != ivars) {
        starts[i].ivars = ivars;
        /* The generator of Knuth's MMIX; its upper bits are the more random ones. */
        starts[i].random =
            starts[i].random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        starts[i].next = (size_t)(starts[i].random >> 33);
    }
    return starts[i].next++ % nelems;
}

/* clang-format off */

#define VIA_SIGNED_BYTES(T) ((T)-1 < (T)1 ? -(int)sizeof(T) : (int)sizeof(T))

/*
 * Every wait repeats a test. Acquire: data that the writer put earlier, before a fence, is visible
 * after the wait.
 */
#define VIA_DEFINE_COMPARE(N, T, A)                                                                       \
    static inline bool N##_holds(const char *call, const T *ivar, int cmp, T value)                       \
    {                                                                                                     \
        T now = __atomic_load_n(ivar, __ATOMIC_ACQUIRE);                                                  \
        switch (cmp) {                                                                                    \
        case SHMEM_CMP_EQ:                                                                                \
            return now == value;                                                                          \
        case SHMEM_CMP_NE:                                                                                \
            return now != value;                                                                          \
        case SHMEM_CMP_GT:                                                                                \
            return now > value;                                                                           \
        case SHMEM_CMP_LE:                                                                                \
            return now <= value;                                                                          \
        case SHMEM_CMP_LT:                                                                                \
            return now < value;                                                                           \
        case SHMEM_CMP_GE:                                                                                \
            return now >= value;                                                                          \
        default:                                                                                          \
            refuse_comparison(call, cmp);                                                                     \
        }                                                                                                 \
    }                                                                                                     \
    /* values_step is 1 where every variable has a value of its own, else 0. */                           \
    static inline T N##_value(const T *values, size_t values_step, size_t i)                              \
    {                                                                                                     \
        return values[i * values_step];                                                                   \
    }                                                                                                     \
    static void N##_wait(const char *call, const T *ivar, int cmp, T value)                               \
    {                                                                                                     \
        struct via_wait wait = VIA_WAIT_INIT;                                                             \
        while (!N##_holds(call, ivar, cmp, value))                                                        \
            via_trace_step(&wait, ivar, VIA_SIGNED_BYTES(T), cmp, (uint64_t)value);                       \
        via_wait_done(&wait);                                                                             \
    }                                                                                                     \
    static bool N##_all(const char *call, const T *ivars, size_t nelems, const int *status, int cmp,      \
                        const T *values, size_t values_step)                                              \
    {                                                                                                     \
        for (size_t i = 0; i < nelems; i++)                                                               \
            if (!(status && status[i]) &&                                                                 \
                !N##_holds(call, &ivars[i], cmp, N##_value(values, values_step, i)))                      \
                return false;                                                                             \
        return true;                                                                                      \
    }                                                                                                     \
    /* The number of elements that hold, their indices in `indices`; at most max. *ret_set: size of
     * the test set. */ \
    static size_t N##_some(const char *call, const T *ivars, size_t nelems, size_t *indices, size_t max,  \
                           const int *status, int cmp, const T *values, size_t values_step,               \
                           size_t *ret_set)                                                               \
    {                                                                                                     \
        size_t found = 0, set = 0;                                                                        \
        size_t start = max == 1 && nelems > 1 ? next_start(ivars, nelems) : 0;                            \
        for (size_t n = 0; n < nelems && found < max; n++) {                                              \
            size_t i = start + n < nelems ? start + n : start + n - nelems;                               \
            if (status && status[i])                                                                      \
                continue;                                                                                 \
            set++;                                                                                        \
            if (N##_holds(call, &ivars[i], cmp, N##_value(values, values_step, i)))                       \
                indices[found++] = i;                                                                     \
        }                                                                                                 \
        *ret_set = set;                                                                                   \
        return found;                                                                                     \
    }                                                                                                     \
    static size_t N##_wait_some(const char *call, const T *ivars, size_t nelems, size_t *indices,         \
                                size_t max, const int *status, int cmp, const T *values,                  \
                                size_t values_step)                                                       \
    {                                                                                                     \
        struct via_wait wait = VIA_WAIT_INIT;                                                             \
        size_t found, set;                                                                                \
        while ((found = N##_some(call, ivars, nelems, indices, max, status, cmp, values, values_step,     \
                                 &set)) == 0 && set > 0)                                                  \
            via_trace_step(&wait, ivars, VIA_SIGNED_BYTES(T), VIA_TRACE_SOME, nelems);                    \
        via_wait_done(&wait);                                                                             \
        return found;                                                                                     \
    }

#define VIA_DEFINE_WAIT(N, T, A)                                                                          \
    void pshmem_##N##_wait_until(T *ivar, int cmp, T cmp_value)                                           \
    {                                                                                                     \
        N##_wait(VIA_CALL, ivar, cmp, cmp_value);                                                         \
    }                                                                                                     \
    void pshmem_##N##_wait(T *ivar, T cmp_value)                                                          \
    {                                                                                                     \
        N##_wait(VIA_CALL, ivar, SHMEM_CMP_NE, cmp_value);                                                \
    }                                                                                                     \
    int pshmem_##N##_test(T *ivar, int cmp, T cmp_value)                                                  \
    {                                                                                                     \
        return N##_holds(VIA_CALL, ivar, cmp, cmp_value);                                                 \
    }

/* Defines the calls with one value for all variables, and those with a vector of values. */
#define VIA_DEFINE_WAIT_SET(N, T, SUFFIX, VALUE, VALUES, STEP)                                            \
    void pshmem_##N##_wait_until_all##SUFFIX(T *ivars, size_t nelems, const int *status, int cmp, VALUE)  \
    {                                                                                                     \
        struct via_wait wait = VIA_WAIT_INIT;                                                             \
        while (!N##_all(VIA_CALL, ivars, nelems, status, cmp, VALUES, STEP))                              \
            via_trace_step(&wait, ivars, VIA_SIGNED_BYTES(T), VIA_TRACE_SOME, nelems);                    \
        via_wait_done(&wait);                                                                             \
    }                                                                                                     \
    size_t pshmem_##N##_wait_until_any##SUFFIX(T *ivars, size_t nelems, const int *status, int cmp,       \
                                               VALUE)                                                     \
    {                                                                                                     \
        size_t index;                                                                                     \
        return N##_wait_some(VIA_CALL, ivars, nelems, &index, 1, status, cmp, VALUES, STEP) ? index       \
                                                                                            : SIZE_MAX;   \
    }                                                                                                     \
    size_t pshmem_##N##_wait_until_some##SUFFIX(T *ivars, size_t nelems, size_t *indices,                 \
                                                const int *status, int cmp, VALUE)                        \
    {                                                                                                     \
        return N##_wait_some(VIA_CALL, ivars, nelems, indices, SIZE_MAX, status, cmp, VALUES, STEP);      \
    }                                                                                                     \
    int pshmem_##N##_test_all##SUFFIX(T *ivars, size_t nelems, const int *status, int cmp, VALUE)         \
    {                                                                                                     \
        return N##_all(VIA_CALL, ivars, nelems, status, cmp, VALUES, STEP);                               \
    }                                                                                                     \
    size_t pshmem_##N##_test_any##SUFFIX(T *ivars, size_t nelems, const int *status, int cmp, VALUE)      \
    {                                                                                                     \
        size_t index, set;                                                                                \
        return N##_some(VIA_CALL, ivars, nelems, &index, 1, status, cmp, VALUES, STEP, &set) ? index      \
                                                                                             : SIZE_MAX;  \
    }                                                                                                     \
    size_t pshmem_##N##_test_some##SUFFIX(T *ivars, size_t nelems, size_t *indices, const int *status,    \
                                          int cmp, VALUE)                                                 \
    {                                                                                                     \
        size_t set;                                                                                       \
        return N##_some(VIA_CALL, ivars, nelems, indices, SIZE_MAX, status, cmp, VALUES, STEP, &set);     \
    }

#define VIA_DEFINE_WAIT_SETS(N, T, A)                                                                     \
    VIA_DEFINE_WAIT_SET(N, T, , T cmp_value, &cmp_value, 0)                                               \
    VIA_DEFINE_WAIT_SET(N, T, _vector, const T *cmp_values, cmp_values, 1)

/* clang-format on */

VIADUCT_SHMEM_WAIT_TYPES(VIA_DEFINE_COMPARE, 0)
VIADUCT_SHMEM_WAIT_TYPES(VIA_DEFINE_WAIT, 0)
VIADUCT_SHMEM_WAIT_TYPES(VIA_DEFINE_WAIT_SETS, 0)

void pshmem_wait_until(long *ivar, int cmp, long cmp_value)
{
    long_wait(VIA_CALL, ivar, cmp, cmp_value);
}

void pshmem_wait(long *ivar, long cmp_value)
{
    long_wait(VIA_CALL, ivar, SHMEM_CMP_NE, cmp_value);
}

uint64_t pshmem_signal_wait_until(uint64_t *sig_addr, int cmp, uint64_t cmp_value)
{
    struct via_wait wait = VIA_WAIT_INIT;
    uint64_t now;

    /* Returns the value that met the condition, not a later one. */
    for (;;) {
        now = __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
        if (uint64_holds(VIA_CALL, &now, cmp, cmp_value))
            break;
        via_trace_step(&wait, sig_addr, sizeof(*sig_addr), cmp, cmp_value);
    }
    via_wait_done(&wait);
    return now;
}

uint64_t pshmem_signal_fetch(const uint64_t *sig_addr)
{
    return __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
}

VIADUCT_SHMEM_WAIT_TYPES(VIADUCT_SHMEM_WAIT_ENTRIES, VIA_ALIAS)
VIA_ALIAS(void, shmem_wait_until, (long *ivar, int cmp, long cmp_value))
VIA_ALIAS(void, shmem_wait, (long *ivar, long cmp_value))
VIA_ALIAS(uint64_t, shmem_signal_wait_until, (uint64_t * sig_addr, int cmp, uint64_t cmp_value))
VIA_ALIAS(uint64_t, shmem_signal_fetch, (const uint64_t *sig_addr))
