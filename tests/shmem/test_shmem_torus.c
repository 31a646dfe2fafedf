/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A torus of hosts as a ring, and the routes of a message around a ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shmem/torus.h"

#define SIDE_MAX 13u

static bool are_next(unsigned a, unsigned b, unsigned count)
{
    return (a + 1) % count == b || (b + 1) % count == a;
}

static bool are_neighbours(unsigned a, unsigned b, unsigned columns, unsigned rows)
{
    unsigned row_a = a / columns, row_b = b / columns;
    unsigned column_a = a % columns, column_b = b % columns;

    return row_a == row_b ? are_next(column_a, column_b, columns)
                          : column_a == column_b && are_next(row_a, row_b, rows);
}

static void test_a_ring_of_neighbours_visits_every_host_once(void **state)
{
    (void)state;
    for (unsigned columns = 2; columns <= SIDE_MAX; columns++) {
        for (unsigned rows = 2; rows <= SIDE_MAX; rows++) {
            unsigned count = columns * rows;
            int ring[SIDE_MAX * SIDE_MAX];
            bool seen[SIDE_MAX * SIDE_MAX] = {false};
            via_torus_ring(columns, rows, ring);
            for (unsigned i = 0; i < count; i++) {
                unsigned here = (unsigned)ring[i], next = (unsigned)ring[(i + 1) % count];
                assert_true(here < count && !seen[here]);
                seen[here] = true;
                assert_true(are_neighbours(here, next, columns, rows));
            }
        }
    }
}

static void test_lengths_of_rows(void **state)
{
    (void)state;
    assert_int_equal(via_torus_columns(12, 0), 2u);
    assert_int_equal(via_torus_columns(12, 1), 3u);
    assert_int_equal(via_torus_columns(12, 3), 6u);
    assert_int_equal(via_torus_columns(12, 4), 0u);
    assert_int_equal(via_torus_columns(17, 0), 0u);
    assert_int_equal(via_torus_columns(4, 0), 2u);
}

/* Every host but the source gets the message once, and at most one host gets it from two. */
static void test_both_ways_round_reach_every_host_once(void **state)
{
    (void)state;
    for (unsigned count = 2; count <= 20; count++) {
        unsigned pointed_at[20] = {0};
        for (unsigned distance = 0; distance < count; distance++) {
            struct via_torus_ways ways = via_torus_ways(count, distance);
            pointed_at[(distance + 1) % count] += ways.next != 0;
            pointed_at[(distance + count - 1) % count] += ways.before != 0;
        }
        assert_int_equal(pointed_at[0], 0u);
        for (unsigned i = 1; i < count; i++)
            assert_int_equal(pointed_at[i], 1u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_ring_of_neighbours_visits_every_host_once),
        cmocka_unit_test(test_lengths_of_rows),
        cmocka_unit_test(test_both_ways_round_reach_every_host_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
