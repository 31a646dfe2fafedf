/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Series as a picture: for each direction the rates (both axes logarithmic), below them the ratios
 * to the first series (linear). */
#include <math.h>

#include "cli/perf_series.h"

#define WIDTH 860
#define LEFT 90
#define RIGHT 20
#define TOP 30
#define RATES 260
#define RATIOS 160
#define GAP 46
#define LEGEND 20 /* a line of it */
#define TICKS 8.0

/* Told apart by colour and by mark. */
static const char *const colours[8] = {"#1b6ca8", "#c1440e", "#3a7d34", "#7b4fa3",
                                       "#8a6d00", "#00757a", "#a3365f", "#444444"};

/* From values to places on the paper. */
struct axes {
    bool is_ratio;
    int top, height;
    double x_low, x_high, y_low, y_high; /* x: log2 of bytes; y: log10 of rates, or ratios */
};

static double across(const struct axes *axes, uint64_t bytes)
{
    double span = fmax(axes->x_high - axes->x_low, 1.0);
    return LEFT + (WIDTH - LEFT - RIGHT) * (log2((double)bytes) - axes->x_low) / span;
}

static double down(const struct axes *axes, double value)
{
    double y = axes->is_ratio ? value : log10(value);
    double part = (y - axes->y_low) / (axes->y_high - axes->y_low);
    return axes->top + axes->height * (1 - fmin(fmax(part, 0), 1));
}

static void escape(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

/* Value and bounds of a point as rate, or beside the first series: false if that has none. */
static bool value_of(const struct via_perf_set *set, unsigned series, unsigned point, bool is_ratio,
                     double value[3])
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

/* What lies in the picture; false: nothing. */
static bool find_axes(const struct via_perf_set *set, enum via_perf_direction direction,
                      struct axes *axes)
{
    bool any = false;
    for (unsigned i = axes->is_ratio ? 1 : 0; i < set->series_count; i++) {
        for (unsigned k = 0; k < set->series[i].points_count; k++) {
            const struct via_perf_point *point = &set->series[i].points[k];
            double value[3];
            if (point->direction != direction || !value_of(set, i, k, axes->is_ratio, value)) {
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
    if (axes->is_ratio) { /* 1 is always to be seen, and nothing below 0 */
        axes->y_low = fmax(fmin(axes->y_low, 0.98) - 0.02, 0.0);
        axes->y_high = fmax(axes->y_high, 1.02) + 0.02;
    } else {
        axes->y_low = floor(axes->y_low);
        axes->y_high = fmax(ceil(axes->y_high), axes->y_low + 1);
    }
    return any;
}

static void draw_size(double power, char text[16])
{
    static const char *const units[] = {"", "K", "M", "G"};
    unsigned unit = (unsigned)(power / 10);
    snprintf(text, 16, "%.0f%s", exp2(power - 10 * unit), units[via_min(unit, 3u)]);
}

static void draw_line(FILE *out, double x1, double y1, double x2, double y2, const char *colour)
{
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1,
            x2, y2, colour);
}

static void draw_frame(const struct axes *axes, const char *title, FILE *out)
{
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n<rect x=\"%d\" y=\"%d\" "
            "width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888888\"/>\n",
            LEFT, axes->top - 8, title, LEFT, axes->top, WIDTH - LEFT - RIGHT, axes->height);
    double step = fmax(ceil((axes->x_high - axes->x_low) / TICKS), 1.0);
    for (double power = ceil(axes->x_low); power <= axes->x_high; power += step) {
        char text[16];
        double x = across(axes, UINT64_C(1) << (unsigned)power);
        draw_size(power, text);
        draw_line(out, x, axes->top, x, axes->top + axes->height, "#dddddd");
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x,
                axes->top + axes->height + 16, text);
    }
    double y_step = axes->is_ratio ? (axes->y_high - axes->y_low) / 4 : 1;
    for (double y = axes->y_low; y <= axes->y_high + 1e-9; y += y_step) {
        double value = axes->is_ratio ? y : pow(10, y);
        double at = down(axes, value);
        draw_line(out, LEFT, at, WIDTH - RIGHT, at, "#dddddd");
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT - 6,
                at + 4,
                axes->is_ratio ? 2
                : value < 1    ? (int)-y
                               : 0,
                value);
    }
    if (axes->is_ratio) {
        draw_line(out, LEFT, down(axes, 1), WIDTH - RIGHT, down(axes, 1), "#888888");
    }
}

static void draw_mark(FILE *out, unsigned series, double x, double y)
{
    if (series % 2 == 0) {
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y,
                colours[series % VIA_ARRAY_COUNT(colours)]);
    } else {
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" fill=\"%s\"/>\n",
                x - 3.5, y - 3.5, colours[series % VIA_ARRAY_COUNT(colours)]);
    }
}

static void draw_series(const struct via_perf_set *set, unsigned index,
                        enum via_perf_direction direction, const struct axes *axes, FILE *out)
{
    const struct via_perf_series *series = &set->series[index];
    double last_x = 0, last_y = 0;
    bool has_last = false;
    for (unsigned k = 0; k < series->points_count; k++) {
        double value[3];
        if (series->points[k].direction != direction ||
            !value_of(set, index, k, axes->is_ratio, value)) {
            continue;
        }
        double x = across(axes, series->points[k].bytes), y = down(axes, value[1]);
        if (has_last && x > last_x) {
            draw_line(out, last_x, last_y, x, y, colours[index % VIA_ARRAY_COUNT(colours)]);
        }
        draw_line(out, x, down(axes, value[0]), x, down(axes, value[2]),
                  colours[index % VIA_ARRAY_COUNT(colours)]);
        draw_line(out, x - 4, down(axes, value[0]), x + 4, down(axes, value[0]),
                  colours[index % VIA_ARRAY_COUNT(colours)]);
        draw_line(out, x - 4, down(axes, value[2]), x + 4, down(axes, value[2]),
                  colours[index % VIA_ARRAY_COUNT(colours)]);
        draw_mark(out, index, x, y);
        last_x = x;
        last_y = y;
        has_last = true;
    }
}

static int draw_panel(const struct via_perf_set *set, enum via_perf_direction direction,
                      bool is_ratio, int top, FILE *out)
{
    char title[96];
    struct axes axes = {.is_ratio = is_ratio, .top = top, .height = is_ratio ? RATIOS : RATES};
    if (!find_axes(set, direction, &axes)) {
        return top;
    }
    if (out != NULL) {
        snprintf(title, sizeof(title), "%s, %s", via_perf_direction_name(direction),
                 is_ratio ? "rate in parts of the first's" : "MB/s by bytes");
        draw_frame(&axes, title, out);
        for (unsigned i = is_ratio ? 1 : 0; i < set->series_count; i++) {
            draw_series(set, i, direction, &axes, out);
        }
    }
    return top + axes.height + GAP;
}

/* The height that all panels take; out NULL: nothing is drawn. */
static int draw_panels(const struct via_perf_set *set, FILE *out)
{
    int top = TOP + LEGEND * (int)set->series_count + GAP / 2;
    for (unsigned direction = 0; direction < VIA_PERF_DIRECTIONS; direction++) {
        top = draw_panel(set, (enum via_perf_direction)direction, false, top, out);
        top = draw_panel(set, (enum via_perf_direction)direction, true, top, out);
    }
    return top;
}

void via_perf_set_draw(const struct via_perf_set *set, FILE *out)
{
    int height = draw_panels(set, NULL);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" "
            "fill=\"white\"/>\n",
            WIDTH, height, WIDTH, height);
    for (unsigned i = 0; i < set->series_count; i++) {
        int y = TOP + LEGEND * (int)i;
        draw_mark(out, i, LEFT + 6, y);
        fprintf(out, "<text x=\"%d\" y=\"%d\">%u = ", LEFT + 18, y + 4, i + 1);
        escape(set->series[i].label, out);
        fputs("</text>\n", out);
    }
    (void)draw_panels(set, out);
    fputs("</svg>\n", out);
}
