/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Series as a chart: for each direction the rates (both axes logarithmic), below them the ratios to
 * the first series (linear). */
#include <math.h>

#include "cli/perf_chart.h"
#include "cli/perf_series.h"

#define RATES 260
#define RATIOS 160

/* Value and bounds of a point, as rate or as ratio to the first series. False: the first series has
 * no such point. */
static bool compute_value(const struct via_perf_set *set, unsigned series, unsigned point,
                          bool is_ratio, double value[3])
{
    const struct via_perf_point *own = &set->series[series].points[point];
    if (!is_ratio) {
        double factor = 1e3 * (double)own->bytes;
        value[0] = factor / own->high_ns;
        value[1] = factor / own->median_ns;
        value[2] = factor / own->low_ns;
        return true;
    }
    const struct via_perf_series *base = &set->series[0];
    for (unsigned i = 0; i < base->points_count; i++) {
        const struct via_perf_point *other = &base->points[i];
        if (other->direction == own->direction && other->bytes == own->bytes) {
            value[0] = other->low_ns / own->high_ns;
            value[1] = other->median_ns / own->median_ns;
            value[2] = other->high_ns / own->low_ns;
            return true;
        }
    }
    return false;
}

/* The range of the frame. False: it has no points. */
static bool find_axes(const struct via_perf_set *set, enum via_perf_direction direction,
                      struct via_chart_axes *axes)
{
    bool any = false;
    for (unsigned i = axes->is_ratio ? 1 : 0; i < set->series_count; i++) {
        for (unsigned k = 0; k < set->series[i].points_count; k++) {
            const struct via_perf_point *point = &set->series[i].points[k];
            double value[3];
            if (point->direction != direction || !compute_value(set, i, k, axes->is_ratio, value)) {
                continue;
            }
            double x = log2((double)point->bytes);
            double low = axes->is_ratio ? value[0] : log10(value[0]);
            double high = axes->is_ratio ? value[2] : log10(value[2]);
            axes->x_low = any ? fmin(axes->x_low, x) : x;
            axes->x_high = any ? fmax(axes->x_high, x) : x;
            axes->y_low = any ? fmin(axes->y_low, low) : low;
            axes->y_high = any ? fmax(axes->y_high, high) : high;
            any = true;
        }
    }
    if (axes->is_ratio) { /* includes 1, and nothing below 0 */
        axes->y_low = fmax(fmin(axes->y_low, 0.98) - 0.02, 0.0);
        axes->y_high = fmax(axes->y_high, 1.02) + 0.02;
    } else {
        axes->y_low = floor(axes->y_low);
        axes->y_high = fmax(ceil(axes->y_high), axes->y_low + 1);
    }
    return any;
}

static void draw_series(const struct via_perf_set *set, unsigned index,
                        enum via_perf_direction direction, const struct via_chart_axes *axes,
                        FILE *out)
{
    const struct via_perf_series *series = &set->series[index];
    double last_x = 0, last_y = 0;
    bool has_last = false;
    for (unsigned k = 0; k < series->points_count; k++) {
        double value[3];
        if (series->points[k].direction != direction ||
            !compute_value(set, index, k, axes->is_ratio, value)) {
            continue;
        }
        double x = via_chart_across(axes, series->points[k].bytes),
               y = via_chart_down(axes, value[1]);
        if (has_last && x > last_x) {
            via_chart_line(out, last_x, last_y, x, y, index);
        }
        via_chart_line(out, x, via_chart_down(axes, value[0]), x, via_chart_down(axes, value[2]),
                       index);
        via_chart_line(out, x - 4, via_chart_down(axes, value[0]), x + 4,
                       via_chart_down(axes, value[0]), index);
        via_chart_line(out, x - 4, via_chart_down(axes, value[2]), x + 4,
                       via_chart_down(axes, value[2]), index);
        via_chart_mark(out, index, x, y);
        last_x = x;
        last_y = y;
        has_last = true;
    }
}

static int draw_panel(const struct via_perf_set *set, enum via_perf_direction direction,
                      bool is_ratio, int top, FILE *out)
{
    char title[96];
    struct via_chart_axes axes = {
        .is_ratio = is_ratio, .top = top, .height = is_ratio ? RATIOS : RATES};
    if (!find_axes(set, direction, &axes)) {
        return top;
    }
    if (out != NULL) {
        snprintf(title, sizeof(title), "%s, %s", via_perf_direction_name(direction),
                 is_ratio ? "rate in parts of the first's" : "MB/s by bytes");
        via_chart_frame(out, &axes, title);
        for (unsigned i = is_ratio ? 1 : 0; i < set->series_count; i++) {
            draw_series(set, i, direction, &axes, out);
        }
    }
    return top + axes.height + VIA_CHART_GAP;
}

/* The height of all panels; out NULL: draws nothing. */
static int draw_panels(const struct via_perf_set *set, FILE *out)
{
    int top = via_chart_top(set->series_count);
    for (unsigned direction = 0; direction < VIA_PERF_DIRECTIONS; direction++) {
        top = draw_panel(set, (enum via_perf_direction)direction, false, top, out);
        top = draw_panel(set, (enum via_perf_direction)direction, true, top, out);
    }
    return top;
}

void via_perf_set_draw(const struct via_perf_set *set, FILE *out)
{
    via_chart_begin(out, draw_panels(set, NULL));
    for (unsigned i = 0; i < set->series_count; i++) {
        via_chart_legend(out, i, set->series[i].label);
    }
    (void)draw_panels(set, out);
    via_chart_end(out);
}
