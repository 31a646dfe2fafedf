/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_RECEIPT_H
#define VIA_SOCKETS_RECEIPT_H

#include <stdint.h>

#include "core/pipe.h"

/*
 * Receipts, between hosts: a DATA record says how many of the peer's records its writer has
 * received. A peer that finds the number of all its records there needs no read across the link to
 * prove that they have arrived: in a request and its reply, the reply proves that the request has.
 */

/* Into the first bytes of a record that is not yet put; nothing for other kinds of records. */
void via_receipt_add(void *head, uint32_t received);

/* Of the record of that sequence number, by any thread: uses only what is constant of the reader.
 * 1: *ret_received; 0: it has not come; -ENODATA: it has none, or a newer record overwrites it. */
int via_receipt_find(const struct via_pipe_reader *reader, uint32_t sequence,
                     uint32_t *ret_received);

#endif
