/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

int main(void)
{
    return conform_run(&conform_pex, CONFORM_THREADS) +
           conform_run(&conform_pex_dma, CONFORM_THREADS) +
           conform_run(&conform_pex_alut, CONFORM_THREADS) +
           conform_run(&conform_pex_b2b, CONFORM_THREADS) +
           conform_run(&conform_pex_b2b_dma, CONFORM_THREADS) +
           conform_run(&conform_pex_b2b_alut, CONFORM_THREADS) +
           conform_run(&conform_pex_nt1, CONFORM_THREADS) +
           conform_run(&conform_pex_stores, CONFORM_THREADS) +
           conform_run(&conform_pex_polls, CONFORM_THREADS);
}
