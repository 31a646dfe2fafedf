/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Times of single transfers by size: as a table of comma-separated values, as a comparison, and as
 * a chart. These functions access no device. All of them belong to one thread, and block only on
 * the streams that they write.
 */
#ifndef VIA_CLI_PERF_SERIES_H
#define VIA_CLI_PERF_SERIES_H

#include <stdio.h>

#include "base/error.h"

enum via_perf_direction {
    VIA_PERF_TO_HOST,
    VIA_PERF_TO_DEVICE,
    VIA_PERF_LOOP, /* from this host's memory through a device back to this memory */
    VIA_PERF_DIRECTIONS,
};

#define VIA_PERF_SERIES_MAX 32u
#define VIA_PERF_POINTS_MAX 128u
#define VIA_PERF_LABEL_BYTES 128u
#define VIA_PERF_SERIES_BYTES_MAX (1u << 20) /* of a file */
#define VIA_PERF_ROUNDS_MIN 7u               /* with fewer rounds there is no interval of 97.5 % */

struct via_perf_point {
    enum via_perf_direction direction;
    uint64_t bytes;
    unsigned rounds;
    double median_ns, quartile1_ns, quartile3_ns;
    double low_ns, high_ns; /* interval that contains the median with 97.5 % */
};

/* One measurement of one target. */
struct via_perf_series {
    char label[VIA_PERF_LABEL_BYTES]; /* printable */
    bool is_named;                    /* the user chose the label: runs with one label are merged */
    unsigned points_count;
    struct via_perf_point points[VIA_PERF_POINTS_MAX];
};

struct via_perf_set {
    unsigned series_count;
    struct via_perf_series series[VIA_PERF_SERIES_MAX];
};

const char *via_perf_direction_name(enum via_perf_direction direction);

/* Sorts ns, the times of `rounds` transfers (VIA_PERF_ROUNDS_MIN to 64), and fills in the
 * statistics of the point. The interval assumes no distribution of the times: its ends are two of
 * them (order statistics). */
void via_perf_point_make(uint64_t *ns, unsigned rounds, struct via_perf_point *point);

/* Adds a series without points. -ENOSPC. */
VIA_MUST_CHECK int via_perf_set_add(struct via_perf_set *set, const char *label,
                                    struct via_perf_series **ret_series);
/* -ENOSPC; -EEXIST: the series has this direction and size. */
VIA_MUST_CHECK int via_perf_series_add(struct via_perf_series *series,
                                       const struct via_perf_point *point);

void via_perf_series_write_head(FILE *out);
void via_perf_series_write(FILE *out, const char *way, const char *target,
                           const struct via_perf_point *point);
/* Adds the series of a file, one for each target in it. Their label is `label`, or file and target
 * if that is NULL. Errors begin with "name:line: ". 0; -EINVAL, and the set is then undefined. */
VIA_MUST_CHECK int via_perf_set_read(struct via_perf_set *set, const char *name, const char *label,
                                     const char *text, size_t bytes, struct via_error *err);

/* Merges series with a label of the user: the median of their medians, and an interval that
 * contains all their intervals, so that it includes the differences between runs. */
void via_perf_set_merge(struct via_perf_set *set);

/* Prints each series beside the first one, for the sizes that both have. csv: NULL, or the same for
 * programs. Returns the number of such sizes. */
unsigned via_perf_set_compare(const struct via_perf_set *set, FILE *out, FILE *csv);
/* Draws an SVG: rates, and ratios to the first series, with their intervals. */
void via_perf_set_draw(const struct via_perf_set *set, FILE *out);

#endif
