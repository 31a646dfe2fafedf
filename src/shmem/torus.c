/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/torus.h"

unsigned via_torus_columns(unsigned hosts, unsigned index)
{
    for (unsigned columns = 2; columns <= hosts / 2; columns++)
        if (hosts % columns == 0 && index-- == 0)
            return columns;
    return 0;
}

/*
 * The order runs along each row from a column c to the right, ending at column c - 1, or to the
 * left, ending at c + 1; there it enters the next row. After the last row it must be at the column
 * of the beginning. This is so if as many rows run to the left as to the right. If the number of
 * rows is odd, it is also so with `columns` more rows to the left than to the right, which requires
 * an odd number of columns.
 */
static unsigned rows_to_the_left(unsigned columns, unsigned rows)
{
    return rows % 2 == 0 ? rows / 2 : (rows + columns) / 2;
}

/* Host numbers are row * row_step + column * column_step. */
static void go_along_rows(unsigned columns, unsigned rows, unsigned row_step, unsigned column_step,
                          int *ret_ring)
{
    unsigned to_the_left = rows_to_the_left(columns, rows), column = 0;

    for (unsigned row = 0; row < rows; row++) {
        unsigned step = row < to_the_left ? columns - 1 : 1;
        for (unsigned i = 0; i < columns; i++) {
            *ret_ring++ = (int)(row * row_step + column * column_step);
            if (i + 1 < columns)
                column = (column + step) % columns;
        }
    }
}

void via_torus_ring(unsigned columns, unsigned rows, int *ret_ring)
{
    if (rows % 2 == 0 || (columns % 2 != 0 && rows >= columns))
        go_along_rows(columns, rows, columns, 1, ret_ring);
    else
        go_along_rows(rows, columns, 1, columns, ret_ring);
}
