/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Each is in a file of its own: paper_a.c and so on. */
#ifndef SIM_PAPER_PAPERS_H
#define SIM_PAPER_PAPERS_H

#include "sim/paper/paper.h"

extern const struct sim_paper sim_paper_a; /* sockets over a PCIe switch, 2019 */
extern const struct sim_paper sim_paper_b; /* OpenSHMEM over a ring of hosts, 2023 */
extern const struct sim_paper sim_paper_c; /* adapter cards with on-board optics, 2018 */
extern const struct sim_paper sim_paper_d; /* zero-copy Sockets Direct Protocol, 2005 */
extern const struct sim_paper sim_paper_e; /* write-combined programmed I/O, 2015 */

#endif
