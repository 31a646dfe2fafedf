/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_STATUS_H
#define VIA_CLI_STATUS_H

#include "cli/ask.h"

/* The findings of `status`, and two ways to show them. */

struct via_status_host {
    unsigned host;
    /* "up", "down", "silent": it runs, but does not answer. In fabrics of several machines also
     * "unreachable" and "refused". */
    const char *state;
    pid_t pid;                      /* 0 = not known */
    char why[VIA_ERROR_TEXT_BYTES]; /* what is wrong, "" = nothing */
    json_t *before;                 /* answers to "status" some time apart; NULL = none */
    json_t *after;
};

/* One direction of a link. */
struct via_status_flow {
    uint64_t bytes;
    uint64_t frames;
    double bytes_per_second;
};

struct via_status_link {
    struct via_topology_link link;
    const char *state; /* as the worse end sees it; "down" when a host of it is */
    bool cut;
    uint64_t errors;
    json_t *ends[2];    /* what the host of a says of its port, and that of b; NULL = nothing */
    const char *why[2]; /* what the port of a, and that of b, has to say of it; "" nothing */
    struct via_status_flow ab;
    struct via_status_flow ba;
};

struct via_status {
    struct via_fabric fabric;
    struct via_status_host hosts[VIA_TOPOLOGY_HOST_MAX];
    struct via_status_link links[VIA_TOPOLOGY_LINKS_MAX];
};

/*
 * Asks each host of the fabric for its status: `before` becomes what was `after`. Blocks for up to
 * timeout_ms for each host that does not answer. again: a host that did not answer last time is
 * not asked.
 */
void via_status_ask(struct via_status *status, unsigned timeout_ms, bool again);

/* Fills in the links from the answers: state, counts, and throughput between before and after. */
void via_status_compare(struct via_status *status);

/* Frees the answers. */
void via_status_release(struct via_status *status);

/* The whole of it as docs/man/viaduct-status.1 has it; NULL when memory is out. */
json_t *via_status_json(const struct via_status *status);

/* Tables on standard output; with what the ports promise, if asked for. */
void via_status_print(const struct via_status *status, bool ports);

#endif
