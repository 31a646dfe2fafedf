/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "metrics/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The common part of all metrics of one text. */
struct writer {
    FILE *out;
    const struct via_metrics_host *hosts;
    size_t count;
};

enum unit {
    PLAIN,
    SECONDS, /* from nanoseconds */
};

/* A metric for each host: a key of the status, or of an object in it. */
struct host_metric {
    const char *name;
    const char *type;
    const char *help;
    const char *object; /* NULL: the status itself */
    const char *key;
    enum unit unit;
};

static const struct host_metric host_metrics[] = {
    {"viaduct_host_uptime_seconds", "gauge", "Time since the daemon of the host started", NULL,
     "uptime_ns", SECONDS},
    {"viaduct_host_channels", "gauge", "Transfer threads of the host", NULL, "channels", PLAIN},
    {"viaduct_operations_completed_total", "counter", "Puts, gets, atomics and messages that ended",
     "counters", "ops_completed", PLAIN},
    {"viaduct_operations_failed_total", "counter", "Operations that ended with an error",
     "counters", "ops_failed", PLAIN},
    {"viaduct_refused_key_total", "counter", "Accesses refused because of a wrong key", "counters",
     "refused_key", PLAIN},
    {"viaduct_refused_range_total", "counter", "Accesses refused outside of a segment", "counters",
     "refused_range", PLAIN},
    {"viaduct_refused_endpoint_total", "counter", "Messages to endpoints that are not open",
     "counters", "refused_endpoint", PLAIN},
    {"viaduct_attached_total", "counter", "Processes that attached to the host", "counters",
     "attached", PLAIN},
    {"viaduct_attach_refused_total", "counter", "Processes that were not allowed to attach",
     "counters", "attach_refused", PLAIN},
    {"viaduct_detached_total", "counter", "Processes that detached or ended", "counters",
     "detached", PLAIN},
    {"viaduct_slice_puts_total", "counter", "Puts that processes made through window slices",
     "counters", "slice_puts", PLAIN},
    {"viaduct_bells_missed_total", "counter",
     "Work of transfer threads that no doorbell had announced", "counters", "bells_missed", PLAIN},
    {"viaduct_notes", "gauge", "Notes on the board of the host", "counters", "notes", PLAIN},
    {"viaduct_note_bytes", "gauge", "Bytes of these notes", "counters", "note_bytes", PLAIN},
};

/* A metric for each link of each host. */
struct link_metric {
    const char *name;
    const char *type;
    const char *help;
    const char *key;
};

static const struct link_metric link_metrics[] = {
    {"viaduct_link_sent_bytes_total", "counter", "Bytes sent over the link", "bytes_sent"},
    {"viaduct_link_received_bytes_total", "counter", "Bytes received over the link",
     "bytes_received"},
    {"viaduct_link_sent_frames_total", "counter", "Frames sent over the link", "frames_sent"},
    {"viaduct_link_received_frames_total", "counter", "Frames received over the link",
     "frames_received"},
    {"viaduct_link_relayed_frames_total", "counter", "Frames forwarded for other hosts",
     "frames_relayed"},
    {"viaduct_link_bypassed_frames_total", "counter", "Frames that waited in a bypass buffer",
     "frames_bypassed"},
    {"viaduct_link_errors_total", "counter", "Malformed frames, writes cut short and the like",
     "errors"},
    {"viaduct_link_ups_total", "counter", "Times the link came up", "ups"},
    {"viaduct_link_downs_total", "counter", "Times the link went down", "downs"},
    {"viaduct_link_dma_bytes_total", "counter", "Bytes moved by the DMA engine of the port",
     "dma_bytes"},
    {"viaduct_link_dma_hangs_total", "counter", "Times the DMA engine had to be stopped",
     "dma_hangs"},
    {"viaduct_link_doorbells_total", "counter", "Doorbells rung at the neighbour",
     "doorbells_fired"},
    {"viaduct_link_peers_refused_total", "counter", "Neighbours refused: key, version, geometry",
     "peers_refused"},
};

/* Metrics of each user of a host. */
static const struct link_metric user_metrics[] = {
    {"viaduct_user_processes", "gauge", "Attached processes of a user", "processes"},
    {"viaduct_user_segments", "gauge", "Segments of a user", "segments"},
    {"viaduct_user_memory_bytes", "gauge", "Memory of segments of a user", "memory"},
    {"viaduct_user_pipes", "gauge", "Pipes of a user", "pipes"},
};

static void write_head(const struct writer *writer, const char *name, const char *type,
                       const char *help)
{
    fprintf(writer->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Other hosts determine some values, so characters that end a label or a line are escaped. */
static void write_label(const struct writer *writer, const char *name, const char *value)
{
    fprintf(writer->out, "%s=\"", name);
    for (; value != NULL && *value != '\0'; value++) {
        if (*value == '\\' || *value == '"') {
            fputc('\\', writer->out);
        }
        fputc((unsigned char)*value < ' ' ? '?' : *value, writer->out);
    }
    fputc('"', writer->out);
}

static bool read_number(const json_t *object, const char *key, json_int_t *ret_value)
{
    const json_t *value = json_object_get(object, key);
    *ret_value = json_integer_value(value);
    return json_is_integer(value);
}

static const char *read_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static void write_hosts_up(const struct writer *writer)
{
    write_head(writer, "viaduct_host_up", "gauge", "1: the daemon of the host answers");
    for (size_t i = 0; i < writer->count; i++) {
        fprintf(writer->out, "viaduct_host_up{host=\"%u\"} %d\n", writer->hosts[i].host,
                writer->hosts[i].status != NULL);
    }
    write_head(writer, "viaduct_host_info", "gauge", "Name, fabric and protocol version of a host");
    for (size_t i = 0; i < writer->count; i++) {
        const json_t *status = writer->hosts[i].status;
        json_int_t version;
        if (status == NULL) {
            continue;
        }
        (void)read_number(status, "protocol_version", &version);
        fprintf(writer->out, "viaduct_host_info{host=\"%u\",", writer->hosts[i].host);
        write_label(writer, "name", read_text(status, "name"));
        fputc(',', writer->out);
        write_label(writer, "fabric", read_text(status, "fabric"));
        fprintf(writer->out, ",protocol=\"%" JSON_INTEGER_FORMAT "\"} 1\n", version);
    }
}

static void write_host_metric(const struct writer *writer, const struct host_metric *metric)
{
    write_head(writer, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < writer->count; i++) {
        const json_t *status = writer->hosts[i].status;
        const json_t *object =
            metric->object != NULL ? json_object_get(status, metric->object) : status;
        json_int_t value;
        if (!read_number(object, metric->key, &value)) {
            continue;
        }
        fprintf(writer->out, "%s{host=\"%u\"} ", metric->name, writer->hosts[i].host);
        if (metric->unit == SECONDS) {
            fprintf(writer->out, "%.3f\n", (double)value / (double)VIA_SEC_NS);
        } else {
            fprintf(writer->out, "%" JSON_INTEGER_FORMAT "\n", value);
        }
    }
}

/* --- members of arrays ----------------------------------------------------------------------- */

/* The labels of a link. The port identifies a link, because peers may change. */
static void write_link_labels(const struct writer *writer, unsigned host, const json_t *link,
                              size_t port)
{
    json_int_t peer;
    fprintf(writer->out, "{host=\"%u\",port=\"%zu\",", host, port);
    if (read_number(link, "peer", &peer) && peer >= 0) {
        fprintf(writer->out, "peer=\"%" JSON_INTEGER_FORMAT "\",", peer);
    } else {
        fputs("peer=\"\",", writer->out);
    }
    write_label(writer, "driver", read_text(link, "driver"));
    fputc('}', writer->out);
}

static void write_link_states(const struct writer *writer, const char *name, const char *help,
                              bool (*holds)(const json_t *link))
{
    write_head(writer, name, "gauge", help);
    for (size_t i = 0; i < writer->count; i++) {
        json_t *link;
        size_t port;
        json_array_foreach(json_object_get(writer->hosts[i].status, "links"), port, link)
        {
            fputs(name, writer->out);
            write_link_labels(writer, writer->hosts[i].host, link, port);
            fprintf(writer->out, " %d\n", holds(link));
        }
    }
}

static bool is_up(const json_t *link)
{
    return strcmp(read_text(link, "state"), "up") == 0;
}

static bool is_cut(const json_t *link)
{
    return json_is_true(json_object_get(link, "cut"));
}

static void write_link_metric(const struct writer *writer, const struct link_metric *metric)
{
    write_head(writer, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < writer->count; i++) {
        json_t *link;
        size_t port;
        json_array_foreach(json_object_get(writer->hosts[i].status, "links"), port, link)
        {
            json_int_t value;
            if (read_number(link, metric->key, &value)) {
                fputs(metric->name, writer->out);
                write_link_labels(writer, writer->hosts[i].host, link, port);
                fprintf(writer->out, " %" JSON_INTEGER_FORMAT "\n", value);
            }
        }
    }
}

static void write_user_metric(const struct writer *writer, const struct link_metric *metric)
{
    write_head(writer, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < writer->count; i++) {
        json_t *user;
        size_t index;
        json_array_foreach(json_object_get(writer->hosts[i].status, "users"), index, user)
        {
            json_int_t uid, value;
            if (read_number(user, "uid", &uid) && read_number(user, metric->key, &value)) {
                fprintf(writer->out,
                        "%s{host=\"%u\",uid=\"%" JSON_INTEGER_FORMAT "\"} %" JSON_INTEGER_FORMAT
                        "\n",
                        metric->name, writer->hosts[i].host, uid, value);
            }
        }
    }
}

static void write_routes(const struct writer *writer)
{
    static const char name[] = "viaduct_route_hops";
    write_head(writer, name, "gauge", "Links on the route to a host; -1: unreachable");
    for (size_t i = 0; i < writer->count; i++) {
        json_t *route;
        size_t index;
        json_array_foreach(json_object_get(writer->hosts[i].status, "routes"), index, route)
        {
            json_int_t to, hops;
            if (read_number(route, "host", &to) && read_number(route, "hops", &hops) &&
                to != (json_int_t)writer->hosts[i].host) {
                fprintf(writer->out,
                        "%s{host=\"%u\",to=\"%" JSON_INTEGER_FORMAT "\"} %" JSON_INTEGER_FORMAT
                        "\n",
                        name, writer->hosts[i].host, to, hops);
            }
        }
    }
}

int via_metrics_write(const struct via_metrics_host *hosts, size_t count, char **ret_text,
                      size_t *ret_bytes)
{
    char *text = NULL;
    size_t bytes = 0;
    struct writer writer = {.out = open_memstream(&text, &bytes), .hosts = hosts, .count = count};
    if (writer.out == NULL) {
        return -ENOMEM;
    }
    write_hosts_up(&writer);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(host_metrics); i++) {
        write_host_metric(&writer, &host_metrics[i]);
    }
    write_link_states(&writer, "viaduct_link_up", "1: the link carries frames", is_up);
    write_link_states(&writer, "viaduct_link_cut", "1: the link was cut by request", is_cut);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(link_metrics); i++) {
        write_link_metric(&writer, &link_metrics[i]);
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(user_metrics); i++) {
        write_user_metric(&writer, &user_metrics[i]);
    }
    write_routes(&writer);
    bool failed = ferror(writer.out) != 0;
    if (fclose(writer.out) != 0 || failed) {
        free(text);
        return -ENOMEM;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return 0;
}
