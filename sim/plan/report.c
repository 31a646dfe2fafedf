/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/types.h"

/* Busier than this is what there is no more of. */
#define LIMIT_SHARE 0.9

static const double percents[] = {50, 90, 99};
static const char *const resource_names[PLAN_RESOURCES] = {"link", "thread", "memory"};

void plan_report_note(struct plan_report *report, const char *format, ...)
{
    va_list args;
    if (report->notes_count < VIA_ARRAY_COUNT(report->notes)) {
        va_start(args, format);
        vsnprintf(report->notes[report->notes_count++], sizeof(report->notes[0]), format, args);
        va_end(args);
    }
}

void plan_report_limit(const struct plan_measured *measured, char *ret, size_t bytes)
{
    const struct plan_busy *busy = measured->busy;
    const struct plan_busy *thread = &busy[PLAN_THREAD];
    if (busy[PLAN_LINK].share >= LIMIT_SHARE) {
        snprintf(ret, bytes, "link %s, %.0f %% busy", busy[PLAN_LINK].name,
                 busy[PLAN_LINK].share * 100);
    } else if (busy[PLAN_MEMORY].share >= LIMIT_SHARE) {
        snprintf(ret, bytes, "%s, %.0f %% busy", busy[PLAN_MEMORY].name,
                 busy[PLAN_MEMORY].share * 100);
    } else if (thread->share >= LIMIT_SHARE) {
        snprintf(ret, bytes, "%s, %.0f %% computing, %.0f %% waiting for links or memory",
                 thread->name, thread->work * 100, (thread->share - thread->work) * 100);
    } else {
        const struct plan_busy *most = &busy[0];
        for (unsigned i = 1; i < PLAN_RESOURCES; i++) {
            most = busy[i].share > most->share ? &busy[i] : most;
        }
        if (most->name[0] == '\0') {
            snprintf(ret, bytes, "not measured: how busy links and threads are");
            return;
        }
        bool starved = most->share < 0.5 && isnan(measured->offered) && measured->stuck_count == 0;
        snprintf(ret, bytes, "nothing is always busy, most of all %s, %.0f %%%s", most->name,
                 most->share * 100, starved ? ": more messages under way would do more" : "");
    }
}

/* --- table ----------------------------------------------------------------------------------- */

void plan_report_bytes(char *text, size_t bytes, uint64_t value)
{
    if (value >= 1048576 && value % 1048576 == 0) {
        snprintf(text, bytes, "%llu MiB", (unsigned long long)value / 1048576);
    } else if (value >= 1024 && value % 1024 == 0) {
        snprintf(text, bytes, "%llu KiB", (unsigned long long)value / 1024);
    } else {
        snprintf(text, bytes, "%llu B", (unsigned long long)value);
    }
}

void plan_report_time(char *text, size_t bytes, double ps)
{
    if (isnan(ps)) {
        snprintf(text, bytes, "-");
    } else if (ps < 1e9) {
        snprintf(text, bytes, "%.2f us", ps / 1e6);
    } else {
        snprintf(text, bytes, "%.2f ms", ps / 1e9);
    }
}

static void print_parts(const struct plan_report *report, FILE *out)
{
    const struct plan_shape *shape = report->shape;
    char bytes[32];
    plan_report_bytes(bytes, sizeof(bytes), report->run.bytes);
    fprintf(out, "%s of %u hosts, %s", shape->name, shape->hosts_count,
            plan_pattern_name(report->run.pattern));
    if (report->run.pattern != PLAN_BARRIER) {
        fprintf(out, ", messages of %s", bytes);
    }
    fprintf(out, ", %u channel%s, seed %llu\n\n", report->channels_count,
            report->channels_count == 1 ? "" : "s", (unsigned long long)report->run.seed);
    fprintf(out, "cards      %8u  %s, %u a host\n", report->cards_count, report->parts->card,
            report->cards_per_host);
    fprintf(out, "cables     %8u  %s", report->cables_count, report->parts->cable);
    if (report->cords_per_cable > 1) {
        fprintf(out, ", %u cords each: %u", report->cords_per_cable,
                report->cords_per_cable * report->cables_count);
    }
    fputc('\n', out);
    if (report->switches_count > 0) {
        fprintf(out, "switches   %8u  %s, %u level%s\n", report->switches_count,
                report->parts->chip, shape->levels_count, shape->levels_count == 1 ? "" : "s");
    }
    fprintf(out, "lanes      %8u  of %u of a host (%s); %u of %u of a card's chip\n",
            report->wiring->lanes_per_host, report->wiring->lanes_of_board, report->wiring->board,
            report->wiring->lanes_per_card, report->wiring->lanes_of_card);
    if (report->switches_count > 0) {
        fprintf(out, "ports      %8u  of %u of the fullest switch\n",
                report->wiring->ports_per_switch, report->wiring->ports_of_chip);
    }
    fprintf(out, "longest    %8u  link%s between hosts\n", report->diameter,
            report->diameter == 1 ? "" : "s");
    fprintf(out, "port       %8.1f  MB/s of payload each way\n", report->port_rate / 1e6);
    if (report->choice.engine[0] != '\0') {
        const struct plan_choice *choice = &report->choice;
        char body[32] = "never";
        if (choice->quicker_bytes > 0) {
            plan_report_bytes(body, sizeof(body), choice->quicker_bytes);
        }
        fprintf(
            out,
            "a body     %8.2f  us by stores, its thread busy for %.2f; %.2f by the engine %s, busy "
            "for %.2f\nby engine  %8.1f  MB/s of a port; sooner than stores from: %s\n",
            choice->stores_ps / 1e6, choice->stores_busy_ps / 1e6, choice->engine_ps / 1e6,
            choice->engine, choice->engine_busy_ps / 1e6, choice->engine_rate / 1e6, body);
    }
    fprintf(out, "bisection  %8.1f  MB/s of payload each way: %u cable%s\n",
            report->bisection_cables * report->cable_rate / 1e6, report->bisection_cables,
            report->bisection_cables == 1 ? "" : "s");
    if (!isnan(report->bound)) {
        fprintf(out,
                "bound      %8.1f  MB/s a host: no traffic like this fits the cables above it\n",
                report->bound / 1e6);
    }
    fputc('\n', out);
}

static void print_row(const struct plan_row *row, FILE *out)
{
    const struct plan_measured *measured = &row->measured;
    char text[4][24];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(percents); i++) {
        plan_report_time(text[i], sizeof(text[i]), plan_measured_latency(measured, percents[i]));
    }
    plan_report_time(text[3], sizeof(text[3]),
                     measured->at_rest && measured->times.total > 0 ? (double)measured->times.max_ps
                                                                    : NAN);
    if (isnan(measured->offered)) {
        fprintf(out, "%7s", "all");
    } else {
        fprintf(out, "%5.1f %%", row->load * 100);
    }
    fprintf(out, " %10.1f %11.1f %10s %10s %10s %10s %9llu", measured->got / 1e6,
            measured->total / 1e6, text[0], text[1], text[2], text[3],
            (unsigned long long)measured->messages_count);
    for (unsigned k = 0; k < PLAN_RESOURCES; k++) {
        if (measured->busy[k].name[0] == '\0') {
            fputs("       -", out);
        } else {
            fprintf(out, " %5.0f %%", measured->busy[k].share * 100);
        }
    }
    fputc('\n', out);
}

static void print_saturation(const struct plan_report *report, FILE *out)
{
    char limit[200];
    if (report->saturated && report->rows[0].measured.messages_count > 0) {
        const struct plan_row *row = &report->rows[0];
        plan_report_limit(&row->measured, limit, sizeof(limit));
        fprintf(out, "\nsaturates at %.1f %% of a port, %.1f MB/s a host: %s\n", row->load * 100,
                row->measured.got / 1e6, limit);
    }
    for (unsigned i = 0; i < report->rows_count; i++) {
        const struct plan_measured *measured = &report->rows[i].measured;
        if (!isnan(measured->offered) && measured->refused_count > 0) {
            plan_report_limit(measured, limit, sizeof(limit));
            fprintf(out, "at %.1f %% a host is given more than it gets rid of: %s\n",
                    report->rows[i].load * 100, limit);
            break;
        }
    }
}

void plan_report_print(const struct plan_report *report, FILE *out)
{
    print_parts(report, out);
    if (report->run.pattern == PLAN_BARRIER) {
        fprintf(out, "%10s %10s %10s %10s %9s\n", "p50", "p90", "p99", "max", "waits");
        const struct plan_times *times = &report->rows[0].measured.times;
        char text[24];
        for (size_t i = 0; i < VIA_ARRAY_COUNT(percents); i++) {
            plan_report_time(text, sizeof(text), plan_times_percentile(times, percents[i]));
            fprintf(out, "%10s ", text);
        }
        plan_report_time(text, sizeof(text), times->total > 0 ? (double)times->max_ps : NAN);
        fprintf(out, "%10s %9llu\n", text, (unsigned long long)times->total);
    } else {
        fprintf(out,
                "%7s %10s %11s %43s %9s %23s\n%7s %10s %11s %10s %10s %10s %10s %9s %7s %7s "
                "%7s\n",
                "load", "MB/s", "MB/s", "latency", "messages", "busiest", "", "a host", "total",
                "p50", "p90", "p99", "max", "", "link", "thread", "memory");
        for (unsigned i = 0; i < report->rows_count; i++) {
            print_row(&report->rows[i], out);
        }
        print_saturation(report, out);
    }
    for (unsigned i = 0; i < report->notes_count; i++) {
        fprintf(out, "note: %s\n", report->notes[i]);
    }
}

/* --- CSV ------------------------------------------------------------------------------------- */

static void csv_number(double value, FILE *out)
{
    fprintf(out, isnan(value) ? "," : ",%.6g", value);
}

void plan_report_csv(const struct plan_report *report, FILE *out)
{
    fputs("topology,hosts,pattern,bytes,channels,card,cable,switch,cards,cables,switches,"
          "bisection_mb_s,port_mb_s,load_percent,offered_mb_s,host_mb_s,total_mb_s,p50_us,p90_us,"
          "p99_us,max_us,messages,link_percent,thread_percent,memory_percent,stuck,events\n",
          out);
    for (unsigned i = 0; i < report->rows_count; i++) {
        const struct plan_measured *measured = &report->rows[i].measured;
        fprintf(out, "%s,%u,%s,%llu,%u,%s,%s,%s,%u,%u,%u", report->shape->name,
                report->shape->hosts_count, plan_pattern_name(report->run.pattern),
                (unsigned long long)report->run.bytes, report->channels_count, report->parts->card,
                report->parts->cable, report->shape->kind == PLAN_TREE ? report->parts->chip : "",
                report->cards_count, report->cables_count, report->switches_count);
        csv_number(report->bisection_cables * report->cable_rate / 1e6, out);
        csv_number(report->port_rate / 1e6, out);
        csv_number(report->rows[i].load * 100, out);
        csv_number(measured->offered / 1e6, out);
        csv_number(measured->got / 1e6, out);
        csv_number(measured->total / 1e6, out);
        for (size_t k = 0; k < VIA_ARRAY_COUNT(percents); k++) {
            csv_number(plan_measured_latency(measured, percents[k]) / 1e6, out);
        }
        csv_number(measured->at_rest ? (double)measured->times.max_ps / 1e6 : NAN, out);
        fprintf(out, ",%llu", (unsigned long long)measured->messages_count);
        for (unsigned k = 0; k < PLAN_RESOURCES; k++) {
            csv_number(measured->busy[k].share * 100, out);
        }
        fprintf(out, ",%llu,%llu\n", (unsigned long long)measured->stuck_count,
                (unsigned long long)measured->events_count);
    }
}

static void series_row(const char *series, const char *label, const char *unit, double x,
                       double model, FILE *out)
{
    fprintf(out, "plan,\"%s\",\"%s\",MB/s a host offered,%s,predicted,yes,%.9g,,,,%.9g,\n", series,
            label, unit, x, model);
}

void plan_report_series(const struct plan_report *report, FILE *out)
{
    static const char *const labels[] = {"p50", "p90", "p99"};
    char title[2][120];
    snprintf(title[0], sizeof(title[0]), "bandwidth, %s of %u hosts, %s", report->shape->name,
             report->shape->hosts_count, plan_pattern_name(report->run.pattern));
    snprintf(title[1], sizeof(title[1]), "latency, %s of %u hosts, %s", report->shape->name,
             report->shape->hosts_count, plan_pattern_name(report->run.pattern));
    fputs("system,series,label,x_unit,unit,role,good,x,paper,low,high,model,error_percent\n", out);
    for (unsigned i = 0; i < report->rows_count; i++) {
        const struct plan_measured *measured = &report->rows[i].measured;
        if (isnan(measured->offered)) {
            continue;
        }
        series_row(title[0], "arrived", "MB/s a host", measured->offered / 1e6, measured->got / 1e6,
                   out);
        for (size_t k = 0;
             measured->at_rest && measured->times.total > 0 && k < VIA_ARRAY_COUNT(percents); k++) {
            series_row(title[1], labels[k], "us", measured->offered / 1e6,
                       plan_measured_latency(measured, percents[k]) / 1e6, out);
        }
    }
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void json_number(const char *name, double value, FILE *out)
{
    fprintf(out, isnan(value) ? ", \"%s\": null" : ", \"%s\": %.9g", name, value);
}

static void json_row(const struct plan_row *row, FILE *out)
{
    const struct plan_measured *measured = &row->measured;
    char limit[200];
    plan_report_limit(measured, limit, sizeof(limit));
    fprintf(out, "    {\"load_percent\": %.6g", row->load * 100);
    json_number("offered_bytes_per_s", measured->offered, out);
    json_number("host_bytes_per_s", measured->got, out);
    json_number("total_bytes_per_s", measured->total, out);
    json_number("p50_us", plan_measured_latency(measured, 50) / 1e6, out);
    json_number("p90_us", plan_measured_latency(measured, 90) / 1e6, out);
    json_number("p99_us", plan_measured_latency(measured, 99) / 1e6, out);
    json_number("max_us", measured->at_rest ? (double)measured->times.max_ps / 1e6 : NAN, out);
    json_number("seconds", measured->seconds, out);
    fprintf(out, ", \"messages\": %llu, \"refused\": %llu, \"stuck\": %llu, \"events\": %llu",
            (unsigned long long)measured->messages_count,
            (unsigned long long)measured->refused_count, (unsigned long long)measured->stuck_count,
            (unsigned long long)measured->events_count);
    fprintf(out, ",\n     \"limit\": \"%s\", \"busiest\": {", limit);
    for (unsigned k = 0; k < PLAN_RESOURCES; k++) {
        fprintf(out, "%s\"%s\": {\"name\": \"%s\", \"percent\": %.4g}", k == 0 ? "" : ", ",
                resource_names[k], measured->busy[k].name, measured->busy[k].share * 100);
    }
    fputs("}}", out);
}

void plan_report_json(const struct plan_report *report, FILE *out)
{
    fprintf(out,
            "{\n  \"topology\": \"%s\", \"hosts\": %u, \"pattern\": \"%s\", \"bytes\": %llu,\n"
            "  \"channels\": %u, \"seed\": %llu, \"card\": \"%s\", \"cable\": \"%s\", \"switch\": ",
            report->shape->name, report->shape->hosts_count, plan_pattern_name(report->run.pattern),
            (unsigned long long)report->run.bytes, report->channels_count,
            (unsigned long long)report->run.seed, report->parts->card, report->parts->cable);
    fprintf(out, report->shape->kind == PLAN_TREE ? "\"%s\"" : "null", report->parts->chip);
    fprintf(out,
            ",\n  \"cards\": %u, \"cables\": %u, \"cords\": %u, \"switches\": %u, \"links\": %u,\n"
            "  \"bisection_cables\": %u, \"bisection_bytes_per_s\": %.9g, "
            "\"port_bytes_per_s\": %.9g",
            report->cards_count, report->cables_count,
            report->cables_count * report->cords_per_cable, report->switches_count,
            report->diameter, report->bisection_cables,
            report->bisection_cables * report->cable_rate, report->port_rate);
    json_number("bound_bytes_per_s", report->bound, out);
    if (report->choice.engine[0] != '\0') {
        fprintf(out, ",\n  \"engine\": \"%s\", \"engine_sooner_bytes\": %llu",
                report->choice.engine, (unsigned long long)report->choice.quicker_bytes);
        json_number("stores_us", report->choice.stores_ps / 1e6, out);
        json_number("engine_us", report->choice.engine_ps / 1e6, out);
        json_number("stores_busy_us", report->choice.stores_busy_ps / 1e6, out);
        json_number("engine_busy_us", report->choice.engine_busy_ps / 1e6, out);
        json_number("engine_port_bytes_per_s", report->choice.engine_rate, out);
    }
    fprintf(out,
            ",\n  \"board\": \"%s\", \"host_lanes\": %u, \"board_lanes\": %u, \"card_lanes\": %u,\n"
            "  \"switch_ports_used\": %u, \"switch_ports\": %u,\n  \"notes\": [",
            report->wiring->board, report->wiring->lanes_per_host, report->wiring->lanes_of_board,
            report->wiring->lanes_per_card, report->wiring->ports_per_switch,
            report->wiring->ports_of_chip);
    for (unsigned i = 0; i < report->notes_count; i++) {
        fprintf(out, "%s\"%s\"", i == 0 ? "" : ", ", report->notes[i]);
    }
    fputs("],\n  \"rows\": [\n", out);
    for (unsigned i = 0; i < report->rows_count; i++) {
        json_row(&report->rows[i], out);
        fputs(i + 1 < report->rows_count ? ",\n" : "\n", out);
    }
    fputs("  ]\n}\n", out);
}
