/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/strided.h"

#include <stdint.h>
#include <stdlib.h>

#include "shmem/path.h"

/* Inlined with a constant size, memcpy is one load and one store. */
static inline __attribute__((always_inline)) void copy_blocks(char *dest, const char *source,
                                                              ptrdiff_t dest_step,
                                                              ptrdiff_t source_step, size_t bytes,
                                                              size_t blocks)
{
    for (size_t i = 0; i < blocks; i++) {
        memcpy(dest, source, bytes);
        dest += dest_step;
        source += source_step;
    }
}

static void copy(char *dest, const char *source, ptrdiff_t dest_step, ptrdiff_t source_step,
                 size_t bytes, size_t blocks)
{
    if (dest_step == source_step && dest_step > 0) {
        size_t done = via_copy_same_stride(dest, source, (size_t)dest_step, bytes, blocks);
        dest += dest_step * (ptrdiff_t)done;
        source += source_step * (ptrdiff_t)done;
        blocks -= done;
    }
    switch (bytes) {
    case 1:
        copy_blocks(dest, source, dest_step, source_step, 1, blocks);
        break;
    case 2:
        copy_blocks(dest, source, dest_step, source_step, 2, blocks);
        break;
    case 4:
        copy_blocks(dest, source, dest_step, source_step, 4, blocks);
        break;
    case 8:
        copy_blocks(dest, source, dest_step, source_step, 8, blocks);
        break;
    case 16:
        copy_blocks(dest, source, dest_step, source_step, 16, blocks);
        break;
    default:
        for (size_t i = 0; i < blocks; i++)
            via_copy(dest + dest_step * (ptrdiff_t)i, source + source_step * (ptrdiff_t)i, bytes);
        break;
    }
}

/* --- the shape of a call --------------------------------------------------------------------- */

struct shape {
    ptrdiff_t dest_step, source_step; /* bytes from one block to the next */
    size_t block_bytes;
    size_t blocks; /* 0: there is nothing to do */
};

/* All values computed from a shape fit their types, or the program ends: no memory is that
 * large. */
static ptrdiff_t step_of(const char *call, ptrdiff_t stride, size_t blocks, size_t bytes)
{
    ptrdiff_t step, last;

    if (__builtin_mul_overflow(stride, bytes, &step) ||
        __builtin_mul_overflow(step, blocks - 1, &last) || last == PTRDIFF_MIN)
        via_fatal("%s: %zu blocks, %td elements of %zu bytes apart: no memory is as large", call,
                  blocks, stride, bytes);
    return step;
}

static struct shape shape_of(const char *call, ptrdiff_t dest_stride, ptrdiff_t source_stride,
                             size_t block_elements, size_t blocks, size_t bytes)
{
    struct shape shape = {0};
    size_t payload;

    if (blocks == 0 || block_elements == 0)
        return shape;
    if (__builtin_mul_overflow(block_elements, bytes, &shape.block_bytes) ||
        __builtin_mul_overflow(shape.block_bytes, blocks, &payload) || payload > PTRDIFF_MAX)
        via_fatal("%s: %zu blocks of %zu elements of %zu bytes: no memory is as large", call,
                  blocks, block_elements, bytes);
    shape.dest_step = step_of(call, dest_stride, blocks, bytes);
    shape.source_step = step_of(call, source_stride, blocks, bytes);
    shape.blocks = blocks;
    return shape;
}

/*
 * All blocks lie between the first and the last, whatever the sign of the stride; so one check of
 * the whole range is enough.
 */
struct span {
    const char *begin;
    size_t bytes;
    ptrdiff_t first; /* offset of the first block in the span */
};

static struct span span_of(const void *first, ptrdiff_t step, size_t blocks, size_t block_bytes)
{
    ptrdiff_t last = step * (ptrdiff_t)(blocks - 1);

    return (struct span){
        .begin = (const char *)first + (last < 0 ? last : 0),
        .bytes = (size_t)(last < 0 ? -last : last) + block_bytes,
        .first = last < 0 ? -last : 0,
    };
}

/* The mapped address of the first block, or NULL. */
static char *mapped(const char *call, const struct span *span, size_t payload, int pe)
{
    char *begin = via_direct(span->begin, pe);
    const char *last = via_direct(span->begin + span->bytes - 1, pe);

    if (!begin || !last || last - begin != (ptrdiff_t)span->bytes - 1)
        begin = via_path_span(call, span->begin, span->bytes, payload, pe);
    return begin ? begin + span->first : NULL;
}

void via_strided_put(const char *call, void *dest, const void *source, ptrdiff_t dest_stride,
                     ptrdiff_t source_stride, size_t block_elements, size_t blocks, size_t bytes,
                     int pe)
{
    struct shape shape = shape_of(call, dest_stride, source_stride, block_elements, blocks, bytes);

    if (shape.blocks == 0)
        return;
    struct span span = span_of(dest, shape.dest_step, blocks, shape.block_bytes);
    char *direct = mapped(call, &span, shape.block_bytes * blocks, pe);
    if (direct)
        copy(direct, source, shape.dest_step, shape.source_step, shape.block_bytes, blocks);
    else
        via_path_put_strided(call, dest, shape.dest_step, source, shape.source_step,
                             shape.block_bytes, blocks, pe);
}

/* --- gets from other hosts -------------------------------------------------------------------- */

/*
 * A message for each block costs as much time as a copy of GAP_BYTES_MAX bytes. Blocks with smaller
 * gaps are fetched together with the gaps, and copied out of the result here.
 */
#define GAP_BYTES_MAX 1024
#define SPAN_BYTES_MAX ((size_t)64 << 10)

/* The number of blocks that one get fetches; 0: each block is fetched by a get of its own. */
static size_t blocks_at_a_time(ptrdiff_t step, size_t block_bytes)
{
    size_t step_bytes = (size_t)(step < 0 ? -step : step);

    if (block_bytes > SPAN_BYTES_MAX / 2 || step_bytes > block_bytes + GAP_BYTES_MAX)
        return 0;
    return step_bytes == 0 ? SIZE_MAX : (SPAN_BYTES_MAX - block_bytes) / step_bytes + 1;
}

static void get_spans(const char *call, char *dest, const char *source, ptrdiff_t dest_step,
                      ptrdiff_t source_step, size_t block_bytes, size_t blocks, size_t each,
                      char *buffer, int pe)
{
    while (blocks > 0) {
        size_t count = blocks < each ? blocks : each;
        struct span span = span_of(source, source_step, count, block_bytes);
        via_path_get(call, buffer, span.begin, span.bytes, pe);
        copy(dest, buffer + span.first, dest_step, source_step, block_bytes, count);
        dest += dest_step * (ptrdiff_t)count;
        source += source_step * (ptrdiff_t)count;
        blocks -= count;
    }
}

/* All gets are started at once, as each takes a round trip. */
static void get_each(const char *call, char *dest, const char *source, const struct shape *shape,
                     int pe)
{
    for (size_t i = 0; i < shape->blocks; i++)
        via_path_get_nbi(call, dest + shape->dest_step * (ptrdiff_t)i,
                         source + shape->source_step * (ptrdiff_t)i, shape->block_bytes, pe);
    if (via_has_frames())
        via_path_quiet();
}

void via_strided_get(const char *call, void *dest, const void *source, ptrdiff_t dest_stride,
                     ptrdiff_t source_stride, size_t block_elements, size_t blocks, size_t bytes,
                     int pe)
{
    struct shape shape = shape_of(call, dest_stride, source_stride, block_elements, blocks, bytes);

    if (shape.blocks == 0)
        return;
    struct span span = span_of(source, shape.source_step, blocks, shape.block_bytes);
    const char *direct = mapped(call, &span, shape.block_bytes * blocks, pe);
    if (direct) {
        copy(dest, direct, shape.dest_step, shape.source_step, shape.block_bytes, blocks);
        return;
    }
    size_t each = blocks_at_a_time(shape.source_step, shape.block_bytes);
    char *buffer = each > 1 ? malloc(via_min(span.bytes, SPAN_BYTES_MAX)) : NULL;
    if (buffer)
        get_spans(call, dest, source, shape.dest_step, shape.source_step, shape.block_bytes, blocks,
                  each, buffer, pe);
    else
        get_each(call, dest, source, &shape, pe);
    free(buffer);
}
