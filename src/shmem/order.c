/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.12: memory ordering; 9.8: signals without data; 9.10: barriers of all.
 */
#include "base/mutant.h"
#include "shmem/api.h"
#include "shmem/barrier.h"
#include "shmem/path.h"

void pshmem_fence(void)
{
    via_fence();
}

void pshmem_ctx_fence(shmem_ctx_t ctx)
{
    if (ctx != SHMEM_CTX_INVALID)
        via_fence();
}

void pshmem_quiet(void)
{
    via_quiet();
}

void pshmem_ctx_quiet(shmem_ctx_t ctx)
{
    if (ctx != SHMEM_CTX_INVALID)
        via_quiet();
}

/* Completes the operations to all PEs, more than the caller requested, which is allowed. */
void pshmem_pe_quiet(const int *target_pes, size_t npes)
{
    (void)target_pes;
    if (npes > 0)
        via_quiet();
}

void pshmem_ctx_pe_quiet(shmem_ctx_t ctx, const int *target_pes, size_t npes)
{
    (void)target_pes;
    if (ctx != SHMEM_CTX_INVALID && npes > 0)
        via_quiet();
}

/* clang-format off */
VIA_DEFINE_PAIR(void, signal_set, (uint64_t *sig_addr, uint64_t signal, int pe),
    uint64_t *direct = via_direct(sig_addr, pe);
    if (via_likely(direct))
        __atomic_store_n(direct, signal, __ATOMIC_RELEASE);
    else
        via_path_put_signal(VIA_CALL, NULL, NULL, 0, sig_addr, signal, VIADUCT_SIGNAL_SET, pe);)

VIA_DEFINE_PAIR(void, signal_add, (uint64_t *sig_addr, uint64_t signal, int pe),
    uint64_t *direct = via_direct(sig_addr, pe);
    if (via_likely(direct))
        __atomic_fetch_add(direct, signal, __ATOMIC_RELEASE);
    else
        via_path_put_signal(VIA_CALL, NULL, NULL, 0, sig_addr, signal, VIADUCT_SIGNAL_ADD, pe);)
/* clang-format on */

void pshmem_barrier_all(void)
{
    via_require_initialized(VIA_CALL);
    if (!VIA_MUTANT(SHMEM_NO_QUIET))
        via_quiet();
    via_barrier_world();
}

/* After the call earlier local stores are visible; it does not wait for puts under way. */
void pshmem_sync_all(void)
{
    via_require_initialized(VIA_CALL);
    via_barrier_world();
}

VIA_ALIAS(void, shmem_fence, (void))
VIA_ALIAS(void, shmem_ctx_fence, (shmem_ctx_t ctx))
VIA_ALIAS(void, shmem_quiet, (void))
VIA_ALIAS(void, shmem_ctx_quiet, (shmem_ctx_t ctx))
VIA_ALIAS(void, shmem_barrier_all, (void))
VIA_ALIAS(void, shmem_sync_all, (void))
VIADUCT_SHMEM_PAIR(VIA_ALIAS, void, pe_quiet, (const int *target_pes, size_t npes))
VIADUCT_SHMEM_PAIR(VIA_ALIAS, void, signal_set, (uint64_t * sig_addr, uint64_t signal, int pe))
VIADUCT_SHMEM_PAIR(VIA_ALIAS, void, signal_add, (uint64_t * sig_addr, uint64_t signal, int pe))
