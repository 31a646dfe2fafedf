/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Messages of a hostile host to a service of a host, delivered as by the transfer thread. */
#ifndef TESTS_FUZZ_DELIVER_H
#define TESTS_FUZZ_DELIVER_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "host/host_private.h"
#include "tests/fuzz/input.h"

#define DELIVER_WAIT_MS 60000

/* Delivers a message, waiting for room. Returns the host's answer: 0, or the negative errno with
 * which it refuses. */
static inline int deliver_to(struct via_host *host, uint16_t source, uint32_t endpoint,
                             const void *message, uint32_t bytes)
{
    unsigned char *copy = malloc(bytes != 0 ? bytes : 1); /* of that size, for the sanitizer */
    struct via_delivery delivery = {.source = source,
                                    .endpoint = endpoint,
                                    .source_endpoint = endpoint,
                                    .data = copy,
                                    .bytes = bytes};
    int rc = -EAGAIN;
    require(copy != NULL);
    memcpy(copy, message, bytes);
    for (int i = 0; rc == -EAGAIN; i++) {
        require(i < DELIVER_WAIT_MS);
        rc = via_host_message_deliver(host, &delivery);
        poll(NULL, 0, rc == -EAGAIN ? 1 : 0);
    }
    free(copy);
    return rc;
}

/* Waits until the host has handled all messages that were delivered. */
static inline void deliver_await(struct via_host *host)
{
    struct via_host_messages *messages = &host->messages;
    for (int i = 0;; i++) {
        pthread_mutex_lock(&messages->lock);
        bool done = messages->inbox_count == 0;
        pthread_mutex_unlock(&messages->lock);
        if (done) {
            return;
        }
        require(i < DELIVER_WAIT_MS);
        poll(NULL, 0, 1);
    }
}

#endif
