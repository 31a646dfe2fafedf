/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_SERVER_H
#define VIA_HOST_CONTROL_SERVER_H

#include <jansson.h>

#include "base/error.h"
#include "base/list.h"
#include "host/host_listener.h"

/* The server side of host/control.h. */
struct via_host;

#define VIA_CONTROL_CONNECTIONS_MAX 32u
#define VIA_CONTROL_CONNECTIONS_OF_USER_MAX 8u /* but of the owner and root */
/* The daemon closes a connection that has sent no request, or not received its answer, for this
 * time. */
#define VIA_CONTROL_SILENCE_NS (30 * VIA_SEC_NS)

struct via_control_server {
    struct via_host_listener listener;
    struct via_list connections; /* the one with the longest silence first */
    unsigned connections_count;
};

int via_control_server_open(struct via_host *host, struct via_error *err);
void via_control_server_close(struct via_host *host);
uint64_t via_control_server_tick(struct via_host *host);
/* Looks the rights of all connected clients up again. */
void via_control_server_rights_changed(struct via_host *host);

/* control_status.c: the answer to {"cmd":"status"}; NULL when out of memory. */
json_t *via_control_status(struct via_host *host);

#endif
