/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Strided puts, between neighbours and within one host: the bytes that they write, and refusals. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "fabric.h"

#define SEGMENT_BYTES (256u * 1024)

struct setup {
    struct fabric *fabric;
    int target; /* host 0 submits */
    unsigned char *memory, *data;
    uint64_t handle, cookie;
};

static struct via_op op_of(struct setup *s, uint64_t offset, int64_t step, uint64_t block)
{
    return (struct via_op){
        .kind = VIA_OP_PUT_STRIDED,
        .destination = (uint16_t)s->target,
        .segment = s->handle,
        .offset = offset,
        .operand = (uint64_t)step,
        .compare = block,
        .source = s->data,
        .cookie = ++s->cookie,
    };
}

static int run(struct setup *s, const struct via_op *op)
{
    fabric_submit(s->fabric, 0, op);
    assert_true(fabric_drain(s->fabric, 5 * VIA_SEC_NS));
    return fabric_completion(s->fabric, 0, op->cookie)->status;
}

static void put_blocks(struct setup *s, uint64_t offset, int64_t step, uint64_t block,
                       uint64_t blocks)
{
    struct via_op op = op_of(s, offset, step, block);
    op.bytes = block * blocks;
    unsigned char *wanted = malloc(SEGMENT_BYTES);
    assert_non_null(wanted);
    memset(s->memory, 0xee, SEGMENT_BYTES);
    memset(wanted, 0xee, SEGMENT_BYTES);
    for (uint64_t i = 0; i < blocks; i++) {
        memcpy(wanted + offset + (uint64_t)step * i, s->data + i * block, block);
    }
    assert_int_equal(run(s, &op), 0);
    assert_memory_equal(s->memory, wanted, SEGMENT_BYTES);
    free(wanted);
}

static int refused_blocks(struct setup *s, uint64_t offset, int64_t step, uint64_t bytes)
{
    struct via_op op = op_of(s, offset, step, 8);
    op.bytes = bytes;
    return run(s, &op);
}

static void blocks_lie_apart(struct setup *s)
{
    put_blocks(s, 0, 16, 8, 1);
    put_blocks(s, 40, 16, 8, 2000); /* of more than one frame */
    put_blocks(s, SEGMENT_BYTES - 4, -12, 4, 5000);
    put_blocks(s, 3, 7, 3, 30000);
    put_blocks(s, 100, 5, 5, 777);
    put_blocks(s, 100, 64, 63, 1000);
    memset(s->memory, 0, SEGMENT_BYTES);
    /* The last put that would fit, and one more. */
    assert_int_equal(refused_blocks(s, SEGMENT_BYTES - 24, 16, 16), 0);
    assert_int_equal(refused_blocks(s, SEGMENT_BYTES - 23, 16, 16), -ERANGE);
    assert_int_equal(refused_blocks(s, 16, -16, 16), 0);
    assert_int_equal(refused_blocks(s, 15, -16, 16), -ERANGE);
    assert_int_equal(refused_blocks(s, 0, INT64_MAX, 24), -ERANGE);
    assert_int_equal(refused_blocks(s, 0, INT64_MIN, 24), -ERANGE);
    assert_int_equal(refused_blocks(s, 0, INT64_MIN, 16), -ERANGE);
    assert_int_equal(refused_blocks(s, UINT64_MAX - 8, 16, 16), -ERANGE);
    struct via_op op = op_of(s, 0, 8, 8);
    op.bytes = 12;
    assert_int_equal(via_node_submit(fabric_node(s->fabric, 0), 0, &op), -EINVAL);
    op.compare = 0;
    assert_int_equal(via_node_submit(fabric_node(s->fabric, 0), 0, &op), -EINVAL);
    op.compare = 12;
    op.flags = VIA_FRAME_FLAG_NOTIFY;
    assert_int_equal(via_node_submit(fabric_node(s->fabric, 0), 0, &op), -EINVAL);
}

/* By stores, by puts, and within one host. */
static void puts_of_blocks(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct setup s = {.fabric = fabric_new(way != 1), .target = way == 2 ? 0 : 1};
        fabric_chain(s.fabric, 2);
        fabric_settle(s.fabric);
        s.memory = aligned_alloc(64, SEGMENT_BYTES);
        s.data = malloc(SEGMENT_BYTES);
        assert_true(s.memory != NULL && s.data != NULL);
        for (unsigned i = 0; i < SEGMENT_BYTES; i++) {
            s.data[i] = (unsigned char)(i * 7 + i / 251);
        }
        assert_int_equal(via_node_segment_add(fabric_node(s.fabric, s.target), s.memory,
                                              SEGMENT_BYTES, VIA_SEGMENT_READ | VIA_SEGMENT_WRITE,
                                              0x123456789abc, &s.handle),
                         0);
        blocks_lie_apart(&s);
        fabric_free(s.fabric);
        free(s.memory);
        free(s.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(puts_of_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
