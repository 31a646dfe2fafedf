/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Which pipes an end accepts from its peer. */
#include "sockets/meet/stream_offer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static bool is_accepted(struct via_pipe_geometry geometry)
{
    struct via_offer offer = {.geometry = geometry,
                              .segment_bytes = via_segment_bytes_for(&geometry)};
    return via_offer_is_sound(&offer, 2 * offer.segment_bytes);
}

#define BODY_BYTES (32u * 1024)

static void rings_of_this_library_are_accepted(void **state)
{
    (void)state;
    assert_true(
        is_accepted((struct via_pipe_geometry){VIA_RING_SLOTS_MAX, 256u * 1024, BODY_BYTES}));
    assert_true(is_accepted(
        (struct via_pipe_geometry){VIA_RING_SLOTS_MAX, VIA_RING_LONG_BYTES, BODY_BYTES}));
}

/* A peer that never reads would make this end fill the ring, and its pages count as this end's
 * memory. */
static void larger_rings_are_refused(void **state)
{
    (void)state;
    assert_false(is_accepted(
        (struct via_pipe_geometry){VIA_RING_SLOTS_MAX, VIA_RING_LONG_BYTES + 64, BODY_BYTES}));
    assert_false(is_accepted((struct via_pipe_geometry){VIA_RING_SLOTS_MAX, 1u << 30, BODY_BYTES}));
    assert_false(is_accepted(
        (struct via_pipe_geometry){2 * VIA_RING_SLOTS_MAX, VIA_RING_LONG_BYTES, BODY_BYTES}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_of_this_library_are_accepted),
        cmocka_unit_test(larger_rings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
