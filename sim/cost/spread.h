/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Times that vary: exponential ones of mean 1, drawn by strata. Of SIM_SPREAD_STRATA in a row each
 * comes from another of as many parts of the distribution that are as likely as each other, in
 * random order (stratified sampling: Cochran, "Sampling Techniques", chapter 5). The distribution
 * is the same as with independent draws, but its mean is there after a few dozens of them instead
 * of thousands, so a short run says as much as a long one. Give each kind of step its own.
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

/* The next one. */
double sim_spread_draw(struct sim_spread *spread);

#endif
