/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_REQUEST_H
#define VIA_CLI_REQUEST_H

#include "cli/fabric.h"

/* Requests to daemons, and searches in their answers (docs/protocol.md lists the fields). */

/* Sends {"cmd":cmd} to a host. Errors of via_control_call(). */
int via_fabric_request(const struct via_fabric *fabric, unsigned host, const char *cmd,
                       unsigned timeout_ms, json_t **ret_answer,
                       struct via_error *err) VIA_MUST_CHECK;

/* The same with "peer":peer and, unless it is -1, "link":port. */
int via_fabric_request_link(const struct via_fabric *fabric, unsigned host, const char *cmd,
                            unsigned peer, int port, unsigned timeout_ms,
                            struct via_error *err) VIA_MUST_CHECK;

/* 0 if object is NULL or has no such number. */
uint64_t via_answer_u64(const json_t *object, const char *key);
/* "" if there is no such text. */
const char *via_answer_text(const json_t *object, const char *key);

/* In an answer to "status": cable `number` to a neighbour. Borrowed; NULL: none. */
json_t *via_answer_link(const json_t *status, unsigned peer, unsigned number);

/* In an answer to "status": the route to a host. Borrowed; NULL: none. */
json_t *via_answer_route(const json_t *status, unsigned host);

/* Hops to a host; -1: it is unreachable, or status is NULL. */
int via_answer_hops(const json_t *status, unsigned host);

/* The neighbour through which the route to a host leads; -1: none. */
int via_answer_next_hop(const json_t *status, unsigned host);

#endif
