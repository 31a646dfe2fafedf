/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/meet/stream_offer.h"

#include <errno.h>
#include <string.h>

#include "base/mutant.h"
#include "base/types.h"
#include "sockets/conn/side.h"

#define PAGE 4096u
/* SWITCH, data, and the two slots that are reserved for DEMOTE and FIN. */
#define SLOTS_MIN 4u

size_t via_segment_bytes_for(const struct via_pipe_geometry *geometry)
{
    return VIA_ALIGN_UP(VIA_SEGMENT_PIPE_OFF + via_pipe_memory_bytes(geometry), (size_t)PAGE);
}

int via_offer_parse(const void *message, size_t bytes, struct via_offer *ret_offer)
{
    if (bytes != sizeof(*ret_offer)) {
        return -EPROTO;
    }
    memcpy(ret_offer, message, sizeof(*ret_offer));
    return ret_offer->magic == VIA_RENDEZVOUS_MAGIC && ret_offer->version == VIA_RENDEZVOUS_VERSION
               ? 0
               : -EPROTO;
}

bool via_offer_is_of(const struct via_pipe_geometry *geometry, uint64_t segment_bytes)
{
    return via_pipe_geometry_check(geometry) == 0 && geometry->slots_count >= SLOTS_MIN &&
           (geometry->slots_count <= VIA_RING_SLOTS_MAX || VIA_MUTANT(MEET_SLOTS)) &&
           geometry->data_bytes <= VIA_RING_LONG_BYTES && geometry->body_bytes_max != 0 &&
           segment_bytes == via_segment_bytes_for(geometry);
}

bool via_offer_is_sound(const struct via_offer *offer, uint64_t memory_bytes)
{
    return via_offer_is_of(&offer->geometry, offer->segment_bytes) &&
           memory_bytes == 2 * offer->segment_bytes;
}
