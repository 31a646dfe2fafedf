/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The heat equation on a plate: in each step every point moves towards the mean of its four
 * neighbours. The rows are dealt to the PEs in blocks; after each step a PE puts its first and its
 * last row into its neighbours, straight into the rows these keep for it, and raises a flag behind
 * each. PE 0 then computes the same alone and compares: every number must be the same, to the last
 * bit, as each is computed by the same operations.
 *
 *     oshrun -n 4 heat_stencil [rows] [columns] [steps]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS_DEFAULT 512
#define COLUMNS_DEFAULT 512
#define STEPS_DEFAULT 500
#define RATE 0.2

struct plate {
    size_t rows; /* without the border */
    size_t columns;
    int steps;
};

/* The rows first to first + count - 1 of the plate, and one more on each side. */
struct part {
    size_t first;
    size_t count;
    double *now;
    double *then;
};

static double start_at(const struct plate *plate, size_t row, size_t column)
{
    if (row == 0)
        return 100.0;
    if (row == plate->rows + 1)
        return -20.0;
    return (double)((row * 31 + column * 17) % 7);
}

static size_t width_of(const struct plate *plate)
{
    return plate->columns + 2;
}

static void fill(const struct plate *plate, struct part *part)
{
    size_t width = width_of(plate);

    for (size_t row = 0; row < part->count + 2; row++)
        for (size_t column = 0; column < width; column++)
            part->now[row * width + column] = start_at(plate, part->first - 1 + row, column);
    memcpy(part->then, part->now, (part->count + 2) * width * sizeof(double));
}

static void step(const struct plate *plate, struct part *part)
{
    size_t width = width_of(plate);

    for (size_t row = 1; row <= part->count; row++) {
        const double *above = part->now + (row - 1) * width;
        const double *here = part->now + row * width;
        const double *below = part->now + (row + 1) * width;
        double *result = part->then + row * width;
        for (size_t column = 1; column <= plate->columns; column++)
            result[column] =
                here[column] + RATE * (above[column] + below[column] + here[column - 1] +
                                       here[column + 1] - 4.0 * here[column]);
    }
    double *swapped = part->now;
    part->now = part->then;
    part->then = swapped;
}

/* Rows are dealt so that PEs differ by one at most. */
static struct part part_of(const struct plate *plate, int pe, int pes)
{
    size_t first = plate->rows * (size_t)pe / (size_t)pes;
    size_t next = plate->rows * ((size_t)pe + 1) / (size_t)pes;

    return (struct part){.first = first + 1, .count = next - first};
}

/* How often the upper and the lower neighbour has put its row. */
static uint64_t arrived[2];

static void exchange(const struct plate *plate, const struct part *part, int step_number)
{
    size_t width = width_of(plate);
    int me = shmem_my_pe();
    int pes = shmem_n_pes();

    if (me > 0) {
        struct part above = part_of(plate, me - 1, pes);
        shmem_put_signal(part->now + (above.count + 1) * width, part->now + width, width,
                         &arrived[1], (uint64_t)step_number, SHMEM_SIGNAL_SET, me - 1);
    }
    if (me < pes - 1)
        shmem_put_signal(part->now, part->now + part->count * width, width, &arrived[0],
                         (uint64_t)step_number, SHMEM_SIGNAL_SET, me + 1);
    if (me > 0)
        shmem_signal_wait_until(&arrived[0], SHMEM_CMP_GE, (uint64_t)step_number);
    if (me < pes - 1)
        shmem_signal_wait_until(&arrived[1], SHMEM_CMP_GE, (uint64_t)step_number);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The whole plate by one PE, against what all PEs have. */
static size_t count_wrong(const struct plate *plate, const struct part *mine, double *ret_seconds)
{
    size_t width = width_of(plate), wrong = 0;
    size_t bytes = (plate->rows + 2) * width * sizeof(double);
    int pes = shmem_n_pes();
    struct part whole = {.first = 1, .count = plate->rows};

    whole.now = malloc(bytes);
    whole.then = malloc(bytes);
    double *row = malloc(width * sizeof(double));
    if (!whole.now || !whole.then || !row) {
        fprintf(stderr, "FAIL: no memory to compare with\n");
        shmem_global_exit(1);
    }
    fill(plate, &whole);
    double began = seconds();
    for (int number = 1; number <= plate->steps; number++)
        step(plate, &whole);
    *ret_seconds = seconds() - began;

    for (int pe = 0; pe < pes; pe++) {
        struct part theirs = part_of(plate, pe, pes);
        for (size_t i = 0; i < theirs.count; i++) {
            shmem_get(row, mine->now + (i + 1) * width, width, pe);
            const double *expected = whole.now + (theirs.first + i) * width;
            for (size_t column = 0; column < width; column++)
                wrong += row[column] != expected[column];
        }
    }
    free(whole.now);
    free(whole.then);
    free(row);
    return wrong;
}

static size_t argument(int argc, char **argv, int index, size_t otherwise)
{
    return argc > index ? strtoul(argv[index], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    struct plate plate = {.rows = argument(argc, argv, 1, ROWS_DEFAULT),
                          .columns = argument(argc, argv, 2, COLUMNS_DEFAULT),
                          .steps = (int)argument(argc, argv, 3, STEPS_DEFAULT)};

    shmem_init();
    int me = shmem_my_pe();
    int pes = shmem_n_pes();
    if (plate.rows < (size_t)pes || plate.columns == 0) {
        if (me == 0)
            fprintf(stderr, "FAIL: each of %d PEs needs a row\n", pes);
        shmem_finalize();
        return 1;
    }

    struct part part = part_of(&plate, me, pes);
    /* Symmetric objects are equally large everywhere. */
    size_t rows_max = plate.rows / (size_t)pes + 1;
    size_t bytes = (rows_max + 2) * width_of(&plate) * sizeof(double);
    part.now = shmem_malloc(bytes);
    part.then = shmem_malloc(bytes);
    if (!part.now || !part.then) {
        fprintf(stderr, "FAIL: no symmetric memory for %zu bytes\n", 2 * bytes);
        shmem_global_exit(1);
    }
    fill(&plate, &part);
    shmem_barrier_all();

    double began = seconds();
    for (int number = 1; number <= plate.steps; number++) {
        step(&plate, &part);
        exchange(&plate, &part, number);
    }
    shmem_barrier_all();
    double together = seconds() - began;

    int failed = 0;
    if (me == 0) {
        double alone;
        size_t wrong = count_wrong(&plate, &part, &alone);
        failed = wrong > 0;
        printf("%s: %zu x %zu points, %d steps, %d PEs: %.3f s (one PE alone: %.3f s)",
               failed ? "FAIL" : "PASS", plate.rows, plate.columns, plate.steps, pes, together,
               alone);
        if (failed)
            printf(", %zu points are wrong", wrong);
        printf("\n");
    }
    shmem_finalize();
    return failed;
}
