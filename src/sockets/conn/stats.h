/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STATS_H
#define VIA_SOCKETS_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "host/control_sockets.h"
#include "sockets/process/fds.h"

/* Counters of this process's connections; viaduct-sockets(7) describes the report. */

/* For counters that several threads update. Each process has its own counters, so a process of one
 * thread needs no locked instruction. Counters of pipes are updated with a token and need none
 * either. */
static inline void via_stats_count(_Atomic uint64_t *counter, uint64_t count)
{
    if (via_is_alone()) {
        uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
        atomic_store_explicit(counter, before + count, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(counter, count, memory_order_relaxed);
    }
}

/* Adds the counters of a connection that has ended. */
void via_stats_add(const struct via_stats_conn *conn);

/* Appends one line to the file that VIADUCT_SOCKETS_STATS names. Called at exit; works once. */
void via_stats_write(void);

/* A forked child begins at zero. */
void via_stats_forked(void);

#endif
