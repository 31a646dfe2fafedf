/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_MACHINE_COMMAND_H
#define SIM_MACHINE_COMMAND_H

/* "viaduct-sim calibrate" and "viaduct-sim machine"; argv[0] says which. Return the exit code. */
int sim_calibrate_main(int argc, char **argv);
int sim_machine_main(int argc, char **argv);

#endif
