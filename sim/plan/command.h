/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_PLAN_COMMAND_H
#define SIM_PLAN_COMMAND_H

/* "viaduct-sim plan-json ...", which the script of "viaduct-sim plan" runs. Returns the exit code.
 */
int sim_plan_main(int argc, char **argv);

#endif
