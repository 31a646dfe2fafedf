/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Times that vary: exponential with mean 1, drawn by strata. The distribution is divided into
 * SIM_SPREAD_STRATA equally likely parts; SIM_SPREAD_STRATA consecutive draws take each part once,
 * in random order (stratified sampling: Cochran, "Sampling Techniques", chapter 5). The
 * distribution is the same as with independent draws, but the mean is reached after a few dozen
 * draws instead of thousands, so a short run says as much as a long one. Use one object for each
 * kind of step.
 */
#ifndef SIM_COST_SPREAD_H
#define SIM_COST_SPREAD_H

#include <stdint.h>

#include "base/rng.h"

#define SIM_SPREAD_STRATA 32u

struct sim_spread {
    struct via_rng rng;
    uint8_t strata[SIM_SPREAD_STRATA]; /* the order of this round */
    uint32_t used_count;               /* of them */
};

void sim_spread_init(struct sim_spread *spread, uint64_t seed);

/* Draws the next time. */
double sim_spread_draw(struct sim_spread *spread);

#endif
