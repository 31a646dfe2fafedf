/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

int main(void)
{
    int failed = conform_run(&conform_emu_direct, CONFORM_PROCESSES);
    failed += conform_run(&conform_emu_indirect, CONFORM_PROCESSES);
    failed += conform_run(&conform_emu_dma, CONFORM_PROCESSES);
    return failed;
}
