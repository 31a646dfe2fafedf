/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_METRICS_CLIENTS_H
#define VIA_METRICS_CLIENTS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/list.h"

/*
 * The connections of the HTTP server. Beyond a limit it ends the oldest one: a client that sends a
 * byte now and then never becomes idle, and must not keep a new client out. A scraper, or a person,
 * sends the request at once and gets the answer before further clients are accepted.
 *
 * The server's thread owns the list.
 */
#define VIA_METRICS_CLIENTS_MAX 32u
#define VIA_METRICS_CLIENTS_OF_ADDRESS_MAX 12u

struct via_metrics_client {
    struct via_list link;
    int fd;                  /* borrowed from libmicrohttpd; -1: ended */
    struct in6_addr address; /* an IPv4 address is mapped */
};

struct via_metrics_clients {
    struct via_list all; /* the oldest first; ended ones, too, until libmicrohttpd closes them */
};

void via_metrics_clients_init(struct via_metrics_clients *clients);
/* Adds a client, which the caller has allocated. If there are too many of its address, ends the
 * oldest of the address; if there are too many in all, the oldest of all. */
void via_metrics_clients_add(struct via_metrics_clients *clients, struct via_metrics_client *client,
                             int fd, const struct sockaddr *address);

#endif
