/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_SOURCE_H
#define VIA_HOST_HOST_SOURCE_H

#include <stdint.h>
#include <sys/epoll.h>

#include "base/list.h"

struct via_host;

/* A descriptor the control thread sleeps on. Embedded in its owner. */
struct via_host_source {
    void (*ready)(struct via_host_source *source, uint32_t events);
    int fd; /* -1 = not watched */
};

/* 0 or negative errno of epoll_ctl. remove does not close, and does nothing when fd is -1. */
int via_host_source_add(struct via_host *host, struct via_host_source *source, uint32_t events);
int via_host_source_modify(struct via_host *host, struct via_host_source *source, uint32_t events);
void via_host_source_remove(struct via_host *host, struct via_host_source *source);

/*
 * Memory with a source in it: freed at the end of the turn, because events of this turn may still
 * point to it. The source must have been removed, and its `ready` must do nothing when fd is -1.
 */
struct via_host_grave {
    struct via_list link;
    void *memory;
};
void via_host_bury(struct via_host *host, struct via_host_grave *grave, void *memory);

#endif
