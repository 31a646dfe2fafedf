/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_STATUS_H
#define VIA_CLI_STATUS_H

#include "cli/request.h"

/* The data of `status`, and two ways to print it. */

struct via_status_host {
    unsigned host;
    /* "up"; "down"; "silent": its daemon runs, but does not answer. In fabrics of several machines
     * also "unreachable" and "refused". */
    const char *state;
    pid_t pid;                      /* 0 = not known */
    char why[VIA_ERROR_TEXT_BYTES]; /* the problem; "": none */
    json_t *before;                 /* two answers to "status", some time apart; NULL: none */
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
    const char *state; /* the worse state of both ends; "down" if one of its hosts is down */
    bool cut;
    uint64_t errors;
    /* the port's entry in the answer of host a, and of host b; NULL: no answer */
    json_t *ends[2];
    const char *why[2]; /* the error of the port of a, and of b; "": none */
    struct via_status_flow ab;
    struct via_status_flow ba;
};

struct via_status {
    struct via_fabric fabric;
    struct via_status_host hosts[VIA_TOPOLOGY_HOST_MAX];
    struct via_status_link links[VIA_TOPOLOGY_LINKS_MAX];
};

/*
 * Requests the status of each host of the fabric. The previous `after` becomes `before`. Blocks for
 * up to timeout_ms for each host that does not answer. again: leaves out hosts that did not answer
 * last time.
 */
void via_status_request(struct via_status *status, unsigned timeout_ms, bool again);

/* Fills in the links from the answers: state, counts, and throughput between before and after. */
void via_status_compare(struct via_status *status);

/* Frees the answers. */
void via_status_release(struct via_status *status);

/* All data as in docs/man/viaduct-status.1. NULL: out of memory. */
json_t *via_status_json(const struct via_status *status);

/* Prints tables on standard output. ports: also the capabilities of the ports. */
void via_status_print(const struct via_status *status, bool ports);

#endif
