/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_MEASURED_H
#define VIA_HOST_HOST_MEASURED_H

#include "base/types.h"
#include "host/host.h"

/*
 * Measurements of TCP connections to another host, and the decision that follows: pipes or the
 * kernel. A decision counts for the way and the versions that it was made for, and for no other.
 * ADR 54.
 */
struct via_host;

enum via_measured_carrier { VIA_MEASURED_NOT, VIA_MEASURED_KERNEL, VIA_MEASURED_PIPES };

#define VIA_MEASURED_FOR_BYTES 320u

struct via_measured {
    uint8_t carrier;      /* enum via_measured_carrier; NOT: there is no decision */
    uint32_t small_pct;   /* speed of pipes in per cent of the kernel's: round trips of 8 bytes */
    uint32_t medium_pct;  /* round trips of 16 KiB */
    uint32_t stream_pct;  /* a stream */
    uint32_t session;     /* of the other host, then */
    uint64_t measured_ns; /* of the clock that all machines have, CLOCK_REALTIME */
    char made_for[VIA_MEASURED_FOR_BYTES]; /* versions, hops, network or not, the link */
};

struct via_host_measured_all {
    struct via_measured *of; /* hosts_max */
    struct via_measured_try {
        uint64_t next_ns;   /* of the host's clock: not before */
        uint64_t polled_ns; /* at the traffic of the link */
        uint64_t bytes;     /* of the link, then */
        uint32_t ups;
        unsigned idle_polls;
        unsigned failures;
    } * tries; /* hosts_max */
    struct via_host_measuring calls;
};

int via_host_measured_open(struct via_host *host);
void via_host_measured_close(struct via_host *host);

/* The decision that counts now; NULL: there is none. While no way leads to the host, the last one
 * goes on to count. */
const struct via_measured *via_host_measured(const struct via_host *host, uint16_t id);
/* Takes it, with carrier and per cents filled in. Carrier NOT: forget. -EHOSTUNREACH: no way leads
 * to the host now, or its entry has not arrived yet. */
VIA_MUST_CHECK int via_host_measured_take(struct via_host *host, uint16_t id,
                                          const struct via_measured *measured);

#endif
