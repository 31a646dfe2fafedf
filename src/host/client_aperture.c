/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Stores into the slices of a process (attach_wire.h lists the words that permit it).
 *
 * The library reserves the addresses of the whole segment, and maps piece i of the segment at i *
 * slice_bytes, whichever slice shows the piece at the time. So a late store, after another slice
 * has taken the piece over, still goes to the same bytes of the same segment.
 */
#include "host/client_aperture.h"

#include <errno.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/combine.h"
#include "base/copy.h"
#include "base/mutant.h"
#include "host/client_slice.h"

/* After this number of consecutive puts in frames, behind earlier frames, although they could be
 * stored, the next put waits for those frames. Later puts can then be stored. */
#define DETOURS_MAX 32u
#define DRAIN_NS_MAX (2 * VIA_MSEC_NS)

struct burst {
    struct via_attach *attach;
    struct via_client_aperture *aperture;
    const struct via_client_reader *reader; /* NULL: only a read across the link proves arrival */
    /* imitated write-combining buffers; NULL: the CPU's own */
    struct via_combine *combine;
    unsigned char *last; /* the word that was stored last */
    bool lost;           /* some stores were discarded */
    unsigned count;
    uint64_t grants[VIA_CLIENT_BURST_SLICES_MAX]; /* of the slices that were entered */
};

/* --- entering and leaving --------------------------------------------------------------------- */

static bool is_open(const struct via_attach *attach, uint64_t grant)
{
    /* Sequentially consistent: this load must follow the addition to the busy word. Also acquire,
     * which pairs with the host's store: the host maps the piece into the slice before it stores
     * the word. */
    return atomic_load_explicit(via_client_grant_word(attach, grant), memory_order_seq_cst) ==
           via_client_grant_life(grant);
}

static void leave(const struct burst *burst)
{
    for (unsigned i = 0; i < burst->count; i++) {
        /* Release: a host that loads a busy word without busy threads finds all their stores
         * made. */
        atomic_fetch_sub_explicit(via_client_grant_busy(burst->attach, burst->grants[i]),
                                  VIA_SLICE_BUSY_LEAVE, memory_order_release);
    }
}

static bool has_entered(const struct burst *burst, uint64_t grant)
{
    for (unsigned i = 0; i < burst->count; i++) {
        if (burst->grants[i] == grant) {
            return true;
        }
    }
    return false;
}

static bool enter(struct burst *burst, uint64_t piece)
{
    /* Pairs with the release in via_client_slice_take(): the piece is mapped before the grant is
     * stored. */
    uint64_t grant = atomic_load_explicit(&burst->aperture->grants[piece], memory_order_acquire);
    if (grant == 0) {
        return false;
    }
    if (has_entered(burst, grant)) {
        return true;
    }
    if (burst->count == VIA_CLIENT_BURST_SLICES_MAX) {
        return false;
    }
    atomic_fetch_add_explicit(via_client_grant_busy(burst->attach, grant), VIA_SLICE_BUSY_ENTER,
                              memory_order_seq_cst);
    burst->grants[burst->count++] = grant;
    return is_open(burst->attach, grant);
}

static bool enter_all(struct burst *burst, const struct via_client_part *parts, unsigned count)
{
    unsigned shift = burst->aperture->shift;
    for (unsigned i = 0; i < count; i++) {
        if (parts[i].bytes == 0) {
            continue;
        }
        uint64_t last = (parts[i].off + parts[i].bytes - 1) >> shift;
        for (uint64_t piece = parts[i].off >> shift; piece <= last; piece++) {
            if (!enter(burst, piece)) {
                return false;
            }
        }
    }
    return true;
}

/* --- storing ---------------------------------------------------------------------------------- */

static void store(struct burst *burst, uint64_t off, const void *src, size_t bytes)
{
    unsigned char *to = burst->aperture->base + off;
    if (burst->combine != NULL) {
        via_combine_store(burst->combine, to, src, bytes);
    } else {
        via_copy_once(to, src, bytes);
    }
}

static bool is_all_open(const struct burst *burst)
{
    for (unsigned i = 0; i < burst->count; i++) {
        if (!is_open(burst->attach, burst->grants[i])) {
            return false;
        }
    }
    return true;
}

/* Orders stores: the peer sees earlier stores before later ones. */
static void publish(struct burst *burst)
{
    if (burst->combine != NULL) {
        if (!is_all_open(burst)) {
            burst->lost = true;
            via_combine_drop(burst->combine);
        }
        via_combine_drain(burst->combine);
        return;
    }
#ifdef __SSE2__
    _mm_sfence(); /* without it write-combining buffers drain in any order */
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

#define LINE_BYTES 64u
#define WORD_BYTES 8u

/* Stores the last aligned word after all other bytes. Within a line stores arrive in ascending
 * order. */
static void store_last_word(struct burst *burst, const struct via_client_part *part)
{
    uint64_t end = part->off + part->bytes;
    uint64_t word_off = via_align_down(end, WORD_BYTES) - WORD_BYTES;
    bool one_line = part->off / LINE_BYTES == (end - 1) / LINE_BYTES && end % WORD_BYTES == 0;
    if (part->bytes < 2 * WORD_BYTES || word_off < part->off || one_line) {
        store(burst, part->off, part->src, part->bytes);
        return;
    }
    const unsigned char *src = part->src;
    size_t before = (size_t)(word_off - part->off);
    store(burst, part->off, src, before);
    store(burst, word_off + WORD_BYTES, src + before + WORD_BYTES,
          (size_t)(end - word_off - WORD_BYTES));
    publish(burst);
    store(burst, word_off, src + before, WORD_BYTES);
}

static void store_all(struct burst *burst, const struct via_client_part *parts, unsigned count,
                      unsigned flags)
{
    uint64_t last = 0;
    for (unsigned i = 0; i < count; i++) {
        if (parts[i].bytes == 0) {
            continue;
        }
        if (i + 1 == count && (flags & VIADUCT_PUT_LAST_WORD) != 0) {
            store_last_word(burst, &parts[i]);
        } else {
            store(burst, parts[i].off, parts[i].src, parts[i].bytes);
        }
        if (i + 1 != count) {
            publish(burst);
        }
        last = parts[i].off + parts[i].bytes - 1;
    }
    burst->last = burst->aperture->base + via_align_down(last, WORD_BYTES);
}

/* --- the fence -------------------------------------------------------------------------------- */

static void wait_ns(uint64_t ns)
{
    uint64_t end_ns = via_client_now_ns() + ns;
    while (via_client_now_ns() < end_ns) {
    }
}

/* A read across the link, which pushes all earlier posted writes ahead of it. */
static uint64_t read_across(const struct burst *burst, const unsigned char *from)
{
    uint64_t word = __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_ACQUIRE);
    if (burst->combine != NULL) {
        wait_ns(burst->aperture->read_ns);
    }
    return word;
}

/*
 * True if all stores have arrived. An answered read has pushed them. All-ones may be the result of
 * an unanswered read or the value in memory, so other words of the slice are read. If all of them
 * are all-ones, nothing is proven. An acknowledgement by the reader is a proof, too.
 */
static bool fence(struct burst *burst)
{
    publish(burst);
    const struct via_client_reader *reader = burst->reader;
    if (reader != NULL && reader->is_answered != NULL && reader->is_answered(reader->ctx)) {
        return true;
    }
    uint64_t slice_bytes = burst->aperture->slice_bytes;
    unsigned char *piece =
        burst->aperture->base +
        via_align_down((uint64_t)(burst->last - burst->aperture->base), slice_bytes);
    const unsigned char *const probes[] = {burst->last, piece, piece + slice_bytes / 4,
                                           piece + slice_bytes / 2};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(probes); i++) {
        if (via_client_aperture_has_segment(burst->aperture, probes[i]) &&
            read_across(burst, probes[i]) != UINT64_MAX) {
            return !burst->lost;
        }
    }
    return false;
}

static bool run(struct burst *burst, const struct via_client_part *parts, unsigned count,
                unsigned flags)
{
    bool arrived = enter_all(burst, parts, count);
    if (arrived) {
        store_all(burst, parts, count, flags);
        arrived = fence(burst);
    }
    leave(burst);
    return arrived;
}

/* Runs with imitated write-combining buffers. */
static bool run_imitating(struct burst *burst, const struct via_client_part *parts, unsigned count,
                          unsigned flags)
{
    struct via_combine combine;
    via_combine_init(
        &combine, atomic_fetch_add_explicit(&burst->attach->combine_seed, 1, memory_order_relaxed));
    burst->combine = &combine;
    bool arrived = run(burst, parts, count, flags);
    burst->combine = NULL;
    return arrived;
}

/* --- order towards frames --------------------------------------------------------------------- */

static uint32_t frames_before(const struct via_remote *remote)
{
    /* Pairs with the releases that decrement the count: at 0 all earlier frames have arrived. */
    return atomic_load_explicit(remote->alone ? &remote->ordered
                                              : &remote->attach->host_pending[remote->host],
                                memory_order_acquire);
}

static bool frames_have_arrived(struct via_attach *attach, void *ctx)
{
    (void)attach;
    return frames_before(ctx) == 0;
}

/* 0: all earlier puts by frames have arrived. -EAGAIN: they have not within DRAIN_NS_MAX. */
static int wait_for_frames(struct via_remote *remote)
{
    int rc =
        via_client_wait_remote(remote, frames_have_arrived, via_client_now_ns() + DRAIN_NS_MAX);
    return rc == -ETIMEDOUT ? -EAGAIN : rc;
}

/* 1: the put may be stored. 0: it must be sent in frames. -EAGAIN: try again later. Or another
 * negative errno. */
static int follow_frames(struct via_remote *remote, enum via_client_aperture_mode mode)
{
    if (via_likely(frames_before(remote) == 0) || VIA_MUTANT(CLIENT_OVERTAKE)) {
        atomic_store_explicit(&remote->detours, 0, memory_order_relaxed);
        return 1;
    }
    /* Concurrent threads may lose counts, which is harmless. */
    uint32_t detours = atomic_load_explicit(&remote->detours, memory_order_relaxed) + 1;
    atomic_store_explicit(&remote->detours, detours, memory_order_relaxed);
    if (detours < DETOURS_MAX) {
        return 0;
    }
    if (mode == VIA_CLIENT_APERTURE_WAITS) {
        int rc = wait_for_frames(remote);
        atomic_store_explicit(&remote->detours, 0, memory_order_relaxed);
        return rc == 0 ? 1 : rc == -EAGAIN ? 0 : rc;
    }
    uint64_t now_ns = via_client_now_ns();
    uint64_t since_ns = atomic_load_explicit(&remote->drain_ns, memory_order_relaxed);
    if (detours == DETOURS_MAX || since_ns == 0) {
        since_ns = now_ns;
        atomic_store_explicit(&remote->drain_ns, now_ns, memory_order_relaxed);
    }
    if (now_ns - since_ns < DRAIN_NS_MAX) {
        int rc = via_attach_poll(remote->attach);
        return rc < 0 ? rc : frames_before(remote) == 0 ? 1 : -EAGAIN;
    }
    atomic_store_explicit(&remote->detours, 0, memory_order_relaxed);
    return 0;
}

/* --- puts ------------------------------------------------------------------------------------- */

static bool is_long(const struct via_client_part *parts, unsigned count)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        bytes = via_min(bytes + via_min(parts[i].bytes, VIA_CLIENT_APERTURE_BYTES_MAX + 1),
                        VIA_CLIENT_APERTURE_BYTES_MAX + 1);
    }
    return bytes > VIA_CLIENT_APERTURE_BYTES_MAX;
}

int via_client_aperture_ready(struct via_remote *remote, const struct via_client_part *parts,
                              unsigned count, enum via_client_aperture_mode mode)
{
    struct via_attach *attach = remote->attach;
    if (via_unlikely((via_client_status(attach, remote->host) & VIA_STATUS_SLICES) == 0) ||
        atomic_load_explicit(&attach->dead, memory_order_relaxed)) {
        return 0;
    }
    if (is_long(parts, count)) {
        /* No thread waits until these frames have arrived, so direct stores may follow between
         * them. */
        atomic_store_explicit(&remote->detours, 0, memory_order_relaxed);
        return 0;
    }
    for (unsigned i = 0; i < count; i++) {
        int rc = via_client_slice_check(remote, parts[i].off, parts[i].bytes);
        if (rc <= 0) {
            return rc;
        }
    }
    return follow_frames(remote, mode);
}

bool via_client_aperture_store(struct via_remote *remote, const struct via_client_part *parts,
                               unsigned count, unsigned flags,
                               const struct via_client_reader *reader)
{
    struct burst burst = {
        .attach = remote->attach,
        .reader = reader,
        .aperture = atomic_load_explicit(&remote->aperture, memory_order_acquire),
    };
    return burst.aperture->imitates ? run_imitating(&burst, parts, count, flags)
                                    : run(&burst, parts, count, flags);
}

int via_client_aperture_put(struct via_remote *remote, const struct via_client_part *parts,
                            unsigned count, unsigned flags, enum via_client_aperture_mode mode)
{
    int rc = via_client_aperture_ready(remote, parts, count, mode);
    return rc == 1 ? via_client_aperture_store(remote, parts, count, flags, NULL) : rc;
}

int via_client_aperture_put_long(struct via_remote *remote, const struct via_client_part *part,
                                 unsigned flags, size_t *ret_done)
{
    size_t done = 0;
    int rc = 0;
    /* a long put is sent in frames as a whole, not stored in short pieces */
    bool is_whole = is_long(part, 1);
    do {
        struct via_client_part piece = {
            .off = part->off + done,
            .src = (const unsigned char *)part->src + done,
        };
        piece.bytes =
            is_whole ? part->bytes : via_client_slice_prefix(remote, piece.off, part->bytes - done);
        rc = via_client_aperture_put(remote, &piece, 1, flags, VIA_CLIENT_APERTURE_WAITS);
        done += rc == 1 ? piece.bytes : 0;
    } while (rc == 1 && done < part->bytes);
    *ret_done = done;
    return rc < 0 ? rc : 0;
}
