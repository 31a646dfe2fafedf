/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

int main(void)
{
    return conform_run(&conform_ofi, CONFORM_THREADS) +
           conform_run(&conform_ofi_encrypted, CONFORM_THREADS) +
           conform_run(&conform_ofi_unordered_dma, CONFORM_THREADS);
}
