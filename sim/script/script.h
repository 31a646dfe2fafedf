/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_SCRIPT_SCRIPT_H
#define SIM_SCRIPT_SCRIPT_H

/* "viaduct-sim parts ..." and "plan ...": runs the script sim-<argv[0]> beside the scenarios.
 * Returns its exit code. */
int sim_script_main(int argc, char **argv);

#endif
