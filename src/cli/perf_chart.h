/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The elements of charts of rates by size (SVG): a legend, and below it frames, each with axes and
 * lines. Coordinates are pixels from the upper left corner. */
#ifndef VIA_CLI_PERF_CHART_H
#define VIA_CLI_PERF_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define VIA_CHART_GAP 46 /* below a frame */

/* The mapping from values to coordinates. */
struct via_chart_axes {
    bool is_ratio;
    int top, height;
    double x_low, x_high, y_low, y_high; /* x: log2 of bytes; y: log10 of rates, or ratios */
};

double via_chart_across(const struct via_chart_axes *axes, uint64_t bytes);
double via_chart_down(const struct via_chart_axes *axes, double value);

/* The top of the first frame below a legend of `legend_lines` lines. */
int via_chart_top(unsigned legend_lines);
void via_chart_begin(FILE *out, int height);
void via_chart_legend(FILE *out, unsigned series, const char *label);
/* Draws axes, ticks and title. title: a constant of this program, which is not escaped. */
void via_chart_frame(FILE *out, const struct via_chart_axes *axes, const char *title);
void via_chart_line(FILE *out, double x1, double y1, double x2, double y2, unsigned series);
void via_chart_mark(FILE *out, unsigned series, double x, double y);
/* Draws a dashed line at this size, with its text. row: of the text, so that two texts do not
 * overlap. */
void via_chart_note(FILE *out, const struct via_chart_axes *axes, uint64_t bytes, unsigned row,
                    const char *text);
void via_chart_end(FILE *out);

/* --- rates of several ways, a frame each (perf_curves.c) --- */

#define VIA_CHART_POINTS_MAX 64u
#define VIA_CHART_CURVES_MAX 32u
#define VIA_CHART_NOTES_MAX 4u

struct via_chart_point {
    uint64_t bytes;
    double rate; /* MB/s; 0 or less: no value */
};

struct via_chart_panel {
    const char *title;
    struct via_chart_point points[VIA_CHART_CURVES_MAX][VIA_CHART_POINTS_MAX];
    unsigned points_count[VIA_CHART_CURVES_MAX];
    uint64_t notes_bytes[VIA_CHART_NOTES_MAX];
    char notes[VIA_CHART_NOTES_MAX][64];
    unsigned notes_count;
};

/* The curves of all panels have the same labels. */
void via_chart_draw(const struct via_chart_panel *panels, unsigned panels_count, char labels[][32],
                    unsigned curves_count, FILE *out);

#endif
