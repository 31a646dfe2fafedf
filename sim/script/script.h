/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_SCRIPT_SCRIPT_H
#define SIM_SCRIPT_SCRIPT_H

#include <stdbool.h>

/* Is "viaduct-sim NAME" a script? */
bool sim_script_is_one(const char *name);
/* Runs the script sim-<argv[0]> beside the scenarios. Returns its exit code. */
int sim_script_main(int argc, char **argv);

#endif
