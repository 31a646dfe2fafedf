/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STATS_H
#define VIA_SOCKETS_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* What this process did with its connections; see viaduct-sockets(7) for how it is reported. */
enum via_reason {
    VIA_REASON_NONE = 0,  /* accelerated, or it may still be */
    VIA_REASON_PEER,      /* the peer is a plain program */
    VIA_REASON_SHORT,     /* it ended before pipes were worth it */
    VIA_REASON_USER,      /* the peer belongs to another user and that can not be proven right */
    VIA_REASON_KERNEL,    /* the kernel does not answer sock_diag */
    VIA_REASON_RESOURCES, /* no memory, no descriptors, no name */
    VIA_REASON_PROTOCOL,  /* the peer speaks another version, or nonsense */
    VIA_REASON_OPTION,    /* a socket option that pipes can not honour */
    VIA_REASON_STDIO,     /* handed to fdopen() */
    VIA_REASON_FORK,      /* forked before the peer was known */
    VIA_REASON_FABRIC,    /* no host daemon, or it did not help */
    VIA_REASON_COUNT,
};

/* One connection, as used by this process. */
struct via_stats_conn {
    uint64_t tx_pipe_bytes, tx_kernel_bytes;
    uint64_t rx_pipe_bytes, rx_kernel_bytes;
    uint64_t tx_frames_bytes;  /* of those by pipe: not stored straight into the peer's memory */
    uint64_t tx_fetched_bytes; /* of those by pipe: not copied, see zcopy.h */
    uint64_t rings, sleeps;
    enum via_reason reason;
    bool accelerated;
};

const char *via_reason_text(enum via_reason reason);

/* A connection has ended: adds it up. */
void via_stats_add(const struct via_stats_conn *conn);

/* Appends one line to the file of the policy, once: at exit. */
void via_stats_write(void);

/* A forked child begins at nothing. */
void via_stats_forked(void);

#endif
