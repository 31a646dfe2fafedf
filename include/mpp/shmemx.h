/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Deprecated since OpenSHMEM 1.1: the folder of the headers of SGI's SHMEM. */
#ifndef MPP_SHMEMX_H
#define MPP_SHMEMX_H

#include <shmemx.h>

#endif
