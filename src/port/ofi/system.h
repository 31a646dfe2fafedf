/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The services of the operating system that the port uses: time, random numbers, descriptors, and a
 * thread that runs the turns of a hub. system.c is the implementation for Linux; the simulator has
 * its own (sim/ofi).
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

/* Constant. Ports with different systems do not share a hub. */
struct via_ofi_system {
    /* NULL: err says why. */
    const struct via_ofi_library *(*load)(const struct via_ofi_system *system,
                                          struct via_error *err);
    uint64_t (*now_ns)(const struct via_ofi_system *system);
    bool (*random)(const struct via_ofi_system *system, void *ret_bytes, size_t bytes);

    /* Starts calling via_ofi_hub_turn(), until stop(): after kick(), when the event queue or a
     * watched completion queue has entries, and at the time that the last turn returned. 0, or
     * negative errno and the reason in err. */
    int (*start)(struct via_ofi_hub *hub, struct via_error *err);
    void (*stop)(struct via_ofi_hub *hub);
    /* [any thread] */
    void (*kick)(struct via_ofi_hub *hub);

    /* [hub] Begins to watch a connection's completion queue; 0, or negative errno. */
    int (*watch_open)(struct via_ofi_conn *conn);
    void (*watch_set)(struct via_ofi_conn *conn, bool watched);
    void (*watch_close)(struct via_ofi_conn *conn);

    /* Sets port->changed_fd. 0, or negative errno. */
    int (*changed_open)(struct via_ofi_port *port);
    /* [any thread] Makes changed_fd readable: service() of the port has something to report. */
    void (*changed)(struct via_ofi_port *port);

    /* [any thread] Called between two attempts of a thread that waits for room. */
    void (*pause)(struct via_ofi_hub *hub);
};

extern const struct via_ofi_system via_ofi_system;

/* CLOCK_MONOTONIC. */
uint64_t via_ofi_now_ns(void);

#endif
