/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_SCALE_COMMAND_H
#define SIM_SCALE_COMMAND_H

/* "viaduct-sim scale ..."; argv[0] is "scale". Returns the exit code. */
int sim_scale_main(int argc, char **argv);

#endif
