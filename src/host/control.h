/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_H
#define VIA_HOST_CONTROL_H

#include <jansson.h>

#include "base/error.h"
#include "host/rundir.h"

/*
 * The control protocol of a host: JSON objects, one per line, over <rundir>/host-<id>.ctl.
 *
 *   {"cmd":"status"}          {"ok":true,"host":..,"session":..,"pid":..,...}
 *   {"cmd":"directory"} the entries of all hosts of the fabric; with "first":N a
 *                             page of it, from host N on
 *   {"cmd":"cut","peer":N}    all links to host N are cut ({"link":I}: that one), until mended
 *   {"cmd":"mend","peer":N}
 *   {"cmd":"measured","peer":N,"carrier":"pipes","small":P,"medium":P,"stream":P}
 *   {"cmd":"reload"}          reads the configuration file again: {"ok":true,"report":["..",..]}
 *   {"cmd":"stop"}            answered, then the host ends
 *
 * With "host":N it is passed on to host N of the fabric, whose answer comes back. That is hostile:
 * only one line of it is certain.
 *
 * Errors: {"ok":false,"error":"text"}. docs/host.md lists the fields of the status.
 */
#define VIA_CONTROL_REQUEST_BYTES_MAX 4096u
#define VIA_CONTROL_ANSWER_BYTES_MAX (4u << 20)

/*
 * Sends request (borrowed) to a host's daemon and waits for its answer, at most timeout_ms. 0 and
 * *ret_answer (the caller's: json_decref), an object with "ok":true. Texts of answers and errors
 * contain no characters that control a terminal (host/control_clean.h). Else, with a text that
 * names the host and the socket: -ENOENT        there is no such host: no socket -ECONNREFUSED  its
 * daemon has died: the socket is stale -EACCES        this user may not -ETIMEDOUT     no answer in
 * time -EPROTO        its answer is malformed, or it closed the connection without an answer
 *   -EREMOTEIO     it answered "ok":false; the text ends with its error
 *   -EHOSTUNREACH  the same, "unreachable":true: the host to which it has forwarded the request
 * does not answer
 */
int via_control_call(const char *rundir, unsigned host, json_t *request, json_t **ret_answer,
                     struct via_error *err, int timeout_ms) VIA_MUST_CHECK;

/* The same through the daemon of host `by`, which forwards the request; adds "host" to it. */
int via_control_call_by(const char *rundir, unsigned by, unsigned host, json_t *request,
                        json_t **ret_answer, struct via_error *err, int timeout_ms) VIA_MUST_CHECK;

/* The directory of all hosts, page by page, as one answer; timeout_ms for each page. Errors
 * as above. */
int via_control_directory(const char *rundir, unsigned host, json_t **ret_answer,
                          struct via_error *err, int timeout_ms) VIA_MUST_CHECK;

#endif
