/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/path.h"

#include <stddef.h>

#include "shmem/peer.h"

static const char *const region_names[VIA_REGIONS] = {"symmetric heap", "program's data"};

/* --- where an address lies -------------------------------------------------------------------- */

bool via_path_locate(const void *address, size_t bytes, enum via_region *ret_region,
                     uint64_t *ret_off)
{
    for (int region = 0; region < VIA_REGIONS; region++) {
        const struct via_region_mine *mine = &via_world.region[region];
        uintptr_t off = (uintptr_t)address - (uintptr_t)mine->base;
        if (off < mine->bytes && bytes <= mine->bytes - off) {
            *ret_region = (enum via_region)region;
            *ret_off = off;
            return true;
        }
    }
    return false;
}

static void locate(const char *call, const void *address, size_t bytes, int pe,
                   enum via_region *ret_region, uint64_t *ret_off)
{
    via_require_initialized(call);
    if ((unsigned)pe >= (unsigned)via_hot.n_pes)
        via_fatal("%s: PE %d: there are PEs 0 to %d", call, pe, via_hot.n_pes - 1);
    if (!via_path_locate(address, bytes, ret_region, ret_off))
        via_fatal("%s to PE %d: %zu bytes at %p are neither in the symmetric heap nor in the "
                  "program's global and static variables",
                  call, pe, bytes, address);
}

void via_path_check(const char *call, const void *address, size_t bytes, int pe)
{
    enum via_region region;
    uint64_t off;

    locate(call, address, bytes, pe, &region, &off);
}

/* --- PEs of other hosts ----------------------------------------------------------------------- */

static void fatal_remote(const char *call, int pe, size_t bytes, int result)
{
    /* via_error_text of the client library names host and attempt. */
    via_fatal_cut_off("%s of %zu bytes, PE %d on host %u: %s (%s)", call, bytes, pe,
                      via_world.peers[pe].host, via_error_text(), strerror(-result));
}

/* Opens a direct connection from this process to the PE, if that is possible; all later operations
 * then use the connection. */
static int dial(struct via_remote *remote, enum via_region region, int pe)
{
    struct via_tcp_card card = {0};
    uint64_t heap =
        atomic_load_explicit(&via_world.job->pes[pe].handle[VIA_REGION_HEAP], memory_order_relaxed);
    struct via_remote *cards = remote;
    int result = 0;

    if (via_internal()->card.magic == 0)
        return 0;
    if (region != VIA_REGION_HEAP)
        result = via_remote_open(via_world.attach, via_world.peers[pe].host, heap,
                                 VIA_INTERNAL_BYTES, &cards);
    if (result == 0)
        result = via_remote_get(cards, offsetof(struct via_internal, card), &card, sizeof(card));
    if (cards != remote)
        via_remote_close(cards);
    if (result < 0)
        return result;
    result = via_tcp_dial(remote, &card);
    if (result < 0)
        via_debug("PE %d is reached by frames: direct connection: %s", pe, strerror(-result));
    return 0;
}

static struct via_remote *open_remote(const char *call, enum via_region region, int pe)
{
    struct via_peer *peer = &via_world.peers[pe];
    struct via_job_pe *entry = &via_world.job->pes[pe];
    /* Written before the gate of shmem_init. */
    uint64_t handle = atomic_load_explicit(&entry->handle[region], memory_order_relaxed);
    struct via_remote *remote;
    int result;

    if (handle == 0 || !via_world.attach || (region == VIA_REGION_DATA && !peer->same_program))
        via_fatal("%s: the %s of PE %d can not be reached from here", call, region_names[region],
                  pe);
    pthread_mutex_lock(&via_world.lock);
    remote = atomic_load_explicit(&peer->remote[region], memory_order_relaxed);
    if (!remote) {
        result = via_remote_open(via_world.attach, peer->host, handle,
                                 via_world.region[region].bytes, &remote);
        if (result == 0)
            result = dial(remote, region, pe);
        if (result < 0)
            fatal_remote(call, pe, via_world.region[region].bytes, result);
        atomic_store_explicit(&peer->remote[region], remote, memory_order_release);
    }
    pthread_mutex_unlock(&via_world.lock);
    return remote;
}

static struct via_remote *remote_of(const char *call, enum via_region region, int pe)
{
    /* Pairs with the release in open_remote. */
    struct via_remote *remote =
        atomic_load_explicit(&via_world.peers[pe].remote[region], memory_order_acquire);

    return via_likely(remote) ? remote : open_remote(call, region, pe);
}

/* --- statistics ------------------------------------------------------------------------------- */

static void count(enum via_way way, size_t bytes)
{
    if (!via_world.statistics)
        return;
    atomic_fetch_add_explicit(&via_world.ways[way].calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&via_world.ways[way].bytes, bytes, memory_order_relaxed);
}

/*
 * Called after the host has accepted the operation, never before: otherwise a concurrent quiet of
 * another thread would assume that it has waited for the operation. Release: pairs with the acquire
 * in via_path_quiet.
 */
static void mark_frames(void)
{
    /* With a single thread, any quiet that must cover this operation comes later. */
    if (!via_world.concurrent && via_has_frames())
        return;
    atomic_fetch_add_explicit(&via_world.frames_issued, 1, memory_order_release);
}

/* --- transfers -------------------------------------------------------------------------------- */

/*
 * The object of a PE of another host in the common case: the PE was reached before, and no
 * statistics are kept (they set via_hot.bytes to 0). NULL: take the slow path.
 */
static inline struct via_remote *reached_remote(const void *address, size_t bytes, int pe,
                                                uint64_t *ret_off)
{
    for (int region = 0; region < VIA_REGIONS; region++) {
        uintptr_t off = (uintptr_t)address - via_hot.base[region];
        /* As in via_direct. */
        size_t hot = atomic_load_explicit(&via_hot.bytes[region], memory_order_acquire);
        if (off >= hot || bytes > hot - off || (unsigned)pe >= (unsigned)via_hot.n_pes)
            continue;
        /* Pairs with the release in open_remote. */
        *ret_off = off;
        return atomic_load_explicit(&via_world.peers[pe].remote[region], memory_order_acquire);
    }
    return NULL;
}

/* The client library also finds the window, if there is one by now. */
static void put_by_frames(const char *call, struct via_remote *remote, uint64_t off,
                          const void *source, size_t bytes, int pe, bool counted)
{
    int result = via_remote_put(remote, off, source, bytes, counted ? 0 : VIA_CLIENT_PUT_UNCOUNTED);

    if (counted)
        mark_frames();
    if (result < 0)
        fatal_remote(call, pe, bytes, result);
}

static __attribute__((noinline)) void put_slowly(const char *call, void *dest, const void *source,
                                                 size_t bytes, int pe, bool counted)
{
    enum via_region region;
    uint64_t off;

    if (bytes == 0)
        return;
    locate(call, dest, bytes, pe, &region, &off);
    char *base = via_peer_base(region, pe);
    if (base) {
        count(VIA_WAY_DIRECT, bytes);
        via_copy(base + off, source, bytes);
        return;
    }
    struct via_remote *remote = remote_of(call, region, pe);
    base = via_remote_direct(remote);
    if (base) {
        count(VIA_WAY_WINDOW, bytes);
        via_copy(base + off, source, bytes);
        return;
    }
    count(VIA_WAY_FRAMES, bytes);
    put_by_frames(call, remote, off, source, bytes, pe, counted);
}

static inline void put(const char *call, void *dest, const void *source, size_t bytes, int pe,
                       bool counted)
{
    uint64_t off;
    struct via_remote *remote = reached_remote(dest, bytes, pe, &off);
    char *window = remote ? via_remote_direct(remote) : NULL;

    if (window && bytes == sizeof(uint64_t))
        via_copy_once(window + off, source, sizeof(uint64_t));
    else if (window)
        via_copy(window + off, source, bytes);
    else if (remote && bytes != 0)
        put_by_frames(call, remote, off, source, bytes, pe, counted);
    else
        put_slowly(call, dest, source, bytes, pe, counted);
}

void via_path_put(const char *call, void *dest, const void *source, size_t bytes, int pe)
{
    put(call, dest, source, bytes, pe, true);
}

void via_path_put_word(_Atomic uint64_t *dest, uint64_t value, int pe)
{
    put("synchronization", dest, &value, sizeof(value), pe, false);
}

static void get(const char *call, void *dest, const void *source, size_t bytes, int pe,
                bool blocking)
{
    enum via_region region;
    uint64_t off;
    int result;

    if (bytes == 0)
        return;
    locate(call, source, bytes, pe, &region, &off);
    const char *base = via_peer_base(region, pe);
    if (base) {
        count(VIA_WAY_DIRECT, bytes);
        via_copy_foreign(dest, base + off, bytes);
        return;
    }
    struct via_remote *remote = remote_of(call, region, pe);
    base = via_remote_direct(remote);
    if (base) {
        count(VIA_WAY_WINDOW, bytes);
        via_copy_foreign(dest, base + off, bytes);
        return;
    }
    count(VIA_WAY_FRAMES, bytes);
    if (blocking) {
        result = via_remote_get(remote, off, dest, bytes);
    } else {
        result = via_remote_get_start(remote, off, dest, bytes);
        mark_frames();
    }
    if (result < 0)
        fatal_remote(call, pe, bytes, result);
}

void via_path_put_strided(const char *call, void *dest, ptrdiff_t dest_step, const void *source,
                          ptrdiff_t source_step, size_t block_bytes, size_t blocks, int pe)
{
    enum via_region region;
    uint64_t off;

    locate(call, dest, block_bytes, pe, &region, &off);
    struct via_remote *remote = remote_of(call, region, pe);
    count(VIA_WAY_FRAMES, block_bytes * blocks);
    int result =
        via_remote_put_strided(remote, off, dest_step, source, source_step, block_bytes, blocks);
    mark_frames();
    if (result < 0)
        fatal_remote(call, pe, block_bytes * blocks, result);
}

char *via_path_span(const char *call, const void *address, size_t bytes, size_t payload, int pe)
{
    enum via_region region;
    uint64_t off;

    locate(call, address, bytes, pe, &region, &off);
    char *base = via_peer_base(region, pe);
    enum via_way way = base ? VIA_WAY_DIRECT : VIA_WAY_WINDOW;
    if (!base)
        base = via_remote_direct(remote_of(call, region, pe));
    if (!base)
        return NULL;
    count(way, payload);
    return base + off;
}

void via_path_get(const char *call, void *dest, const void *source, size_t bytes, int pe)
{
    uint64_t off;
    struct via_remote *remote = reached_remote(source, bytes, pe, &off);
    const char *window = remote ? via_remote_direct(remote) : NULL;

    if (window)
        via_copy_foreign(dest, window + off, bytes);
    else
        get(call, dest, source, bytes, pe, true);
}

void via_path_get_nbi(const char *call, void *dest, const void *source, size_t bytes, int pe)
{
    get(call, dest, source, bytes, pe, false);
}

/* --- atomics ---------------------------------------------------------------------------------- */

#define VIA_DEFINE_UPDATE(BITS)                                                                  \
    static uint64_t update##BITS(void *address, enum viaduct_atomic operation, uint64_t operand, \
                                 uint64_t compare)                                               \
    {                                                                                            \
        uint##BITS##_t *word = address;                                                          \
        uint##BITS##_t value = (uint##BITS##_t)operand;                                          \
        uint##BITS##_t expected = (uint##BITS##_t)compare;                                       \
                                                                                                 \
        switch (operation) {                                                                     \
        case VIADUCT_ATOMIC_ADD:                                                                 \
            return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);                            \
        case VIADUCT_ATOMIC_AND:                                                                 \
            return __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);                            \
        case VIADUCT_ATOMIC_OR:                                                                  \
            return __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);                             \
        case VIADUCT_ATOMIC_XOR:                                                                 \
            return __atomic_fetch_xor(word, value, __ATOMIC_SEQ_CST);                            \
        case VIADUCT_ATOMIC_SWAP:                                                                \
            return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);                           \
        case VIADUCT_ATOMIC_COMPARE_SWAP:                                                        \
            __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST,         \
                                        __ATOMIC_SEQ_CST);                                       \
            return expected;                                                                     \
        case VIADUCT_ATOMIC_FETCH:                                                               \
            break;                                                                               \
        }                                                                                        \
        return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                          \
    }

VIA_DEFINE_UPDATE(32)
VIA_DEFINE_UPDATE(64)

/* `old` may be NULL. */
static inline void update(void *word, unsigned width, enum viaduct_atomic operation,
                          uint64_t operand, uint64_t compare, void *old)
{
    if (width == 4) {
        uint32_t value = update32(word, operation, operand, compare);
        if (old)
            memcpy(old, &value, sizeof(value));
    } else {
        uint64_t value = update64(word, operation, operand, compare);
        if (old)
            memcpy(old, &value, sizeof(value));
    }
}

/*
 * All atomics on a word are executed by one machine, the owner's: its PEs use the CPU's atomics,
 * and its daemon uses them for PEs of other hosts. Memory of another host is mapped here only if it
 * is coherent with this host's memory, which no bridge provides; in that case the CPU's atomics are
 * correct as well.
 */
static char *atomic_base(const char *call, enum via_region region, unsigned width, int pe,
                         struct via_remote **ret_remote)
{
    char *base = via_peer_base(region, pe);

    if (base) {
        count(VIA_WAY_DIRECT, width);
        return base;
    }
    *ret_remote = remote_of(call, region, pe);
    base = via_remote_direct(*ret_remote);
    count(base ? VIA_WAY_WINDOW : VIA_WAY_FRAMES, width);
    return base;
}

uint64_t via_path_atomic(const char *call, void *dest, unsigned width,
                         enum viaduct_atomic operation, uint64_t operand, uint64_t compare, int pe)
{
    struct via_remote *remote;
    enum via_region region;
    uint64_t off, old = 0;

    locate(call, dest, width, pe, &region, &off);
    char *base = atomic_base(call, region, width, pe, &remote);
    if (base) {
        update(base + off, width, operation, operand, compare, &old);
        return old;
    }
    int result = via_remote_atomic(remote, off, width, operation, operand, compare, &old);
    if (result < 0)
        fatal_remote(call, pe, width, result);
    return old;
}

/* fetch: NULL = discard the old value. */
static void start_atomic(const char *call, void *fetch, void *dest, unsigned width,
                         enum viaduct_atomic operation, uint64_t operand, uint64_t compare, int pe)
{
    struct via_remote *remote;
    enum via_region region;
    uint64_t off;

    locate(call, dest, width, pe, &region, &off);
    char *base = atomic_base(call, region, width, pe, &remote);
    if (base) {
        update(base + off, width, operation, operand, compare, fetch);
        return;
    }
    int result = via_remote_atomic_start(remote, off, width, operation, operand, compare, fetch);
    mark_frames();
    if (result < 0)
        fatal_remote(call, pe, width, result);
}

void via_path_update(const char *call, void *dest, unsigned width, enum viaduct_atomic operation,
                     uint64_t operand, int pe)
{
    start_atomic(call, NULL, dest, width, operation, operand, 0, pe);
}

void via_path_fetch_nbi(const char *call, void *fetch, void *dest, unsigned width,
                        enum viaduct_atomic operation, uint64_t operand, uint64_t compare, int pe)
{
    start_atomic(call, fetch, dest, width, operation, operand, compare, pe);
}

/* --- signals ---------------------------------------------------------------------------------- */

/* Called after the put. If the signal takes the same path, the path keeps the order; an atomic by
 * frames also stays behind the earlier frames. */
static void signal_alone(const char *call, uint64_t *signal, uint64_t value, unsigned operation,
                         int pe)
{
    if (operation == VIADUCT_SIGNAL_ADD)
        via_path_update(call, signal, sizeof(*signal), VIADUCT_ATOMIC_ADD, value, pe);
    else
        via_path_put(call, signal, &value, sizeof(value), pe);
}

void via_path_put_signal(const char *call, void *dest, const void *source, size_t bytes,
                         uint64_t *signal, uint64_t value, unsigned operation, int pe)
{
    enum via_region region, signal_region;
    uint64_t off, signal_off;

    locate(call, signal, sizeof(*signal), pe, &signal_region, &signal_off);
    if (bytes > 0) {
        locate(call, dest, bytes, pe, &region, &off);
        bool frames = !via_peer_base(region, pe) && region == signal_region;
        struct via_remote *remote = frames ? remote_of(call, region, pe) : NULL;
        if (remote && !via_remote_direct(remote)) {
            count(VIA_WAY_FRAMES, bytes);
            int result =
                via_remote_put_signal(remote, off, source, bytes, signal_off, value, operation);
            mark_frames();
            if (result < 0)
                fatal_remote(call, pe, bytes, result);
            return;
        }
        via_path_put(call, dest, source, bytes, pe);
    }
    signal_alone(call, signal, value, operation, pe);
}

/* --- completion and pointers ------------------------------------------------------------------ */

/*
 * A quiet covers only operations issued before its wait. Several threads may wait at the same time,
 * and each publishes its count only after its own wait: a thread that finds the counts equal has
 * nothing under way.
 */
void via_path_quiet(void)
{
    uint64_t issued = atomic_load_explicit(&via_world.frames_issued, memory_order_acquire);
    uint64_t quiet = atomic_load_explicit(&via_world.frames_quiet, memory_order_relaxed);
    int result;

    if (!via_world.attach)
        return;
    result = via_attach_quiet(via_world.attach);
    if (result < 0)
        via_fatal_cut_off("quiet: %s (%s)", via_error_text(), strerror(-result));
    /* Release: pairs with the acquire in via_has_frames. */
    while (quiet < issued &&
           !atomic_compare_exchange_strong_explicit(&via_world.frames_quiet, &quiet, issued,
                                                    memory_order_release, memory_order_relaxed))
        ;
}

void *via_path_pointer(const void *address, int pe)
{
    enum via_region region;
    uint64_t off;

    if ((unsigned)pe >= (unsigned)via_hot.n_pes || !via_path_locate(address, 1, &region, &off))
        return NULL;
    char *base = via_peer_base(region, pe);
    return base ? base + off : NULL;
}
