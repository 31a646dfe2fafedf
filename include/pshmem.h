/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The profiling interface of OpenSHMEM 1.6, section 10: what its calls need, under the name that
 * the standard gives it. The calls themselves, pshmem_..., are declared beside the others. */
#ifndef PSHMEM_H
#define PSHMEM_H

#include <shmem.h>

#endif
