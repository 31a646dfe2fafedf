/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Acknowledgements that no thread waits for: VIA_FRAME_FLAG_ACK_SOON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "core/node.h"
#include "fabric.h"
#include "wire/frame.h"

#define SEGMENT_BYTES 4096u

/* Host 0 puts into the memory of host 2, over a relay. */
struct setup {
    struct fabric *fabric;
    uint64_t handle;
    uint64_t cookie;
    _Alignas(64) unsigned char memory[SEGMENT_BYTES];
    unsigned char data[64];
};

static struct setup *setup_new(void)
{
    struct setup *s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t)63);
    assert_non_null(s);
    memset(s, 0, sizeof(*s));
    memset(s->data, 0x5a, sizeof(s->data));
    s->cookie = 1;
    s->fabric = fabric_new(true);
    s->fabric->config.window_frames = 128;
    s->fabric->config.ops_count = 128;
    fabric_chain(s->fabric, 3);
    fabric_settle(s->fabric);
    assert_int_equal(via_node_segment_add(fabric_node(s->fabric, 2), s->memory, SEGMENT_BYTES,
                                          VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 77, &s->handle),
                     0);
    return s;
}

static void setup_free(struct setup *s)
{
    assert_int_equal(fabric_counters(s->fabric, 0).frames_resent, 0);
    assert_int_equal(fabric_counters(s->fabric, 2).frames_duplicate, 0);
    fabric_free(s->fabric);
    free(s);
}

static uint64_t put(struct setup *s, unsigned flags)
{
    struct via_op op = {
        .kind = VIA_OP_PUT,
        .destination = 2,
        .segment = s->handle,
        .source = s->data,
        .bytes = sizeof(s->data),
        .flags = (uint8_t)flags,
        .cookie = s->cookie++,
    };
    fabric_submit(s->fabric, 0, &op);
    return op.cookie;
}

static bool has_ended(const struct setup *s, uint64_t cookie)
{
    return fabric_completion(s->fabric, 0, cookie) != NULL;
}

/* Returns the number of frames that host 0 has received. */
static uint64_t frames_back(const struct setup *s)
{
    return fabric_link_status(s->fabric, 0, 0).frames_received;
}

static void it_comes_after_a_while(void **state)
{
    (void)state;
    struct setup *s = setup_new();
    uint64_t cookie = put(s, VIA_FRAME_FLAG_NOTIFY | VIA_FRAME_FLAG_ACK_SOON);
    fabric_run(s->fabric, VIA_MSEC_NS);
    assert_int_equal(s->fabric->hosts[2].notifies_count, 1);
    assert_memory_equal(s->memory, s->data, sizeof(s->data));
    assert_false(has_ended(s, cookie));
    assert_int_equal(frames_back(s), 0);
    fabric_run(s->fabric, 4 * VIA_MSEC_NS);
    assert_true(has_ended(s, cookie));
    assert_int_equal(frames_back(s), 1);
    setup_free(s);
}

static void it_goes_with_the_next_frame_back(void **state)
{
    (void)state;
    struct setup *s = setup_new();
    const struct via_op message = {.kind = VIA_OP_MESSAGE, .endpoint = 7, .cookie = 9000};
    uint64_t cookie = put(s, VIA_FRAME_FLAG_ACK_SOON);
    fabric_run(s->fabric, VIA_MSEC_NS);
    assert_false(has_ended(s, cookie));
    fabric_submit(s->fabric, 2, &message);
    fabric_run(s->fabric, VIA_MSEC_NS);
    assert_int_equal(s->fabric->hosts[0].deliveries_count, 1);
    assert_true(has_ended(s, cookie));
    assert_int_equal(frames_back(s), 2);
    setup_free(s);
}

/* An acknowledgement that a thread waits for follows. */
static void it_comes_at_once_with_another(void **state)
{
    (void)state;
    struct setup *s = setup_new();
    uint64_t cookie = put(s, VIA_FRAME_FLAG_ACK_SOON);
    fabric_run(s->fabric, VIA_MSEC_NS / 2);
    uint64_t last = put(s, 0);
    fabric_run(s->fabric, VIA_MSEC_NS / 2);
    assert_true(has_ended(s, cookie) && has_ended(s, last));
    assert_int_equal(frames_back(s), 1);
    fabric_run(s->fabric, 20 * VIA_MSEC_NS);
    assert_int_equal(frames_back(s), 1);
    setup_free(s);
}

/* A host that puts many bytes needs no time-out to get room. */
static void every_eighth_comes_at_once(void **state)
{
    (void)state;
    struct setup *s = setup_new();
    for (int i = 0; i < 100; i++) {
        put(s, VIA_FRAME_FLAG_ACK_SOON);
    }
    fabric_run(s->fabric, VIA_MSEC_NS);
    assert_in_range(s->fabric->hosts[0].completions_count, 90, 99);
    assert_true(fabric_drain(s->fabric, 5 * VIA_MSEC_NS));
    setup_free(s);
}

/* The relay dies while it holds the acknowledgement that was due soon: the source requests it
 * again. */
static void it_may_be_lost(void **state)
{
    (void)state;
    struct setup *s = setup_new();
    uint64_t cookie = put(s, VIA_FRAME_FLAG_ACK_SOON);
    fabric_run(s->fabric, VIA_MSEC_NS);
    fabric_cut(&s->fabric->links[1]);
    fabric_run(s->fabric, 10 * VIA_MSEC_NS);
    assert_false(has_ended(s, cookie));
    fabric_mend(&s->fabric->links[1]);
    assert_true(fabric_drain(s->fabric, 5 * VIA_SEC_NS));
    assert_int_equal(fabric_completion(s->fabric, 0, cookie)->status, 0);
    fabric_free(s->fabric);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_comes_after_a_while),
        cmocka_unit_test(it_goes_with_the_next_frame_back),
        cmocka_unit_test(it_comes_at_once_with_another),
        cmocka_unit_test(every_eighth_comes_at_once),
        cmocka_unit_test(it_may_be_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
