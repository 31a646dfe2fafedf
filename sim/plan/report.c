/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/types.h"

/* More digits would be meaningless: times are whole picoseconds, and counts are far below this. */
#define DIGITS 12

static json_t *number(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *busy_json(const struct plan_busy *busy)
{
    return json_pack("{s:s, s:o, s:o}", "name", busy->name, "percent", number(busy->share * 100),
                     "work_percent", number(busy->work * 100));
}

static json_t *row_json(const struct plan_row *row)
{
    const struct plan_measured *measured = &row->measured;
    const struct plan_busy *busy = measured->busy;
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:I, s:I,"
        " s:{s:o, s:o, s:o}}",
        "load_percent", number(row->load * 100), "offered_bytes_per_s", number(measured->offered),
        "host_bytes_per_s", number(measured->got), "total_bytes_per_s", number(measured->total),
        "p50_us", number(plan_measured_latency(measured, 50) / 1e6), "p90_us",
        number(plan_measured_latency(measured, 90) / 1e6), "p99_us",
        number(plan_measured_latency(measured, 99) / 1e6), "max_us",
        number(measured->at_rest ? (double)measured->times.max_ps / 1e6 : NAN), "seconds",
        number(measured->seconds), "drift", number(measured->drift), "at_rest", measured->at_rest,
        "messages", (json_int_t)measured->messages_count, "refused",
        (json_int_t)measured->refused_count, "stuck", (json_int_t)measured->stuck_count, "events",
        (json_int_t)measured->events_count, "busiest", "link", busy_json(&busy[PLAN_LINK]),
        "thread", busy_json(&busy[PLAN_THREAD]), "memory", busy_json(&busy[PLAN_MEMORY]));
}

/* The parts list of the fabric: cards, cables, switches, lanes. */
static json_t *stock_json(const struct plan_report *report)
{
    const struct plan_shape *shape = report->shape;
    const struct plan_wiring *wiring = report->wiring;
    return json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o,"
        " s:s, s:i, s:i, s:i, s:i, s:i, s:i}",
        "cards", report->cards_count, "cards_per_host", report->cards_per_host, "cables",
        report->cables_count, "cords_per_cable", report->cords_per_cable, "cords",
        report->cables_count * report->cords_per_cable, "switches", report->switches_count, "links",
        report->diameter, "bisection_cables", report->bisection_cables, "bisection_bytes_per_s",
        number(report->bisection_cables * report->cable_rate), "port_bytes_per_s",
        number(report->port_rate), "bound_bytes_per_s", number(report->bound), "board",
        wiring->board, "host_lanes", wiring->lanes_per_host, "board_lanes", wiring->lanes_of_board,
        "card_lanes", wiring->lanes_per_card, "card_chip_lanes", wiring->lanes_of_card,
        "switch_ports_used", shape->kind == PLAN_TREE ? wiring->ports_per_switch : 0,
        "switch_ports", shape->kind == PLAN_TREE ? wiring->ports_of_chip : 0);
}

static json_t *choice_json(const struct plan_choice *choice)
{
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "engine", choice->engine,
                     "engine_sooner_bytes", (json_int_t)choice->quicker_bytes, "stores_us",
                     number(choice->stores_ps / 1e6), "engine_us", number(choice->engine_ps / 1e6),
                     "stores_busy_us", number(choice->stores_busy_ps / 1e6), "engine_busy_us",
                     number(choice->engine_busy_ps / 1e6), "engine_port_bytes_per_s",
                     number(choice->engine_rate));
}

static json_t *run_json(const struct plan_report *report)
{
    const struct plan_shape *shape = report->shape;
    return json_pack("{s:s, s:i, s:s, s:I, s:i, s:I, s:b, s:b, s:s, s:s, s:s?}", "topology",
                     shape->name, "hosts", shape->hosts_count, "pattern",
                     plan_pattern_name(report->run.pattern), "bytes", (json_int_t)report->run.bytes,
                     "channels", report->channels_count, "seed", (json_int_t)report->run.seed,
                     "core", report->run.core, "saturated", report->saturated, "card",
                     report->parts->card, "cable", report->parts->cable, "switch",
                     shape->kind == PLAN_TREE ? report->parts->chip : NULL);
}

/* Hosts along each dimension of a torus; switches of each level of a tree, and hosts below. */
static json_t *sizes_json(const struct plan_shape *shape)
{
    json_t *sizes = json_array();
    for (unsigned d = 0; shape->kind == PLAN_TORUS && d < shape->dimensions_count; d++) {
        json_array_append_new(sizes, json_integer(shape->sizes[d]));
    }
    for (unsigned level = 0; shape->kind == PLAN_TREE && level <= shape->levels_count; level++) {
        json_array_append_new(sizes, json_integer(level == 0 ? shape->hosts_count
                                                             : plan_shape_switches(shape, level)));
    }
    return sizes;
}

/* [node, node, busy there, busy back] of each; null: cut. Switches are numbered after hosts. */
static json_t *cables_json(const struct plan_report *report)
{
    json_t *cables = json_array();
    for (unsigned i = 0; i < report->wiring->net.links_count; i++) {
        unsigned a = plan_wiring_end(report->wiring, i, false);
        unsigned b = plan_wiring_end(report->wiring, i, true);
        bool is_cut = report->shape->kind == PLAN_TORUS && plan_shape_is_cut(report->shape, a, b);
        if (a != b) {
            json_array_append_new(cables,
                                  json_pack("[i, i, o, o]", a, b,
                                            number(is_cut ? NAN : report->links_busy[2 * i]),
                                            number(is_cut ? NAN : report->links_busy[2 * i + 1])));
        }
    }
    return cables;
}

int plan_report_write(const struct plan_report *report, FILE *out)
{
    json_t *rows = json_array();
    json_t *root = run_json(report);
    json_object_update_new(root, stock_json(report));
    if (report->choice.engine[0] != '\0') {
        json_object_update_new(root, choice_json(&report->choice));
    }
    json_object_set_new(root, "sizes", sizes_json(report->shape));
    json_object_set_new(root, "is_torus", json_boolean(report->shape->kind == PLAN_TORUS));
    for (unsigned i = 0; i < report->rows_count; i++) {
        json_array_append_new(rows, row_json(&report->rows[i]));
    }
    json_object_set_new(root, "rows", rows);
    json_object_set_new(root, "cable_loads", cables_json(report));
    int rc = json_dumpf(root, out, JSON_REAL_PRECISION(DIGITS) | JSON_COMPACT);
    json_decref(root);
    return rc == 0 && fputc('\n', out) != EOF && fflush(out) == 0 ? 0 : -1;
}
