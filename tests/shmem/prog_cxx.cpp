// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// OpenSHMEM from C++: the functions of C, and overloads in place of C11's selection.
#include <complex>
#include <cstdio>
#include <shmem.h>
#include <shmemx.h>

static long word;
static int number;
static double values[2], sums[2];
static uint64_t signal_word;
static std::complex<double> from, to;
static const shmem_ctx_t default_context = SHMEM_CTX_DEFAULT;

static bool check(bool good, const char *what)
{
    if (!good)
        std::printf("FAIL: PE %d: %s\n", shmem_my_pe(), what);
    return good;
}

int main()
{
    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes(), next = (me + 1) % pes,
              before = (me + pes - 1) % pes;
    bool good = true;

    shmem_p(&word, static_cast<long>(me + 1), next);
    shmem_wait_until(&word, SHMEM_CMP_NE, 0);
    good &= check(word == before + 1, "p of long");
    shmem_p(default_context, &number, me + 5, next);
    shmem_wait_until(&number, SHMEM_CMP_NE, 0);
    good &= check(number == before + 5 && shmem_test(&number, SHMEM_CMP_EQ, before + 5), "p of int");
    good &= check(shmem_g(&number, me) == number, "g");
    shmem_barrier_all();
    good &= check(shmem_atomic_fetch_add(&number, 10, me) == before + 5, "fetch_add");
    shmem_atomic_inc(SHMEM_CTX_DEFAULT, &number, me);
    good &= check(number == before + 16, "inc");

    const double mine[2] = {me + 0.5, me * 2.0};
    shmem_put_signal(values, mine, 2, &signal_word, 1, SHMEM_SIGNAL_SET, next);
    shmem_signal_wait_until(&signal_word, SHMEM_CMP_EQ, 1);
    good &= check(values[0] == before + 0.5 && values[1] == before * 2.0, "put_signal");
    shmem_barrier_all();
    values[0] = values[1] = 1;
    shmem_sum_reduce(SHMEM_TEAM_WORLD, sums, values, 2);
    good &= check(sums[0] == pes && sums[1] == pes, "sum_reduce");
    from = std::complex<double>(1, me);
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &to, &from, 1);
    good &= check(to == std::complex<double>(pes, pes * (pes - 1) / 2), "sum of complex numbers");
    shmem_sync(SHMEM_TEAM_WORLD);

    if (good && me == 0)
        std::printf("PASS cxx\n");
    shmem_finalize();
    return good ? 0 : 1;
}
