/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PORT_PEX_DRIVER_H
#define VIA_PORT_PEX_DRIVER_H

#include "port/driver.h"

extern const struct via_driver via_pex_driver; /* pex:TARGET[,...], see docs/pex-port.md */

#endif
