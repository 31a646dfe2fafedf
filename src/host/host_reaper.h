/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_REAPER_H
#define VIA_HOST_HOST_REAPER_H

#include "base/error.h"
#include "base/list.h"
#include "host/host_memory.h"

/*
 * A thread that gives memory and descriptors of processes back to the kernel. The last reference to
 * a memfd frees its pages, which takes a second for some GiB. A process can make the close of
 * the last reference to another kind of file take as long as it likes: a file of a FUSE file
 * system, a TCP socket with SO_LINGER. So the control thread never drops a reference that came from
 * a process, nor closes a socket in which a process may have left one.
 */
struct via_host;
struct via_reaper;

/* Memory that is to be given back. Embedded in its owner, which must not touch the item, its memory
 * or its descriptors from via_reaper_add() until `done`. */
struct via_reap {
    struct via_list link;
    struct via_host_memory memory; /* zeroed but for fd -1: none */
    const int *fds;                /* in the owner's memory; -1 is passed over */
    unsigned fds_count;
    void (*done)(struct via_host *host, struct via_reap *reap); /* [control thread] */
};

/* Starts the thread. -ENOMEM, -EAGAIN. */
int via_reaper_new(struct via_host *host, struct via_reaper **ret_reaper,
                   struct via_error *err) VIA_MUST_CHECK;

/* [control thread] Never blocks. */
void via_reaper_add(struct via_reaper *reaper, struct via_reap *reap);
/* [control thread] The same for descriptors without an owner. Closes them here only if there is no
 * memory for the item. */
void via_reaper_add_fds(struct via_reaper *reaper, const int *fds, unsigned fds_count);

/* [control thread] Calls `done` of all that is finished; the reaper pokes the control thread. */
void via_reaper_tick(struct via_reaper *reaper);

/* [control thread] Descriptors that wait to be closed. */
unsigned via_reaper_fds_count(const struct via_reaper *reaper);

/*
 * Waits for the thread to finish, at most wait_ns, then ends it and calls `done`. A thread that
 * hangs in a close is left behind with everything it still has: false. NULL is allowed.
 */
bool via_reaper_free(struct via_reaper *reaper, uint64_t wait_ns);

#endif
