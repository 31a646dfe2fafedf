/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/meet/stream_meet.h"

#include <errno.h>
#include <string.h>

#include "base/mutant.h"
#include "sockets/meet/stream_offer.h"

bool via_meet_note_is_sound(const struct via_fabric_note *note, size_t bytes, unsigned host)
{
    return bytes == sizeof(*note) && note->magic == VIA_FABRIC_MAGIC &&
           note->version == VIA_FABRIC_VERSION && note->host == host &&
           (note->mailbox_bytes / sizeof(struct via_fabric_offer) > note->slot ||
            VIA_MUTANT(MEET_SLOT));
}

int via_meet_take_offer(struct via_fabric_offer *slot, uint64_t nonce, unsigned host,
                        struct via_fabric_offer *ret_offer)
{
    /* Pairs with the release of VIADUCT_PUT_LAST_WORD. */
    if (atomic_load_explicit(&slot->ready, memory_order_acquire) == 0) {
        return -EAGAIN;
    }
    memcpy(ret_offer, slot, sizeof(*ret_offer));
    if (ret_offer->nonce != nonce) {
        /* An offer for an earlier connection that used this slot. */
        atomic_store_explicit(&slot->ready, 0, memory_order_relaxed);
        return -EAGAIN;
    }
    if (ret_offer->ready == VIA_FABRIC_WITHDRAWN) {
        return -ECANCELED;
    }
    if (ret_offer->ready == VIA_FABRIC_ENDED) {
        return -ESHUTDOWN;
    }
    if (ret_offer->ready != VIA_FABRIC_READY || ret_offer->host != host ||
        !via_offer_is_of(&ret_offer->geometry, ret_offer->segment_bytes)) {
        return -EPROTO;
    }
    return 0;
}

bool via_meet_take_hello(const struct via_fabric_hello *line, unsigned host, uint64_t segment_bytes,
                         struct via_fabric_hello *ret_hello)
{
    /* Pairs with the release of VIADUCT_PUT_LAST_WORD. */
    if (atomic_load_explicit(&line->ready, memory_order_acquire) != VIA_FABRIC_READY) {
        return false;
    }
    memcpy(ret_hello, line, sizeof(*ret_hello));
    return ret_hello->host == host && ret_hello->segment_bytes == segment_bytes;
}

/* Collects the record at `at`, and advances `at` to the next one. */
static int gather_record(const struct via_meet_gather *gather, struct via_pipe_reader *at)
{
    struct via_pipe_record record;
    uint32_t index = at->sequence & (at->geometry.slots_count - 1);
    bool mirrored = via_meet_is_mirrored(gather->mirrored, index);
    int rc = mirrored ? 0
                      : gather->fetch(gather->ctx, (1 + (size_t)index) * VIA_RECORD_LINE_BYTES,
                                      VIA_RECORD_LINE_BYTES);
    if (rc != 0) {
        return rc;
    }
    if (via_pipe_peek(at, &record) != 1) {
        return -EPROTO; /* the peer has changed it meanwhile, and loses its bytes */
    }
    if (!mirrored && record.body_bytes != 0) {
        rc = gather->fetch(gather->ctx,
                           (size_t)((const unsigned char *)record.body - gather->memory),
                           record.body_bytes);
    }
    via_pipe_advance(at, &record);
    return rc;
}

int via_meet_gather(const struct via_meet_gather *gather, struct via_pipe_writer *writer)
{
    struct via_pipe_reader at = {.memory = gather->memory,
                                 .geometry = writer->geometry,
                                 .sequence = writer->released,
                                 .data_head = writer->data_tail,
                                 .epoch = writer->epoch};
    for (uint32_t left = via_pipe_writer_outstanding(writer); left > 0; left--) {
        int rc = gather_record(gather, &at);
        if (rc != 0) {
            return rc;
        }
    }
    writer->target.direct = gather->memory;
    return 0;
}
