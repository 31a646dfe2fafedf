/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Files of the simulator that are installed beside the program: ../share/viaduct, relative to its
 * folder. */
#ifndef SIM_PAPER_SHARE_H
#define SIM_PAPER_SHARE_H

#include "base/error.h"

void sim_share_path(char *ret, size_t bytes, const char *name);

/* Runs the script that draws a CSV of series; it writes a picture of each series into the
 * folder. */
int sim_share_plot(const char *csv, const char *folder, struct via_error *err) VIA_MUST_CHECK;

#endif
