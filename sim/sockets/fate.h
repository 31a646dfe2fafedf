/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* When a process that holds an end of a stream is killed, or calls exec(). */
#ifndef SIM_SOCKETS_FATE_H
#define SIM_SOCKETS_FATE_H

#include <stdbool.h>

#include "base/rng.h"

struct fate {
    uint32_t turns_left; /* turns until the fault; 0: never */
    bool in_spill;       /* count only turns in which the end spills */
};

static inline struct fate fate_draw(struct via_rng *rng, uint32_t per_mille)
{
    if (per_mille == 0 || !via_rng_chance(rng, per_mille, 1000)) {
        return (struct fate){0};
    }
    uint64_t most = UINT64_C(1) << via_rng_between(rng, 0, 12);
    uint32_t turns = (uint32_t)via_rng_between(rng, 1, most);
    return (struct fate){.turns_left = turns, .in_spill = via_rng_chance(rng, 1, 2)};
}

/* Called before each turn. */
static inline bool fate_is_due(struct fate *fate, bool spills)
{
    return fate->turns_left != 0 && (spills || !fate->in_spill) && --fate->turns_left == 0;
}

#endif
