/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Teams: the PEs form a rectangle, each row and each column a team. A matrix is spread over it, a
 * block of rows and columns at each PE; a matrix-vector product then needs sums along rows only,
 * and the answer is handed out along columns.
 *
 *     oshrun -n 6 ./teams [numbers per PE and direction]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK_DEFAULT 50

static double matrix_at(size_t row, size_t column)
{
    return (double)((row * 7 + column * 3) % 11);
}

static double vector_at(size_t column)
{
    return (double)(column % 5) - 2.0;
}

/* The largest number of columns up to the square root that divides the PEs evenly. */
static int columns_for(int pes)
{
    int columns = 1;

    for (int i = 1; i * i <= pes; i++)
        if (pes % i == 0)
            columns = i;
    return columns;
}

/* My block's part of the product. */
static void multiply(double *part, size_t block, size_t first_row, size_t first_column)
{
    for (size_t row = 0; row < block; row++) {
        part[row] = 0;
        for (size_t column = 0; column < block; column++)
            part[row] += matrix_at(first_row + row, first_column + column) *
                         vector_at(first_column + column);
    }
}

static size_t count_wrong(const double *sum, size_t block, size_t first_row, size_t columns)
{
    size_t wrong = 0;

    for (size_t row = 0; row < block; row++) {
        double expected = 0;
        for (size_t column = 0; column < columns; column++)
            expected += matrix_at(first_row + row, column) * vector_at(column);
        /* All of these numbers are whole and small, so sums are exact in any order. */
        wrong += sum[row] != expected;
    }
    return wrong;
}

static int wrong_numbers;

int main(int argc, char **argv)
{
    size_t block = argc > 1 ? strtoul(argv[1], NULL, 10) : BLOCK_DEFAULT;

    shmem_init();
    int me = shmem_my_pe();
    int pes = shmem_n_pes();
    int columns = columns_for(pes);

    shmem_team_t row, column;
    if (shmem_team_split_2d(SHMEM_TEAM_WORLD, columns, NULL, 0, &row, NULL, 0, &column) != 0) {
        fprintf(stderr, "FAIL: no teams of %d columns\n", columns);
        shmem_global_exit(1);
    }
    int x = shmem_team_my_pe(row);
    int y = shmem_team_my_pe(column);
    int rows = shmem_team_n_pes(column);

    double *part = shmem_malloc((block + 1) * sizeof(double));
    double *sum = shmem_malloc((block + 1) * sizeof(double));
    double *all = shmem_malloc((block * (size_t)rows + 1) * sizeof(double));
    if (!part || !sum || !all) {
        fprintf(stderr, "FAIL: no symmetric memory for blocks of %zu\n", block);
        shmem_global_exit(1);
    }

    multiply(part, block, (size_t)y * block, (size_t)x * block);
    /* Along my row: the parts add up to the numbers of my rows. */
    shmem_sum_reduce(row, sum, part, block);
    size_t wrong = count_wrong(sum, block, (size_t)y * block, (size_t)columns * block);
    /* Along my column: every PE gets the whole answer. */
    shmem_fcollect(column, all, sum, block);
    for (int i = 0; i < rows; i++)
        wrong +=
            count_wrong(all + (size_t)i * block, block, (size_t)i * block, (size_t)columns * block);

    /* The number of a PE in one team, seen from another. */
    wrong += shmem_team_translate_pe(row, x, SHMEM_TEAM_WORLD) != me;
    shmem_int_atomic_add(&wrong_numbers, (int)wrong, 0);
    shmem_barrier_all();

    int failed = me == 0 && wrong_numbers > 0;
    if (me == 0)
        printf("%s: %d x %d PEs, %zu x %zu numbers, %d are wrong\n", failed ? "FAIL" : "PASS", rows,
               columns, (size_t)rows * block, (size_t)columns * block, wrong_numbers);
    shmem_team_destroy(column);
    shmem_team_destroy(row);
    shmem_finalize();
    return failed;
}
