/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Programs at both ends of a connection that send before they read, in rounds. Over TCP they make
 * progress if a socket buffer holds the smaller of the two bursts of a round. Over pipes they must,
 * too.
 */
#ifndef SIM_SOCKETS_BURST_H
#define SIM_SOCKETS_BURST_H

#include "base/rng.h"
#include "base/types.h"

struct burst {
    uint64_t bytes; /* bytes that it sends in a round before it reads; 0: it reads at any time */
    uint64_t peer_bytes; /* bytes that it reads before the next round */
    uint64_t round;
    uint32_t glances; /* how many times it reads a little before its burst is sent */
};

/* After this long without a byte in either direction the connection counts as hung, and the checks
 * end. */
#define BURST_HANGS_NS (20 * VIA_SEC_NS)

/* True if the program has to send now: the burst of its round is not sent yet. */
static inline bool burst_has_to_send(const struct burst *burst, uint64_t sent, uint64_t total)
{
    return burst->bytes != 0 && sent < via_min(total, burst->round * burst->bytes);
}

/* Starts the next round when this one is done. */
static inline void burst_step(struct burst *burst, uint64_t sent, uint64_t total, uint64_t received,
                              uint64_t peer_total)
{
    while (burst->bytes != 0 && (sent < total || received < peer_total) &&
           !burst_has_to_send(burst, sent, total) &&
           received >= via_min(peer_total, burst->round * burst->peer_bytes)) {
        burst->round++;
    }
}

/* Draws the programs of both ends, which send one_total and other_total bytes. */
static inline void burst_draw(struct via_rng *rng, struct burst *one, struct burst *other,
                              uint64_t one_total, uint64_t other_total, uint64_t kernel_bytes)
{
    bool first = via_rng_chance(rng, 1, 2);
    uint64_t few = via_rng_between(rng, 1, kernel_bytes);
    uint64_t most = (first ? other_total : one_total) / via_rng_between(rng, 1, 4);
    uint64_t any = via_rng_between(rng, 1, via_max(most, kernel_bytes));
    *one = (struct burst){.bytes = first ? few : any, .peer_bytes = first ? any : few, .round = 1};
    *other = (struct burst){.bytes = one->peer_bytes, .peer_bytes = one->bytes, .round = 1};
    one->glances = via_rng_chance(rng, 1, 2) ? (uint32_t)via_rng_between(rng, 1, 20) : 0;
    other->glances = via_rng_chance(rng, 1, 2) ? (uint32_t)via_rng_between(rng, 1, 20) : 0;
}

/* May the program read (write) now? */
static inline bool burst_is_read_allowed(struct burst *burst, struct via_rng *rng, uint64_t sent,
                                         uint64_t total)
{
    if (!burst_has_to_send(burst, sent, total)) {
        return true;
    }
    if (burst->glances == 0 || !via_rng_chance(rng, 1, 10)) {
        return false;
    }
    burst->glances--;
    return true;
}

static inline bool burst_is_write_allowed(const struct burst *burst, uint64_t sent, uint64_t total)
{
    return burst->bytes == 0 || sent == total || burst_has_to_send(burst, sent, total);
}

#endif
