/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Extensions to OpenSHMEM: none yet. Section 4 of the standard requires the header nevertheless. */
#ifndef SHMEMX_H
#define SHMEMX_H

#include <shmem.h>

#endif
