/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Links whose ports are a driver of the product on a model of what it drives: sim/pex, sim/ofi. A
 * program has them when it calls sim_pex_use() or sim_ofi_use(). chip.c has the operations of such
 * an end.
 */
#ifndef SIM_CHIP_H
#define SIM_CHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_end;
struct via_port;
struct sim_link;

struct sim_chip_ops {
    /* Called while a thread of the end's host works. */
    void (*enter)(struct sim_end *end);
    struct via_port *(*driver)(struct sim_end *end);
    /* A fence has ended because the driver found its link down. */
    void (*fence_failed)(struct sim_end *end);
    /* Opens the ports of both ends, and closes them permanently. */
    void (*open)(struct sim_link *link, size_t inbox_bytes);
    void (*fini)(struct sim_link *link);
    /* The cable is plugged in or pulled. */
    void (*set)(struct sim_link *link, bool up);
    /* The host's process is killed; and a new process opens its port. */
    void (*crashed)(struct sim_end *end);
    void (*reopen)(struct sim_end *end);
    /* Registers the memory of the end's node, which DMA engines read. */
    int (*memory_register)(struct sim_end *end, void *memory, size_t bytes);
    /* True if the engine's copies do not reach the peer, so that the driver need not use it. NULL:
     * they always do. */
    bool (*is_engine_useless)(const struct sim_end *end);
    /* Called in a turn of the control thread: returns 1 if the link went up or down. Lowers the
     * deadline, which is in the host's clock. */
    int (*service)(struct sim_end *end, uint64_t now_ns, uint64_t *deadline_ns);
    /* Handles SIM_EVENT_CHIP. */
    void (*event)(struct sim_link *link, uint32_t end, uint32_t what);
    /* True if an interrupt may be under way to this end, or its link is about to change. */
    bool (*is_ringing)(struct sim_end *end);
    /* The interval at which the driver polls the hardware while its link is up. */
    uint64_t (*poll_ns)(const struct sim_end *end);
};

/* By enum sim_like. NULL: this program has no such links, or they have no driver. */
extern const struct sim_chip_ops *sim_chips[];

/* Makes the end's port one whose operations are the driver's. */
void sim_chip_attach(struct sim_end *end, const struct via_port *driver);

#endif
