/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

int main(void)
{
    int failed = conform_run(&conform_fault_direct, CONFORM_PROCESSES);
    failed += conform_run(&conform_fault_indirect, CONFORM_PROCESSES);
    failed += conform_run(&conform_fault_dma, CONFORM_PROCESSES);
    return failed;
}
