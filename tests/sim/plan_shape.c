/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Properties of a fabric's shape: neighbours, routes, counts and bisections, computed by hand. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/plan/shape.h"

static struct plan_shape shape_of(const char *text, unsigned hosts, unsigned chip_ports)
{
    struct plan_shape shape;
    struct via_error err = {0};
    unsigned room;
    int rc = plan_shape_parse(text, hosts, &shape, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    if (shape.kind == PLAN_TREE) {
        assert_int_equal(plan_shape_grow(&shape, chip_ports, &room), 0);
    }
    return shape;
}

static void counts_are_those_of_paper_and_pencil(void **state)
{
    static const struct {
        const char *text;
        unsigned hosts, chip_ports, cables, switches, degree, bisection, diameter;
    } cases[] = {
        {"ring", 2, 0, 1, 0, 1, 1, 1},
        {"ring", 3, 0, 3, 0, 2, 2, 1},
        {"ring", 1024, 0, 1024, 0, 2, 2, 512},
        {"chain", 2, 0, 1, 0, 1, 1, 1},
        {"chain", 1024, 0, 1023, 0, 2, 1, 1023},
        {"torus:4x4", 0, 0, 32, 0, 4, 8, 4},
        {"torus2", 16, 0, 32, 0, 4, 8, 4},
        {"torus:8x2", 0, 0, 24, 0, 3, 4, 5}, /* pairs have one cable */
        {"torus:2x2x2", 0, 0, 12, 0, 3, 4, 3},
        {"torus3", 1024, 0, 3072, 0, 6, 128, 16}, /* cut in the longest: 2 x 64 */
        {"star", 12, 12, 12, 1, 1, 6, 1},
        {"star", 22, 12, 24, 3, 1, 1, 1}, /* two leaves of 11 below a hub */
        {"fat-tree", 12, 12, 12, 1, 1, 6, 1},
        {"fat-tree", 72, 12, 144, 18, 1, 36, 1},     /* 12 leaves of 6, 6 spines */
        {"fat-tree", 432, 12, 1296, 180, 1, 216, 1}, /* k^3/4 hosts, 5k^2/4 switches */
    };
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        const struct plan_shape shape =
            shape_of(cases[i].text, cases[i].hosts, cases[i].chip_ports);
        unsigned switches = 0;
        for (unsigned level = 1; level <= shape.levels_count; level++) {
            switches += plan_shape_switches(&shape, level);
        }
        print_message("%s of %u\n", cases[i].text, shape.hosts_count);
        assert_int_equal(plan_shape_cables(&shape), cases[i].cables);
        assert_int_equal(switches, cases[i].switches);
        assert_int_equal(plan_shape_degree(&shape), cases[i].degree);
        assert_int_equal(plan_shape_bisection(&shape), cases[i].bisection);
        assert_int_equal(plan_shape_diameter(&shape), cases[i].diameter);
        free(shape.ways);
    }
}

static unsigned between(unsigned a, unsigned b, unsigned size)
{
    unsigned up = (b + size - a) % size;
    return up < size - up ? up : size - up;
}

static void ways_are_shortest_and_end(void **state)
{
    static const char *const texts[] = {"torus:5x4", "torus:2x7", "torus:3x2x4"};
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(texts); i++) {
        const struct plan_shape shape = shape_of(texts[i], 0, 0);
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

static void nonsense_is_refused(void **state)
{
    static const struct {
        const char *text;
        unsigned hosts;
        const char *says;
    } cases[] = {
        {"spiral", 4, "spiral: no such topology"},
        {"ring", 0, "ring: how many hosts?"},
        {"torus:4", 0, "torus:4: expected torus:AxB"},
        {"torus:4x", 0, "torus:4x: expected"},
        {"torus:1x4", 0, "torus:1x4: expected"},
        {"torus:2x2x2x2", 0, "torus:2x2x2x2: expected"},
        {"torus:4x4", 17, "torus:4x4: has 16 hosts, not 17"},
        {"torus:64x64", 0, "torus:64x64: 4096 hosts, but 2 to 1024"},
        {"torus2", 7, "torus2: 7 hosts are no 2-dimensional torus"},
        {"torus3", 10, "torus3: 10 hosts are no 3-dimensional torus"},
    };
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        struct plan_shape shape;
        struct via_error err = {0};
        assert_int_equal(plan_shape_parse(cases[i].text, cases[i].hosts, &shape, &err), -EINVAL);
        if (strncmp(err.text, cases[i].says, strlen(cases[i].says)) != 0) {
            fail_msg("'%s' says '%s', not '%s'", cases[i].text, err.text, cases[i].says);
        }
    }
    struct plan_shape star;
    unsigned room;
    assert_int_equal(plan_shape_parse("star", 133, &star, NULL), 0);
    assert_int_equal(plan_shape_grow(&star, 4, &room), -ERANGE);
    assert_int_equal(room, 108); /* 4 levels: 4 x 3 x 3 x 3 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_paper_and_pencil),
        cmocka_unit_test(ways_are_shortest_and_end),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
