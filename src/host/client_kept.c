/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/client_kept.h"

#include <assert.h>
#include <string.h>

#include "base/types.h"

static unsigned count_of(const struct via_kept *kept)
{
    return atomic_load_explicit(&kept->count, memory_order_relaxed);
}

static bool is_copied(size_t bytes)
{
    return bytes <= VIA_KEPT_COPY_BYTES_MAX;
}

/* Where a copy begins: a copy is contiguous, so the end of the memory may stay unused. */
static uint64_t place_of(const struct via_kept *kept, size_t bytes)
{
    uint64_t to_end = VIA_KEPT_BYTES - kept->memory_end % VIA_KEPT_BYTES;
    return to_end < bytes ? kept->memory_end + to_end : kept->memory_end;
}

bool via_kept_has_room(const struct via_kept *kept, size_t bytes)
{
    return count_of(kept) < VIA_KEPT_PUTS_MAX &&
           (!is_copied(bytes) ||
            place_of(kept, bytes) + bytes - kept->memory_begin <= VIA_KEPT_BYTES);
}

void via_kept_add(struct via_kept *kept, struct via_remote *remote, uint64_t begin, uint64_t off,
                  const void *src, size_t bytes)
{
    const unsigned char *data = src;
    unsigned count = count_of(kept);
    assert(via_kept_has_room(kept, bytes));
    if (is_copied(bytes)) {
        uint64_t place = place_of(kept, bytes);
        data = memcpy(kept->memory + place % VIA_KEPT_BYTES, src, bytes);
        kept->memory_end = place + bytes;
    }
    kept->puts[(kept->first + count) % VIA_KEPT_PUTS_MAX] =
        (struct via_kept_put){.remote = remote,
                              .data = data,
                              .begin = begin,
                              .off = off,
                              .bytes = bytes,
                              .memory_end = kept->memory_end};
    kept->unasked_count++;
    kept->unasked_bytes += bytes;
    atomic_store_explicit(&kept->count, count + 1, memory_order_relaxed);
}

bool via_kept_wants_fence(const struct via_kept *kept)
{
    return kept->unasked_count >= VIA_KEPT_PUTS_MAX / 4 ||
           kept->unasked_bytes >= VIA_KEPT_BYTES / 4;
}

void via_kept_pop(struct via_kept *kept)
{
    kept->memory_begin = kept->puts[kept->first % VIA_KEPT_PUTS_MAX].memory_end;
    kept->first++;
    /* Release: a thread that finds no puts knows that they have been applied. */
    atomic_fetch_sub_explicit(&kept->count, 1, memory_order_release);
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
    if (count_of(kept) == 0) {
        return false;
    }
    *ret_put = kept->puts[kept->first % VIA_KEPT_PUTS_MAX];
    if (position > ret_put->begin) {
        size_t done = (size_t)via_min(position - ret_put->begin, (uint64_t)ret_put->bytes);
        ret_put->data += done;
        ret_put->off += done;
        ret_put->bytes -= done;
    }
    return true;
}
