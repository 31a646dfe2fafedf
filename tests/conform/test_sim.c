/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

int main(void)
{
    int failed = conform_run(&conform_sim_posted, CONFORM_INLINE);
    failed += conform_run(&conform_sim_combining, CONFORM_INLINE);
    failed += conform_run(&conform_sim_direct, CONFORM_INLINE);
    failed += conform_run(&conform_sim_dma, CONFORM_INLINE);
    failed += conform_run(&conform_sim_combining_dma, CONFORM_INLINE);
    failed += conform_run(&conform_sim_direct_dma, CONFORM_INLINE);
    return failed;
}
