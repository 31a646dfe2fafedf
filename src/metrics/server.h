/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_METRICS_SERVER_H
#define VIA_METRICS_SERVER_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/error.h"

/*
 * An HTTP server with one page, /metrics, based on libmicrohttpd. It has one thread, which also
 * collects the metrics.
 */
struct via_metrics_server;

/*
 * Makes the text for one request, on the server's thread; may block for some seconds. 0 and
 * *ret_text, which the server frees; or a negative errno, and the client gets status 503.
 */
typedef int via_metrics_collect(void *ctx, char **ret_text, size_t *ret_bytes);

/* Parses an address of this machine and a port, such as "127.0.0.1:9321" or "[::1]:9321". -EINVAL,
 * with a text. */
int via_metrics_parse_address(const char *text, struct sockaddr_storage *ret_address,
                              struct via_error *err) VIA_MUST_CHECK;

/*
 * Listens and serves until via_metrics_close(). ctx is borrowed until then. Does not block.
 * -EADDRINUSE, -EADDRNOTAVAIL, -EACCES and others of bind(2), -EINVAL, -ENOMEM, -ELIBACC; with a
 * text.
 */
int via_metrics_open(const char *address, via_metrics_collect *collect, void *ctx,
                     struct via_metrics_server **ret_server, struct via_error *err) VIA_MUST_CHECK;

/* Waits for a request that is being answered. NULL is allowed. */
void via_metrics_close(struct via_metrics_server *server);

#endif
