/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * "viaduct-sim model": the cost model as a calculator, for tools/sim-paper, sim-measure and
 * sim-plan. It reads requests on standard input, each a line of words with tabs between them, and
 * answers each with a line: numbers with blanks between them, or "!" and the reason of an error.
 * The scripts have the published figures, and make the tables.
 */
#ifndef SIM_PAPER_COMMAND_H
#define SIM_PAPER_COMMAND_H

struct sim_model_more;

/* more: NULL, or what else it answers. Returns the exit code. */
int sim_model_main(const struct sim_model_more *more);

#endif
