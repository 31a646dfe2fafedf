/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

int main(void)
{
    return conform_run(&conform_pex_user, CONFORM_PROCESSES) +
           conform_run(&conform_pex_user_dma, CONFORM_PROCESSES);
}
