/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_PAPER_COMMAND_H
#define SIM_PAPER_COMMAND_H

/* "viaduct-sim paper ..."; argv[0] is "paper". Returns the exit code. */
int sim_paper_main(int argc, char **argv);

#endif
