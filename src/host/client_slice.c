/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/client_slice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "host/client_sys.h"

/* A slice costs some messages between two hosts, so a process that puts little uses frames. */
#define MISSES_MIN 8u
#define MISS_BYTES_MIN (2u << 10)
/* First pause before the next request when all slices are in use. Each further refusal doubles
 * it. */
#define AGAIN_NS_MIN VIA_MSEC_NS
#define AGAIN_NS_MAX (64 * VIA_MSEC_NS)
/* Interval at which the client checks the socket for an answer. */
#define POLL_NS (50 * VIA_USEC_NS)
#define PIECES_MAX (UINT64_C(1) << 20)
#define SLICE_BYTES_MAX (UINT64_C(1) << 40)
#define PAGE_BYTES 4096u

/* 1, 0, or -ECONNRESET, as via_client_slice_check(). */
static int check_piece(const struct via_remote *remote, const struct via_client_aperture *aperture,
                       uint64_t piece)
{
    uint64_t grant = atomic_load_explicit(&aperture->grants[piece], memory_order_acquire);
    if (grant == 0) {
        return 0;
    }
    uint64_t word =
        atomic_load_explicit(via_client_grant_word(remote->attach, grant), memory_order_acquire);
    if (via_likely(word == via_client_grant_life(grant))) {
        return 1;
    }
    return word == (via_client_grant_life(grant) | VIA_SLICE_GONE) ? -ECONNRESET : 0;
}

/* --- taking an answer ------------------------------------------------------------------------- */

static bool is_sound(const struct via_remote *remote, const struct via_attach_slice *slice)
{
    if (!via_is_pow2(slice->slice_bytes) || slice->slice_bytes < PAGE_BYTES ||
        slice->slice_bytes > SLICE_BYTES_MAX || slice->off % slice->slice_bytes != 0 ||
        slice->off >= remote->bytes || slice->fd_off % PAGE_BYTES != 0 ||
        slice->fd_off > INT64_MAX - slice->slice_bytes) {
        return false;
    }
    /* The piece must contain all its bytes that this process may access. */
    return slice->bytes <= slice->slice_bytes &&
           slice->bytes >= via_min(slice->slice_bytes, remote->bytes - slice->off) &&
           slice->word < VIA_SLICES_MAX && slice->busy < VIA_ATTACH_SLICES_MAX &&
           slice->life != 0 && slice->life >> VIA_SLICE_LIFE_BITS == 0;
}

/* A memfd must contain the slice and be sealed against shrinking. A descriptor that is no memfd is
 * a device of the host. */
static bool fd_is_safe(int fd, const struct via_attach_slice *slice)
{
    struct stat st;
    int seals = via_sys_fcntl(fd, F_GET_SEALS, 0);
    if (seals < 0) {
        return seals == -EINVAL;
    }
    return (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 && st.st_size >= 0 &&
           (uint64_t)st.st_size >= slice->fd_off + slice->bytes;
}

static struct via_client_aperture *aperture_new(const struct via_remote *remote,
                                                const struct via_attach_slice *slice)
{
    uint64_t bytes = via_align_up(remote->bytes, slice->slice_bytes);
    uint64_t pieces = bytes / slice->slice_bytes;
    if (pieces > PIECES_MAX) {
        return NULL;
    }
    struct via_client_aperture *aperture =
        calloc(1, sizeof(*aperture) + pieces * sizeof(aperture->grants[0]));
    void *base = aperture == NULL ? MAP_FAILED
                                  : mmap(NULL, bytes, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(aperture);
        return NULL;
    }
    aperture->base = base;
    aperture->bytes = bytes;
    aperture->segment_bytes = remote->bytes;
    aperture->slice_bytes = slice->slice_bytes;
    aperture->shift = via_log2_u64(slice->slice_bytes);
    aperture->link = slice->link;
    aperture->read_ns = slice->read_ns;
    aperture->imitates = (slice->flags & VIA_ATTACH_SLICE_IMITATES) != 0;
    return aperture;
}

static bool is_of(const struct via_client_aperture *aperture, const struct via_attach_slice *slice)
{
    return aperture != NULL && aperture->link == slice->link &&
           aperture->slice_bytes == slice->slice_bytes && aperture->read_ns == slice->read_ns &&
           aperture->imitates == ((slice->flags & VIA_ATTACH_SLICE_IMITATES) != 0);
}

/* [locked] The aperture to which this slice belongs, made if necessary; NULL: out of memory. */
static struct via_client_aperture *aperture_of(struct via_remote *remote,
                                               const struct via_attach_slice *slice)
{
    struct via_client_aperture *newest =
        atomic_load_explicit(&remote->aperture, memory_order_relaxed);
    if (is_of(newest, slice)) {
        return newest;
    }
    struct via_client_aperture *aperture = aperture_new(remote, slice);
    if (aperture != NULL) {
        aperture->next = newest; /* another thread may be storing through it */
        /* Pairs with the acquires where it is loaded. */
        atomic_store_explicit(&remote->aperture, aperture, memory_order_release);
    }
    return aperture;
}

/* [locked] */
static int map_slice(struct via_remote *remote, int fd, const struct via_attach_slice *slice)
{
    struct via_client_aperture *aperture = aperture_of(remote, slice);
    if (aperture == NULL) {
        return -ENOMEM;
    }
    /* Replaces an older mapping of the same piece. Another thread may be storing through that
     * mapping; its stores arrive in the same bytes. */
    void *base = mmap(aperture->base + slice->off, via_align_up(slice->bytes, PAGE_BYTES),
                      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)slice->fd_off);
    if (base == MAP_FAILED) {
        return -errno;
    }
    /* A forked child must not store through its parent's slices. */
    (void)madvise(base, via_align_up(slice->bytes, PAGE_BYTES), MADV_DONTFORK);
    uint64_t grant = slice->life << 24 | (uint64_t)slice->word << 12 | slice->busy;
    /* Pairs with the acquire of a thread that enters: the piece is mapped before the grant is
     * stored. */
    atomic_store_explicit(&aperture->grants[slice->off >> aperture->shift], grant,
                          memory_order_release);
    return 0;
}

static int take(struct via_remote *remote, const struct via_client_request *request)
{
    struct via_attach_slice slice;
    if (request->answer.status != 0) {
        return request->answer.status < 0 ? request->answer.status : -EPROTO;
    }
    memcpy(&slice, request->answer.value, sizeof(slice));
    if (request->fds_count != 1 || !is_sound(remote, &slice) ||
        !fd_is_safe(request->fds[0], &slice)) {
        return -EPROTO;
    }
    return map_slice(remote, request->fds[0], &slice);
}

static void request_next_slice(struct via_remote *remote);

/* [locked] The host has answered. */
static void answered(struct via_attach *attach, struct via_client_request *request)
{
    struct via_remote *remote = via_container_of(request, struct via_remote, slice_request.request);
    struct via_client_slice_request *wanted = &remote->slice_request;
    int rc = take(remote, request);
    for (unsigned i = 0; i < request->fds_count; i++) {
        via_client_fd_close(request->fds[i]);
    }
    wanted->under_way = false;
    if (rc == 0) {
        wanted->again_ns = 0;
        wanted->pause_ns = 0;
        request_next_slice(remote);
    } else if (rc == -EAGAIN) {
        wanted->pause_ns = via_min(via_max(2 * wanted->pause_ns, AGAIN_NS_MIN), AGAIN_NS_MAX);
        wanted->again_ns = via_client_now_ns() + wanted->pause_ns;
    } else {
        /* No further request until the path to the host changes. Frames report what is wrong with
         * the segment. */
        atomic_store_explicit(&wanted->way_refused,
                              via_client_status(attach, remote->host) & VIA_CLIENT_SLICE_WAY_MASK,
                              memory_order_relaxed);
    }
}

/* --- requesting ------------------------------------------------------------------------------- */

/* [locked] */
static void request_slice(struct via_remote *remote)
{
    struct via_client_slice_request *wanted = &remote->slice_request;
    struct via_attach_request request = {
        .type = VIA_ATTACH_SLICE,
        .host = remote->host,
        .handle = remote->handle,
        .bytes = wanted->off,
    };
    wanted->request.answered = answered;
    wanted->misses = 0;
    wanted->poll_ns = via_client_now_ns();
    wanted->under_way = true;
    if (via_client_request_send(remote->attach, &request, &wanted->request) != 0) {
        wanted->under_way = false;
        wanted->again_ns = wanted->poll_ns + AGAIN_NS_MAX;
    }
}

/* [locked] Requests slices for the rest of the bytes of the last request, in order. */
static void request_next_slice(struct via_remote *remote)
{
    struct via_client_slice_request *wanted = &remote->slice_request;
    const struct via_client_aperture *aperture =
        atomic_load_explicit(&remote->aperture, memory_order_relaxed);
    for (;;) {
        wanted->off = via_align_down(wanted->off, aperture->slice_bytes) + aperture->slice_bytes;
        if (wanted->off >= wanted->end) {
            return;
        }
        if (check_piece(remote, aperture, wanted->off >> aperture->shift) == 0) {
            request_slice(remote);
            return;
        }
    }
}

/* [locked] Checks for the answer, at most once per POLL_NS. */
static void poll_for_answer(struct via_remote *remote)
{
    struct via_client_slice_request *wanted = &remote->slice_request;
    uint64_t now_ns = via_client_now_ns();
    if (now_ns - wanted->poll_ns >= POLL_NS && !remote->attach->asleep) {
        wanted->poll_ns = now_ns;
        (void)via_client_take_answers(remote->attach);
    }
}

/* Requests slices for the bytes up to `end`, of a put of `bytes`. The first byte has none. */
static void request_slices(struct via_remote *remote, uint64_t off, uint64_t end, size_t bytes)
{
    struct via_client_slice_request *wanted = &remote->slice_request;
    uint64_t way = via_client_status(remote->attach, remote->host) & VIA_CLIENT_SLICE_WAY_MASK;
    if (atomic_load_explicit(&wanted->way_refused, memory_order_relaxed) == way) {
        return;
    }
    via_client_lock(remote->attach);
    if (wanted->under_way) {
        poll_for_answer(remote);
    } else {
        wanted->misses++;
        if ((wanted->misses >= MISSES_MIN || bytes >= MISS_BYTES_MIN) &&
            (wanted->again_ns == 0 || via_client_now_ns() >= wanted->again_ns)) {
            wanted->off = off;
            wanted->end = end;
            request_slice(remote);
        }
    }
    via_client_unlock(remote->attach);
}

/* --- checking --------------------------------------------------------------------------------- */

int via_client_slice_check(struct via_remote *remote, uint64_t off, size_t bytes)
{
    const struct via_client_aperture *aperture =
        atomic_load_explicit(&remote->aperture, memory_order_acquire);
    if (bytes == 0) {
        return aperture != NULL;
    }
    uint64_t piece = aperture == NULL ? 0 : off >> aperture->shift;
    uint64_t last = aperture == NULL ? 0 : (off + bytes - 1) >> aperture->shift;
    int rc = 0;
    for (; aperture != NULL && piece <= last; piece++) {
        rc = check_piece(remote, aperture, piece);
        if (via_unlikely(rc != 1)) {
            break;
        }
    }
    if (via_likely(rc == 1)) {
        return 1;
    }
    if (rc < 0) {
        via_client_remote_lose(remote);
        return via_client_check(remote, off, bytes, "put"); /* sets the text */
    }
    request_slices(remote, aperture == NULL ? off : via_max(off, piece << aperture->shift),
                   off + bytes, bytes);
    return 0;
}

size_t via_client_slice_prefix(const struct via_remote *remote, uint64_t off, size_t bytes)
{
    const struct via_client_aperture *aperture =
        atomic_load_explicit(&remote->aperture, memory_order_acquire);
    if (aperture == NULL) {
        return bytes;
    }
    uint64_t piece = off >> aperture->shift;
    uint64_t last = (off + bytes - 1) >> aperture->shift;
    last = via_min(last, piece + VIA_CLIENT_BURST_SLICES_MAX - 1);
    uint64_t end = piece;
    while (end <= last && check_piece(remote, aperture, end) == 1) {
        end++;
    }
    return end == piece ? bytes : (size_t)(via_min(off + bytes, end << aperture->shift) - off);
}

bool via_client_slice_is_gone(const struct via_remote *remote)
{
    const struct via_client_aperture *aperture =
        atomic_load_explicit(&remote->aperture, memory_order_acquire);
    uint64_t pieces = aperture == NULL ? 0 : aperture->bytes >> aperture->shift;
    for (uint64_t piece = 0; piece < pieces; piece++) {
        if (check_piece(remote, aperture, piece) < 0) {
            return true;
        }
    }
    return false;
}

void via_client_slices_free(struct via_remote *remote)
{
    struct via_client_aperture *aperture =
        atomic_load_explicit(&remote->aperture, memory_order_relaxed);
    if (remote->slice_request.under_way) {
        via_list_remove(&remote->slice_request.request.link); /* no caller waits for its answer */
    }
    while (aperture != NULL) {
        struct via_client_aperture *next = aperture->next;
        munmap(aperture->base, aperture->bytes);
        free(aperture);
        aperture = next;
    }
}
