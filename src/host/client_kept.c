/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/client_kept.h"

#include <assert.h>
#include <string.h>

#include "base/types.h"
#include "host/client.h"

/* [lock] */
static uint32_t first_of(const struct via_kept *kept)
{
    return atomic_load_explicit(&kept->area->first, memory_order_relaxed);
}

void via_kept_init(struct via_kept *kept, struct via_kept_area *area)
{
    kept->area = area;
    area->layout = VIA_KEPT_LAYOUT;
}

unsigned via_kept_count(const struct via_kept *kept)
{
    uint32_t end = atomic_load_explicit(&kept->area->end, memory_order_relaxed);
    /* Pairs with the release in via_kept_pop(). Other threads may have added puts after the load of
     * `end`, and the host may have applied these, too. */
    uint32_t first = atomic_load_explicit(&kept->area->first, memory_order_acquire);
    return (int32_t)(end - first) > 0 ? end - first : 0;
}

struct via_remote *via_kept_remote(const struct via_kept *kept, unsigned i)
{
    return kept->sources[(first_of(kept) + i) % VIA_KEPT_PUTS_MAX].remote;
}

static bool is_copied(size_t bytes)
{
    return bytes <= VIA_KEPT_COPY_BYTES_MAX;
}

/* The position of the next copy. A copy is contiguous, so the end of the memory may stay unused. */
static uint64_t place_of(const struct via_kept *kept, size_t bytes)
{
    uint64_t to_end = VIA_KEPT_BYTES - kept->memory_end % VIA_KEPT_BYTES;
    return to_end < bytes ? kept->memory_end + to_end : kept->memory_end;
}

bool via_kept_has_room(const struct via_kept *kept, size_t bytes)
{
    return via_kept_count(kept) < VIA_KEPT_PUTS_MAX &&
           (!is_copied(bytes) ||
            place_of(kept, bytes) + bytes - kept->memory_begin <= VIA_KEPT_BYTES);
}

void via_kept_add(struct via_kept *kept, struct via_remote *remote, uint64_t begin, uint64_t off,
                  const void *src, size_t bytes)
{
    struct via_kept_area *area = kept->area;
    uint32_t end = atomic_load_explicit(&area->end, memory_order_relaxed);
    struct via_kept_source *source = &kept->sources[end % VIA_KEPT_PUTS_MAX];
    uint64_t place = place_of(kept, bytes);
    assert(via_kept_has_room(kept, bytes));
    source->data = src;
    if (is_copied(bytes)) {
        source->data = memcpy(area->memory + place % VIA_KEPT_BYTES, src, bytes);
        kept->memory_end = place + bytes;
    }
    source->remote = remote;
    source->memory_end = kept->memory_end;
    area->records[end % VIA_KEPT_PUTS_MAX] =
        (struct via_kept_record){.handle = remote->handle,
                                 .off = off,
                                 .bytes = bytes,
                                 .begin = begin,
                                 .memory_off = place % VIA_KEPT_BYTES};
    kept->unfenced_count++;
    kept->unfenced_bytes += bytes;
    /* Release: the record is complete even if the process ends at this instruction. */
    atomic_store_explicit(&area->end, end + 1, memory_order_release);
}

bool via_kept_is_fence_due(const struct via_kept *kept)
{
    return kept->unfenced_count >= VIA_KEPT_PUTS_MAX / 4 ||
           kept->unfenced_bytes >= VIA_KEPT_BYTES / 4;
}

void via_kept_pop(struct via_kept *kept)
{
    uint32_t first = first_of(kept);
    kept->memory_begin = kept->sources[first % VIA_KEPT_PUTS_MAX].memory_end;
    /* Release: a thread that finds no kept puts knows that the host has applied them, or that
     * frames carry them. */
    atomic_store_explicit(&kept->area->first, first + 1, memory_order_release);
    /* A later put may overwrite this copy. The compiler must not move its stores before the pop,
     * because the host reads the copy if the process ends in between. */
    atomic_signal_fence(memory_order_seq_cst);
}

void via_kept_release(struct via_kept *kept, uint64_t position)
{
    struct via_kept_put put;
    while (via_kept_first(kept, position, &put) && put.bytes == 0) {
        via_kept_pop(kept);
    }
}

bool via_kept_first(const struct via_kept *kept, uint64_t position, struct via_kept_put *ret_put)
{
    if (via_kept_count(kept) == 0) {
        return false;
    }
    uint32_t index = first_of(kept) % VIA_KEPT_PUTS_MAX;
    const struct via_kept_record *record = &kept->area->records[index];
    size_t done = via_kept_applied(record, position);
    *ret_put = (struct via_kept_put){.remote = kept->sources[index].remote,
                                     .data = kept->sources[index].data + done,
                                     .begin = record->begin,
                                     .off = record->off + done,
                                     .bytes = record->bytes - done};
    return true;
}
