/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_METRICS_LIBRARY_H
#define VIA_METRICS_LIBRARY_H

#include <microhttpd.h>

#include "base/error.h"

/* libmicrohttpd, loaded when a server opens: with the eight libraries that it needs, loading it is
 * half of the CPU time of a command that serves nothing, such as viaduct status. */
struct via_metrics_library {
    __typeof__(MHD_start_daemon) *start_daemon;
    __typeof__(MHD_stop_daemon) *stop_daemon;
    __typeof__(MHD_create_response_from_buffer) *create_response_from_buffer;
    __typeof__(MHD_add_response_header) *add_response_header;
    __typeof__(MHD_queue_response) *queue_response;
    __typeof__(MHD_destroy_response) *destroy_response;
    __typeof__(MHD_get_connection_info) *get_connection_info;
};

/* Never unloaded. -ELIBACC, with a text. */
int via_metrics_library_load(struct via_metrics_library *ret_library,
                             struct via_error *err) VIA_MUST_CHECK;

#endif
