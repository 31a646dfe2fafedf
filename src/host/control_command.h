/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_COMMAND_H
#define VIA_HOST_CONTROL_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/types.h"

/*
 * The requests of the control protocol (control.h) and their answers, for requests of a
 * process over the control socket, or of another host by messages.
 */
struct via_host;

struct via_control_caller {
    struct via_host *host; /* that answers */
    uid_t uid;
    int from;            /* host that passes the request on; -1: the user is on this machine */
    bool has_read_right; /* status, directory */
    bool has_admin_right;
    bool stopping;  /* result: the host is to end when the answer has gone */
    bool reloading; /* result: call via_host.reload; the answer comes by via_host_reloaded() */
};

/* NULL: out of memory, or `reloading`. */
json_t *via_control_answer(struct via_control_caller *caller, json_t *request);

/* {"ok":false,"error":text}; a text that is no UTF-8 is replaced. NULL: out of memory. */
json_t *via_control_error(const char *format, ...) VIA_PRINTF(1, 2);

/* The caller has no right to do this. right: for people. Logged. */
json_t *via_control_refusal(const struct via_control_caller *caller, const char *name,
                            const char *right);

#endif
