// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
//
// C++: the largest eigenvalue of a matrix whose rows are spread over the PEs. Symmetric memory is
// owned by an object, calls are chosen by the type of their arguments, and std::complex goes
// through a reduction. PEs have different numbers of rows, so their parts are collected.
//
//     oshc++ -O2 power_iteration.cpp -o power_iteration
//     oshrun -n 4 ./power_iteration [rows]
//
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <shmem.h>
#include <stdexcept>

// Memory of the symmetric heap: every PE makes and destroys it at the same place of the program.
template <typename T> class symmetric_array
{
  public:
    explicit symmetric_array(std::size_t count)
        : data_(static_cast<T *>(shmem_calloc(count, sizeof(T))))
    {
        if (!data_)
            throw std::runtime_error("the symmetric heap has no room");
    }
    ~symmetric_array()
    {
        shmem_free(data_);
    }
    symmetric_array(const symmetric_array &) = delete;
    symmetric_array &operator=(const symmetric_array &) = delete;
    T *get()
    {
        return data_;
    }
    T &operator[](std::size_t i)
    {
        return data_[i];
    }

  private:
    T *data_;
};

// Rows before PE `pe`.
static std::size_t first_row(std::size_t rows, int pe, int pes)
{
    return rows * static_cast<std::size_t>(pe) / static_cast<std::size_t>(pes);
}

// The matrix is 1 + u u^T with u[i] = 1 / (i + 1): its largest eigenvalue is 1 + |u|^2.
static double u(std::size_t i)
{
    return 1.0 / static_cast<double>(i + 1);
}

static double element(std::size_t i, std::size_t j)
{
    return u(i) * u(j) + (i == j ? 1 : 0);
}

template <typename T> static T sum_of_all(T mine)
{
    static T in, out;

    in = mine;
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &out, &in, 1);
    return out;
}

static double largest_eigenvalue(std::size_t rows)
{
    const int me = shmem_my_pe(), pes = shmem_n_pes();
    const std::size_t begin = first_row(rows, me, pes),
                      count = first_row(rows, me + 1, pes) - begin;
    symmetric_array<double> whole(rows), part(rows);
    double value = 0, before = -1;

    for (std::size_t i = 0; i < rows; i++)
        whole[i] = 1;
    for (int step = 0; step < 200 && std::fabs(value - before) > 1e-13 * value; step++) {
        double squares = 0;
        for (std::size_t i = 0; i < count; i++) {
            part[i] = 0;
            for (std::size_t j = 0; j < rows; j++)
                part[i] += element(begin + i, j) * whole[j];
            squares += part[i] * part[i];
        }
        before = value;
        value = std::sqrt(sum_of_all(squares));
        for (std::size_t i = 0; i < count; i++)
            part[i] /= value;
        shmem_collect(SHMEM_TEAM_WORLD, whole.get(), part.get(), count);
    }
    return value;
}

int main(int argc, char **argv)
{
    const std::size_t rows = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 300;
    int code = 1;

    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes();
    if (rows < 1) {
        if (me == 0)
            std::printf("FAIL: a matrix has at least one row\n");
    } else {
        double wanted = 1;
        for (std::size_t i = 0; i < rows; i++)
            wanted += u(i) * u(i);
        const double error = std::fabs(largest_eigenvalue(rows) - wanted);

        // The PEs as points on a circle: their centre is the origin.
        const std::complex<double> centre =
            sum_of_all(std::polar(1.0, 2 * 3.14159265358979323846 * me / pes));
        const bool good = error < 1e-9 * wanted && (pes == 1 || std::abs(centre) < 1e-9);
        if (me == 0)
            std::printf("%s: %zu rows on %d PEs, eigenvalue %.6f, off by %.1e\n",
                        good ? "PASS" : "FAIL", rows, pes, wanted, error);
        code = good ? 0 : 1;
    }
    shmem_finalize();
    return code;
}
