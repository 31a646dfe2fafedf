/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Operations between neighbours and within one host; refusals; consumers that are not ready. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/types.h"
#include "fabric.h"

#define SEGMENT_BYTES (256u * 1024)
#define KEY 0x123456789abcull
#define READ_WRITE (VIA_SEGMENT_READ | VIA_SEGMENT_WRITE)

struct setup {
    struct fabric *fabric;
    int target; /* host 0 submits; the target is host 1, or host 0 itself */
    unsigned char *memory;
    unsigned char *data;
    uint64_t handle;
    uint64_t cookie;
};

static struct setup setup_new(bool direct, int target)
{
    struct setup s = {.fabric = fabric_new(direct), .target = target, .cookie = 1};
    fabric_chain(s.fabric, 2);
    fabric_settle(s.fabric);
    s.memory = aligned_alloc(64, SEGMENT_BYTES);
    s.data = malloc(SEGMENT_BYTES);
    assert_non_null(s.memory);
    assert_non_null(s.data);
    memset(s.memory, 0, SEGMENT_BYTES);
    for (unsigned i = 0; i < SEGMENT_BYTES; i++) {
        s.data[i] = (unsigned char)(i * 7 + i / 251);
    }
    assert_int_equal(via_node_segment_add(fabric_node(s.fabric, target), s.memory, SEGMENT_BYTES,
                                          READ_WRITE, KEY, &s.handle),
                     0);
    return s;
}

static void setup_free(struct setup *s)
{
    fabric_free(s->fabric);
    free(s->memory);
    free(s->data);
}

static struct via_op op_of(struct setup *s, unsigned kind)
{
    return (struct via_op){
        .kind = (uint8_t)kind,
        .destination = (uint16_t)s->target,
        .segment = s->handle,
        .cookie = s->cookie++,
    };
}

/* Submits and waits. Returns the status. */
static int run(struct setup *s, const struct via_op *op, uint64_t *ret_value)
{
    fabric_submit(s->fabric, 0, op);
    assert_null(fabric_completion(s->fabric, 0, op->cookie)); /* never called from within submit */
    assert_true(fabric_drain(s->fabric, 5 * VIA_SEC_NS));
    const struct fabric_completion *done = fabric_completion(s->fabric, 0, op->cookie);
    assert_non_null(done);
    if (ret_value != NULL) {
        *ret_value = done->value;
    }
    return done->status;
}

/* Runs each test between neighbours, with stores and with puts, and within one host. */
static void everywhere(void (*test)(struct setup *s))
{
    for (int i = 0; i < 3; i++) {
        struct setup s = setup_new(i != 1, i == 2 ? 0 : 1);
        test(&s);
        struct via_node_counters counters = fabric_counters(s.fabric, 0);
        assert_int_equal(counters.frames_resent, 0);
        assert_int_equal(counters.frames_dropped_malformed, 0);
        setup_free(&s);
    }
}

static const uint64_t sizes[] = {0,    1,    4,    8,    16,   17,    63,     64, 1023,
                                 1024, 1025, 1031, 2048, 5000, 65536, 100003, 0};
static const uint64_t offsets[] = {0, 1, 4, 8, 60, 4096};

static void put_then_get(struct setup *s)
{
    for (unsigned z = 0; z < sizeof(sizes) / sizeof(sizes[0]); z++) {
        for (unsigned o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
            struct via_op put = op_of(s, VIA_OP_PUT);
            put.source = s->data + z;
            put.bytes = sizes[z];
            put.offset = offsets[o];
            put.flags = o % 2 ? VIA_FRAME_FLAG_LAST_WORD : 0;
            memset(s->memory, 0xee, SEGMENT_BYTES);
            assert_int_equal(run(s, &put, NULL), 0);
            assert_memory_equal(s->memory + offsets[o], s->data + z, sizes[z]);
            assert_int_equal(s->memory[offsets[o] + sizes[z]], 0xee);
            if (offsets[o] > 0) {
                assert_int_equal(s->memory[offsets[o] - 1], 0xee);
            }
            unsigned char *back = malloc(sizes[z] + 1);
            back[sizes[z]] = 0xdd;
            struct via_op get = op_of(s, VIA_OP_GET);
            get.result = back;
            get.bytes = sizes[z];
            get.offset = offsets[o];
            assert_int_equal(run(s, &get, NULL), 0);
            assert_memory_equal(back, s->data + z, sizes[z]);
            assert_int_equal(back[sizes[z]], 0xdd);
            free(back);
        }
    }
}

static void puts_and_gets(void **state)
{
    (void)state;
    everywhere(put_then_get);
}

static void notify_reaches_the_owner(struct setup *s)
{
    struct via_op put = op_of(s, VIA_OP_PUT);
    put.source = s->data;
    put.bytes = 5000;
    assert_int_equal(run(s, &put, NULL), 0);
    assert_int_equal(s->fabric->hosts[s->target].notifies_count, 0);
    put = op_of(s, VIA_OP_PUT);
    put.source = s->data;
    put.bytes = 5000;
    put.flags = VIA_FRAME_FLAG_NOTIFY;
    assert_int_equal(run(s, &put, NULL), 0);
    assert_int_equal(s->fabric->hosts[s->target].notifies_count, 1);
    assert_int_equal(s->fabric->hosts[s->target].notified, s->handle);
}

static void notifies(void **state)
{
    (void)state;
    everywhere(notify_reaches_the_owner);
}

static void signals_count(struct setup *s)
{
    uint64_t *signal = (uint64_t *)(void *)(s->memory + 8192);
    const uint64_t lengths[] = {0, 8, 3000, 70000};
    uint64_t expected = 0;
    for (unsigned i = 0; i < 4; i++) {
        struct via_op op = op_of(s, VIA_OP_PUT_SIGNAL);
        op.source = s->data;
        op.bytes = lengths[i];
        op.offset = 16384;
        op.signal_offset = 8192 | VIA_FRAME_SIGNAL_ADD;
        op.signal_value = 5;
        assert_int_equal(run(s, &op, NULL), 0);
        expected += 5;
        assert_int_equal(*signal, expected);
        assert_memory_equal(s->memory + 16384, s->data, lengths[i]);
    }
    struct via_op op = op_of(s, VIA_OP_PUT_SIGNAL);
    op.signal_offset = 8192;
    op.signal_value = 77;
    assert_int_equal(run(s, &op, NULL), 0);
    assert_int_equal(*signal, 77);
    op = op_of(s, VIA_OP_PUT_SIGNAL);
    op.signal_offset = 8193;
    assert_int_equal(run(s, &op, NULL), -EINVAL);
    op = op_of(s, VIA_OP_PUT_SIGNAL);
    op.signal_offset = SEGMENT_BYTES;
    assert_int_equal(run(s, &op, NULL), -ERANGE);
    assert_int_equal(*signal, 77);
}

static void puts_with_signal(void **state)
{
    (void)state;
    everywhere(signals_count);
}

static uint64_t atomic(struct setup *s, unsigned what, uint64_t offset, uint64_t operand,
                       uint64_t compare)
{
    struct via_op op = op_of(s, VIA_OP_ATOMIC);
    uint64_t old;
    op.atomic = (uint8_t)what;
    op.offset = offset;
    op.operand = operand;
    op.compare = compare;
    assert_int_equal(run(s, &op, &old), 0);
    return old;
}

static void atomics_update(struct setup *s)
{
    uint64_t *word = (uint64_t *)(void *)(s->memory + 64);
    uint32_t *half = (uint32_t *)(void *)(s->memory + 132);
    *word = 100;
    assert_int_equal(atomic(s, VIA_ATOMIC_ADD, 64, 11, 0), 100);
    assert_int_equal(*word, 111);
    assert_int_equal(atomic(s, VIA_ATOMIC_FETCH, 64, 5, 0), 111);
    assert_int_equal(atomic(s, VIA_ATOMIC_AND, 64, 0x0f, 0), 111);
    assert_int_equal(*word, 111 & 0x0f);
    assert_int_equal(atomic(s, VIA_ATOMIC_OR, 64, 0xf0, 0), 111 & 0x0f);
    assert_int_equal(*word, 0xff);
    assert_int_equal(atomic(s, VIA_ATOMIC_XOR, 64, 0x3c, 0), 0xff);
    assert_int_equal(*word, 0xc3);
    assert_int_equal(atomic(s, VIA_ATOMIC_SWAP, 64, UINT64_MAX - 1, 0), 0xc3);
    assert_int_equal(*word, UINT64_MAX - 1);
    assert_int_equal(atomic(s, VIA_ATOMIC_COMPARE_SWAP, 64, 9, 1), UINT64_MAX - 1);
    assert_int_equal(*word, UINT64_MAX - 1);
    assert_int_equal(atomic(s, VIA_ATOMIC_COMPARE_SWAP, 64, 9, UINT64_MAX - 1), UINT64_MAX - 1);
    assert_int_equal(*word, 9);

    *half = 0xfffffffe;
    assert_int_equal(atomic(s, VIA_ATOMIC_ADD | VIA_ATOMIC_32, 132, 3, 0), 0xfffffffe);
    assert_int_equal(*half, 1);
    assert_int_equal(half[1], 0);
    assert_int_equal(atomic(s, VIA_ATOMIC_COMPARE_SWAP | VIA_ATOMIC_32, 132, 6, 1), 1);
    assert_int_equal(*half, 6);

    struct via_op op = op_of(s, VIA_OP_ATOMIC);
    op.atomic = VIA_ATOMIC_ADD;
    op.offset = 65;
    assert_int_equal(run(s, &op, NULL), -EINVAL);
    op = op_of(s, VIA_OP_ATOMIC);
    op.atomic = VIA_ATOMIC_ADD;
    op.offset = SEGMENT_BYTES - 4;
    assert_int_equal(run(s, &op, NULL), -ERANGE);
}

static void atomics(void **state)
{
    (void)state;
    everywhere(atomics_update);
}

static void many_gets_and_atomics_at_once(struct setup *s)
{
    /* More than the number of internal operations for answers at the target. */
    static unsigned char results[200][3000];
    uint64_t *word = (uint64_t *)(void *)(s->memory + 64);
    memcpy(s->memory + 4096, s->data, 64 * 1024);
    *word = 0;
    for (unsigned i = 0; i < 200; i++) {
        struct via_op get = op_of(s, VIA_OP_GET);
        get.result = results[i];
        get.bytes = sizeof(results[i]);
        get.offset = 4096 + i * 16;
        get.flow = i % 3;
        get.cookie = 10000 + i;
        fabric_submit(s->fabric, 0, &get);
        struct via_op add = op_of(s, VIA_OP_ATOMIC);
        add.atomic = VIA_ATOMIC_ADD;
        add.offset = 64;
        add.operand = 1;
        add.flow = 2;
        add.cookie = 20000 + i;
        fabric_submit(s->fabric, 0, &add);
    }
    assert_true(fabric_drain(s->fabric, 10 * VIA_SEC_NS));
    assert_int_equal(*word, 200);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(fabric_completion(s->fabric, 0, 10000 + i)->status, 0);
        assert_int_equal(fabric_completion(s->fabric, 0, 20000 + i)->value, i);
        assert_memory_equal(results[i], s->data + i * 16, sizeof(results[i]));
    }
}

static void answers_may_run_out(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct setup s = setup_new(i != 1, i == 2 ? 0 : 1);
        /* The target has only two, and frames are sent again when it is not ready. */
        if (s.target == 1) {
            fabric_crash(s.fabric, 1);
            s.fabric->hosts[1].config.ops_count = 2;
            fabric_start(s.fabric, 1);
            assert_int_equal(via_node_segment_add(fabric_node(s.fabric, 1), s.memory, SEGMENT_BYTES,
                                                  READ_WRITE, KEY, &s.handle),
                             0);
            fabric_settle(s.fabric);
        }
        many_gets_and_atomics_at_once(&s);
        setup_free(&s);
    }
}

static void completions_come_in_order(struct setup *s)
{
    static unsigned char result[60000];
    struct via_op ops[6] = {
        op_of(s, VIA_OP_GET),    op_of(s, VIA_OP_PUT), op_of(s, VIA_OP_MESSAGE),
        op_of(s, VIA_OP_ATOMIC), op_of(s, VIA_OP_PUT), op_of(s, VIA_OP_MESSAGE),
    };
    ops[0].result = result;
    ops[0].bytes = sizeof(result);
    ops[1].source = s->data;
    ops[1].bytes = 10;
    ops[3].atomic = VIA_ATOMIC_FETCH;
    ops[4].segment ^= UINT64_C(1) << 40; /* refused, in its place in the order */
    ops[4].source = s->data;
    ops[4].bytes = 5000;
    for (unsigned i = 0; i < 6; i++) {
        fabric_submit(s->fabric, 0, &ops[i]);
    }
    assert_true(fabric_drain(s->fabric, VIA_SEC_NS));
    const struct fabric_host *host = &s->fabric->hosts[0];
    assert_int_equal(host->completions_count, 6);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(host->completions[i].cookie, ops[i].cookie);
        assert_int_equal(host->completions[i].status, i == 4 ? -EACCES : 0);
    }
    assert_int_equal(s->fabric->hosts[s->target].deliveries_count, 2);
}

static void order_of_completions(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct setup s = setup_new(i != 1, i == 2 ? 0 : 1);
        completions_come_in_order(&s);
        setup_free(&s);
    }
}

/* --- refusals -------------------------------------------------------------------------------- */

static void limit_to_reading(struct setup *s)
{
    uint64_t word = 0;
    struct via_node *node = fabric_node(s->fabric, s->target);
    struct via_op put = op_of(s, VIA_OP_PUT);
    put.source = s->data;
    put.bytes = sizeof(word);
    struct via_op get = op_of(s, VIA_OP_GET);
    get.result = &word;
    get.bytes = sizeof(word);
    assert_int_equal(run(s, &put, NULL), 0);
    assert_int_equal(via_node_segment_limit(node, s->handle, VIA_SEGMENT_READ), 0);
    put.cookie = s->cookie++;
    put.source = s->data + sizeof(word);
    assert_int_equal(run(s, &put, NULL), -EACCES);
    assert_int_equal(run(s, &get, NULL), 0);
    assert_memory_equal(&word, s->data, sizeof(word));
}

static void limited_to_reading(void **state)
{
    (void)state;
    everywhere(limit_to_reading);
}

static void refuse_all(struct setup *s)
{
    struct via_node_counters before = fabric_counters(s->fabric, s->target), after;
    unsigned char result[16];

    struct via_op op = op_of(s, VIA_OP_PUT);
    op.segment ^= UINT64_C(1) << 63; /* wrong key */
    op.source = s->data;
    op.bytes = 50000; /* most of it is under way when the first frame is refused */
    assert_int_equal(run(s, &op, NULL), -EACCES);
    op = op_of(s, VIA_OP_PUT);
    op.segment += 2; /* no such segment */
    op.source = s->data;
    op.bytes = 1;
    assert_int_equal(run(s, &op, NULL), -EACCES);
    op = op_of(s, VIA_OP_GET);
    op.segment ^= UINT64_C(1) << 20;
    op.result = result;
    op.bytes = 16;
    assert_int_equal(run(s, &op, NULL), -EACCES);
    op = op_of(s, VIA_OP_ATOMIC);
    op.segment = UINT64_MAX;
    op.atomic = VIA_ATOMIC_ADD;
    assert_int_equal(run(s, &op, NULL), -EACCES);
    after = fabric_counters(s->fabric, s->target);
    assert_int_equal(after.refused_key - before.refused_key, 4);
    assert_int_equal(after.refused_range, before.refused_range);

    op = op_of(s, VIA_OP_PUT);
    op.offset = SEGMENT_BYTES - 7;
    op.source = s->data;
    op.bytes = 8;
    assert_int_equal(run(s, &op, NULL), -ERANGE);
    op = op_of(s, VIA_OP_PUT);
    op.offset = UINT64_MAX - 3; /* the sum wraps */
    op.source = s->data;
    op.bytes = 8;
    assert_int_equal(run(s, &op, NULL), -ERANGE);
    op = op_of(s, VIA_OP_GET);
    op.offset = 0;
    op.result = result;
    op.bytes = 16;
    op.offset = SEGMENT_BYTES - 15;
    assert_int_equal(run(s, &op, NULL), -ERANGE);
    after = fabric_counters(s->fabric, s->target);
    assert_int_equal(after.refused_range - before.refused_range, 3);

    s->fabric->hosts[s->target].deliver_answer = -ENOENT;
    op = op_of(s, VIA_OP_MESSAGE);
    op.source = s->data;
    op.bytes = 100;
    assert_int_equal(run(s, &op, NULL), -ENOENT);
    s->fabric->hosts[s->target].deliver_answer = 0;
    after = fabric_counters(s->fabric, s->target);
    assert_int_equal(after.refused_endpoint - before.refused_endpoint, 1);

    /* The flow continues, and no byte of the refused operation is stored. */
    op = op_of(s, VIA_OP_MESSAGE);
    op.source = s->data;
    op.bytes = 100;
    assert_int_equal(run(s, &op, NULL), 0);
    assert_int_equal(s->fabric->hosts[s->target].deliveries_count, 1);
    for (unsigned i = 0; i < SEGMENT_BYTES; i++) {
        assert_int_equal(s->memory[i], 0);
    }
    assert_int_equal(fabric_counters(s->fabric, 0).ops_failed, 8);
}

static void refusals_are_reported_and_counted_once(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct setup s = setup_new(i != 1, i == 2 ? 0 : 1);
        refuse_all(&s);
        setup_free(&s);
    }
}

static void a_read_only_segment_is_not_written(void **state)
{
    (void)state;
    struct setup s = setup_new(true, 1);
    uint64_t handle;
    unsigned char result[8];
    assert_int_equal(via_node_segment_add(fabric_node(s.fabric, 1), s.memory, 4096,
                                          VIA_SEGMENT_READ, KEY + 1, &handle),
                     0);
    struct via_op op = op_of(&s, VIA_OP_PUT);
    op.segment = handle;
    op.source = s.data;
    op.bytes = 8;
    assert_int_equal(run(&s, &op, NULL), -EACCES);
    op = op_of(&s, VIA_OP_ATOMIC);
    op.segment = handle;
    op.atomic = VIA_ATOMIC_ADD;
    assert_int_equal(run(&s, &op, NULL), -EACCES);
    op = op_of(&s, VIA_OP_ATOMIC);
    op.segment = handle;
    op.atomic = VIA_ATOMIC_FETCH;
    assert_int_equal(run(&s, &op, NULL), 0);
    op = op_of(&s, VIA_OP_GET);
    op.segment = handle;
    op.result = result;
    op.bytes = 8;
    assert_int_equal(run(&s, &op, NULL), 0);
    setup_free(&s);
}

static void segments_come_and_go(void **state)
{
    (void)state;
    struct setup s = setup_new(true, 1);
    struct via_node *node = fabric_node(s.fabric, 1);
    uint64_t handles[8];
    int rc = 0;
    unsigned count;
    assert_int_equal(via_node_segment_add(node, s.memory, 0, READ_WRITE, KEY, handles), -EINVAL);
    assert_int_equal(via_node_segment_add(node, NULL, 64, READ_WRITE, KEY, handles), -EINVAL);
    assert_int_equal(via_node_segment_add(node, s.memory, 64, READ_WRITE, 0, handles), -EINVAL);
    assert_int_equal(via_node_segment_add(node, s.memory, 64, 4, KEY, handles), -EINVAL);
    for (count = 0; count < 8; count++) {
        rc = via_node_segment_add(node, s.memory, 64, READ_WRITE, KEY + count, &handles[count]);
        if (rc != 0) {
            break;
        }
    }
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(count, 3);
    assert_false(via_node_segment_is_idle(node, handles[1]));
    assert_int_equal(via_node_segment_remove(node, handles[1]), 0);
    assert_int_equal(via_node_segment_remove(node, handles[1]), -ENOENT);
    assert_true(via_node_segment_is_idle(node, handles[1]));
    assert_true(via_node_segment_is_idle(node, 0));
    uint64_t again;
    assert_int_equal(via_node_segment_add(node, s.memory, 64, READ_WRITE, KEY + 9, &again), 0);
    assert_int_equal(via_segment_handle_index(again), via_segment_handle_index(handles[1]));

    /* The old handle of the same slot is refused. */
    struct via_op op = op_of(&s, VIA_OP_PUT);
    op.segment = handles[1];
    op.source = s.data;
    op.bytes = 8;
    assert_int_equal(run(&s, &op, NULL), -EACCES);
    setup_free(&s);
}

static void a_segment_that_vanishes_ends_a_get(void **state)
{
    (void)state;
    struct setup s = setup_new(true, 1);
    unsigned char *result = malloc(200000);
    struct via_op get = op_of(&s, VIA_OP_GET);
    get.result = result;
    get.bytes = 200000;
    fabric_submit(s.fabric, 0, &get);
    fabric_run(s.fabric, 60 * VIA_USEC_NS);
    assert_null(fabric_completion(s.fabric, 0, get.cookie));
    assert_int_equal(via_node_segment_remove(fabric_node(s.fabric, 1), s.handle), 0);
    assert_true(fabric_drain(s.fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(s.fabric, 0, get.cookie)->status, -EACCES);
    /* Other operations continue. */
    assert_int_equal(via_node_segment_add(fabric_node(s.fabric, 1), s.memory, SEGMENT_BYTES,
                                          READ_WRITE, KEY + 5, &s.handle),
                     0);
    get = op_of(&s, VIA_OP_GET);
    get.result = result;
    get.bytes = 20000;
    assert_int_equal(run(&s, &get, NULL), 0);
    free(result);
    setup_free(&s);
}

static void bad_operations_are_not_accepted(void **state)
{
    (void)state;
    struct setup s = setup_new(true, 1);
    struct via_node *node = fabric_node(s.fabric, 0);
    struct via_op op = op_of(&s, VIA_OP_MESSAGE);
    op.source = s.data;
    op.bytes = 1025;
    assert_int_equal(via_node_submit(node, 0, &op), -EMSGSIZE);
    op.bytes = 1024;
    op.destination = 8;
    assert_int_equal(via_node_submit(node, 0, &op), -EHOSTUNREACH);
    op.destination = 1;
    op.flow = 3;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.flow = 0;
    assert_int_equal(via_node_submit(node, 1, &op), -EINVAL);
    op.kind = 0;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.kind = 32; /* internal */
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.kind = VIA_OP_ATOMIC;
    op.atomic = 99;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.kind = VIA_OP_GET;
    op.result = NULL;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    op.kind = VIA_OP_PUT;
    op.flags = 0x80;
    assert_int_equal(via_node_submit(node, 0, &op), -EINVAL);
    assert_int_equal(via_node_pending(node, 0), 0);
    setup_free(&s);
}

/* --- consumers and callers ------------------------------------------------------------------- */

static void wait_for_the_consumer(struct setup *s)
{
    struct fabric_host *to = &s->fabric->hosts[s->target];
    uint64_t numbers[20];
    to->deliver_answer = -EAGAIN;
    for (unsigned i = 0; i < 20; i++) {
        numbers[i] = i;
        struct via_op op = op_of(s, VIA_OP_MESSAGE);
        op.flow = 2;
        op.source = &numbers[i];
        op.bytes = 8;
        fabric_submit(s->fabric, 0, &op);
    }
    fabric_run(s->fabric, 300 * VIA_MSEC_NS);
    assert_int_equal(to->deliveries_count, 0);
    assert_int_equal(s->fabric->hosts[0].completions_count, 0);
    /* Another flow is not delayed. */
    struct via_op op = op_of(s, VIA_OP_PUT);
    op.flow = 1;
    op.source = s->data;
    op.bytes = 3000;
    fabric_submit(s->fabric, 0, &op);
    fabric_run(s->fabric, VIA_MSEC_NS);
    assert_non_null(fabric_completion(s->fabric, 0, op.cookie));
    assert_int_equal(to->deliveries_count, 0);

    to->deliver_answer = 0;
    fabric_run(s->fabric, 300 * VIA_MSEC_NS);
    assert_int_equal(to->deliveries_count, 0); /* not before the consumer is ready */
    via_node_resume(to->node, 0, 0, 2);
    to->woken[0] = true;
    fabric_run(s->fabric, VIA_MSEC_NS); /* at once, not only at the next time-out */
    assert_int_equal(to->deliveries_count, 20);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(to->deliveries[i].first, i);
    }
    assert_true(fabric_drain(s->fabric, VIA_SEC_NS));
}

static void a_consumer_that_is_not_ready_holds_its_flow(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct setup s = setup_new(i != 1, i == 2 ? 0 : 1);
        wait_for_the_consumer(&s);
        setup_free(&s);
    }
}

static void a_host_that_is_not_there_yet_is_waited_for(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    uint64_t number = 4711;
    fabric_add_host(fabric);
    fabric_add_host(fabric);
    fabric_connect(fabric, 0, 1);
    fabric_start(fabric, 0);
    fabric_run(fabric, 50 * VIA_MSEC_NS);
    struct via_op op = {
        .kind = VIA_OP_MESSAGE, .destination = 1, .source = &number, .bytes = 8, .cookie = 1};
    fabric_submit(fabric, 0, &op);
    fabric_run(fabric, 500 * VIA_MSEC_NS);
    assert_int_equal(via_node_pending(fabric_node(fabric, 0), 0), 1);
    fabric_start(fabric, 1);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 0, 1)->status, 0);
    assert_int_equal(fabric->hosts[1].deliveries_count, 1);
    fabric_free(fabric);
}

static void patience_ends(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    uint64_t number = 4711;
    fabric->config.give_up_ns = 300 * VIA_MSEC_NS;
    fabric_chain(fabric, 2);
    struct via_op op = {
        .kind = VIA_OP_MESSAGE, .destination = 1, .source = &number, .bytes = 8, .cookie = 1};
    fabric_settle(fabric);
    fabric_cut(&fabric->links[0]);
    fabric_run(fabric, VIA_SEC_NS);
    fabric_submit(fabric, 0, &op);
    fabric_run(fabric, 290 * VIA_MSEC_NS);
    assert_null(fabric_completion(fabric, 0, 1));
    fabric_run(fabric, 20 * VIA_MSEC_NS);
    assert_int_equal(fabric_completion(fabric, 0, 1)->status, -EHOSTUNREACH);
    fabric_mend(&fabric->links[0]);
    fabric_settle(fabric);
    op.cookie = 2;
    fabric_submit(fabric, 0, &op);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 0, 2)->status, 0);
    assert_int_equal(fabric->hosts[1].deliveries_count, 1);
    /* The operation does not end because a consumer is not ready. */
    fabric->hosts[1].deliver_answer = -EAGAIN;
    op.cookie = 3;
    fabric_submit(fabric, 0, &op);
    fabric_run(fabric, 2 * VIA_SEC_NS);
    assert_null(fabric_completion(fabric, 0, 3));
    fabric_free(fabric);
}

static void cancelled_operations_end_at_once(void **state)
{
    (void)state;
    for (int target = 1; target >= 0; target--) {
        struct setup s = setup_new(true, target);
        unsigned char *result = malloc(200000);
        s.fabric->hosts[s.target].deliver_answer = -EAGAIN;
        for (unsigned i = 0; i < 12; i++) {
            static const unsigned kinds[] = {VIA_OP_MESSAGE, VIA_OP_PUT, VIA_OP_GET, VIA_OP_ATOMIC};
            struct via_op op = op_of(&s, kinds[i % 4]);
            op.source = s.data;
            op.result = result;
            op.bytes = i % 4 == 0 ? 1000 : 200000;
            op.atomic = VIA_ATOMIC_ADD;
            op.flow = i % 3;
            op.cookie = (uint64_t)(i % 2) << 32 | i;
            fabric_submit(s.fabric, 0, &op);
        }
        fabric_run(s.fabric, 30 * VIA_USEC_NS);
        unsigned before = s.fabric->hosts[0].completions_count;
        unsigned pending = via_node_pending(fabric_node(s.fabric, 0), 0);
        via_node_cancel(fabric_node(s.fabric, 0), 0, UINT64_C(1) << 32, 0);
        for (unsigned i = before; i < s.fabric->hosts[0].completions_count; i++) {
            assert_int_equal(s.fabric->hosts[0].completions[i].cookie >> 32, 0);
        }
        assert_true(via_node_pending(fabric_node(s.fabric, 0), 0) < pending);
        via_node_cancel(fabric_node(s.fabric, 0), 0, 0, 0);
        assert_int_equal(via_node_pending(fabric_node(s.fabric, 0), 0), 0);
        assert_int_equal(s.fabric->hosts[0].completions_count, 12);
        free(result); /* the node must not write there any more */
        /* The flows continue. */
        s.fabric->hosts[s.target].deliver_answer = 0;
        via_node_resume(fabric_node(s.fabric, s.target), 0, 0, 0);
        via_node_resume(fabric_node(s.fabric, s.target), 0, 0, 1);
        via_node_resume(fabric_node(s.fabric, s.target), 0, 0, 2);
        for (uint16_t f = 0; f < 3; f++) {
            struct via_op op = op_of(&s, VIA_OP_MESSAGE);
            op.flow = f;
            op.source = s.data;
            op.bytes = 900 + f;
            op.cookie = 1000 + f;
            assert_int_equal(run(&s, &op, NULL), 0);
        }
        const struct fabric_host *to = &s.fabric->hosts[s.target];
        for (uint16_t f = 0; f < 3; f++) {
            assert_int_equal(to->deliveries[to->deliveries_count - 3 + f].bytes, 900 + f);
        }
        setup_free(&s);
    }
}

static void submit_again(struct fabric_host *host, uint64_t cookie, int status)
{
    static const uint64_t number = 5;
    struct via_op op = {
        .kind = VIA_OP_MESSAGE, .source = &number, .bytes = 8, .cookie = cookie + 1};
    assert_int_equal(status, 0);
    op.destination = (uint16_t)(cookie % 2);
    if (cookie < 100) {
        assert_int_equal(via_node_submit(host->node, 0, &op), 0);
    }
}

static void a_completion_may_submit(void **state)
{
    (void)state;
    struct setup s = setup_new(true, 1);
    s.fabric->hosts[0].on_complete = submit_again;
    struct via_op op = op_of(&s, VIA_OP_MESSAGE);
    op.source = s.data;
    op.bytes = 8;
    op.cookie = 1;
    fabric_submit(s.fabric, 0, &op);
    assert_true(fabric_drain(s.fabric, VIA_SEC_NS));
    assert_int_equal(s.fabric->hosts[0].completions_count, 100);
    setup_free(&s);
}

static void fini_ends_what_is_pending(void **state)
{
    (void)state;
    struct setup s = setup_new(true, 1);
    fabric_cut(&s.fabric->links[0]);
    fabric_run(s.fabric, VIA_MSEC_NS);
    for (unsigned i = 0; i < 5; i++) {
        struct via_op op = op_of(&s, VIA_OP_PUT);
        op.source = s.data;
        op.bytes = 5000;
        fabric_submit(s.fabric, 0, &op);
    }
    via_node_fini(fabric_node(s.fabric, 0));
    fabric_crash(s.fabric, 0);
    assert_int_equal(s.fabric->hosts[0].completions_count, 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(s.fabric->hosts[0].completions[i].status, -ECANCELED);
    }
    setup_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_and_gets),
        cmocka_unit_test(notifies),
        cmocka_unit_test(puts_with_signal),
        cmocka_unit_test(atomics),
        cmocka_unit_test(answers_may_run_out),
        cmocka_unit_test(order_of_completions),
        cmocka_unit_test(limited_to_reading),
        cmocka_unit_test(refusals_are_reported_and_counted_once),
        cmocka_unit_test(a_read_only_segment_is_not_written),
        cmocka_unit_test(segments_come_and_go),
        cmocka_unit_test(a_segment_that_vanishes_ends_a_get),
        cmocka_unit_test(bad_operations_are_not_accepted),
        cmocka_unit_test(a_consumer_that_is_not_ready_holds_its_flow),
        cmocka_unit_test(a_host_that_is_not_there_yet_is_waited_for),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(cancelled_operations_end_at_once),
        cmocka_unit_test(a_completion_may_submit),
        cmocka_unit_test(fini_ends_what_is_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
