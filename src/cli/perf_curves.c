/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Rates of several ways by size, with logarithmic axes, and with marks at important sizes. */
#include <math.h>

#include "base/types.h"
#include "cli/perf_chart.h"

#define HEIGHT 300

static void find_axes(const struct via_chart_panel *panel, unsigned curves_count,
                      struct via_chart_axes *axes)
{
    bool any = false;
    for (unsigned i = 0; i < curves_count; i++) {
        for (unsigned k = 0; k < panel->points_count[i]; k++) {
            const struct via_chart_point *point = &panel->points[i][k];
            double x = log2((double)point->bytes), y = log10(point->rate);
            axes->x_low = any ? fmin(axes->x_low, x) : x;
            axes->x_high = any ? fmax(axes->x_high, x) : x;
            axes->y_low = any ? fmin(axes->y_low, y) : y;
            axes->y_high = any ? fmax(axes->y_high, y) : y;
            any = true;
        }
    }
    axes->y_low = floor(axes->y_low);
    axes->y_high = fmax(ceil(axes->y_high), axes->y_low + 1);
}

static void draw_curve(FILE *out, const struct via_chart_axes *axes,
                       const struct via_chart_point *points, unsigned count, unsigned curve)
{
    double last_x = 0, last_y = 0;
    for (unsigned k = 0; k < count; k++) {
        double x = via_chart_across(axes, points[k].bytes);
        double y = via_chart_down(axes, points[k].rate);
        if (k != 0) {
            via_chart_line(out, last_x, last_y, x, y, curve);
        }
        via_chart_mark(out, curve, x, y);
        last_x = x;
        last_y = y;
    }
}

void via_chart_draw(const struct via_chart_panel *panels, unsigned panels_count, char labels[][32],
                    unsigned curves_count, FILE *out)
{
    int top = via_chart_top(curves_count);
    via_chart_begin(out, top + (int)panels_count * (HEIGHT + VIA_CHART_GAP));
    for (unsigned i = 0; i < curves_count; i++) {
        via_chart_legend(out, i, labels[i]);
    }
    for (unsigned p = 0; p < panels_count; p++, top += HEIGHT + VIA_CHART_GAP) {
        struct via_chart_axes axes = {.top = top, .height = HEIGHT};
        find_axes(&panels[p], curves_count, &axes);
        via_chart_frame(out, &axes, panels[p].title);
        for (unsigned i = 0; i < curves_count; i++) {
            draw_curve(out, &axes, panels[p].points[i], panels[p].points_count[i], i);
        }
        for (unsigned i = 0; i < panels[p].notes_count; i++) {
            via_chart_note(out, &axes, panels[p].notes_bytes[i], i, panels[p].notes[i]);
        }
    }
    via_chart_end(out);
}
