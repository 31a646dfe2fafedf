/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What keeping epoll sets and waiting in them share. */
#ifndef VIA_SOCKETS_EPOLL_INTERNAL_H
#define VIA_SOCKETS_EPOLL_INTERNAL_H

#include "sockets/epoll_set.h"
#include "sockets/pool.h"

extern struct via_pool via_ep_entries;
extern const char via_ep_bell_mark; /* its address is the data of bells in a set */
extern const char via_ep_cold_mark; /* ... when they ring for cold connections */

/* With the set's lock. */
struct via_op via_ep_op(const struct via_ep_entry *entry);
/* Registers the set's bells before somebody sleeps in it. Not before that: poll() on the set would
 * take the first report of each for an event. */
void via_ep_hear_bells(struct via_ep_set *set);
/* With the set's lock: the kernel watches what it should. */
void via_ep_refresh(struct via_ep_entry *entry);

/* With the set's lock: nothing that the program waits for can have happened. */
bool via_ep_is_quiet(const struct via_ep_entry *entry);

/* --- epoll_cold.c; with the set's lock ---------------------------------------------------------
 */

/* How many entries may become cold during one look at the hot ones. */
unsigned via_ep_cold_batch(const struct via_ep_set *set);
/* It was quiet. true: it is among the cold now. */
bool via_ep_make_cold(struct via_ep_entry *entry);
/* Something about it has changed. */
void via_ep_make_hot(struct via_ep_entry *entry);
void via_ep_all_hot(struct via_ep_set *set);
void via_ep_look_at_cold(struct via_ep_set *set);

#endif
