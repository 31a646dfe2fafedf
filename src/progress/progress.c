/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "progress/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"

#define SHOWN_FROM_NS (2 * VIA_SEC_NS)
#define INTERVAL_NS VIA_SEC_NS

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void via_progress_begin(struct via_progress *progress, const char *what, uint64_t total)
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

void via_progress_step(struct via_progress *progress, uint64_t done)
{
    if (!progress->is_wanted || done == 0 || done >= progress->total) {
        return;
    }
    uint64_t at_ns = now_ns(), spent_ns = at_ns - progress->started_ns;
    double left_ns = (double)spent_ns / (double)done * (double)(progress->total - done);
    /* A command that takes less than two seconds prints no line. */
    if ((double)spent_ns + left_ns < (double)SHOWN_FROM_NS ||
        (progress->is_shown && at_ns - progress->printed_ns < INTERVAL_NS)) {
        return;
    }
    fprintf(stderr, "%s%s %" PRIu64 " of %" PRIu64 ", %.0f s left%s",
            progress->is_on_terminal ? "\r\033[K" : "", progress->what, done, progress->total,
            left_ns / (double)VIA_SEC_NS, progress->is_on_terminal ? "" : "\n");
    fflush(stderr);
    progress->printed_ns = at_ns;
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
