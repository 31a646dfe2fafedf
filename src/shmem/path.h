/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PATH_H
#define VIA_SHMEM_PATH_H

#include <string.h>

#include "shmem/copy.h"
#include "shmem/world.h"

/*
 * Moving bytes to and from a PE. The inline functions take the fast path if it is open; the others
 * check the address and the PE, and choose a path: memory of this host, a neighbour's window, or
 * frames. `call` is the name in error messages.
 *
 * Order: stores to mapped memory stay in order on x86, and via_copy fences those that do not, so
 * shmem_fence is a release fence: it stops the compiler there, and is DMB ISH on aarch64. Between
 * window and frames the client library keeps the order of one PE's puts to one host.
 */
void via_path_put(const char *call, void *dest, const void *source, size_t bytes, int pe);
void via_path_put_word(_Atomic uint64_t *dest, uint64_t value, int pe);
void via_path_get(const char *call, void *dest, const void *source, size_t bytes, int pe);
/* dest is filled when via_path_quiet has returned, or earlier. */
void via_path_get_nbi(const char *call, void *dest, const void *source, size_t bytes, int pe);
/* An update that does not return the old value; completes like a put. Not for compare-and-swap and
 * fetch. */
void via_path_update(const char *call, void *dest, unsigned width, enum viaduct_atomic operation,
                     uint64_t operand, int pe);
/* Like the above; the old value is in the `width` bytes at fetch when via_path_quiet has returned,
 * or earlier. */
void via_path_fetch_nbi(const char *call, void *fetch, void *dest, unsigned width,
                        enum viaduct_atomic operation, uint64_t operand, uint64_t compare, int pe);
/* Blocks outside mapped memory (via_path_span); steps in bytes. */
void via_path_put_strided(const char *call, void *dest, ptrdiff_t dest_step, const void *source,
                          ptrdiff_t source_step, size_t block_bytes, size_t blocks, int pe);
/*
 * The mapping of a strided object: its pieces lie within `bytes` bytes from address on, `payload`
 * bytes in all. Returns their address in this process, or NULL if the path is by frames, one piece
 * at a time.
 */
char *via_path_span(const char *call, const void *address, size_t bytes, size_t payload, int pe);
/* width: 4 or 8. Returns the old value. */
uint64_t via_path_atomic(const char *call, void *dest, unsigned width,
                         enum viaduct_atomic operation, uint64_t operand, uint64_t compare, int pe);
/* operation: VIADUCT_SIGNAL_SET or _ADD. */
void via_path_put_signal(const char *call, void *dest, const void *source, size_t bytes,
                         uint64_t *signal, uint64_t value, unsigned operation, int pe);
/* Waits for all operations under way; the caller adds the fence for its own stores. */
void via_path_quiet(void);
/* The address of an object of pe for loads and stores, or NULL. */
void *via_path_pointer(const void *address, int pe);
/* True if it is the address of a symmetric object; returns the region, and the offset in it. */
bool via_path_locate(const void *address, size_t bytes, enum via_region *ret_region,
                     uint64_t *ret_off);
/* Checks address and PE, and ends the program if one is wrong; `call` is for the message. */
void via_path_check(const char *call, const void *address, size_t bytes, int pe);

static inline void via_put(const char *call, void *dest, const void *source, size_t bytes, int pe)
{
    void *direct = via_direct(dest, pe);

    if (via_likely(direct))
        via_copy(direct, source, bytes);
    else
        via_path_put(call, dest, source, bytes, pe);
}

static inline void via_get(const char *call, void *dest, const void *source, size_t bytes, int pe)
{
    const void *direct = via_direct(source, pe);

    /* Gets into memory of the caller, which waits for the call to return, so bytes may be written
     * more than once. */
    if (via_likely(direct))
        via_copy_foreign(dest, direct, bytes);
    else
        via_path_get(call, dest, source, bytes, pe);
}

static inline void via_get_nbi(const char *call, void *dest, const void *source, size_t bytes,
                               int pe)
{
    const void *direct = via_direct(source, pe);

    if (via_likely(direct))
        via_copy_foreign(dest, direct, bytes);
    else
        via_path_get_nbi(call, dest, source, bytes, pe);
}

/* Stores one word of the library's own symmetric memory, for synchronization. The waiting member
 * responds later in the algorithm, so only via_path_quiet() of a PE that leaves waits for this
 * store. */
static inline void via_put_word(_Atomic uint64_t *dest, uint64_t value, int pe)
{
    _Atomic uint64_t *direct = via_direct(dest, pe);

    /* Pairs with the acquire of the PE that waits for the word. */
    if (via_likely(direct))
        atomic_store_explicit(direct, value, memory_order_release);
    else
        via_path_put_word(dest, value, pe);
}

/* Orders this PE's accesses to each other PE; each path keeps their order. */
static inline void via_fence(void)
{
    atomic_thread_fence(memory_order_release);
}

static inline void via_quiet(void)
{
    if (via_unlikely(via_has_frames()))
        via_path_quiet();
    /* Orders stores through shmem_ptr pointers, too. */
    atomic_thread_fence(memory_order_seq_cst);
}

#endif
