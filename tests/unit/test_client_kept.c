/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The puts that a connection keeps until its host has acknowledged them, against a model that
 * copies all puts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/client.h"
#include "host/client_kept.h"

#define HEAD_BYTES 32u
#define STEPS 200000u
#define MODEL_MAX (VIA_KEPT_PUTS_MAX + 1)

struct model {
    uint64_t begin[MODEL_MAX];
    size_t bytes[MODEL_MAX];
    unsigned char first_byte[MODEL_MAX];
    unsigned first, count;
};

static uint64_t seed = 1;

static uint64_t draw(uint64_t bound)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % bound;
}

static unsigned at(const struct model *model, unsigned i)
{
    return (model->first + i) % MODEL_MAX;
}

static void check_first(const struct via_kept *kept, const struct model *model)
{
    struct via_kept_put put;
    assert_int_equal(via_kept_count(kept), model->count);
    assert_true(via_kept_first(kept, 0, &put) == (model->count != 0));
    if (model->count != 0) {
        unsigned i = at(model, 0);
        assert_int_equal(put.begin, model->begin[i]);
        assert_int_equal(put.bytes, model->bytes[i]);
        for (size_t byte = 0; byte < put.bytes; byte += 1 + put.bytes / 7) {
            assert_int_equal(put.data[byte], (unsigned char)(model->first_byte[i] + byte));
        }
    }
}

static void puts_stay_until_they_are_applied(void **state)
{
    static struct via_kept_area area;
    static struct via_kept kept;
    struct via_remote remote = {.handle = 7};
    static struct model model;
    static unsigned char source[2 * VIA_KEPT_COPY_BYTES_MAX + 256];
    uint64_t position = 0;
    unsigned full_count = 0, longest = 0;
    (void)state;
    via_kept_init(&kept, &area);
    for (size_t i = 0; i < sizeof(source); i++) {
        source[i] = (unsigned char)i;
    }
    for (unsigned step = 0; step < STEPS; step++) {
        if (draw(100) < 60) {
            size_t bytes = 1 + draw(draw(4) != 0 ? 64 : 2 * VIA_KEPT_COPY_BYTES_MAX);
            unsigned char first_byte = (unsigned char)draw(256);
            if (!via_kept_has_room(&kept, bytes)) {
                full_count++;
                continue;
            }
            via_kept_add(&kept, &remote, position + HEAD_BYTES, 0, source + first_byte, bytes);
            model.begin[at(&model, model.count)] = position + HEAD_BYTES;
            model.bytes[at(&model, model.count)] = bytes;
            model.first_byte[at(&model, model.count)] = first_byte;
            model.count++;
            longest = model.count > longest ? model.count : longest;
            position += HEAD_BYTES + bytes;
        } else if (model.count != 0) {
            /* A position at the end of one of the first puts, or within the next one. */
            unsigned ends = (unsigned)draw(model.count < 3 ? model.count : 3);
            uint64_t to = model.begin[at(&model, ends)] + draw(model.bytes[at(&model, ends)]);
            via_kept_release(&kept, to);
            model.first = at(&model, ends);
            model.count -= ends;
        }
        check_first(&kept, &model);
    }
    assert_true(full_count > 100 && longest > 8);
}

static void the_applied_part_of_a_put_is_left_out(void **state)
{
    static struct via_kept_area area;
    static struct via_kept kept;
    struct via_remote remote = {.handle = 7};
    struct via_kept_put put;
    unsigned char data[100] = {0};
    (void)state;
    via_kept_init(&kept, &area);
    via_kept_add(&kept, &remote, 1000, 5000, data, sizeof(data));
    assert_true(via_kept_first(&kept, 999, &put) && put.off == 5000 && put.bytes == 100);
    assert_true(via_kept_first(&kept, 1040, &put) && put.off == 5040 && put.bytes == 60);
    assert_true(via_kept_first(&kept, 1100, &put) && put.bytes == 0);
    via_kept_release(&kept, 1099);
    assert_int_equal(via_kept_count(&kept), 1);
    via_kept_release(&kept, 1100);
    assert_int_equal(via_kept_count(&kept), 0);
}

static void as_many_as_there_are_places(void **state)
{
    static struct via_kept_area area;
    static struct via_kept kept;
    struct via_remote remote = {.handle = 7};
    unsigned count = 0;
    (void)state;
    via_kept_init(&kept, &area);
    while (via_kept_has_room(&kept, 8)) {
        via_kept_add(&kept, &remote, 40 * count + 32, 0, &seed, 8);
        count++;
    }
    assert_int_equal(count, VIA_KEPT_PUTS_MAX);
    assert_true(via_kept_is_fence_due(&kept));
    assert_false(via_kept_has_room(&kept, VIA_KEPT_COPY_BYTES_MAX + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_stay_until_they_are_applied),
        cmocka_unit_test(the_applied_part_of_a_put_is_left_out),
        cmocka_unit_test(as_many_as_there_are_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
