/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/perf_chart.h"

#include <math.h>

#include "base/types.h"

#define WIDTH 860
#define LEFT 90
#define RIGHT 20
#define TOP 30
#define LEGEND 20 /* height of one line */
#define TICKS 8.0
#define NOTE 14 /* height of a line of text in a frame */

/* Series differ in colour and in mark. */
static const char *const colours[8] = {"#1b6ca8", "#c1440e", "#3a7d34", "#7b4fa3",
                                       "#8a6d00", "#00757a", "#a3365f", "#444444"};

double via_chart_across(const struct via_chart_axes *axes, uint64_t bytes)
{
    double span = fmax(axes->x_high - axes->x_low, 1.0);
    return LEFT + (WIDTH - LEFT - RIGHT) * (log2((double)bytes) - axes->x_low) / span;
}

double via_chart_down(const struct via_chart_axes *axes, double value)
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

void via_chart_frame(FILE *out, const struct via_chart_axes *axes, const char *title)
{
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n<rect x=\"%d\" y=\"%d\" "
            "width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888888\"/>\n",
            LEFT, axes->top - 8, title, LEFT, axes->top, WIDTH - LEFT - RIGHT, axes->height);
    double step = fmax(ceil((axes->x_high - axes->x_low) / TICKS), 1.0);
    for (double power = ceil(axes->x_low); power <= axes->x_high; power += step) {
        char text[16];
        double x = via_chart_across(axes, UINT64_C(1) << (unsigned)power);
        draw_size(power, text);
        draw_line(out, x, axes->top, x, axes->top + axes->height, "#dddddd");
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x,
                axes->top + axes->height + 16, text);
    }
    double y_step = axes->is_ratio ? (axes->y_high - axes->y_low) / 4 : 1;
    for (double y = axes->y_low; y <= axes->y_high + 1e-9; y += y_step) {
        double value = axes->is_ratio ? y : pow(10, y);
        double at = via_chart_down(axes, value);
        draw_line(out, LEFT, at, WIDTH - RIGHT, at, "#dddddd");
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT - 6,
                at + 4,
                axes->is_ratio ? 2
                : value < 1    ? (int)-y
                               : 0,
                value);
    }
    if (axes->is_ratio) {
        draw_line(out, LEFT, via_chart_down(axes, 1), WIDTH - RIGHT, via_chart_down(axes, 1),
                  "#888888");
    }
}

void via_chart_mark(FILE *out, unsigned series, double x, double y)
{
    if (series % 2 == 0) {
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y,
                colours[series % VIA_ARRAY_COUNT(colours)]);
    } else {
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" fill=\"%s\"/>\n",
                x - 3.5, y - 3.5, colours[series % VIA_ARRAY_COUNT(colours)]);
    }
}

/* Further series reuse the colours with dotted, then with dashed lines. */
void via_chart_line(FILE *out, double x1, double y1, double x2, double y2, unsigned series)
{
    static const char *const dashes[] = {"", " stroke-dasharray=\"1 3\"",
                                         " stroke-dasharray=\"6 3\""};
    unsigned round = series / VIA_ARRAY_COUNT(colours);
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n", x1,
            y1, x2, y2, colours[series % VIA_ARRAY_COUNT(colours)],
            dashes[round % VIA_ARRAY_COUNT(dashes)]);
}

void via_chart_note(FILE *out, const struct via_chart_axes *axes, uint64_t bytes, unsigned row,
                    const char *text)
{
    double x = via_chart_across(axes, bytes);
    bool is_right = x > (WIDTH + LEFT) / 2.0;
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#444444\" "
            "stroke-dasharray=\"5 3\"/>\n<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
            x, axes->top, x, axes->top + axes->height, x + (is_right ? -4 : 4),
            axes->top + NOTE * ((int)row + 1), is_right ? "end" : "start");
    escape(text, out);
    fputs("</text>\n", out);
}

int via_chart_top(unsigned legend_lines)
{
    return TOP + LEGEND * (int)legend_lines + VIA_CHART_GAP / 2;
}

void via_chart_begin(FILE *out, int height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" "
            "fill=\"white\"/>\n",
            WIDTH, height, WIDTH, height);
}

void via_chart_legend(FILE *out, unsigned series, const char *label)
{
    int y = TOP + LEGEND * (int)series;
    via_chart_mark(out, series, LEFT + 6, y);
    fprintf(out, "<text x=\"%d\" y=\"%d\">%u = ", LEFT + 18, y + 4, series + 1);
    escape(label, out);
    fputs("</text>\n", out);
}

void via_chart_end(FILE *out)
{
    fputs("</svg>\n", out);
}
