/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stream/receipt.h"

#include <errno.h>
#include <string.h>

#include "sockets/stream/stream.h"

/* Index in via_stream_head.written where the number is aligned. */
#define RECEIVED_AT 1u

void via_receipt_add(void *head, uint32_t received)
{
    struct via_stream_head first;
    memcpy(&first, head, VIA_STREAM_HEAD_FIXED_BYTES);
    if (first.kind != VIA_STREAM_DATA) {
        return;
    }
    first.flags |= VIA_STREAM_RECEIPT;
    memcpy(&first.written[RECEIVED_AT], &received, sizeof(received));
    memcpy(head, &first, VIA_STREAM_HEAD_FIXED_BYTES);
}

int via_receipt_find(const struct via_pipe_reader *reader, uint32_t sequence,
                     uint32_t *ret_received)
{
    struct via_stream_head first;
    uint64_t word, again;
    if (!via_pipe_find(reader, sequence, &word)) {
        return 0;
    }
    uint64_t fixed = __atomic_load_n(
        (const uint64_t *)(const void *)via_pipe_slot(reader, sequence)->head, __ATOMIC_ACQUIRE);
    /* Another thread may take the record meanwhile, and the peer may overwrite it. */
    if (!via_pipe_find(reader, sequence, &again) || again != word) {
        return -ENODATA;
    }
    memcpy(&first, &fixed, sizeof(fixed));
    if (first.kind != VIA_STREAM_DATA || (first.flags & VIA_STREAM_RECEIPT) == 0) {
        return -ENODATA;
    }
    memcpy(ret_received, &first.written[RECEIVED_AT], sizeof(*ret_received));
    return 1;
}
