/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_PROGRESS_H
#define VIA_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * One line on standard error of what is done and how long the rest will take, for commands that run
 * for more than two seconds: only on a terminal, only from the second second on, and gone at the
 * end. VIADUCT_PROGRESS=1 shows it elsewhere, too, a line at a time.
 */
struct via_progress {
    const char *what;    /* "viaduct perf: measures" */
    unsigned total;      /* steps; 0: not known, then only the time so far is said */
    uint64_t started_ns; /* CLOCK_MONOTONIC */
    bool is_wanted;
    bool is_on_terminal;
    bool is_shown;
};

void via_progress_begin(struct via_progress *progress, const char *what, unsigned total);

/* After each step: `done` of them are behind us. */
void via_progress_step(struct via_progress *progress, unsigned done);

/* Before anything else is printed. */
void via_progress_end(struct via_progress *progress);

#endif
