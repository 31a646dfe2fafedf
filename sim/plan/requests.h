/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_PLAN_REQUESTS_H
#define SIM_PLAN_REQUESTS_H

struct sim_model_more;

/* Fabrics, for tools/sim-plan: sim/paper/model.h. */
extern const struct sim_model_more sim_plan_more;

#endif
