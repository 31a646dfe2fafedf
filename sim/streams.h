/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The second part of a seed's history: connections of the sockets library on one host. */
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
    uint64_t events, bytes, bells, spills, kills, execs;
};

/* Runs it to the verdict; trace may be NULL. */
void sim_streams_run(const struct sim_config *config, int plant, FILE *trace,
                     struct sim_streams_result *ret_result);

/* Byte `at` of a stream. */
unsigned char sim_streams_byte(uint64_t content, uint64_t at);

#endif
