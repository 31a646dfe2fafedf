/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

int main(void)
{
    return conform_run(&conform_emu_pex, CONFORM_PROCESSES) +
           conform_run(&conform_emu_pex_dma, CONFORM_PROCESSES) +
           conform_run(&conform_emu_ivshmem, CONFORM_PROCESSES) +
           conform_run(&conform_emu_network, CONFORM_PROCESSES);
}
