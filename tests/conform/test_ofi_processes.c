/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/library.h"
#include "port_conform.h"

int main(void)
{
    /* Called once, not in each of the processes, because it probes all kinds of hardware. */
    const struct via_ofi_library *library = via_ofi_library_load(NULL);
    struct fi_info *info = NULL;
    if (library != NULL && library->getinfo(VIA_OFI_VERSION, NULL, NULL, 0, NULL, &info) == 0) {
        library->freeinfo(info);
    }
    return conform_run(&conform_ofi, CONFORM_PROCESSES) +
           conform_run(&conform_ofi_dma, CONFORM_PROCESSES) +
           conform_run(&conform_ofi_unordered, CONFORM_PROCESSES) +
           conform_run(&conform_ofi_encrypted, CONFORM_PROCESSES) +
           conform_run(&conform_ofi_unordered_dma, CONFORM_PROCESSES);
}
