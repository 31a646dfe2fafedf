/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PORT_EMU_DRIVER_H
#define VIA_PORT_EMU_DRIVER_H

#include "port/driver.h"

extern const struct via_driver via_emu_driver;

#endif
