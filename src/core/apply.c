/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Applies requests to this host's consumers and memory. */
#include <errno.h>

#include "base/mutant.h"
#include "core/segment.h"

int via_apply_message(struct via_channel *channel, uint16_t source, uint16_t flow,
                      const struct via_frame_message *args, const void *data, uint32_t bytes)
{
    const struct via_node_env *env = &channel->node->env;
    struct via_delivery delivery = {
        .source = source,
        .flow = flow,
        .endpoint = args->endpoint,
        .source_endpoint = args->source_endpoint,
        .data = data,
        .bytes = bytes,
        .channel = channel->index,
    };
    int rc = env->deliver(env->ctx, &delivery);
    if (rc < 0 && rc != -EAGAIN) {
        via_count(&channel->counters.refused_endpoint, 1);
    }
    return rc;
}

static void notify(struct via_channel *channel, uint64_t handle, unsigned flags)
{
    if ((flags & VIA_FRAME_FLAG_NOTIFY) != 0) {
        channel->node->env.notify(channel->node->env.ctx, channel->index, handle);
    }
}

int via_apply_put(struct via_channel *channel, const struct via_frame_access *args,
                  const void *data, uint32_t bytes, unsigned flags)
{
    unsigned char *memory;
    int rc =
        via_segment_reach(channel, args->segment, args->offset, bytes, VIA_SEGMENT_WRITE, &memory);
    if (rc != 0) {
        return rc;
    }
    via_segment_store(memory, data, bytes, flags);
    notify(channel, args->segment, flags);
    return 0;
}

/* The range from the first byte to the last byte of all blocks. False: it exceeds every memory. */
static bool find_span(const struct via_frame_strided *args, uint64_t blocks, uint64_t *ret_begin,
                      uint64_t *ret_bytes)
{
    int64_t last;

    if (__builtin_mul_overflow(args->step, VIA_MUTANT(NODE_SPAN) ? 0 : (int64_t)blocks - 1,
                               &last)) {
        return false;
    }
    uint64_t back = last < 0 ? 0 - (uint64_t)last : 0;
    *ret_begin = args->offset - back;
    *ret_bytes = (last < 0 ? back : (uint64_t)last) + args->block_bytes;
    return back <= args->offset;
}

int via_apply_put_strided(struct via_channel *channel, const struct via_frame_strided *args,
                          const void *data, uint32_t bytes)
{
    const unsigned char *from = data;
    unsigned char *memory;
    uint64_t begin = args->offset, span = 0;

    if (args->block_bytes == 0 || bytes % args->block_bytes != 0) {
        return -EPROTO;
    }
    uint32_t blocks = bytes / args->block_bytes;
    if (blocks != 0 && !find_span(args, blocks, &begin, &span)) {
        via_count(&channel->counters.refused_range, 1);
        return -ERANGE;
    }
    int rc = via_segment_reach(channel, args->segment, begin, span, VIA_SEGMENT_WRITE, &memory);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < blocks; i++) {
        via_segment_store(memory + (args->offset - begin) + args->step * (int64_t)i,
                          from + (size_t)i * args->block_bytes, args->block_bytes, 0);
    }
    return 0;
}

int via_apply_put_signal(struct via_channel *channel, const struct via_frame_signal *args,
                         const void *data, uint32_t bytes, unsigned flags)
{
    unsigned char *memory, *signal;
    int rc =
        via_segment_reach(channel, args->segment, args->offset, bytes, VIA_SEGMENT_WRITE, &memory);
    if (rc != 0) {
        return rc;
    }
    rc = via_segment_reach(channel, args->segment, args->signal_offset & ~VIA_FRAME_SIGNAL_ADD, 8,
                           VIA_SEGMENT_WRITE, &signal);
    if (rc != 0) {
        return rc;
    }
    if ((uintptr_t)signal % 8 != 0) {
        return -EINVAL;
    }
    via_segment_store(memory, data, bytes, flags);
    via_segment_signal(signal, args->signal_offset, args->signal_value);
    notify(channel, args->segment, flags);
    return 0;
}

int via_apply_atomic(struct via_channel *channel, const struct via_frame_atomic *args,
                     const struct via_frame_atomic_operands *operands, uint64_t *ret_old)
{
    bool fetch = (args->operation & ~VIA_ATOMIC_32) == VIA_ATOMIC_FETCH;
    unsigned need = fetch ? VIA_SEGMENT_READ : VIA_SEGMENT_READ | VIA_SEGMENT_WRITE;
    unsigned char *memory;
    int rc = via_segment_reach(channel, args->segment, args->offset,
                               via_atomic_bytes(args->operation), need, &memory);
    if (rc != 0) {
        return rc;
    }
    return via_segment_atomic(memory, args->operation, operands->operand, operands->compare,
                              ret_old);
}
