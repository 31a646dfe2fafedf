/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_DATA_H
#define VIA_SHMEM_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * The program's own .data and .bss as symmetric memory: the writable load segment of the
 * executable, without the part that the dynamic linker made read only (RELRO), is copied into a
 * memfd, which is then mapped shared in its place. Addresses do not change, and the other PEs of
 * the host map the same memfd. Thread-local variables and those of shared libraries are not part of
 * it (OpenSHMEM 1.6, section 3: "must not be defined in a dynamic shared object").
 */
struct via_data {
    char *base;
    size_t bytes;    /* 0: the program has none */
    uint64_t digest; /* equal for equal layouts */
};

void via_data_find(struct via_data *ret_data);

/* Call it once, while this is the only thread. fd: an empty memfd; the function seals it. */
int via_data_share(const struct via_data *data, int fd, struct via_error *err) VIA_MUST_CHECK;

#endif
