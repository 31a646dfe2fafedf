/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_PEX_PEX_H
#define SIM_PEX_PEX_H

/* After this call `like=pex-driver` makes links of src/port/pex on the register model. */
void sim_pex_use(void);

#endif
