/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PORT_IVSHMEM_DRIVER_H
#define VIA_PORT_IVSHMEM_DRIVER_H

#include "port/driver.h"

extern const struct via_driver via_ivshmem_driver;

#endif
