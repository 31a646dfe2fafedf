/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What keeping epoll sets and waiting in them share. */
#ifndef VIA_SOCKETS_EPOLL_INTERNAL_H
#define VIA_SOCKETS_EPOLL_INTERNAL_H

#include "sockets/epoll_set.h"
#include "sockets/pool.h"

extern struct via_pool via_ep_entries;
extern const char via_ep_bell_mark; /* its address is the data of bells in a set */

/* With the set's lock. */
struct via_op via_ep_op(const struct via_ep_entry *entry);
/* With the set's lock: the kernel watches what it should. */
void via_ep_refresh(struct via_ep_entry *entry);

#endif
