/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_TOP_H
#define VIA_CLI_TOP_H

#include "cli/sockets.h"
#include "cli/status.h"

/* `viaduct top`: its data (top_model.c), as lines (top_view.c), on a screen (top_screen.c). */

enum via_top_section {
    VIA_TOP_HOSTS,
    VIA_TOP_LINKS,
    VIA_TOP_CONNECTIONS,
    VIA_TOP_JOBS,
    VIA_TOP_SECTIONS,
    VIA_TOP_ALL = VIA_TOP_SECTIONS, /* a part of each */
};

/* A TCP connection, and its rate since the last collection. */
struct via_top_connection {
    struct via_sockets_row row;
    double bytes_per_second;
};

/* An oshrun of this machine that this user may see, or a process that is attached to a host. */
struct via_top_job {
    pid_t pid;
    char program[24];
    unsigned processes; /* PEs on this machine; of an attached process 0 */
    int host;           /* host to which the process is attached; -1: a job */
    uint64_t bytes;     /* of its segments */
    uint64_t age_ns;    /* 0: unknown */
};

struct via_top_model {
    struct via_status *status;      /* NULL: no fabric */
    char why[VIA_ERROR_TEXT_BYTES]; /* why `status` is NULL */
    struct via_top_connection *connections;
    size_t connections_count;
    struct via_top_job *jobs;
    size_t jobs_count;
    uint64_t now_ns;              /* CLOCK_MONOTONIC of the collection */
    double peak_bytes_per_second; /* greatest rate of one direction of a link since the start */
};

/*
 * Collects all data. name: of the fabric, or NULL. Blocks for some milliseconds, and longer if a
 * host hangs. Leaves out parts that are not available. -ENOMEM.
 */
int via_top_collect(struct via_top_model *model, const char *name,
                    struct via_error *err) VIA_MUST_CHECK;
void via_top_release(struct via_top_model *model);

/* --- top_view.c ------------------------------------------------------------------------------ */

enum via_top_style {
    VIA_TOP_PLAIN,
    VIA_TOP_TITLE,
    VIA_TOP_HEAD,
    VIA_TOP_GOOD,
    VIA_TOP_BAD,
    VIA_TOP_QUIET,
};

#define VIA_TOP_LINE_BYTES 320u

struct via_top_line {
    enum via_top_style style;
    char text[VIA_TOP_LINE_BYTES];
};

struct via_top_lines {
    struct via_top_line *lines;
    size_t count;
    size_t room;
};

/*
 * Makes a page of `rows` lines (0: no limit). skip: rows of a single section that the user has
 * scrolled past. -ENOMEM.
 */
int via_top_view(const struct via_top_model *model, enum via_top_section section, size_t rows,
                 size_t skip, struct via_top_lines *ret_lines) VIA_MUST_CHECK;
void via_top_lines_free(struct via_top_lines *lines);

/* --- top_screen.c ---------------------------------------------------------------------------- */

/* Shows the fabric until the user presses q. -ENOTTY: standard output is not a terminal. */
int via_top_screen(const char *name, unsigned interval_ms, struct via_error *err) VIA_MUST_CHECK;

#endif
