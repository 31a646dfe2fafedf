/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"

#define SHOWN_FROM_NS (2 * VIA_SEC_NS)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void via_progress_begin(struct via_progress *progress, const char *what, unsigned total)
{
    const char *asked = getenv("VIADUCT_PROGRESS");
    bool on_terminal = isatty(STDERR_FILENO) == 1;
    *progress = (struct via_progress){
        .what = what,
        .total = total,
        .started_ns = now_ns(),
        .is_on_terminal = on_terminal,
        .is_wanted = asked != NULL && asked[0] != '\0' ? strcmp(asked, "0") != 0 : on_terminal,
    };
}

void via_progress_step(struct via_progress *progress, unsigned done)
{
    uint64_t spent_ns = now_ns() - progress->started_ns;
    bool is_last = progress->total != 0 && done >= progress->total;
    if (!progress->is_wanted || is_last || done == 0) {
        return;
    }
    /* What will take less than two seconds needs no line. */
    uint64_t left_ns = progress->total != 0 ? spent_ns / done * (progress->total - done) : 0;
    if (spent_ns + left_ns < SHOWN_FROM_NS) {
        return;
    }
    const char *begin = progress->is_on_terminal ? "\r\033[K" : "";
    const char *end = progress->is_on_terminal ? "" : "\n";
    if (progress->total != 0) {
        fprintf(stderr, "%s%s %u of %u, %.0f s left%s", begin, progress->what, done,
                progress->total, (double)left_ns / (double)VIA_SEC_NS, end);
    } else {
        fprintf(stderr, "%s%s %u, %.0f s so far%s", begin, progress->what, done,
                (double)spent_ns / (double)VIA_SEC_NS, end);
    }
    fflush(stderr);
    progress->is_shown = true;
}

void via_progress_end(struct via_progress *progress)
{
    if (progress->is_shown && progress->is_on_terminal) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->is_shown = false;
}
