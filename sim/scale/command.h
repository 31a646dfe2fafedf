/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_SCALE_COMMAND_H
#define SIM_SCALE_COMMAND_H

/* "viaduct-sim scale-json SHAPE HOSTS [PLANT]", which the script of "viaduct-sim scale" runs for
 * each fabric. Returns the exit code. */
int sim_scale_main(int argc, char **argv);

#endif
