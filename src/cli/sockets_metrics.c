/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The list as metrics in the Prometheus text format 0.0.4. The metrics are gauges, because the
 * bytes of a closed connection leave the sums. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/types.h"
#include "cli/sockets.h"

static void print_label(const char *name, const char *value)
{
    printf("%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"') {
            putchar('\\');
        }
        putchar((unsigned char)*value < ' ' ? '?' : *value);
    }
    putchar('"');
}

static void print_head(const char *name, const char *help)
{
    printf("# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

/* Prints the beginning of a line, up to the specific labels. */
static void print_process(const char *name, const struct via_sockets_row *row)
{
    printf("%s{pid=\"%d\",", name, (int)row->pid);
    print_label("program", row->program);
    putchar(',');
}

static bool is_same(const struct via_sockets_row *a, const struct via_sockets_row *b)
{
    return a->pid == b->pid && a->accelerated == b->accelerated &&
           (a->accelerated || strcmp(a->why, b->why) == 0);
}

/* Prints one line for each process and carrier or reason, at the first of its rows. */
static void print_connections(const struct via_sockets_list *list)
{
    static const char name[] = "viaduct_sockets_connections";
    print_head(name, "Open TCP connections of a process by carrier, and why not by pipes");
    for (size_t i = 0; i < list->count; i++) {
        const struct via_sockets_row *row = &list->rows[i];
        size_t first = 0, count = 0;
        while (!is_same(&list->rows[first], row)) {
            first++;
        }
        for (size_t k = i; k < list->count && first == i; k++) {
            count += is_same(&list->rows[k], row) ? 1 : 0;
        }
        if (first == i) {
            print_process(name, row);
            print_label("carrier", row->accelerated ? "pipes" : "kernel");
            putchar(',');
            print_label("why", row->accelerated ? "" : row->why);
            printf("} %zu\n", count);
        }
    }
}

static const struct {
    const char *name;
    const char *help;
    const char *labels;
    size_t offset; /* in struct via_stats_conn: a uint64_t */
} metrics[] = {
#define BYTES "viaduct_sockets_bytes"
#define BYTES_HELP "Bytes of the open connections of a process"
    {BYTES, BYTES_HELP, "carrier=\"pipes\",direction=\"tx\"",
     offsetof(struct via_stats_conn, tx_pipe_bytes)},
    {BYTES, NULL, "carrier=\"pipes\",direction=\"rx\"",
     offsetof(struct via_stats_conn, rx_pipe_bytes)},
    {BYTES, NULL, "carrier=\"kernel\",direction=\"tx\"",
     offsetof(struct via_stats_conn, tx_kernel_bytes)},
    {BYTES, NULL, "carrier=\"kernel\",direction=\"rx\"",
     offsetof(struct via_stats_conn, rx_kernel_bytes)},
    {"viaduct_sockets_wakeups", "Wake-ups that a process sent and sleeps that it took",
     "kind=\"ring\"", offsetof(struct via_stats_conn, rings)},
    {"viaduct_sockets_wakeups", NULL, "kind=\"sleep\"", offsetof(struct via_stats_conn, sleeps)},
};

static uint64_t sum_of(const struct via_sockets_list *list, size_t from, size_t offset)
{
    uint64_t sum = 0;
    for (size_t i = from; i < list->count; i++) {
        uint64_t value;
        if (list->rows[i].counted && list->rows[i].pid == list->rows[from].pid) {
            memcpy(&value, (const char *)&list->rows[i].stats + offset, sizeof(value));
            sum += value;
        }
    }
    return sum;
}

static bool is_first_counted(const struct via_sockets_list *list, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (list->rows[i].counted && list->rows[i].pid == list->rows[index].pid) {
            return false;
        }
    }
    return list->rows[index].counted;
}

void via_sockets_print_metrics(const struct via_sockets_list *list)
{
    print_connections(list);
    for (size_t m = 0; m < VIA_ARRAY_COUNT(metrics); m++) {
        if (metrics[m].help != NULL) {
            print_head(metrics[m].name, metrics[m].help);
        }
        for (size_t i = 0; i < list->count; i++) {
            if (is_first_counted(list, i)) {
                print_process(metrics[m].name, &list->rows[i]);
                printf("%s} %llu\n", metrics[m].labels,
                       (unsigned long long)sum_of(list, i, metrics[m].offset));
            }
        }
    }
}
