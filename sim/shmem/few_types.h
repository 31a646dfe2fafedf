/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The tables of types of OpenSHMEM with only the types that simulated PEs use: included before
 * every source of the library when it is compiled for the simulator.
 */
#ifndef VIA_SIM_SHMEM_FEW_TYPES_H
#define VIA_SIM_SHMEM_FEW_TYPES_H

#include <viaduct/shmem_types.h>

/* clang-format off */

#undef VIADUCT_SHMEM_RMA_DISTINCT
#undef VIADUCT_SHMEM_RMA_TYPES
#undef VIADUCT_SHMEM_RMA_SIZES
#undef VIADUCT_SHMEM_AMO_DISTINCT
#undef VIADUCT_SHMEM_AMO_EXACT
#undef VIADUCT_SHMEM_BITWISE_DISTINCT
#undef VIADUCT_SHMEM_BITWISE_TYPES
#undef VIADUCT_SHMEM_WAIT_SHORT
#undef VIADUCT_SHMEM_REDUCE_BITS_DISTINCT
#undef VIADUCT_SHMEM_REDUCE_BITS_TYPES
#undef VIADUCT_SHMEM_COMPLEX_TYPES
#undef VIADUCT_SHMEM_TO_ALL_INTEGERS
#undef VIADUCT_SHMEM_TO_ALL_REALS
#define VIADUCT_SHMEM_RMA_DISTINCT(X, A) X(long, long, A)
#define VIADUCT_SHMEM_RMA_TYPES(X, A) X(long, long, A) X(uint64, uint64_t, A)
#define VIADUCT_SHMEM_RMA_SIZES(X, A) X(64, 8, A)
#define VIADUCT_SHMEM_AMO_DISTINCT(X, A) X(long, long, A)
#define VIADUCT_SHMEM_AMO_EXACT(X, A) X(uint32, uint32_t, A) X(uint64, uint64_t, A)
#define VIADUCT_SHMEM_BITWISE_DISTINCT(X, A) X(ulong, unsigned long, A)
#define VIADUCT_SHMEM_BITWISE_TYPES(X, A) X(uint64, uint64_t, A)
#define VIADUCT_SHMEM_WAIT_SHORT(X, A)
#define VIADUCT_SHMEM_REDUCE_BITS_DISTINCT(X, A) X(ulong, unsigned long, A)
#define VIADUCT_SHMEM_REDUCE_BITS_TYPES(X, A) X(uint64, uint64_t, A)
#define VIADUCT_SHMEM_COMPLEX_TYPES(X, A)
#define VIADUCT_SHMEM_TO_ALL_INTEGERS(X, A) X(long, long, A)
#define VIADUCT_SHMEM_TO_ALL_REALS(X, A)

/* clang-format on */

#endif
