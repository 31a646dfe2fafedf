/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/scale.h"
#include "cli/top.h"

#define BAR_COLUMNS 6u
/* Minimum of rows for each section of a page that shows all sections. */
#define SECTION_ROWS_MIN 2u

static struct via_scaled scale_time(uint64_t ns)
{
    struct via_scaled scaled = {"-"};
    unsigned long long s = ns / VIA_SEC_NS;
    if (ns == 0) {
        return scaled;
    }
    if (s < 100) {
        snprintf(scaled.text, sizeof(scaled.text), "%llu s", s);
    } else if (s < 100 * 60) {
        snprintf(scaled.text, sizeof(scaled.text), "%llu min", s / 60);
    } else if (s < 48 * 3600) {
        snprintf(scaled.text, sizeof(scaled.text), "%llu h", s / 3600);
    } else {
        snprintf(scaled.text, sizeof(scaled.text), "%llu d", s / 86400);
    }
    return scaled;
}

/* --- lines ----------------------------------------------------------------------------------- */

static int add(struct via_top_lines *lines, enum via_top_style style, const char *format, ...)
    VIA_PRINTF(3, 4);

static int add(struct via_top_lines *lines, enum via_top_style style, const char *format, ...)
{
    void *array = lines->lines;
    int rc = via_sockets_grow(&array, sizeof(*lines->lines), lines->count, &lines->room);
    if (rc == 0) {
        va_list args;
        lines->lines = array;
        struct via_top_line *line = &lines->lines[lines->count++];
        line->style = style;
        va_start(args, format);
        vsnprintf(line->text, sizeof(line->text), format, args);
        va_end(args);
    }
    return rc;
}

void via_top_lines_free(struct via_top_lines *lines)
{
    free(lines->lines);
    *lines = (struct via_top_lines){0};
}

/* --- hosts ----------------------------------------------------------------------------------- */

/* The rate of a counter, from both answers of a host. */
static double rate_of(const struct via_status_host *host, const char *key)
{
    uint64_t from = via_answer_u64(json_object_get(host->before, "counters"), key);
    uint64_t to = via_answer_u64(json_object_get(host->after, "counters"), key);
    uint64_t before_ns = via_answer_u64(host->before, "uptime_ns");
    uint64_t after_ns = via_answer_u64(host->after, "uptime_ns");
    if (host->before == NULL || after_ns <= before_ns || to <= from) {
        return 0;
    }
    return (double)(to - from) * (double)VIA_SEC_NS / (double)(after_ns - before_ns);
}

static unsigned count_reachable(const struct via_status *status, const struct via_status_host *host)
{
    unsigned count = 0;
    for (unsigned i = 0; i < status->fabric.topology.hosts_count && host->after != NULL; i++) {
        unsigned other = status->fabric.topology.hosts[i];
        count += other != host->host && via_answer_hops(host->after, other) >= 0 ? 1 : 0;
    }
    return count;
}

static int add_host(const struct via_top_model *model, size_t index, struct via_top_lines *lines)
{
    const struct via_status *status = model->status;
    const struct via_status_host *host = &status->hosts[index];
    const char *name = via_answer_text(host->after, "name");
    bool up = strcmp(host->state, "up") == 0;
    json_t *counters = json_object_get(host->after, "counters");
    return add(lines, up ? VIA_TOP_PLAIN : VIA_TOP_BAD,
               "%4u  %-16.16s  %-11s  %-15s  %7s  %5zu  %5u/%-4u  %12s  %8llu  %s", host->host,
               name[0] != '\0' ? name : "-", host->state,
               via_fabric_address(&status->fabric, host->host).text,
               scale_time(via_answer_u64(host->after, "uptime_ns")).text,
               json_array_size(json_object_get(host->after, "processes")),
               count_reachable(status, host), status->fabric.topology.hosts_count - 1,
               via_scale(rate_of(host, "ops_completed"), "op/s").text,
               (unsigned long long)via_answer_u64(counters, "ops_failed"), host->why);
}

/* --- links ----------------------------------------------------------------------------------- */

struct bar {
    char text[BAR_COLUMNS + 1];
};

static struct bar draw_bar(double value, double peak)
{
    struct bar bar;
    double part = peak > 0 ? value / peak : 0;
    for (unsigned i = 0; i < BAR_COLUMNS; i++) {
        bar.text[i] = (double)i < part * BAR_COLUMNS && value > 0 ? '|' : '.';
    }
    bar.text[BAR_COLUMNS] = '\0';
    return bar;
}

static int add_link(const struct via_top_model *model, size_t index, struct via_top_lines *lines)
{
    const struct via_status_link *link = &model->status->links[index];
    const char *why = link->why[0] != NULL && link->why[0][0] != '\0' ? link->why[0] : link->why[1];
    char ends[24];
    bool up = strcmp(link->state, "up") == 0;
    double peak = model->peak_bytes_per_second;
    snprintf(ends, sizeof(ends), "%u-%u", link->link.a, link->link.b);
    return add(lines, up && !link->cut ? VIA_TOP_PLAIN : VIA_TOP_BAD,
               "%-9s  %-10s  %10s %s  %10s %s  %10s  %6llu  %s", ends,
               link->cut ? "cut" : link->state, via_scale(link->ab.bytes_per_second, "B/s").text,
               draw_bar(link->ab.bytes_per_second, peak).text,
               via_scale(link->ba.bytes_per_second, "B/s").text,
               draw_bar(link->ba.bytes_per_second, peak).text,
               via_scale((double)(link->ab.bytes + link->ba.bytes), "B").text,
               (unsigned long long)link->errors, why != NULL ? why : "");
}

/* --- connections and jobs -------------------------------------------------------------------- */

static int add_connection(const struct via_top_model *model, size_t index,
                          struct via_top_lines *lines)
{
    const struct via_top_connection *connection = &model->connections[index];
    const struct via_sockets_row *row = &connection->row;
    const struct via_stats_conn *stats = &row->stats;
    char owner[32];
    snprintf(owner, sizeof(owner), "%.12s(%d)", row->program, (int)row->pid);
    return add(lines, row->accelerated ? VIA_TOP_GOOD : VIA_TOP_PLAIN,
               "%-20s %4d  %-21s  %-21s  %-6s  %10s  %9s  %9s  %s", owner, row->fd, row->local,
               row->peer, row->accelerated ? "pipes" : "kernel",
               row->counted ? via_scale(connection->bytes_per_second, "B/s").text : "-",
               row->counted
                   ? via_scale((double)(stats->tx_pipe_bytes + stats->rx_pipe_bytes), "B").text
                   : "-",
               row->counted
                   ? via_scale((double)(stats->tx_kernel_bytes + stats->rx_kernel_bytes), "B").text
                   : "-",
               row->accelerated ? "" : row->why);
}

static int add_job(const struct via_top_model *model, size_t index, struct via_top_lines *lines)
{
    const struct via_top_job *job = &model->jobs[index];
    char owner[40];
    char host[16] = "-";
    char count[16] = "-";
    snprintf(owner, sizeof(owner), "%.23s(%d)", job->program, (int)job->pid);
    if (job->host >= 0) {
        snprintf(host, sizeof(host), "%d", job->host);
    } else {
        snprintf(count, sizeof(count), "%u", job->processes);
    }
    return add(lines, job->host < 0 ? VIA_TOP_GOOD : VIA_TOP_PLAIN,
               "%-8s  %-32s  %4s  %4s  %9s  %s", job->host < 0 ? "job" : "attached", owner, host,
               count, scale_time(job->age_ns).text,
               job->host < 0 ? "-" : via_scale((double)job->bytes, "B").text);
}

/* --- sections -------------------------------------------------------------------------------- */

static size_t count_hosts(const struct via_top_model *model)
{
    return model->status != NULL ? model->status->fabric.topology.hosts_count : 0;
}

static size_t count_links(const struct via_top_model *model)
{
    return model->status != NULL ? model->status->fabric.topology.links_count : 0;
}

static size_t count_connections(const struct via_top_model *model)
{
    return model->connections_count;
}

static size_t count_jobs(const struct via_top_model *model)
{
    return model->jobs_count;
}

/* The busiest links and connections come first; hosts and jobs stay in their order. */
static double weigh_link(const struct via_top_model *model, size_t index)
{
    const struct via_status_link *link = &model->status->links[index];
    return link->ab.bytes_per_second + link->ba.bytes_per_second;
}

static double weigh_connection(const struct via_top_model *model, size_t index)
{
    const struct via_top_connection *connection = &model->connections[index];
    return connection->bytes_per_second + (connection->row.accelerated ? 1 : 0);
}

static const struct section {
    const char *title;
    const char *head;
    const char *none;
    size_t (*count)(const struct via_top_model *model);
    double (*weigh)(const struct via_top_model *model, size_t index); /* NULL: in order */
    int (*add)(const struct via_top_model *model, size_t index, struct via_top_lines *lines);
} sections[VIA_TOP_SECTIONS] = {
    [VIA_TOP_HOSTS] = {"Hosts",
                       "host  name              state        address            uptime  procs  "
                       "reaches           rate    failed",
                       "none", count_hosts, NULL, add_host},
    [VIA_TOP_LINKS] = {"Links",
                       "link a-b   state           a to b             b to a              total  "
                       "errors",
                       "none", count_links, weigh_link, add_link},
    [VIA_TOP_CONNECTIONS] = {"TCP connections",
                             "program                fd  local                  peer               "
                             "    by            rate   by pipes  by kernel  why not by pipes",
                             "none of this user", count_connections, weigh_connection,
                             add_connection},
    [VIA_TOP_JOBS] = {"OpenSHMEM jobs and attached processes",
                      "kind      program                           host   PEs        age  memory",
                      "none", count_jobs, NULL, add_job},
};

struct entry {
    size_t index;
    double weight;
};

static int compare_weight(const void *a, const void *b)
{
    const struct entry *one = a, *two = b;
    if (one->weight != two->weight) {
        return one->weight > two->weight ? -1 : 1;
    }
    return one->index < two->index ? -1 : 1;
}

/* Adds at most `rows` rows, from row `skip` on. */
static int add_section(const struct via_top_model *model, enum via_top_section which, size_t rows,
                       size_t skip, struct via_top_lines *lines)
{
    const struct section *section = &sections[which];
    size_t count = section->count(model);
    struct entry *order = calloc(count + 1, sizeof(*order));
    if (order == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        order[i] = (struct entry){.index = i,
                                  .weight = section->weigh != NULL ? section->weigh(model, i) : 0};
    }
    qsort(order, count, sizeof(*order), compare_weight);
    skip = via_min(skip, count != 0 ? count - 1 : 0);
    size_t shown = via_min(rows, count - skip);
    char range[64] = "";
    if (shown < count) {
        snprintf(range, sizeof(range), ", %zu to %zu shown", skip + 1, skip + shown);
    }
    int rc = add(lines, VIA_TOP_TITLE, "%s (%zu%s)", section->title, count, range);
    rc = rc == 0 ? add(lines, VIA_TOP_HEAD, "%s", count != 0 ? section->head : section->none) : rc;
    for (size_t i = skip; i < skip + shown && rc == 0; i++) {
        rc = section->add(model, order[i].index, lines);
    }
    free(order);
    return rc;
}

/* Divides the rows among the sections: each gets all its rows if they fit, else a fair share of the
 * page. */
static void share_rows(const struct via_top_model *model, size_t rows, size_t *ret_shares)
{
    size_t needed[VIA_TOP_SECTIONS];
    size_t left = rows;
    for (unsigned i = 0; i < VIA_TOP_SECTIONS; i++) {
        needed[i] = sections[i].count(model);
        ret_shares[i] = via_min(needed[i], (size_t)SECTION_ROWS_MIN);
        left -= via_min(left, ret_shares[i]);
    }
    for (bool progress = true; left != 0 && progress;) {
        progress = false;
        for (unsigned i = 0; i < VIA_TOP_SECTIONS && left != 0; i++) {
            if (ret_shares[i] < needed[i]) {
                ret_shares[i]++;
                left--;
                progress = true;
            }
        }
    }
}

static int add_all(const struct via_top_model *model, size_t rows, struct via_top_lines *lines)
{
    /* The titles, the heads, and the empty lines between sections. */
    const size_t fixed = 3 * VIA_TOP_SECTIONS - 1;
    size_t shares[VIA_TOP_SECTIONS];
    int rc = 0;
    share_rows(model, rows == 0 ? SIZE_MAX : rows - via_min(rows, fixed), shares);
    for (unsigned i = 0; i < VIA_TOP_SECTIONS && rc == 0; i++) {
        rc = add_section(model, (enum via_top_section)i, shares[i], 0, lines);
        if (rc == 0 && i + 1 < VIA_TOP_SECTIONS) {
            rc = add(lines, VIA_TOP_PLAIN, " ");
        }
    }
    return rc;
}

static int add_summary(const struct via_top_model *model, struct via_top_lines *lines)
{
    const struct via_status *status = model->status;
    if (status == NULL) {
        return add(lines, VIA_TOP_BAD, "no fabric: %.280s", model->why);
    }
    double sum = 0;
    unsigned hosts_up = 0, links_up = 0;
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        hosts_up += strcmp(status->hosts[i].state, "up") == 0 ? 1 : 0;
    }
    for (unsigned i = 0; i < status->fabric.topology.links_count; i++) {
        const struct via_status_link *link = &status->links[i];
        links_up += strcmp(link->state, "up") == 0 && !link->cut ? 1 : 0;
        sum += link->ab.bytes_per_second + link->ba.bytes_per_second;
    }
    bool whole = hosts_up == status->fabric.topology.hosts_count &&
                 links_up == status->fabric.topology.links_count;
    return add(lines, whole ? VIA_TOP_GOOD : VIA_TOP_BAD,
               "fabric %s: %u of %u hosts up, %u of %u links up, %s over links",
               status->fabric.name, hosts_up, status->fabric.topology.hosts_count, links_up,
               status->fabric.topology.links_count, via_scale(sum, "B/s").text);
}

int via_top_view(const struct via_top_model *model, enum via_top_section section, size_t rows,
                 size_t skip, struct via_top_lines *ret_lines)
{
    int rc = add_summary(model, ret_lines);
    rc = rc == 0 ? add(ret_lines, VIA_TOP_PLAIN, " ") : rc;
    if (rc != 0) {
        return rc;
    }
    /* Less two lines: the summary, and the empty line after it. */
    size_t left = rows == 0 ? 0 : via_max(rows, (size_t)3) - 2;
    if (section == VIA_TOP_ALL) {
        return add_all(model, left, ret_lines);
    }
    return add_section(model, section, rows == 0 ? SIZE_MAX : left - via_min(left, (size_t)2), skip,
                       ret_lines);
}
