/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/request.h"

#include <errno.h>
#include <string.h>

/* core's number of hops for an unreachable host. */
#define HOPS_UNREACHABLE 255

static int call(const struct via_fabric *fabric, unsigned host, json_t *request,
                unsigned timeout_ms, json_t **ret_answer, struct via_error *err)
{
    if (request == NULL) {
        return via_error_set(err, -ENOMEM, "host %u: %s", host, strerror(ENOMEM));
    }
    /* The daemon of this machine forwards requests for other hosts. */
    unsigned by = fabric->local >= 0 ? (unsigned)fabric->local : host;
    int rc = via_control_call_by(fabric->rundir.text, by, host, request, ret_answer, err,
                                 (int)timeout_ms);
    json_decref(request);
    return rc;
}

int via_fabric_request(const struct via_fabric *fabric, unsigned host, const char *cmd,
                       unsigned timeout_ms, json_t **ret_answer, struct via_error *err)
{
    return call(fabric, host, json_pack("{s:s}", "cmd", cmd), timeout_ms, ret_answer, err);
}

int via_fabric_request_link(const struct via_fabric *fabric, unsigned host, const char *cmd,
                            unsigned peer, int port, unsigned timeout_ms, struct via_error *err)
{
    json_t *answer = NULL;
    json_t *request = json_pack("{s:s, s:i}", "cmd", cmd, "peer", (int)peer);
    if (request != NULL && port >= 0) {
        json_object_set_new(request, "link", json_integer(port));
    }
    int rc = call(fabric, host, request, timeout_ms, &answer, err);
    json_decref(answer);
    return rc;
}

uint64_t via_answer_u64(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

const char *via_answer_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

json_t *via_answer_link(const json_t *status, unsigned peer, unsigned number)
{
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(status, "links"), i, entry)
    {
        json_t *id = json_object_get(entry, "peer");
        if (json_is_integer(id) && json_integer_value(id) == (json_int_t)peer && number-- == 0) {
            return entry;
        }
    }
    return NULL;
}

json_t *via_answer_route(const json_t *status, unsigned host)
{
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(status, "routes"), i, entry)
    {
        json_t *hops = json_object_get(entry, "hops");
        if (via_answer_u64(entry, "host") == host && json_is_integer(hops) &&
            json_integer_value(hops) >= 0 && json_integer_value(hops) < HOPS_UNREACHABLE) {
            return entry;
        }
    }
    return NULL;
}

int via_answer_hops(const json_t *status, unsigned host)
{
    json_t *route = via_answer_route(status, host);
    return route != NULL ? (int)json_integer_value(json_object_get(route, "hops")) : -1;
}

int via_answer_next_hop(const json_t *status, unsigned host)
{
    json_t *route = via_answer_route(status, host);
    json_t *port = json_object_get(route, "port");
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(status, "links"), i, entry)
    {
        if (json_is_integer(port) && json_equal(json_object_get(entry, "port"), port)) {
            return (int)via_answer_u64(entry, "peer");
        }
    }
    return -1;
}
