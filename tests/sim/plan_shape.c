/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Routes of a fabric's shape, computed by hand. Counts and bisections: plan_shape.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/plan/shape.h"

static struct plan_shape torus_of(unsigned dimensions, const unsigned *sizes)
{
    struct plan_shape shape = {.dimensions_count = dimensions, .hosts_count = 1};
    for (unsigned d = 0; d < dimensions; d++) {
        shape.sizes[d] = sizes[d];
        shape.hosts_count *= sizes[d];
    }
    return shape;
}

static unsigned between(unsigned a, unsigned b, unsigned size)
{
    unsigned up = (b + size - a) % size;
    return up < size - up ? up : size - up;
}

static void ways_are_shortest_and_end(void **state)
{
    static const unsigned sizes[][PLAN_DIMENSIONS_MAX] = {{5, 4, 1}, {2, 7, 1}, {3, 2, 4}};
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
        const struct plan_shape shape = torus_of(sizes[i][2] == 1 ? 2 : 3, sizes[i]);
        for (unsigned a = 0; a < shape.hosts_count; a++) {
            for (unsigned b = 0; b < shape.hosts_count; b++) {
                unsigned expected = 0, links = 0, x = a, y = b, at = a;
                for (unsigned d = 0; d < shape.dimensions_count; d++) {
                    expected += between(x % shape.sizes[d], y % shape.sizes[d], shape.sizes[d]);
                    x /= shape.sizes[d];
                    y /= shape.sizes[d];
                }
                while (at != b && links <= expected) {
                    unsigned next;
                    unsigned port = plan_shape_way(&shape, at, b, &next);
                    assert_true(port < plan_shape_degree(&shape));
                    at = next;
                    links++;
                }
                assert_int_equal(links, expected);
            }
        }
    }
}

static void longest_ways_are_those_of_paper_and_pencil(void **state)
{
    static const struct {
        unsigned dimensions, sizes[PLAN_DIMENSIONS_MAX], degree, diameter;
    } cases[] = {
        {1, {2}, 1, 1},       {1, {3}, 2, 1},         {1, {1024}, 2, 512},
        {2, {4, 4}, 4, 4},    {2, {8, 2}, 3, 5}, /* pairs have one cable */
        {3, {2, 2, 2}, 3, 3}, {3, {16, 8, 8}, 6, 16},
    };
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        const struct plan_shape shape = torus_of(cases[i].dimensions, cases[i].sizes);
        assert_int_equal(plan_shape_degree(&shape), cases[i].degree);
        assert_int_equal(plan_shape_diameter(&shape), cases[i].diameter);
    }
    struct plan_shape chain = torus_of(1, (const unsigned[]){1024});
    chain.cuts[chain.cuts_count++] = (struct plan_pair){0, 1023};
    plan_shape_route(&chain);
    assert_int_equal(plan_shape_diameter(&chain), 1023);
    plan_shape_fini(&chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longest_ways_are_those_of_paper_and_pencil),
        cmocka_unit_test(ways_are_shortest_and_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
