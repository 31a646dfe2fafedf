/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/paper.h"

#include "sim/paper/papers.h"

const struct sim_paper *const sim_papers[] = {
    &sim_paper_a, &sim_paper_b, &sim_paper_c, &sim_paper_d, &sim_paper_e, NULL,
};
