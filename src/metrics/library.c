/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "metrics/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define NAME "libmicrohttpd.so.12"

int via_metrics_library_load(struct via_metrics_library *ret_library, struct via_error *err)
{
    struct via_metrics_library library = {0};
    const struct {
        const char *name;
        void *ret_function;
    } functions[] = {
        {"MHD_start_daemon", &library.start_daemon},
        {"MHD_stop_daemon", &library.stop_daemon},
        {"MHD_create_response_from_buffer", &library.create_response_from_buffer},
        {"MHD_add_response_header", &library.add_response_header},
        {"MHD_queue_response", &library.queue_response},
        {"MHD_destroy_response", &library.destroy_response},
        {"MHD_get_connection_info", &library.get_connection_info},
    };
    void *handle = dlopen(NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *why = dlerror();
        return via_error_set(err, -ELIBACC, "metrics: libmicrohttpd can not be loaded: %s",
                             why != NULL ? why : NAME);
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *symbol = dlsym(handle, functions[i].name);
        if (symbol == NULL) {
            return via_error_set(err, -ELIBACC, "metrics: %s has no %s", NAME, functions[i].name);
        }
        memcpy(functions[i].ret_function, &symbol, sizeof(symbol));
    }
    *ret_library = library;
    return 0;
}
