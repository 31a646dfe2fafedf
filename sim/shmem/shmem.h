/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The third part of a seed's history: a program over the OpenSHMEM library, on a fabric of its own
 * with its faults. The library is the one that programs link, compiled once more (CMakeLists.txt).
 */
#ifndef SIM_SHMEM_SHMEM_H
#define SIM_SHMEM_SHMEM_H

#include <stdio.h>

#include "sim/config.h"

struct sim_result;

/* Runs it to the verdict; trace may be NULL. */
void sim_shmem_run(const struct sim_config *config, int plant, FILE *trace,
                   struct sim_result *ret_result);

#endif
