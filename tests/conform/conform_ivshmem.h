/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_TESTS_CONFORM_IVSHMEM_H
#define VIA_TESTS_CONFORM_IVSHMEM_H

#include "port_conform.h"

extern const struct conform_kind conform_ivshmem;

/* The server for all links of this process. 0, or 1 if there is none. */
int conform_ivshmem_begin(void);
void conform_ivshmem_end(void);

#endif
