/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The types of OpenSHMEM 1.6, each family of calls once: X(TYPENAME, TYPE, argument). shmem.h makes
 * its prototypes from these tables, the C11 and C++ selections their cases, and the library its
 * functions. DISTINCT is the part of a table in which no C type occurs twice, as _Generic and
 * overloading need it.
 */
#ifndef VIADUCT_SHMEM_TYPES_H
#define VIADUCT_SHMEM_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */

/* Table 5: standard RMA types. */
#define VIADUCT_SHMEM_RMA_DISTINCT(X, A)      \
    X(float, float, A)                        \
    X(double, double, A)                      \
    X(longdouble, long double, A)             \
    X(char, char, A)                          \
    X(schar, signed char, A)                  \
    X(short, short, A)                        \
    X(int, int, A)                            \
    X(long, long, A)                          \
    X(longlong, long long, A)                 \
    X(uchar, unsigned char, A)                \
    X(ushort, unsigned short, A)              \
    X(uint, unsigned int, A)                  \
    X(ulong, unsigned long, A)                \
    X(ulonglong, unsigned long long, A)
#define VIADUCT_SHMEM_RMA_TYPES(X, A)         \
    VIADUCT_SHMEM_RMA_DISTINCT(X, A)          \
    X(int8, int8_t, A)                        \
    X(int16, int16_t, A)                      \
    X(int32, int32_t, A)                      \
    X(int64, int64_t, A)                      \
    X(uint8, uint8_t, A)                      \
    X(uint16, uint16_t, A)                    \
    X(uint32, uint32_t, A)                    \
    X(uint64, uint64_t, A)                    \
    X(size, size_t, A)                        \
    X(ptrdiff, ptrdiff_t, A)

/* The calls that are named by the bits of an element. */
#define VIADUCT_SHMEM_RMA_SIZES(X, A) X(8, 1, A) X(16, 2, A) X(32, 4, A) X(64, 8, A) X(128, 16, A)

/* Table 6: standard AMO types. */
#define VIADUCT_SHMEM_AMO_DISTINCT(X, A)      \
    X(int, int, A)                            \
    X(long, long, A)                          \
    X(longlong, long long, A)                 \
    X(uint, unsigned int, A)                  \
    X(ulong, unsigned long, A)                \
    X(ulonglong, unsigned long long, A)
#define VIADUCT_SHMEM_AMO_EXACT(X, A)         \
    X(int32, int32_t, A)                      \
    X(int64, int64_t, A)                      \
    X(uint32, uint32_t, A)                    \
    X(uint64, uint64_t, A)                    \
    X(size, size_t, A)                        \
    X(ptrdiff, ptrdiff_t, A)
#define VIADUCT_SHMEM_AMO_TYPES(X, A)         \
    VIADUCT_SHMEM_AMO_DISTINCT(X, A)          \
    VIADUCT_SHMEM_AMO_EXACT(X, A)

/* Table 7: what extended AMO types are more than standard ones. */
#define VIADUCT_SHMEM_AMO_REAL(X, A) X(float, float, A) X(double, double, A)

/* Table 8: bitwise AMO types. */
#define VIADUCT_SHMEM_BITWISE_DISTINCT(X, A)  \
    X(int32, int32_t, A)                      \
    X(int64, int64_t, A)                      \
    X(uint, unsigned int, A)                  \
    X(ulong, unsigned long, A)                \
    X(ulonglong, unsigned long long, A)
#define VIADUCT_SHMEM_BITWISE_TYPES(X, A)     \
    VIADUCT_SHMEM_BITWISE_DISTINCT(X, A)      \
    X(uint32, uint32_t, A)                    \
    X(uint64, uint64_t, A)

/* Table 14: what point-to-point synchronization types are more than standard AMO types. */
#define VIADUCT_SHMEM_WAIT_SHORT(X, A) X(short, short, A) X(ushort, unsigned short, A)
#define VIADUCT_SHMEM_WAIT_DISTINCT(X, A)     \
    VIADUCT_SHMEM_AMO_DISTINCT(X, A)          \
    VIADUCT_SHMEM_WAIT_SHORT(X, A)
#define VIADUCT_SHMEM_WAIT_TYPES(X, A)        \
    VIADUCT_SHMEM_AMO_TYPES(X, A)             \
    VIADUCT_SHMEM_WAIT_SHORT(X, A)

/* Table 10: team reductions. MAX and MIN know the RMA types, SUM and PROD these and the complex ones. */
#define VIADUCT_SHMEM_REDUCE_BITS_DISTINCT(X, A) \
    X(uchar, unsigned char, A)                \
    X(ushort, unsigned short, A)              \
    X(uint, unsigned int, A)                  \
    X(ulong, unsigned long, A)                \
    X(ulonglong, unsigned long long, A)       \
    X(int8, int8_t, A)                        \
    X(int16, int16_t, A)                      \
    X(int32, int32_t, A)                      \
    X(int64, int64_t, A)
#define VIADUCT_SHMEM_REDUCE_BITS_TYPES(X, A) \
    VIADUCT_SHMEM_REDUCE_BITS_DISTINCT(X, A)  \
    X(uint8, uint8_t, A)                      \
    X(uint16, uint16_t, A)                    \
    X(uint32, uint32_t, A)                    \
    X(uint64, uint64_t, A)                    \
    X(size, size_t, A)
#define VIADUCT_SHMEM_COMPLEX_TYPES(X, A)     \
    X(complexd, viaduct_shmem_complexd, A)    \
    X(complexf, viaduct_shmem_complexf, A)

/* Table 11: reductions of active sets. */
#define VIADUCT_SHMEM_TO_ALL_INTEGERS(X, A)   \
    X(short, short, A)                        \
    X(int, int, A)                            \
    X(long, long, A)                          \
    X(longlong, long long, A)
#define VIADUCT_SHMEM_TO_ALL_REALS(X, A)      \
    X(float, float, A)                        \
    X(double, double, A)                      \
    X(longdouble, long double, A)

/* clang-format on */

#endif
