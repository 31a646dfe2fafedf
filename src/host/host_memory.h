/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_MEMORY_H
#define VIA_HOST_HOST_MEMORY_H

#include "base/error.h"

/* Memory shared with processes: a memfd that no process can resize, mapped here. */
struct via_host_memory {
    int fd; /* -1 when closed */
    void *base;
    size_t bytes;
};

/*
 * Creates and maps zeroed memory, and allocates all its pages now: too little memory is an error
 * here, and not a SIGBUS at the first store. reader_only: processes that get the descriptor can map
 * it only for reading. -ENOMEM, -ENOSPC, -EFBIG (RLIMIT_FSIZE), -EMFILE.
 */
int via_host_memory_open(struct via_host_memory *memory, const char *name, size_t bytes,
                         bool reader_only, struct via_error *err) VIA_MUST_CHECK;

/*
 * Maps a memfd of a process. On success the memory owns fd; on failure the caller still does.
 * -EPERM (not sealed against shrinking, or sealed against writing), -EINVAL (no memfd, huge pages,
 * smaller than bytes), -ENOMEM.
 */
int via_host_memory_adopt(struct via_host_memory *memory, int fd, size_t bytes,
                          struct via_error *err) VIA_MUST_CHECK;

/* Closes only the descriptor; the mapping stays. */
void via_host_memory_close_fd(struct via_host_memory *memory);
void via_host_memory_close(struct via_host_memory *memory);

#endif
