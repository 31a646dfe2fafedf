/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The values of a scenario: every parameter of the cost model, in base units: picoseconds, bytes,
 * bytes per second, metres. tools/sim_scenario.py reads the files (viaduct-scenario(5)), takes
 * missing values from parts.ini, and checks units, ranges, and that the parts fit together.
 */
#ifndef SIM_COST_SCENARIO_H
#define SIM_COST_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sim_value {
    char section[48]; /* "link cable", or "dma" of which there is one */
    char key[24];
    char text[32]; /* of words and names; "": it is a number */
    double number;
};

#define SIM_VALUES_MAX 512

struct sim_scenario {
    char name[256]; /* of the file, for errors */
    size_t values_count;
    struct sim_value values[SIM_VALUES_MAX]; /* section by section */
};

/* Adds a value, or replaces it. -ENOSPC: there are too many. */
int sim_scenario_set(struct sim_scenario *scenario, const struct sim_value *value,
                     struct via_error *err) VIA_MUST_CHECK;

/*
 * Values by section ("dma", "link cable") and key. Asking for a missing value is a bug of the
 * caller, and ends the program.
 */
double sim_scenario_number(const struct sim_scenario *scenario, const char *section,
                           const char *key);
uint64_t sim_scenario_count(const struct sim_scenario *scenario, const char *section,
                            const char *key);
uint64_t sim_scenario_ps(const struct sim_scenario *scenario, const char *section, const char *key);
const char *sim_scenario_word(const struct sim_scenario *scenario, const char *section,
                              const char *key);
struct sim_value *sim_scenario_find(const struct sim_scenario *scenario, const char *section,
                                    const char *key);

/* The name of the index-th "[kind name]" of the file; NULL if there are fewer. */
const char *sim_scenario_instance(const struct sim_scenario *scenario, const char *kind,
                                  size_t index);

#endif
