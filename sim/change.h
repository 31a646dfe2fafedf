/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Changes to the case that a seed draws: configuration values by name, and faults and bursts of
 * work that are left out. tools/sim-shrink makes such changes to a failing seed.
 */
#ifndef SIM_CHANGE_H
#define SIM_CHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/config.h"

#define SIM_NO_SIMPLEST UINT64_MAX

/* A configuration value that may be changed. */
struct sim_knob {
    const char *name;
    uint16_t off, bytes;      /* in struct sim_config */
    const char *const *names; /* of its values; NULL: they are numbers */
    uint64_t min, max;        /* limits as a seed may draw the value, or stricter */
    uint64_t simplest;        /* the value that is easiest to think about, or SIM_NO_SIMPLEST */
};

#define SIM_KNOBS_MAX 96u

struct sim_changes {
    bool changed[SIM_KNOBS_MAX]; /* by key */
    uint64_t values[SIM_KNOBS_MAX];
    struct sim_mask faults, work; /* what is left out */
};

/* NULL past the last. */
const struct sim_knob *sim_knob_at(unsigned index);

/* Parses "name=value,name=value..."; on -EINVAL ret_error has the reason. */
int sim_changes_parse(struct sim_changes *changes, const char *text, char *ret_error,
                      size_t error_bytes);

/* Parses a list of faults or bursts to keep ("0,3-5"; "none"): all others are left out. 0 or
 * -EINVAL. */
int sim_mask_parse(struct sim_mask *mask, const char *text);

/* A case as "name=value,name=value...", without the values that are the simplest. */
void sim_config_text(const struct sim_config *config, char *text, size_t bytes);

/* Draws a seed's case, then applies the changes. changes may be NULL. */
void sim_config_make(struct sim_config *config, uint64_t seed, enum sim_graph graph,
                     const struct sim_changes *changes);

#endif
