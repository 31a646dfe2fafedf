/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A body by a core's stores, or by the DMA engine of a card: which is quicker on an idle link, and
 * what either leaves of the link and of the transfer thread. */
#ifndef SIM_PLAN_CHOICE_H
#define SIM_PLAN_CHOICE_H

#include "sim/plan/fabric.h"

struct plan_choice {
    char engine[32];        /* "": the parts have none */
    double stores_ps;       /* until a body of a message can be seen at the neighbour */
    double engine_ps;       /* the same, its copy into staging memory included */
    double stores_busy_ps;  /* of that, what the transfer thread is kept */
    double engine_busy_ps;  /* the same */
    double engine_rate;     /* of a port, bytes per second of payload, TLPs of MPS */
    uint64_t quicker_bytes; /* the least body, a power of two, that the engine brings sooner; 0:
                             * none that fits a frame */
};

/* Lets time pass in the wiring's net, in which nothing else is under way. */
void plan_choice_make(struct plan_wiring *wiring, const struct plan_costs *costs,
                      const struct sim_scenario *parts, uint64_t body_bytes,
                      struct plan_choice *ret);

#endif
