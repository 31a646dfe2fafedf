/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A body by a core's stores, or by the DMA engine of a card: which is faster on an idle link, and
 * how much each uses of the link and of the transfer thread. */
#ifndef SIM_PLAN_CHOICE_H
#define SIM_PLAN_CHOICE_H

#include "sim/plan/fabric.h"

struct plan_choice {
    double stores_ps;       /* until a message's body is visible at the neighbour */
    double engine_ps;       /* the same, including its copy into staging memory */
    double stores_busy_ps;  /* of that, the time of the transfer thread */
    double engine_busy_ps;  /* the same */
    double engine_rate;     /* of a port, bytes per second of payload, TLPs of MPS */
    uint64_t quicker_bytes; /* the smallest body, a power of two, that the engine delivers earlier
                               than stores do; 0: no body that fits a frame */
};

/* Advances time in the wiring's net, which must be idle otherwise. False: there is no engine. */
bool plan_choice_make(struct plan_wiring *wiring, const struct plan_costs *costs,
                      const struct sim_scenario *parts, uint64_t body_bytes,
                      struct plan_choice *ret);

#endif
