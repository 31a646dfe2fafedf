/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_SOCKETS_SOCKETS_H
#define SIM_SOCKETS_SOCKETS_H

#include <stdio.h>

#include "sim/streams.h"

/* Connections within a host and between hosts, by the library itself: from nothing to the verdict.
 * trace may be NULL. */
void sim_sockets_run(const struct sim_config *config, int plant, FILE *trace,
                     struct sim_streams_result *ret_result);

#endif
