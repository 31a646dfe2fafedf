/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Times of single transfers by size: as a table of comma-separated values, one beside another, and
 * as a picture. No device is touched here. All functions belong to one thread and do not block but
 * for the streams that they write.
 */
#ifndef VIA_CLI_PERF_SERIES_H
#define VIA_CLI_PERF_SERIES_H

#include <stdio.h>

#include "base/error.h"

enum via_perf_direction {
    VIA_PERF_TO_HOST,
    VIA_PERF_TO_DEVICE,
    VIA_PERF_LOOP, /* from this host's memory through a device back to it */
    VIA_PERF_DIRECTIONS,
};

#define VIA_PERF_SERIES_MAX 32u
#define VIA_PERF_POINTS_MAX 128u
#define VIA_PERF_LABEL_BYTES 128u
#define VIA_PERF_SERIES_BYTES_MAX (1u << 20) /* of a file */
#define VIA_PERF_ROUNDS_MIN 7u               /* fewer have no interval of 97.5 % */

struct via_perf_point {
    enum via_perf_direction direction;
    uint64_t bytes;
    unsigned rounds;
    double median_ns, quartile1_ns, quartile3_ns;
    double low_ns, high_ns; /* the median's interval of 97.5 % */
};

/* One target, measured once. */
struct via_perf_series {
    char label[VIA_PERF_LABEL_BYTES]; /* printable */
    bool is_named;                    /* by the user: runs of one name belong together */
    unsigned points_count;
    struct via_perf_point points[VIA_PERF_POINTS_MAX];
};

struct via_perf_set {
    unsigned series_count;
    struct via_perf_series series[VIA_PERF_SERIES_MAX];
};

const char *via_perf_direction_name(enum via_perf_direction direction);

/* Sorts ns, `rounds` times of one transfer (VIA_PERF_ROUNDS_MIN to 64), and takes the rest of the
 * point from it. The interval needs no law of the times: it lies between two of them (order
 * statistics). */
void via_perf_point_make(uint64_t *ns, unsigned rounds, struct via_perf_point *point);

/* A series without points. -ENOSPC. */
VIA_MUST_CHECK int via_perf_set_add(struct via_perf_set *set, const char *label,
                                    struct via_perf_series **ret_series);
/* -ENOSPC; -EEXIST: the series has this direction and size. */
VIA_MUST_CHECK int via_perf_series_add(struct via_perf_series *series,
                                       const struct via_perf_point *point);

void via_perf_series_write_head(FILE *out);
void via_perf_series_write(FILE *out, const char *way, const char *target,
                           const struct via_perf_point *point);
/* Adds the series of a file, one for each target in it, called `label`, or by file and target if
 * that is NULL. Errors begin with "name:line: ". 0 or -EINVAL; the set is undefined then. */
VIA_MUST_CHECK int via_perf_set_read(struct via_perf_set *set, const char *name, const char *label,
                                     const char *text, size_t bytes, struct via_error *err);

/* Series that the user gave one name become one: the median of their medians, and an interval that
 * holds all of theirs, so that it knows what differs from run to run. */
void via_perf_set_merge(struct via_perf_set *set);

/* Each series beside the first one, for sizes that both have; csv: NULL or the same for programs.
 * How many such sizes there were. */
unsigned via_perf_set_compare(const struct via_perf_set *set, FILE *out, FILE *csv);
/* An SVG: rates, and ratios to the first series, with their intervals. */
void via_perf_set_draw(const struct via_perf_set *set, FILE *out);

#endif
