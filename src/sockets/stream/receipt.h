/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_RECEIPT_H
#define VIA_SOCKETS_RECEIPT_H

#include <stdint.h>

#include "core/pipe.h"

/*
 * Receipts, between hosts: the writer of a DATA record stores into it how many records it has
 * received from its peer. If the peer finds there the number of all records that it has sent, it
 * knows that they have arrived, and need not read across the link: in a request and its reply, the
 * reply proves that the request has arrived.
 */

/* Adds a receipt to `head`, the head of a record that is not sent yet. Does nothing for other kinds
 * of records than DATA. */
void via_receipt_add(void *head, uint32_t received);

/* Reads the receipt of the record `sequence`. Any thread may call it, without the token: it loads
 * only fields of the reader that never change. 1: *ret_received is set; 0: the record has not
 * arrived; -ENODATA: the record has no receipt, or a newer record is overwriting it. */
int via_receipt_find(const struct via_pipe_reader *reader, uint32_t sequence,
                     uint32_t *ret_received);

#endif
