/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PROGRESS_H
#define VIA_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A line on standard error with the finished steps and the remaining time, for commands that run
 * for more than two seconds. The line appears only on a terminal, after two seconds, at most once a
 * second, and is erased at the end. VIADUCT_PROGRESS=1 prints such lines also elsewhere;
 * VIADUCT_PROGRESS=0 prints none.
 */
struct via_progress {
    const char *what;    /* "viaduct perf: size" */
    uint64_t total;      /* maximum of steps */
    uint64_t started_ns; /* CLOCK_MONOTONIC */
    uint64_t printed_ns;
    bool is_wanted;
    bool is_on_terminal;
    bool is_shown;
};

void via_progress_begin(struct via_progress *progress, const char *what, uint64_t total);

/* Called after each step: `done` steps are finished. */
void via_progress_step(struct via_progress *progress, uint64_t done);

/* Erases the line before other output. */
void via_progress_end(struct via_progress *progress);

#endif
