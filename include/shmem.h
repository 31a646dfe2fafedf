/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * OpenSHMEM 1.6, as Viaduct implements it. Usable from C99, C11 (with the type-generic calls) and
 * C++11 (with overloads of the same names).
 *
 * The prototypes of calls that exist for many types are made from the tables in
 * viaduct/shmem_types.h and viaduct/shmem_entries.h: shmem_int_put, for instance, is the line
 * "N##_put" of VIADUCT_SHMEM_RMA_ENTRIES for the line "int" of VIADUCT_SHMEM_RMA_TYPES.
 */
#ifndef SHMEM_H
#define SHMEM_H

#include <stddef.h>
#include <stdint.h>

#include <viaduct/shmem_entries.h>
#include <viaduct/shmem_types.h>

/* C++ knows them as an extension only; std::complex has the same layout. */
__extension__ typedef double _Complex viaduct_shmem_complexd;
__extension__ typedef float _Complex viaduct_shmem_complexf;

#ifdef __cplusplus
extern "C" {
#endif

/* --- constants, section 6 -------------------------------------------------------------------- */

#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 6
#define SHMEM_MAX_NAME_LEN 64
#define SHMEM_VENDOR_STRING "Viaduct OpenSHMEM"

#define SHMEM_THREAD_SINGLE 0
#define SHMEM_THREAD_FUNNELED 1
#define SHMEM_THREAD_SERIALIZED 2
#define SHMEM_THREAD_MULTIPLE 3

#define SHMEM_CMP_EQ 1
#define SHMEM_CMP_NE 2
#define SHMEM_CMP_GT 3
#define SHMEM_CMP_LE 4
#define SHMEM_CMP_LT 5
#define SHMEM_CMP_GE 6

#define SHMEM_SIGNAL_SET 0
#define SHMEM_SIGNAL_ADD 1

#define SHMEM_MALLOC_ATOMICS_REMOTE 1L
#define SHMEM_MALLOC_SIGNAL_REMOTE 2L

#define SHMEM_TEAM_NUM_CONTEXTS 1L

#define SHMEM_CTX_SERIALIZED 1L
#define SHMEM_CTX_PRIVATE 2L
#define SHMEM_CTX_NOSTORE 4L
#define SHMEM_CTX_SESSION_TOTAL_OPS 1L
#define SHMEM_CTX_SESSION_BATCH 2L

/* Deprecated: the work arrays of collectives over active sets. */
#define SHMEM_SYNC_VALUE 0L
#define SHMEM_SYNC_SIZE 64
#define SHMEM_BARRIER_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_BCAST_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_COLLECT_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALL_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE 8

/* Deprecated names. */
#define _SHMEM_SYNC_VALUE SHMEM_SYNC_VALUE
#define _SHMEM_BARRIER_SYNC_SIZE SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE SHMEM_REDUCE_MIN_WRKDATA_SIZE
#define _SHMEM_MAJOR_VERSION SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING
#define _SHMEM_CMP_EQ SHMEM_CMP_EQ
#define _SHMEM_CMP_NE SHMEM_CMP_NE
#define _SHMEM_CMP_GT SHMEM_CMP_GT
#define _SHMEM_CMP_LE SHMEM_CMP_LE
#define _SHMEM_CMP_LT SHMEM_CMP_LT
#define _SHMEM_CMP_GE SHMEM_CMP_GE

/* --- handles, section 7 ---------------------------------------------------------------------- */

typedef struct viaduct_shmem_ctx *shmem_ctx_t;
typedef struct viaduct_shmem_team *shmem_team_t;

/* Numbers rather than addresses of objects: so they are constants in every kind of program. */
#define SHMEM_CTX_INVALID ((shmem_ctx_t)0)
#define SHMEM_CTX_DEFAULT ((shmem_ctx_t)1)
#define SHMEM_TEAM_INVALID ((shmem_team_t)0)
#define SHMEM_TEAM_WORLD ((shmem_team_t)1)
#define SHMEM_TEAM_SHARED ((shmem_team_t)2)

typedef struct {
    int num_contexts;
} shmem_team_config_t;

typedef struct {
    size_t total_ops;
} shmem_ctx_session_config_t;

/* --- calls ----------------------------------------------------------------------------------- */

/* Every call has a second name for the profiling interface, section 10. */
#define VIADUCT_SHMEM_DECLARE(R, NAME, P) \
    R NAME P;                             \
    R p##NAME P;

VIADUCT_SHMEM_SETUP_ENTRIES(VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_MEMORY_ENTRIES(VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_OLD_ENTRIES(VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_TEAM_ENTRIES(VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_ORDER_ENTRIES(VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_SYNC_ENTRIES(VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_RMA_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_RMA_SIZES(VIADUCT_SHMEM_SIZE_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_BLOCK_ENTRIES(mem, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_AMO_REAL(VIADUCT_SHMEM_AMO_EXTENDED_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_AMO_TYPES(VIADUCT_SHMEM_AMO_STANDARD_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_BITWISE_TYPES(VIADUCT_SHMEM_AMO_BITWISE_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_WAIT_TYPES(VIADUCT_SHMEM_WAIT_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_COLLECTIVE_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_REDUCE_BITS_TYPES(VIADUCT_SHMEM_REDUCE_BITS_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_REDUCE_ORDER_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_REDUCE_RING_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_COMPLEX_TYPES(VIADUCT_SHMEM_REDUCE_RING_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_BITS_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_ORDER_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_TO_ALL_REALS(VIADUCT_SHMEM_TO_ALL_ORDER_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_TO_ALL_REALS(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_COMPLEX_TYPES(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_ACTIVE_SET_ENTRIES(32, VIADUCT_SHMEM_DECLARE)
VIADUCT_SHMEM_ACTIVE_SET_ENTRIES(64, VIADUCT_SHMEM_DECLARE)

#undef VIADUCT_SHMEM_DECLARE

__attribute__((__noreturn__)) void shmem_global_exit(int status);
__attribute__((__noreturn__)) void pshmem_global_exit(int status);

/* Deprecated: shmem_init, finalized when the program exits. */
void start_pes(int npes);
void pstart_pes(int npes);

#ifdef __cplusplus
}
#endif

#if defined(VIADUCT_SHMEM_NO_GENERIC)
/* The library itself defines functions that have the name of a generic call. */
#elif defined(__cplusplus)
#include <viaduct/shmem_overload.h>
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#include <viaduct/shmem_generic.h>
#endif

#endif
