/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Deprecated since OpenSHMEM 1.1: the folder of the headers of SGI's SHMEM. */
#ifndef MPP_SHMEM_H
#define MPP_SHMEM_H

#include <shmem.h>

#endif
