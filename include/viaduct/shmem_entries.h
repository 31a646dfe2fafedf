/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Every typed and sized entry point of OpenSHMEM 1.6, once: E(result, name, parameters) for a
 * TYPENAME N and its TYPE T (see shmem_types.h). shmem.h makes the prototypes of shmem_... and
 * pshmem_... from it, the library the aliases of the profiling interface.
 */
#ifndef VIADUCT_SHMEM_ENTRIES_H
#define VIADUCT_SHMEM_ENTRIES_H

/* clang-format off */

/* A call that exists with and without a context: P are its parameters, in parentheses. */
#define VIADUCT_SHMEM_PARAMS(...) __VA_ARGS__
#define VIADUCT_SHMEM_PAIR(E, R, NAME, P)                                                                    \
    E(R, shmem_##NAME, (VIADUCT_SHMEM_PARAMS P))                                                             \
    E(R, shmem_ctx_##NAME, (shmem_ctx_t ctx, VIADUCT_SHMEM_PARAMS P))

/* --- remote memory access, section 9.6; signals, section 9.8 --- */

#define VIADUCT_SHMEM_RMA_ENTRIES(N, T, E)                                                                   \
    VIADUCT_SHMEM_PAIR(E, void, N##_p, (T *dest, T value, int pe))                                           \
    VIADUCT_SHMEM_PAIR(E, T, N##_g, (const T *source, int pe))                                               \
    VIADUCT_SHMEM_PAIR(E, void, N##_put, (T *dest, const T *source, size_t nelems, int pe))                  \
    VIADUCT_SHMEM_PAIR(E, void, N##_get, (T *dest, const T *source, size_t nelems, int pe))                  \
    VIADUCT_SHMEM_PAIR(E, void, N##_put_nbi, (T *dest, const T *source, size_t nelems, int pe))              \
    VIADUCT_SHMEM_PAIR(E, void, N##_get_nbi, (T *dest, const T *source, size_t nelems, int pe))              \
    VIADUCT_SHMEM_PAIR(E, void, N##_iput, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst,           \
                                           size_t nelems, int pe))                                           \
    VIADUCT_SHMEM_PAIR(E, void, N##_iget, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst,           \
                                           size_t nelems, int pe))                                           \
    VIADUCT_SHMEM_PAIR(E, void, N##_ibput, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst,          \
                                            size_t bsize, size_t nblocks, int pe))                           \
    VIADUCT_SHMEM_PAIR(E, void, N##_ibget, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst,          \
                                            size_t bsize, size_t nblocks, int pe))                           \
    VIADUCT_SHMEM_PAIR(E, void, N##_put_signal, (T *dest, const T *source, size_t nelems, uint64_t *sig_addr,\
                                                 uint64_t signal, int sig_op, int pe))                       \
    VIADUCT_SHMEM_PAIR(E, void, N##_put_signal_nbi, (T *dest, const T *source, size_t nelems,                \
                                                     uint64_t *sig_addr, uint64_t signal, int sig_op, int pe))

/* Contiguous transfers by element size. S: 8, 16, 32, 64, 128 or mem. */
#define VIADUCT_SHMEM_BLOCK_ENTRIES(S, E)                                                                    \
    VIADUCT_SHMEM_PAIR(E, void, put##S, (void *dest, const void *source, size_t nelems, int pe))             \
    VIADUCT_SHMEM_PAIR(E, void, get##S, (void *dest, const void *source, size_t nelems, int pe))             \
    VIADUCT_SHMEM_PAIR(E, void, put##S##_nbi, (void *dest, const void *source, size_t nelems, int pe))       \
    VIADUCT_SHMEM_PAIR(E, void, get##S##_nbi, (void *dest, const void *source, size_t nelems, int pe))       \
    VIADUCT_SHMEM_PAIR(E, void, put##S##_signal, (void *dest, const void *source, size_t nelems,             \
                                                  uint64_t *sig_addr, uint64_t signal, int sig_op, int pe))  \
    VIADUCT_SHMEM_PAIR(E, void, put##S##_signal_nbi, (void *dest, const void *source, size_t nelems,         \
                                                      uint64_t *sig_addr, uint64_t signal, int sig_op, int pe))

#define VIADUCT_SHMEM_SIZE_ENTRIES(S, BYTES, E)                                                              \
    VIADUCT_SHMEM_BLOCK_ENTRIES(S, E)                                                                        \
    VIADUCT_SHMEM_PAIR(E, void, iput##S, (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,      \
                                          size_t nelems, int pe))                                            \
    VIADUCT_SHMEM_PAIR(E, void, iget##S, (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,      \
                                          size_t nelems, int pe))                                            \
    VIADUCT_SHMEM_PAIR(E, void, ibput##S, (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,     \
                                           size_t bsize, size_t nblocks, int pe))                            \
    VIADUCT_SHMEM_PAIR(E, void, ibget##S, (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,     \
                                           size_t bsize, size_t nblocks, int pe))

/* --- atomic memory operations, section 9.7 --- */

#define VIADUCT_SHMEM_AMO_EXTENDED_ENTRIES(N, T, E)                                                          \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_fetch, (const T *source, int pe))                                    \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_set, (T *dest, T value, int pe))                                  \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_swap, (T *dest, T value, int pe))                                    \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_fetch_nbi, (T *fetch, const T *source, int pe))                   \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_swap_nbi, (T *fetch, T *dest, T value, int pe))                   \
    E(T, shmem_##N##_fetch, (const T *source, int pe))                                                       \
    E(void, shmem_##N##_set, (T *dest, T value, int pe))                                                     \
    E(T, shmem_##N##_swap, (T *dest, T value, int pe))

#define VIADUCT_SHMEM_AMO_STANDARD_ENTRIES(N, T, E)                                                          \
    VIADUCT_SHMEM_AMO_EXTENDED_ENTRIES(N, T, E)                                                              \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_compare_swap, (T *dest, T cond, T value, int pe))                    \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_fetch_inc, (T *dest, int pe))                                        \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_inc, (T *dest, int pe))                                           \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_fetch_add, (T *dest, T value, int pe))                               \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_add, (T *dest, T value, int pe))                                  \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_compare_swap_nbi, (T *fetch, T *dest, T cond, T value, int pe))   \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_fetch_inc_nbi, (T *fetch, T *dest, int pe))                       \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_fetch_add_nbi, (T *fetch, T *dest, T value, int pe))              \
    E(T, shmem_##N##_cswap, (T *dest, T cond, T value, int pe))                                              \
    E(T, shmem_##N##_finc, (T *dest, int pe))                                                                \
    E(void, shmem_##N##_inc, (T *dest, int pe))                                                              \
    E(T, shmem_##N##_fadd, (T *dest, T value, int pe))                                                       \
    E(void, shmem_##N##_add, (T *dest, T value, int pe))

#define VIADUCT_SHMEM_AMO_BITWISE_ENTRIES(N, T, E)                                                           \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_fetch_and, (T *dest, T value, int pe))                               \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_fetch_or, (T *dest, T value, int pe))                                \
    VIADUCT_SHMEM_PAIR(E, T, N##_atomic_fetch_xor, (T *dest, T value, int pe))                               \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_and, (T *dest, T value, int pe))                                  \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_or, (T *dest, T value, int pe))                                   \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_xor, (T *dest, T value, int pe))                                  \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_fetch_and_nbi, (T *fetch, T *dest, T value, int pe))              \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_fetch_or_nbi, (T *fetch, T *dest, T value, int pe))               \
    VIADUCT_SHMEM_PAIR(E, void, N##_atomic_fetch_xor_nbi, (T *fetch, T *dest, T value, int pe))

/* --- point-to-point synchronization, section 9.11 --- */

#define VIADUCT_SHMEM_WAIT_ENTRIES(N, T, E)                                                                  \
    E(void, shmem_##N##_wait_until, (T *ivar, int cmp, T cmp_value))                                         \
    E(void, shmem_##N##_wait_until_all, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value))  \
    E(size_t, shmem_##N##_wait_until_any, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value))\
    E(size_t, shmem_##N##_wait_until_some, (T *ivars, size_t nelems, size_t *indices, const int *status,     \
                                            int cmp, T cmp_value))                                           \
    E(void, shmem_##N##_wait_until_all_vector, (T *ivars, size_t nelems, const int *status, int cmp,         \
                                                const T *cmp_values))                                        \
    E(size_t, shmem_##N##_wait_until_any_vector, (T *ivars, size_t nelems, const int *status, int cmp,       \
                                                  const T *cmp_values))                                      \
    E(size_t, shmem_##N##_wait_until_some_vector, (T *ivars, size_t nelems, size_t *indices,                 \
                                                   const int *status, int cmp, const T *cmp_values))         \
    E(int, shmem_##N##_test, (T *ivar, int cmp, T cmp_value))                                                \
    E(int, shmem_##N##_test_all, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value))         \
    E(size_t, shmem_##N##_test_any, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value))      \
    E(size_t, shmem_##N##_test_some, (T *ivars, size_t nelems, size_t *indices, const int *status, int cmp,  \
                                      T cmp_value))                                                          \
    E(int, shmem_##N##_test_all_vector, (T *ivars, size_t nelems, const int *status, int cmp,                \
                                         const T *cmp_values))                                               \
    E(size_t, shmem_##N##_test_any_vector, (T *ivars, size_t nelems, const int *status, int cmp,             \
                                            const T *cmp_values))                                            \
    E(size_t, shmem_##N##_test_some_vector, (T *ivars, size_t nelems, size_t *indices, const int *status,    \
                                             int cmp, const T *cmp_values))                                  \
    E(void, shmem_##N##_wait, (T *ivar, T cmp_value))

/* --- collectives, section 9.10 --- */

#define VIADUCT_SHMEM_COLLECTIVE_ENTRIES(N, T, E)                                                            \
    E(int, shmem_##N##_broadcast, (shmem_team_t team, T *dest, const T *source, size_t nelems, int PE_root)) \
    E(int, shmem_##N##_collect, (shmem_team_t team, T *dest, const T *source, size_t nelems))                \
    E(int, shmem_##N##_fcollect, (shmem_team_t team, T *dest, const T *source, size_t nelems))               \
    E(int, shmem_##N##_alltoall, (shmem_team_t team, T *dest, const T *source, size_t nelems))               \
    E(int, shmem_##N##_alltoalls, (shmem_team_t team, T *dest, const T *source, ptrdiff_t dst,               \
                                   ptrdiff_t sst, size_t nelems))

#define VIADUCT_SHMEM_REDUCE_ENTRY(E, NAME, T)                                                               \
    E(int, shmem_##NAME##_reduce, (shmem_team_t team, T *dest, const T *source, size_t nreduce))
#define VIADUCT_SHMEM_REDUCE_BITS_ENTRIES(N, T, E)                                                           \
    VIADUCT_SHMEM_REDUCE_ENTRY(E, N##_and, T)                                                                \
    VIADUCT_SHMEM_REDUCE_ENTRY(E, N##_or, T)                                                                 \
    VIADUCT_SHMEM_REDUCE_ENTRY(E, N##_xor, T)
#define VIADUCT_SHMEM_REDUCE_ORDER_ENTRIES(N, T, E)                                                          \
    VIADUCT_SHMEM_REDUCE_ENTRY(E, N##_max, T)                                                                \
    VIADUCT_SHMEM_REDUCE_ENTRY(E, N##_min, T)
#define VIADUCT_SHMEM_REDUCE_RING_ENTRIES(N, T, E)                                                           \
    VIADUCT_SHMEM_REDUCE_ENTRY(E, N##_sum, T)                                                                \
    VIADUCT_SHMEM_REDUCE_ENTRY(E, N##_prod, T)                                                               \
    E(int, shmem_##N##_sum_inscan, (shmem_team_t team, T *dest, const T *source, size_t nelems))             \
    E(int, shmem_##N##_sum_exscan, (shmem_team_t team, T *dest, const T *source, size_t nelems))

#define VIADUCT_SHMEM_TO_ALL_ENTRY(E, NAME, T)                                                               \
    E(void, shmem_##NAME##_to_all, (T *dest, const T *source, int nreduce, int PE_start,                     \
                                        int logPE_stride, int PE_size, T *pWrk, long *pSync))
#define VIADUCT_SHMEM_TO_ALL_BITS_ENTRIES(N, T, E)                                                           \
    VIADUCT_SHMEM_TO_ALL_ENTRY(E, N##_and, T)                                                                \
    VIADUCT_SHMEM_TO_ALL_ENTRY(E, N##_or, T)                                                                 \
    VIADUCT_SHMEM_TO_ALL_ENTRY(E, N##_xor, T)
#define VIADUCT_SHMEM_TO_ALL_ORDER_ENTRIES(N, T, E)                                                          \
    VIADUCT_SHMEM_TO_ALL_ENTRY(E, N##_max, T)                                                                \
    VIADUCT_SHMEM_TO_ALL_ENTRY(E, N##_min, T)
#define VIADUCT_SHMEM_TO_ALL_RING_ENTRIES(N, T, E)                                                           \
    VIADUCT_SHMEM_TO_ALL_ENTRY(E, N##_sum, T)                                                                \
    VIADUCT_SHMEM_TO_ALL_ENTRY(E, N##_prod, T)

/* S: 32 or 64, of active sets. */
#define VIADUCT_SHMEM_ACTIVE_SET_ENTRIES(S, E)                                                               \
    E(void, shmem_broadcast##S, (void *dest, const void *source, size_t nelems, int PE_root, int PE_start,   \
                                 int logPE_stride, int PE_size, long *pSync))                                \
    E(void, shmem_collect##S, (void *dest, const void *source, size_t nelems, int PE_start,                  \
                               int logPE_stride, int PE_size, long *pSync))                                  \
    E(void, shmem_fcollect##S, (void *dest, const void *source, size_t nelems, int PE_start,                 \
                                int logPE_stride, int PE_size, long *pSync))                                 \
    E(void, shmem_alltoall##S, (void *dest, const void *source, size_t nelems, int PE_start,                 \
                                int logPE_stride, int PE_size, long *pSync))                                 \
    E(void, shmem_alltoalls##S, (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,               \
                                 size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync))

/* --- calls without a type --- */

#define VIADUCT_SHMEM_SETUP_ENTRIES(E)                                                                       \
    E(void, shmem_init, (void))                                                                              \
    E(int, shmem_init_thread, (int requested, int *provided))                                                \
    E(void, shmem_query_thread, (int *provided))                                                             \
    E(void, shmem_query_initialized, (int *initialized))                                                     \
    E(void, shmem_finalize, (void))                                                                          \
    E(int, shmem_my_pe, (void))                                                                              \
    E(int, shmem_n_pes, (void))                                                                              \
    E(int, shmem_pe_accessible, (int pe))                                                                    \
    E(int, shmem_addr_accessible, (const void *addr, int pe))                                                \
    E(void *, shmem_ptr, (const void *dest, int pe))                                                         \
    E(void, shmem_info_get_version, (int *major, int *minor))                                                \
    E(void, shmem_info_get_name, (char *name))                                                               \
    E(void, shmem_pcontrol, (int level, ...))

#define VIADUCT_SHMEM_MEMORY_ENTRIES(E)                                                                      \
    E(void *, shmem_malloc, (size_t size))                                                                   \
    E(void *, shmem_calloc, (size_t count, size_t size))                                                     \
    E(void *, shmem_align, (size_t alignment, size_t size))                                                  \
    E(void *, shmem_realloc, (void *ptr, size_t size))                                                       \
    E(void, shmem_free, (void *ptr))                                                                         \
    E(void *, shmem_malloc_with_hints, (size_t size, long hints))

/* Deprecated since 1.2, but still required: the names without the prefix. */
#define VIADUCT_SHMEM_OLD_ENTRIES(E)                                                                         \
    E(int, _my_pe, (void))                                                                                   \
    E(int, _num_pes, (void))                                                                                 \
    E(void *, shmalloc, (size_t size))                                                                       \
    E(void *, shmemalign, (size_t alignment, size_t size))                                                   \
    E(void *, shrealloc, (void *ptr, size_t size))                                                           \
    E(void, shfree, (void *ptr))

#define VIADUCT_SHMEM_TEAM_ENTRIES(E)                                                                        \
    E(int, shmem_team_my_pe, (shmem_team_t team))                                                            \
    E(int, shmem_team_n_pes, (shmem_team_t team))                                                            \
    E(int, shmem_team_get_config, (shmem_team_t team, long config_mask, shmem_team_config_t *config))        \
    E(int, shmem_team_translate_pe, (shmem_team_t src_team, int src_pe, shmem_team_t dest_team))             \
    E(int, shmem_team_split_strided, (shmem_team_t parent_team, int start, int stride, int size,             \
                                      const shmem_team_config_t *config, long config_mask,                   \
                                      shmem_team_t *new_team))                                               \
    E(int, shmem_team_split_2d, (shmem_team_t parent_team, int xrange,                                       \
                                 const shmem_team_config_t *xaxis_config, long xaxis_mask,                   \
                                 shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config,          \
                                 long yaxis_mask, shmem_team_t *yaxis_team))                                 \
    E(void, shmem_team_destroy, (shmem_team_t team))                                                         \
    E(void *, shmem_team_ptr, (shmem_team_t team, const void *dest, int pe))                                 \
    E(int, shmem_team_create_ctx, (shmem_team_t team, long options, shmem_ctx_t *ctx))                       \
    E(int, shmem_ctx_create, (long options, shmem_ctx_t *ctx))                                               \
    E(void, shmem_ctx_destroy, (shmem_ctx_t ctx))                                                            \
    E(int, shmem_ctx_get_team, (shmem_ctx_t ctx, shmem_team_t *team))                                        \
    E(void, shmem_ctx_session_start, (shmem_ctx_t ctx, long options,                                         \
                                      const shmem_ctx_session_config_t *config, long config_mask))           \
    E(void, shmem_ctx_session_stop, (shmem_ctx_t ctx))

#define VIADUCT_SHMEM_ORDER_ENTRIES(E)                                                                       \
    E(void, shmem_fence, (void))                                                                             \
    E(void, shmem_ctx_fence, (shmem_ctx_t ctx))                                                              \
    E(void, shmem_quiet, (void))                                                                             \
    E(void, shmem_ctx_quiet, (shmem_ctx_t ctx))                                                              \
    VIADUCT_SHMEM_PAIR(E, void, pe_quiet, (const int *target_pes, size_t npes))                              \
    VIADUCT_SHMEM_PAIR(E, void, signal_set, (uint64_t *sig_addr, uint64_t signal, int pe))                   \
    VIADUCT_SHMEM_PAIR(E, void, signal_add, (uint64_t *sig_addr, uint64_t signal, int pe))                   \
    E(uint64_t, shmem_signal_fetch, (const uint64_t *sig_addr))                                              \
    E(uint64_t, shmem_signal_wait_until, (uint64_t *sig_addr, int cmp, uint64_t cmp_value))                  \
    E(void, shmem_wait_until, (long *ivar, int cmp, long cmp_value))                                         \
    E(void, shmem_wait, (long *ivar, long cmp_value))

#define VIADUCT_SHMEM_SYNC_ENTRIES(E)                                                                        \
    E(void, shmem_barrier_all, (void))                                                                       \
    E(void, shmem_sync_all, (void))                                                                          \
    E(int, shmem_team_sync, (shmem_team_t team))                                                             \
    E(void, shmem_barrier, (int PE_start, int logPE_stride, int PE_size, long *pSync))                       \
    E(void, shmem_sync, (int PE_start, int logPE_stride, int PE_size, long *pSync))                          \
    E(int, shmem_broadcastmem, (shmem_team_t team, void *dest, const void *source, size_t nelems,            \
                                int PE_root))                                                                \
    E(int, shmem_collectmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))             \
    E(int, shmem_fcollectmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))            \
    E(int, shmem_alltoallmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))            \
    E(int, shmem_alltoallsmem, (shmem_team_t team, void *dest, const void *source, ptrdiff_t dst,            \
                                ptrdiff_t sst, size_t nelems))                                               \
    E(void, shmem_set_lock, (long *lock))                                                                    \
    E(void, shmem_clear_lock, (long *lock))                                                                  \
    E(int, shmem_test_lock, (long *lock))

/* clang-format on */

#endif
