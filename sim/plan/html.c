/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A plan as one page: everything is in it, pictures as SVG, and it asks for nothing from elsewhere.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/types.h"
#include "sim/plan/report.h"

#define WIDTH 1000.0
#define MARGIN 30.0
#define CHART_HEIGHT 320.0
#define CHART_LEFT 70.0

struct place {
    double x, y;
};

static void text_out(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

/* --- the fabric --------------------------------------------------------------------------------
 */

static double fabric_height(const struct plan_shape *shape)
{
    if (shape->kind == PLAN_TREE) {
        return 2 * MARGIN + 140.0 * shape->levels_count;
    }
    if (shape->dimensions_count == 1) {
        return 700;
    }
    unsigned planes = shape->dimensions_count == 3 ? shape->sizes[2] : 1;
    double columns = ceil(sqrt(planes));
    double cell = (WIDTH - 2 * MARGIN) / (columns * (shape->sizes[0] + 1.0));
    return 2 * MARGIN + ceil(planes / columns) * (shape->sizes[1] + 1.0) * cell;
}

static struct place torus_place(const struct plan_shape *shape, unsigned host)
{
    if (shape->dimensions_count == 1) {
        double angle = 2 * acos(-1) * host / shape->hosts_count;
        return (struct place){WIDTH / 2 + 310 * sin(angle), 350 - 310 * cos(angle)};
    }
    unsigned plane = host / (shape->sizes[0] * shape->sizes[1]);
    unsigned planes = shape->dimensions_count == 3 ? shape->sizes[2] : 1;
    unsigned columns = (unsigned)ceil(sqrt(planes));
    double cell = (WIDTH - 2 * MARGIN) / (columns * (shape->sizes[0] + 1.0));
    double left = MARGIN + plane % columns * (shape->sizes[0] + 1) * cell;
    double top = MARGIN + plane / columns * (shape->sizes[1] + 1) * cell;
    return (struct place){left + (host % shape->sizes[0] + 1) * cell,
                          top + (host / shape->sizes[0] % shape->sizes[1] + 1) * cell};
}

/* Hosts in a row at the bottom, switches of a level above. */
static struct place tree_place(const struct plan_shape *shape, unsigned node)
{
    double bottom = fabric_height(shape) - MARGIN;
    unsigned level = 0;
    unsigned count = shape->hosts_count;
    while (node >= count) {
        node -= count;
        count = plan_shape_switches(shape, ++level);
    }
    return (struct place){MARGIN + (node + 0.5) * (WIDTH - 2 * MARGIN) / count,
                          bottom - 140.0 * level};
}

static struct place place_of(const struct plan_shape *shape, unsigned node)
{
    return shape->kind == PLAN_TORUS ? torus_place(shape, node) : tree_place(shape, node);
}

static void node_name(const struct plan_shape *shape, unsigned node, char *ret, size_t bytes)
{
    snprintf(ret, bytes, node < shape->hosts_count ? "host %u" : "switch %u",
             node < shape->hosts_count ? node : node - shape->hosts_count);
}

/* A torus' cable round the back is drawn as a bow. */
static bool is_wrap_cable(const struct plan_shape *shape, unsigned a, unsigned b)
{
    if (shape->kind != PLAN_TORUS || shape->dimensions_count == 1) {
        return false;
    }
    unsigned d = plan_shape_dimension(shape, a, b);
    return d == 2 || (plan_shape_step(shape, a, d, false) == b ? a > b : b > a);
}

static void cable_out(const struct plan_report *report, unsigned link, FILE *out)
{
    const struct plan_shape *shape = report->shape;
    unsigned ends[2] = {plan_wiring_end(report->wiring, link, false),
                        plan_wiring_end(report->wiring, link, true)};
    struct place a = place_of(shape, ends[0]), b = place_of(shape, ends[1]);
    bool is_cut = shape->kind == PLAN_TORUS && plan_shape_is_cut(shape, ends[0], ends[1]);
    double there = report->links_busy[2 * link], back = report->links_busy[2 * link + 1];
    double bow = is_wrap_cable(shape, ends[0], ends[1]) ? 0.12 : 0;
    char names[2][24];
    for (unsigned i = 0; i < 2; i++) {
        node_name(shape, ends[i], names[i], sizeof(names[i]));
    }
    fprintf(
        out, "<path d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\" stroke=\"hsl(%.0f,85%%,42%%)\"%s><title>",
        a.x, a.y, (a.x + b.x) / 2 + bow * (b.y - a.y), (a.y + b.y) / 2 + bow * (a.x - b.x), b.x,
        b.y, 120 - 120 * fmax(there, back), is_cut ? " stroke-dasharray=\"3\" class=\"cut\"" : "");
    if (is_cut) {
        fprintf(out, "%s - %s: cut</title></path>\n", names[0], names[1]);
    } else {
        fprintf(out, "%s - %s: %.0f %% there, %.0f %% back</title></path>\n", names[0], names[1],
                there * 100, back * 100);
    }
}

static bool is_cable(const struct plan_wiring *wiring, unsigned link)
{
    return plan_wiring_end(wiring, link, false) != plan_wiring_end(wiring, link, true);
}

static void fabric_out(const struct plan_report *report, FILE *out)
{
    const struct plan_shape *shape = report->shape;
    unsigned nodes = shape->hosts_count + report->switches_count;
    double size = nodes > 300 ? 2 : nodes > 70 ? 4 : 8;
    fprintf(
        out,
        "<h2>The fabric</h2>\n<p>Colour: how busy the busier way of a cable is, "
        "<b style=\"color:hsl(120,85%%,35%%)\">idle</b> to "
        "<b style=\"color:hsl(0,85%%,42%%)\">always busy</b>%s. Round: hosts; square: switches. "
        "A pointer on a cable shows its name and load.</p>\n"
        "<svg id=\"fabric\" viewBox=\"0 0 %.0f %.0f\" fill=\"none\" stroke-width=\"%.1f\">\n",
        report->run.core    ? "; not known of the product's nodes"
        : report->saturated ? ", when all hosts send all they can"
                            : ", at the last load of the table",
        WIDTH, fabric_height(shape), nodes > 300 ? 0.7 : 2.5);
    for (unsigned i = 0; i < report->wiring->net.links_count; i++) {
        if (is_cable(report->wiring, i)) {
            cable_out(report, i, out);
        }
    }
    for (unsigned i = 0; i < nodes; i++) {
        struct place at = place_of(shape, i);
        char name[24];
        node_name(shape, i, name, sizeof(name));
        if (i < shape->hosts_count) {
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", at.x, at.y, size / 2);
        } else {
            fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
                    at.x - size / 2, at.y - size / 2, size, size);
        }
        fprintf(out, " fill=\"#223\"><title>%s</title></%s>\n", name,
                i < shape->hosts_count ? "circle" : "rect");
    }
    fputs("</svg>\n", out);
}

/* --- latency by load ----------------------------------------------------------------------------
 */

struct chart {
    double x_max, y_min, y_max;
};

static double chart_x(const struct chart *chart, double x)
{
    return CHART_LEFT + x / chart->x_max * (WIDTH - CHART_LEFT - MARGIN);
}

static double chart_y(const struct chart *chart, double y)
{
    double share = log(y / chart->y_min) / log(chart->y_max / chart->y_min);
    return CHART_HEIGHT - 40 - share * (CHART_HEIGHT - 60);
}

/* A row with a load and a latency. */
static bool has_point(const struct plan_row *row)
{
    return !isnan(row->measured.offered) && !isnan(plan_measured_latency(&row->measured, 50));
}

static unsigned chart_size(const struct plan_report *report, struct chart *chart)
{
    unsigned points = 0;
    *chart = (struct chart){.y_min = INFINITY};
    for (unsigned i = 0; i < report->rows_count; i++) {
        const struct plan_measured *measured = &report->rows[i].measured;
        if (has_point(&report->rows[i])) {
            points++;
            chart->x_max = fmax(chart->x_max, measured->offered);
            chart->y_min = fmin(chart->y_min, plan_measured_latency(measured, 50));
            chart->y_max = fmax(chart->y_max, plan_measured_latency(measured, 99));
        }
    }
    /* Whole decades. */
    chart->y_min = pow(10, floor(log10(chart->y_min)));
    chart->y_max = fmax(pow(10, ceil(log10(chart->y_max))), chart->y_min * 10);
    return points;
}

static void grid_out(const struct chart *chart, FILE *out)
{
    char text[32];
    for (double y = chart->y_min; y < chart->y_max * 1.01; y *= 10) {
        plan_report_time(text, sizeof(text), y);
        fprintf(out,
                "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ccc\"/><text x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                CHART_LEFT, chart_y(chart, y), WIDTH - MARGIN, CHART_LEFT - 6,
                chart_y(chart, y) + 4, text);
    }
    for (unsigned i = 0; i <= 4; i++) {
        double x = chart->x_max * i / 4;
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.0f</text>\n",
                chart_x(chart, x), CHART_HEIGHT - 22, x / 1e6);
    }
    fprintf(out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">MB/s that each host is given to "
            "send</text>\n",
            WIDTH / 2, CHART_HEIGHT - 4);
}

static void chart_out(const struct plan_report *report, FILE *out)
{
    static const struct {
        double percent;
        const char *colour;
    } lines[] = {{50, "#1668a8"}, {90, "#c07b00"}, {99, "#b0261c"}};
    struct chart chart;
    if (chart_size(report, &chart) == 0) {
        return;
    }
    fprintf(out, "<h2>Latency by load</h2>\n<svg id=\"latency\" viewBox=\"0 0 %.0f %.0f\">\n",
            WIDTH, CHART_HEIGHT);
    grid_out(&chart, out);
    for (size_t k = 0; k < VIA_ARRAY_COUNT(lines); k++) {
        const char *separator = "";
        fprintf(out, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"",
                lines[k].colour);
        for (unsigned i = 0; i < report->rows_count; i++) {
            const struct plan_measured *measured = &report->rows[i].measured;
            if (has_point(&report->rows[i])) {
                fprintf(out, "%s%.1f,%.1f", separator, chart_x(&chart, measured->offered),
                        chart_y(&chart, plan_measured_latency(measured, lines[k].percent)));
                separator = " ";
            }
        }
        fprintf(out, "\"/><text x=\"%.1f\" y=\"14\" fill=\"%s\">p%.0f</text>\n",
                CHART_LEFT + 40 + 50 * (double)k, lines[k].colour, lines[k].percent);
    }
    fputs("</svg>\n", out);
}

/* --- tables -------------------------------------------------------------------------------------
 */

static void bill_row(FILE *out, unsigned count, const char *what, const char *format, ...)
    VIA_PRINTF(4, 5);

static void bill_row(FILE *out, unsigned count, const char *what, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(out, "<tr><td>%s<td class=n>%u<td>", what, count);
    text_out(text, out);
    fputs("</tr>\n", out);
}

static void bill_out(const struct plan_report *report, FILE *out)
{
    const struct plan_wiring *wiring = report->wiring;
    fputs("<h2>Bill</h2>\n<table id=\"bill\">\n", out);
    bill_row(out, report->cards_count, "cards", "%s, %u a host; %u of %u lanes of a card's chip",
             report->parts->card, report->cards_per_host, wiring->lanes_per_card,
             wiring->lanes_of_card);
    bill_row(out, wiring->lanes_per_host, "lanes of a host", "of %u of %s", wiring->lanes_of_board,
             wiring->board);
    bill_row(out, report->cables_count, "cables", "%s", report->parts->cable);
    bill_row(out, report->cables_count * report->cords_per_cable, "cords", "%u a cable",
             report->cords_per_cable);
    if (report->switches_count > 0) {
        bill_row(out, report->switches_count, "switches",
                 "%s; the fullest uses %u of %u ports of that width", report->parts->chip,
                 wiring->ports_per_switch, wiring->ports_of_chip);
    }
    bill_row(out, report->bisection_cables, "cables in the bisection", "%.1f MB/s each way",
             report->bisection_cables * report->cable_rate / 1e6);
    bill_row(out, report->diameter, "links between hosts at most", "a port carries %.1f MB/s",
             report->port_rate / 1e6);
    fputs("</table>\n", out);
}

static void rows_out(const struct plan_report *report, FILE *out)
{
    fputs("<h2>Loads</h2>\n<table id=\"loads\">\n<tr><th>load<th>MB/s a host<th>MB/s in "
          "all<th>p50<th>"
          "p90<th>p99<th>what limits</tr>\n",
          out);
    for (unsigned i = 0; i < report->rows_count; i++) {
        const struct plan_measured *measured = &report->rows[i].measured;
        static const double percents[] = {50, 90, 99};
        char text[200];
        if (isnan(measured->offered)) {
            fputs("<tr><td>all", out);
        } else {
            fprintf(out, "<tr><td>%.1f %%", report->rows[i].load * 100);
        }
        fprintf(out, "<td class=n>%.1f<td class=n>%.1f", measured->got / 1e6,
                measured->total / 1e6);
        for (size_t k = 0; k < VIA_ARRAY_COUNT(percents); k++) {
            plan_report_time(text, sizeof(text), plan_measured_latency(measured, percents[k]));
            fprintf(out, "<td class=n>%s", text);
        }
        plan_report_limit(measured, text, sizeof(text));
        fputs("<td>", out);
        text_out(text, out);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

void plan_report_html(const struct plan_report *report, FILE *out)
{
    char bytes[32];
    plan_report_bytes(bytes, sizeof(bytes), report->run.bytes);
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>viaduct "
          "plan</title>\n"
          "<style>body{font:15px sans-serif;max-width:1040px;margin:2em auto;color:#223}"
          "td,th{padding:2px 10px;text-align:left}.n{text-align:right}"
          "table{border-collapse:collapse}tr{border-bottom:1px solid #ddd}"
          "svg{width:100%;font-size:12px}.cut{stroke:#999}</style>\n<h1>",
          out);
    text_out(report->shape->name, out);
    fprintf(out, " of %u hosts, %s", report->shape->hosts_count,
            plan_pattern_name(report->run.pattern));
    if (report->run.pattern != PLAN_BARRIER) {
        fprintf(out, ", messages of %s", bytes);
    }
    fputs("</h1>\n", out);
    bill_out(report, out);
    rows_out(report, out);
    for (unsigned i = 0; i < report->notes_count; i++) {
        fputs("<p>Note: ", out);
        text_out(report->notes[i], out);
        fputs("</p>\n", out);
    }
    fabric_out(report, out);
    chart_out(report, out);
    fputs("</html>\n", out);
}
