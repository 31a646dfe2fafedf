/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The services that the port needs of the operating system: time, randomness, descriptors, and a
 * thread that takes the turns of a hub. system.c is the product's; the simulator has another one
 * (sim/ofi).
 */
#ifndef VIA_PORT_OFI_SYSTEM_H
#define VIA_PORT_OFI_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "port/ofi/library.h"

struct via_ofi_conn;
struct via_ofi_hub;
struct via_ofi_port;

/* Constant. Hubs of different systems are different hubs. */
struct via_ofi_system {
    /* NULL: err says why. */
    const struct via_ofi_library *(*load)(const struct via_ofi_system *system,
                                          struct via_error *err);
    uint64_t (*now_ns)(const struct via_ofi_system *system);
    bool (*random)(const struct via_ofi_system *system, void *ret_bytes, size_t bytes);

    /* From here on via_ofi_hub_turn() is called: after kick(), when the event queue or a watched
     * completion queue has something, and at the time that the last turn returned. Until stop(). 0,
     * or negative errno and why. */
    int (*start)(struct via_ofi_hub *hub, struct via_error *err);
    void (*stop)(struct via_ofi_hub *hub);
    /* [any thread] */
    void (*kick)(struct via_ofi_hub *hub);

    /* [hub] A connection's completion queue is watched from here on; 0, or negative errno. */
    int (*watch_open)(struct via_ofi_conn *conn);
    void (*watch_set)(struct via_ofi_conn *conn, bool watched);
    void (*watch_close)(struct via_ofi_conn *conn);

    /* Sets port->changed_fd. 0, or negative errno. */
    int (*changed_open)(struct via_ofi_port *port);
    /* [any thread] Makes changed_fd readable: service() of the port has something to report. */
    void (*changed)(struct via_ofi_port *port);

    /* [any thread] Between two attempts of a thread that waits for room. */
    void (*pause)(struct via_ofi_hub *hub);
};

extern const struct via_ofi_system via_ofi_system;

/* CLOCK_MONOTONIC. */
uint64_t via_ofi_now_ns(void);

#endif
