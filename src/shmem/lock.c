/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.13: distributed locks. */
#include "base/mutant.h"
#include "shmem/api.h"
#include "shmem/path.h"

/*
 * A ticket lock, which serves PEs in the order of their requests: two 32-bit numbers, the next
 * ticket to draw (upper half) and the ticket being served (lower half). All PEs use the copy of one
 * PE, the lock's home PE. It is computed from the lock's address, so that not all locks burden PE
 * 0.
 */
#define TICKET_INDEX 1
#define SERVED_INDEX 0

struct place {
    int home;
    uint32_t number;  /* number of the lock in traces, not 0 */
    uint32_t *halves; /* the home PE's copy, NULL: by frames */
};

/* The place of the lock in symmetric memory. Passed by value, in registers. */
struct spot {
    uint64_t off;
    enum via_region region;
};

static __attribute__((noinline)) struct spot find_spot(const char *call, const long *lock)
{
    enum via_region region;
    uint64_t off;

    via_require_initialized(call);
    if (!via_path_locate(lock, sizeof(*lock), &region, &off))
        via_fatal("%s: %p is not the address of a symmetric object", call, (const void *)lock);
    return (struct spot){.off = off, .region = region};
}

static inline bool is_in(enum via_region region, const long *lock, struct spot *ret_spot)
{
    /* Costs nothing on x86, where every load is an acquire; pairs with the release in grow.c. */
    size_t bytes = atomic_load_explicit(&via_hot.bytes[region], memory_order_acquire);
    uintptr_t off = (uintptr_t)lock - via_hot.base[region];

    *ret_spot = (struct spot){.off = off, .region = region};
    return off < bytes && via_likely(bytes - off >= sizeof(*lock));
}

/* Computed once per call: the lock's address determines its home PE, and the home PE its copy. */
static inline __attribute__((always_inline)) struct place place_of(const char *call,
                                                                   const long *lock)
{
    struct spot spot;
    bool is_fast = is_in(VIA_REGION_HEAP, lock, &spot) || is_in(VIA_REGION_DATA, lock, &spot);

    if (via_unlikely(!is_fast))
        spot = find_spot(call, lock);
    /* Multiplicative hashing, scaled by the upper half of a product, which is cheaper than a
     * remainder. */
    uint32_t hash = (uint32_t)(spot.off / VIA_CACHELINE) * UINT32_C(0x9e3779b1);
    int home = (int)(((uint64_t)hash * (uint32_t)via_hot.n_pes) >> 32);
    return (struct place){
        .home = home,
        .number = (uint32_t)(1 + (uint64_t)spot.region + spot.off / sizeof(*lock) * VIA_REGIONS),
        .halves = is_fast ? via_direct_in(spot.region, spot.off, home) : NULL,
    };
}

static inline uint32_t draw(const char *call, long *lock, const struct place *place)
{
    uint32_t *half = (uint32_t *)(void *)lock + TICKET_INDEX;

    if (via_likely(place->halves))
        return __atomic_fetch_add(place->halves + TICKET_INDEX, 1, __ATOMIC_SEQ_CST);
    return (uint32_t)via_path_atomic(call, half, 4, VIADUCT_ATOMIC_ADD, 1, 0, place->home);
}

static inline uint32_t served(const char *call, long *lock, const struct place *place)
{
    uint32_t *half = (uint32_t *)(void *)lock + SERVED_INDEX;

    if (via_likely(place->halves))
        return __atomic_load_n(place->halves + SERVED_INDEX, __ATOMIC_ACQUIRE);
    return (uint32_t)via_path_atomic(call, half, 4, VIADUCT_ATOMIC_FETCH, 0, 0, place->home);
}

/*
 * Only the holder changes this half, so no locked instruction is needed. Release: orders the
 * holder's earlier stores; pairs with the acquire in served().
 */
static inline void serve_next(const char *call, long *lock, const struct place *place)
{
    uint32_t *half = (uint32_t *)(void *)lock + SERVED_INDEX;

    if (via_likely(place->halves)) {
        uint32_t *direct = place->halves + SERVED_INDEX;
        __atomic_store_n(direct, __atomic_load_n(direct, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
    } else {
        via_path_atomic(call, half, 4, VIADUCT_ATOMIC_ADD, 1, 0, place->home);
    }
}

static __attribute__((noinline)) void wait_for_turn(const char *call, long *lock,
                                                    struct place place, uint32_t ticket)
{
    struct via_wait wait = VIA_WAIT_INIT;

    for (uint32_t now; (now = served(call, lock, &place)) != ticket;)
        via_trace_step(&wait, lock, sizeof(*lock), VIA_TRACE_LOCK,
                       via_trace_lock_note(place.number, now));
    via_wait_done(&wait);
}

void pshmem_set_lock(long *lock)
{
    struct place place = place_of(VIA_CALL, lock);
    uint32_t ticket = draw(VIA_CALL, lock, &place);

    if (via_unlikely(served(VIA_CALL, lock, &place) != ticket))
        wait_for_turn(VIA_CALL, lock, place, ticket);
    via_trace_lock_taken(place.number, ticket);
}

/* Returns 0 if the lock was free and is now held: both numbers were equal, and one more ticket is
 * drawn. */
int pshmem_test_lock(long *lock)
{
    struct place place = place_of(VIA_CALL, lock);
    int home = place.home;
    uint64_t now = (uint64_t)via_path_atomic(VIA_CALL, lock, 8, VIADUCT_ATOMIC_FETCH, 0, 0, home);

    if ((uint32_t)now != (uint32_t)(now >> 32))
        return 1;
    uint64_t mine = now + (UINT64_C(1) << 32);
    if (via_path_atomic(VIA_CALL, lock, 8, VIADUCT_ATOMIC_COMPARE_SWAP, mine, now, home) != now)
        return 1;
    via_trace_lock_taken(place.number, (uint32_t)now);
    return 0;
}

void pshmem_clear_lock(long *lock)
{
    if (via_unlikely(via_has_frames()) && !VIA_MUTANT(SHMEM_UNLOCK_EARLY))
        via_path_quiet();
    struct place place = place_of(VIA_CALL, lock);
    via_trace_lock_left(place.number);
    serve_next(VIA_CALL, lock, &place);
}

VIA_ALIAS(void, shmem_set_lock, (long *lock))
VIA_ALIAS(int, shmem_test_lock, (long *lock))
VIA_ALIAS(void, shmem_clear_lock, (long *lock))
