/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <stdio.h>
#include <string.h>

#include "cli/sockets.h"

static json_t *count_or_null(const struct via_sockets_row *row, uint64_t count)
{
    return row->counted ? json_integer((json_int_t)count) : json_null();
}

static json_t *row_json(const struct via_sockets_row *row)
{
    const struct via_stats_conn *stats = &row->stats;
    return json_pack(
        "{s:i, s:s, s:i, s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "pid", (int)row->pid, "program", row->program, "fd", row->fd, "local", row->local, "peer",
        row->peer, "state", row->state, "accelerated", (int)row->accelerated, "why_not",
        row->accelerated ? json_null() : json_string(row->why), "bytes_pipe_tx",
        count_or_null(row, stats->tx_pipe_bytes), "bytes_pipe_rx",
        count_or_null(row, stats->rx_pipe_bytes), "bytes_kernel_tx",
        count_or_null(row, stats->tx_kernel_bytes), "bytes_kernel_rx",
        count_or_null(row, stats->rx_kernel_bytes), "bytes_frames_tx",
        count_or_null(row, stats->tx_frames_bytes), "bytes_fetched_tx",
        count_or_null(row, stats->tx_fetched_bytes), "bytes_lent_tx",
        count_or_null(row, stats->tx_lent_bytes), "rings", count_or_null(row, stats->rings),
        "sleeps", count_or_null(row, stats->sleeps));
}

json_t *via_sockets_json(const struct via_sockets_list *list)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < list->count; i++) {
        json_array_append_new(rows, row_json(&list->rows[i]));
    }
    return json_pack("{s:o}", "connections", rows);
}

/* --- the table ------------------------------------------------------------------------------- */

struct scaled {
    char text[16];
};

/* For example "12.4M": three significant digits. */
static struct scaled scale(const struct via_sockets_row *row, uint64_t count)
{
    static const char prefixes[] = " kMGTPE";
    struct scaled scaled = {"-"};
    double value = (double)count;
    size_t i = 0;
    if (!row->counted) {
        return scaled;
    }
    while (value >= 999.5 && i + 2 < sizeof(prefixes)) {
        value /= 1000;
        i++;
    }
    int decimals = i == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(scaled.text, sizeof(scaled.text), i == 0 ? "%.*f" : "%.*f%c", decimals, value,
             prefixes[i]);
    return scaled;
}

void via_sockets_print(const struct via_sockets_list *list)
{
    int local = 5, peer = 4;
    for (size_t i = 0; i < list->count; i++) {
        local = via_max(local, (int)strlen(list->rows[i].local));
        peer = via_max(peer, (int)strlen(list->rows[i].peer));
    }
    printf("%7s %-15s %4s %-*s %-*s %7s %7s %7s %7s  %s\n", "pid", "program", "fd", local, "local",
           peer, "peer", "pipe tx", "pipe rx", "tcp tx", "tcp rx", "by");
    for (size_t i = 0; i < list->count; i++) {
        const struct via_sockets_row *row = &list->rows[i];
        const struct via_stats_conn *stats = &row->stats;
        printf("%7d %-15s %4d %-*s %-*s %7s %7s %7s %7s  %s%s\n", (int)row->pid, row->program,
               row->fd, local, row->local, peer, row->peer, scale(row, stats->tx_pipe_bytes).text,
               scale(row, stats->rx_pipe_bytes).text, scale(row, stats->tx_kernel_bytes).text,
               scale(row, stats->rx_kernel_bytes).text,
               row->accelerated ? "pipes" : "kernel: ", row->accelerated ? "" : row->why);
    }
}
