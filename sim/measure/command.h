/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_MEASURE_COMMAND_H
#define SIM_MEASURE_COMMAND_H

/* "viaduct-sim measure ...": argv[0] is "measure". Returns the exit code. */
int sim_measure_main(int argc, char **argv);

#endif
