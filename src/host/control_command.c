/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "host/host_private.h"

json_t *via_control_error(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* The request may contain invalid UTF-8. Then neither can a JSON text that quotes it be
     * made. */
    json_t *error = json_string(text);
    if (error == NULL) {
        error = json_string("malformed request");
    }
    return json_pack("{s:b, s:o}", "ok", 0, "error", error);
}

static json_t *ok(void)
{
    return json_pack("{s:b}", "ok", 1);
}

static json_t *do_status(struct via_control_caller *caller, json_t *request)
{
    (void)request;
    return via_control_status(caller->host);
}

/* Without "first" the answer contains all hosts, for programs that do not support pages. */
static json_t *do_directory(struct via_control_caller *caller, json_t *request)
{
    json_int_t hosts_max = caller->host->config.hosts_max;
    json_t *first = json_object_get(request, "first");
    json_t *count = json_object_get(request, "count");
    json_int_t from = json_integer_value(first);
    json_int_t most = count != NULL ? json_integer_value(count) : hosts_max;
    if (first != NULL && (!json_is_integer(first) || from < 0 || from >= hosts_max)) {
        return via_control_error("\"first\" is not the id of a host (0 to %d)", (int)hosts_max - 1);
    }
    if (count != NULL && (!json_is_integer(count) || most < 1 || most > hosts_max)) {
        return via_control_error("\"count\" is not a number of hosts (1 to %d)", (int)hosts_max);
    }
    return via_host_directory_json(caller->host, (unsigned)from, (unsigned)most,
                                   first != NULL ? VIA_DIRECTORY_PAGE_BYTES : SIZE_MAX);
}

static json_t *cut_or_mend(struct via_control_caller *caller, json_t *request, bool cut)
{
    struct via_host *host = caller->host;
    json_t *peer = json_object_get(request, "peer");
    json_t *link = json_object_get(request, "link");
    json_int_t id = json_integer_value(peer);
    if (!json_is_integer(peer) || id < 0 || id >= host->config.hosts_max) {
        return via_control_error("\"peer\" is not the id of a host (0 to %u)",
                                 host->config.hosts_max - 1u);
    }
    if (link != NULL && (!json_is_integer(link) || json_integer_value(link) < 0 ||
                         json_integer_value(link) >= (json_int_t)VIA_PORTS_MAX)) {
        return via_control_error("\"link\" is not the number of a port (0 to %u)",
                                 VIA_PORTS_MAX - 1);
    }
    int index = link != NULL ? (int)json_integer_value(link) : -1;
    if (via_host_cables_cut(host, (uint16_t)id, index, cut) < 0) {
        return via_control_error(index < 0 ? "no link to host %d" : "no link to host %d at port %d",
                                 (int)id, index);
    }
    return ok();
}

static json_t *do_cut(struct via_control_caller *caller, json_t *request)
{
    return cut_or_mend(caller, request, true);
}

static json_t *do_mend(struct via_control_caller *caller, json_t *request)
{
    return cut_or_mend(caller, request, false);
}

/* A result of the measurement in per cent; -1: invalid. */
static int64_t per_cent(const json_t *request, const char *key)
{
    json_t *value = json_object_get(request, key);
    json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number >= 1 && number <= 100000 ? (int64_t)number : -1;
}

static json_t *do_measured(struct via_control_caller *caller, json_t *request)
{
    static const char *const carriers[] = {[VIA_MEASURED_NOT] = "unmeasured",
                                           [VIA_MEASURED_KERNEL] = "kernel",
                                           [VIA_MEASURED_PIPES] = "pipes"};
    struct via_host *host = caller->host;
    json_t *peer = json_object_get(request, "peer");
    json_int_t id = json_integer_value(peer);
    const char *text = json_string_value(json_object_get(request, "carrier"));
    unsigned carrier = 0;
    while (text != NULL && carrier < VIA_ARRAY_COUNT(carriers) &&
           strcmp(text, carriers[carrier]) != 0) {
        carrier++;
    }
    if (!json_is_integer(peer) || id < 0 || id >= host->config.hosts_max ||
        id == host->config.host) {
        return via_control_error("\"peer\" is not the id of another host");
    }
    if (text == NULL || carrier == VIA_ARRAY_COUNT(carriers)) {
        return via_control_error("\"carrier\" is neither kernel, pipes nor unmeasured");
    }
    int64_t small = per_cent(request, "small"), medium = per_cent(request, "medium"),
            stream = per_cent(request, "stream");
    if (carrier != VIA_MEASURED_NOT && (small < 0 || medium < 0 || stream < 0)) {
        return via_control_error("\"small\", \"medium\" and \"stream\" are numbers of 1 to 100000");
    }
    const struct via_measured measured = {.carrier = (uint8_t)carrier,
                                          .small_pct = (uint32_t)via_max(small, 0),
                                          .medium_pct = (uint32_t)via_max(medium, 0),
                                          .stream_pct = (uint32_t)via_max(stream, 0)};
    if (via_host_measured_take(host, (uint16_t)id, &measured) != 0) {
        return via_control_error("no route to host %d, or it has not announced itself yet",
                                 (int)id);
    }
    via_log(VIA_LOG_INFO,
            "host %u: TCP connections to host %d: %s (8 bytes %d %%, 16 KiB %d %%, stream %d %% of "
            "the kernel's speed)",
            host->config.host, (int)id, text, (int)small, (int)medium, (int)stream);
    return ok();
}

/* Serves a measurement that another host makes. "wait": that host repeats the request until this
 * one listens. */
static json_t *do_measure(struct via_control_caller *caller, json_t *request)
{
    struct via_host *host = caller->host;
    const struct via_host_measuring *calls = &host->measured.calls;
    unsigned tcp_port = 0;
    const char *token = "";
    (void)request;
    if (caller->from < 0) {
        return via_control_error("only another host may send this request");
    }
    if (calls->serve == NULL) {
        return via_control_error("host %u does not measure", host->config.host);
    }
    int rc = calls->serve(calls->ctx, (uint16_t)caller->from, &tcp_port, &token);
    if (rc == -EAGAIN) {
        return json_pack("{s:b, s:b}", "ok", 1, "wait", 1);
    }
    if (rc != 0) {
        return via_control_error("host %u: measure: start the other end: %s", host->config.host,
                                 strerror(-rc));
    }
    return json_pack("{s:b, s:i, s:s}", "ok", 1, "tcp_port", (int)tcp_port, "token", token);
}

static json_t *do_stop(struct via_control_caller *caller, json_t *request)
{
    struct via_host *host = caller->host;
    (void)request;
    if (caller->from >= 0) {
        via_log(VIA_LOG_INFO, "host %u: stop requested by user %u of host %d", host->config.host,
                (unsigned)caller->uid, caller->from);
    } else {
        via_log(VIA_LOG_INFO, "host %u: stop requested by user %u", host->config.host,
                (unsigned)caller->uid);
    }
    caller->stopping = true;
    return ok();
}

static json_t *do_reload(struct via_control_caller *caller, json_t *request)
{
    struct via_host *host = caller->host;
    (void)request;
    if (host->reload == NULL) {
        return via_control_error("host %u has no configuration file", host->config.host);
    }
    if (caller->from >= 0) {
        return via_control_error("host %u can be reloaded on its own machine only",
                                 host->config.host);
    }
    via_log(VIA_LOG_INFO, "host %u: reload requested by user %u", host->config.host,
            (unsigned)caller->uid);
    caller->reloading = true;
    return NULL;
}

json_t *via_control_refusal(const struct via_control_caller *caller, const char *name,
                            const char *right)
{
    struct via_host *host = caller->host;
    char from[32] = "";
    if (caller->from >= 0) {
        snprintf(from, sizeof(from), " of host %d", caller->from);
    }
    via_host_warn(host, VIA_HOST_WARNS_CONTROL, caller->uid,
                  "host %u: '%s' of user %u%s is refused: no right to %s", host->config.host, name,
                  (unsigned)caller->uid, from, right);
    return via_control_error(
        "permission denied: user %u%s has no right to %s host %u, which '%s' needs",
        (unsigned)caller->uid, from, right, host->config.host, name);
}

json_t *via_control_answer(struct via_control_caller *caller, json_t *request)
{
    static const struct {
        const char *name;
        json_t *(*run)(struct via_control_caller *caller, json_t *request);
        bool administers;
    } commands[] = {{"status", do_status, false},  {"directory", do_directory, false},
                    {"cut", do_cut, true},         {"mend", do_mend, true},
                    {"reload", do_reload, true},   {"stop", do_stop, true},
                    {"measure", do_measure, true}, {"measured", do_measured, true}};
    const char *name = json_string_value(json_object_get(request, "cmd"));
    if (name == NULL) {
        return via_control_error("no \"cmd\" in the request");
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
        if (strcmp(name, commands[i].name) != 0) {
            continue;
        }
        if (commands[i].administers ? caller->has_admin_right : caller->has_read_right) {
            return commands[i].run(caller, request);
        }
        return via_control_refusal(caller, name,
                                   commands[i].administers ? "administer" : "attach to");
    }
    return via_control_error("unknown command '%.40s'", name);
}
