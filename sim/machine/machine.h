/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Emulated hosts of one machine, under virtual time: a ring of nodes of src/core, as they are
 * compiled, whose transfer threads and clients share the machine's processors and memory. Ports are
 * memory: a put is a copy by whoever puts, a doorbell is a futex. What each of these takes on a
 * real machine is what "viaduct-sim calibrate" measures there.
 */
#ifndef SIM_MACHINE_MACHINE_H
#define SIM_MACHINE_MACHINE_H

#include "base/error.h"
#include "sim/cost/scenario.h"

#define SIM_MACHINE_HOSTS_MAX 16u
#define SIM_MACHINE_CHANNELS_MAX 8u

/* [cpu], [memory], [machine] */
extern const struct sim_section *const sim_machine_sections[];
extern const size_t sim_machine_sections_count;

struct sim_machine_run {
    unsigned hosts_count, channels_count;
    unsigned distance;      /* hops to where each operation goes */
    unsigned clients_count; /* on hosts 0, 1, ... */
    bool get;               /* one get after the other; otherwise puts, as many at once as go */
    uint64_t bytes;
    unsigned ops_count; /* measured, of a client */
};

struct sim_machine_result {
    double op_ps; /* per operation of a client */
    uint64_t events_count;
};

/* 0; -EPROTO when an operation failed. */
int sim_machine_run(const struct sim_scenario *scenario, const struct sim_machine_run *run,
                    struct sim_machine_result *ret_result) VIA_MUST_CHECK;

#endif
