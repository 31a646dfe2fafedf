/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PORT_OFI_DRIVER_H
#define VIA_PORT_OFI_DRIVER_H

#include "port/driver.h"

extern const struct via_driver via_ofi_driver;

/* Of tests. */
struct via_port;
uint64_t via_ofi_puts_out_of_bounds(const struct via_port *port);

#endif
