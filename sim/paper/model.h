/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_PAPER_MODEL_H
#define SIM_PAPER_MODEL_H

#include "sim/cost/scenario.h"

/* The sections of scenarios of a kind: stream (system A), ring (B), copy (C), sdp (D), stores (E),
 * or chain (any hosts, switches, cables and engines); NULL for an unknown kind. */
const struct sim_section *const *sim_model_sections(const char *kind, size_t *ret_count);

#endif
