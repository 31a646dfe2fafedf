/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The second part of a seed's history: connections of the sockets library (sim/sockets/). */
#ifndef SIM_STREAMS_H
#define SIM_STREAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/config.h"

struct sim_streams_result {
    bool failed;
    char failure[512];
    uint64_t digest;
    uint64_t events, bytes, spills, kills, execs;
};

#endif
