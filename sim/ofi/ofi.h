/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_OFI_OFI_H
#define SIM_OFI_OFI_H

/* After this call `like=ofi` makes links of src/port/ofi on a simulated libfabric. */
void sim_ofi_use(void);

#endif
