/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_TRUTH_TRUTH_H
#define SIM_TRUTH_TRUTH_H

/* "viaduct-sim truth ..."; argv[0] is "truth". Returns the exit code, if at all. */
int sim_truth_main(int argc, char **argv);

#endif
