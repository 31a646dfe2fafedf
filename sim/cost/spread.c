/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/spread.h"

#include <math.h>

void sim_spread_init(struct sim_spread *spread, uint64_t seed)
{
    *spread = (struct sim_spread){.used_count = SIM_SPREAD_STRATA};
    via_rng_init(&spread->rng, seed);
    for (uint32_t i = 0; i < SIM_SPREAD_STRATA; i++) {
        spread->strata[i] = (uint8_t)i;
    }
}

/* Fisher and Yates. */
static void shuffle(struct sim_spread *spread)
{
    for (uint32_t i = SIM_SPREAD_STRATA - 1; i > 0; i--) {
        uint32_t other = (uint32_t)via_rng_below(&spread->rng, i + 1);
        uint8_t stratum = spread->strata[i];
        spread->strata[i] = spread->strata[other];
        spread->strata[other] = stratum;
    }
    spread->used_count = 0;
}

double sim_spread_draw(struct sim_spread *spread)
{
    if (spread->used_count == SIM_SPREAD_STRATA) {
        shuffle(spread);
    }
    uint32_t stratum = spread->strata[spread->used_count++];
    /* 53 random bits in (0, 1]. */
    double u = (double)((via_rng_next(&spread->rng) >> 11) + 1) / 9007199254740992.0;
    return -log((stratum + u) / SIM_SPREAD_STRATA);
}
