/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_SLICE_H
#define VIA_HOST_CLIENT_SLICE_H

#include "host/client.h"

/* Maximum of slices for one put. A longer put uses frames, or becomes several puts. */
#define VIA_CLIENT_BURST_SLICES_MAX 32u

/*
 * The slices that a process has from its host: requests, mappings, and the table of granted slices.
 * A grant contains the state of a slice in one word, so that threads load it whole: bits 63..24 are
 * the slice's life, 23..12 the index of its word, 11..0 the index of the busy word. 0: none.
 */
struct via_client_aperture {
    struct via_client_aperture *next; /* of an earlier link: all its grants are invalid */
    unsigned char *base;              /* the addresses reserved for the segment ... */
    uint64_t bytes;                   /* ... and their number */
    uint64_t segment_bytes;
    uint64_t slice_bytes;
    unsigned shift; /* log2 of slice_bytes */
    uint32_t link;
    uint32_t read_ns;
    bool imitates;
    _Atomic uint64_t grants[]; /* by piece; written under the lock */
};

_Static_assert(VIA_SLICES_MAX <= 4096 && VIA_ATTACH_SLICES_MAX <= 4096, "12 bits each");
_Static_assert(VIA_SLICE_LIFE_BITS == 40, "and the life in the rest");

static inline uint64_t via_client_grant_life(uint64_t grant)
{
    return grant >> 24;
}

static inline const _Atomic uint64_t *via_client_grant_word(const struct via_attach *attach,
                                                            uint64_t grant)
{
    return &attach->status->slices[grant >> 12 & 0xfff];
}

static inline _Atomic uint64_t *via_client_grant_busy(const struct via_attach *attach,
                                                      uint64_t grant)
{
    return &attach->busy[grant & 0xfff].word;
}

/* True if the word lies in the segment: the last piece may be shorter than its slice. */
static inline bool via_client_aperture_has_segment(const struct via_client_aperture *aperture,
                                                   const unsigned char *word)
{
    uint64_t off = (uint64_t)(word - aperture->base);
    return off < aperture->segment_bytes && aperture->segment_bytes - off >= sizeof(uint64_t);
}

/*
 * 1: according to the answers received so far, this process has slices for all these bytes. 0: not
 * now; requests the missing ones from the host. Negative errno: the segment was freed.
 */
int via_client_slice_check(struct via_remote *remote, uint64_t off, size_t bytes);

/* The number of these bytes, not 0, for one put: the first ones that have slices, up to the maximum
 * of slices; all of them if the first byte has no slice. */
size_t via_client_slice_prefix(const struct via_remote *remote, uint64_t off, size_t bytes);

/* True if a check found that the segment of one of its slices was freed. */
bool via_client_slice_is_gone(const struct via_remote *remote);

/* [locked] Called before the remote is freed. */
void via_client_slices_free(struct via_remote *remote);

#endif
