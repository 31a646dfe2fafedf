/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "conform_ivshmem.h"

int main(void)
{
    int failed = conform_ivshmem_begin();
    if (failed == 0) {
        failed = conform_run(&conform_ivshmem, CONFORM_THREADS);
        failed += conform_run(&conform_ivshmem, CONFORM_PROCESSES);
        conform_ivshmem_end();
    }
    return failed;
}
