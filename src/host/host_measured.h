/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_MEASURED_H
#define VIA_HOST_HOST_MEASURED_H

#include "base/types.h"
#include "host/host.h"

/*
 * Measurements of TCP connections to another host, and the resulting decision: pipes or the kernel.
 * A decision is valid only for the route and the versions for which it was made. ADR 54.
 */
struct via_host;

enum via_measured_carrier { VIA_MEASURED_NOT, VIA_MEASURED_KERNEL, VIA_MEASURED_PIPES };

#define VIA_MEASURED_FOR_BYTES 320u

struct via_measured {
    uint8_t carrier;      /* enum via_measured_carrier; NOT: there is no decision */
    uint32_t small_pct;   /* speed of pipes in per cent of the kernel's: round trips of 8 bytes */
    uint32_t medium_pct;  /* round trips of 16 KiB */
    uint32_t stream_pct;  /* a stream */
    uint32_t session;     /* of the other host at that time */
    uint64_t measured_ns; /* of the clock that all machines have, CLOCK_REALTIME */
    char made_for[VIA_MEASURED_FOR_BYTES]; /* versions, hops, network or not, the link */
};

struct via_host_measured_all {
    struct via_measured *of; /* hosts_max */
    struct via_measured_try {
        uint64_t next_ns;   /* earliest time of the next measurement, by the host's clock */
        uint64_t polled_ns; /* last check of the link's traffic */
        uint64_t bytes;     /* traffic of the link at that check */
        uint32_t ups;
        unsigned idle_polls;
        unsigned failures;
    } * tries; /* hosts_max */
    struct via_host_measuring calls;
};

int via_host_measured_open(struct via_host *host);
void via_host_measured_close(struct via_host *host);

/* The valid decision; NULL: there is none. While the host is unreachable, the last decision stays
 * valid. */
const struct via_measured *via_host_measured(const struct via_host *host, uint16_t id);
/* Stores a decision, with carrier and per cents filled in. Carrier NOT: deletes the decision.
 * -EHOSTUNREACH: the host is unreachable now, or its entry has not arrived yet. */
VIA_MUST_CHECK int via_host_measured_take(struct via_host *host, uint16_t id,
                                          const struct via_measured *measured);

#endif
