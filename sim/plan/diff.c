/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"

/* --- from JSON -----------------------------------------------------------------------------------
 */

struct source {
    const char *name;
    const struct plan_json *json;
    const struct plan_json_value *object;
    struct via_error *err;
    int rc;
};

/* NAN when it is null, or when it may be absent (plans of an earlier version) and is. */
static double number_of(struct source *source, const char *key, bool may_be_absent)
{
    const struct plan_json_value *value =
        plan_json_find(source->json, source->object, key, PLAN_JSON_NUMBER);
    if (value == NULL &&
        plan_json_find(source->json, source->object, key, PLAN_JSON_NULL) == NULL &&
        !may_be_absent && source->rc == 0) {
        source->rc = via_error_set(source->err, -EINVAL, "%.200s: not a plan: no number '%s'",
                                   source->name, key);
    }
    if (value != NULL && (value->number < 0 || value->number > 1e18) && source->rc == 0) {
        source->rc = via_error_set(source->err, -EINVAL, "%.200s: not a plan: '%s' is %g",
                                   source->name, key, value->number);
    }
    return value != NULL ? value->number : NAN;
}

static const char *text_of(struct source *source, const char *key, bool may_be_absent)
{
    const struct plan_json_value *value =
        plan_json_find(source->json, source->object, key, PLAN_JSON_TEXT);
    if (value == NULL && !may_be_absent && source->rc == 0) {
        source->rc = via_error_set(source->err, -EINVAL, "%.200s: not a plan: no string '%s'",
                                   source->name, key);
    }
    return value != NULL ? plan_json_text(source->json, value) : "-";
}

static void read_row(struct source *source, struct plan_summary_row *row)
{
    *row = (struct plan_summary_row){
        .load = number_of(source, "load_percent", false),
        .offered = number_of(source, "offered_bytes_per_s", false),
        .host = number_of(source, "host_bytes_per_s", false),
        .p50 = number_of(source, "p50_us", false),
        .p99 = number_of(source, "p99_us", false),
        .limit = text_of(source, "limit", false),
    };
}

static void read_head(struct source *source, struct plan_summary *ret)
{
    *ret = (struct plan_summary){
        .topology = text_of(source, "topology", false),
        .pattern = text_of(source, "pattern", false),
        .card = text_of(source, "card", false),
        .cable = text_of(source, "cable", false),
        .chip = text_of(source, "switch", true),
        .board = text_of(source, "board", true),
        .engine = text_of(source, "engine", true),
        .hosts = number_of(source, "hosts", false),
        .bytes = number_of(source, "bytes", false),
        .channels = number_of(source, "channels", false),
        .cards = number_of(source, "cards", false),
        .cables = number_of(source, "cables", false),
        .cords = number_of(source, "cords", false),
        .switches = number_of(source, "switches", false),
        .lanes = number_of(source, "host_lanes", true),
        .longest = number_of(source, "links", false),
        .bisection = number_of(source, "bisection_bytes_per_s", false),
        .port = number_of(source, "port_bytes_per_s", false),
        .bound = number_of(source, "bound_bytes_per_s", true),
    };
}

int plan_summary_read(const char *name, const struct plan_json *json, struct plan_summary *ret,
                      struct via_error *err)
{
    struct source source = {.name = name, .json = json, .object = &json->values[0], .err = err};
    const struct plan_json_value *rows =
        plan_json_find(json, &json->values[0], "rows", PLAN_JSON_LIST);
    read_head(&source, ret);
    if (source.rc == 0 && rows == NULL) {
        return via_error_set(err, -EINVAL, "%.200s: not a plan: no list 'rows'", name);
    }
    const struct plan_json_value *row = rows != NULL ? plan_json_first(json, rows) : NULL;
    for (; source.rc == 0 && row != NULL; row = plan_json_next(json, row)) {
        if (ret->rows_count == PLAN_DIFF_ROWS_MAX) {
            return via_error_set(err, -EINVAL, "%.200s: not a plan: more than %u rows", name,
                                 PLAN_DIFF_ROWS_MAX);
        }
        source.object = row;
        read_row(&source, &ret->rows[ret->rows_count++]);
    }
    return source.rc;
}

/* --- the table -----------------------------------------------------------------------------------
 */

static void words_out(const char *what, const char *old, const char *now, FILE *out)
{
    if (strcmp(old, now) != 0) {
        fprintf(out, "%-28s %16.60s %16.60s\n", what, old, now);
    }
}

static void number_out(const char *what, double old, double now, const char *unit, FILE *out)
{
    char text[2][32] = {"-", "-"};
    if ((isnan(old) && isnan(now)) || old == now) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        double value = i == 0 ? old : now;
        if (!isnan(value)) {
            snprintf(text[i], sizeof(text[i]),
                     value == floor(value) && value < 1e9 ? "%.0f" : "%.5g", value);
        }
    }
    fprintf(out, "%-28s %16s %16s", what, text[0], text[1]);
    if (old > 0 && !isnan(now)) {
        fprintf(out, " %+9.1f %%", (now / old - 1) * 100);
    } else {
        fprintf(out, " %11s", "");
    }
    fprintf(out, "  %s\n", unit);
}

static void head_out(const struct plan_summary *old, const struct plan_summary *now, FILE *out)
{
    words_out("topology", old->topology, now->topology, out);
    number_out("hosts", old->hosts, now->hosts, "", out);
    words_out("pattern", old->pattern, now->pattern, out);
    number_out("message", old->bytes, now->bytes, "bytes", out);
    number_out("channels", old->channels, now->channels, "", out);
    words_out("engine", old->engine, now->engine, out);
    words_out("card", old->card, now->card, out);
    words_out("cable", old->cable, now->cable, out);
    words_out("switch", old->chip, now->chip, out);
    words_out("board", old->board, now->board, out);
    number_out("cards", old->cards, now->cards, "", out);
    number_out("cables", old->cables, now->cables, "", out);
    number_out("cords", old->cords, now->cords, "", out);
    number_out("switches", old->switches, now->switches, "", out);
    number_out("lanes of a host", old->lanes, now->lanes, "", out);
    number_out("links between hosts, at most", old->longest, now->longest, "", out);
    number_out("a port carries", old->port / 1e6, now->port / 1e6, "MB/s", out);
    number_out("bisection", old->bisection / 1e6, now->bisection / 1e6, "MB/s each way", out);
    number_out("bound", old->bound / 1e6, now->bound / 1e6, "MB/s a host", out);
}

static void row_out(const struct plan_summary_row *old, const struct plan_summary_row *now,
                    FILE *out)
{
    if (isnan(old->offered) && isnan(now->offered)) {
        fputs("\nall that the hosts can send\n", out);
    } else {
        fprintf(out, "\n%.4g %% of a port, and %.4g %%\n", old->load, now->load);
    }
    number_out("  arrives", old->host / 1e6, now->host / 1e6, "MB/s a host", out);
    number_out("  latency, p50", old->p50, now->p50, "us", out);
    number_out("  latency, p99", old->p99, now->p99, "us", out);
    if (strcmp(old->limit, now->limit) != 0) {
        fprintf(out, "  limit: %.200s\n  now:   %.200s\n", old->limit, now->limit);
    }
}

void plan_diff_print(const struct plan_summary *old, const struct plan_summary *now, FILE *out)
{
    unsigned rows = via_min(old->rows_count, now->rows_count);
    fprintf(out, "%-28s %16s %16s %11s\n", "what is other", "first", "second", "change");
    head_out(old, now, out);
    for (unsigned i = 0; i < rows; i++) {
        if (isnan(old->rows[i].offered) == isnan(now->rows[i].offered)) {
            row_out(&old->rows[i], &now->rows[i], out);
        }
    }
    if (old->rows_count != now->rows_count) {
        fprintf(out, "\nthe first has %u rows, the second %u: the others are not compared\n",
                old->rows_count, now->rows_count);
    }
}

int plan_diff_files(const char *old, const char *now, FILE *out, struct via_error *err)
{
    const char *const names[] = {old, now};
    struct plan_json *files = sim_alloc(2 * sizeof(*files));
    struct plan_summary *summaries = sim_alloc(2 * sizeof(*summaries));
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < 2; i++) {
        rc = plan_json_load(names[i], &files[i], err);
        rc = rc == 0 ? plan_summary_read(names[i], &files[i], &summaries[i], err) : rc;
    }
    if (rc == 0) {
        plan_diff_print(&summaries[0], &summaries[1], out);
    }
    for (unsigned i = 0; i < 2; i++) {
        plan_json_fini(&files[i]);
    }
    free(summaries);
    free(files);
    return rc;
}
