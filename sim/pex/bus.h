/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The bus between a host and its function: posted writes of the driver arrive later and in order,
 * one packet after the other at the speed of the link; a read takes a round trip, and its answer
 * comes behind all earlier posted writes (PCI Express base specification 2.4.1).
 */
#ifndef SIM_PEX_BUS_H
#define SIM_PEX_BUS_H

#include "model/pex/pex.h"
#include "port/driver.h"
#include "port/pex/driver.h"
#include "port/pex/port.h"
#include "sim/world.h"

/* With SIM_PEX_START: the channel at bit 4, the era at bit 8. */
enum sim_pex_event { SIM_PEX_WRITES, SIM_PEX_IRQ, SIM_PEX_ENGINE_IRQ, SIM_PEX_START };

/* BAR 0 of the DMA function, among the regions of the host's function of the NT port. */
#define SIM_PEX_REGION_ENGINE 64u

struct sim_pex_write;
struct sim_pex_side;

/* A function of the model as the driver opens it. */
struct sim_pex_device {
    struct via_pci pci;       /* first; the driver's */
    struct via_pci *function; /* the model's; NULL: not attached */
    struct sim_pex_side *side;
};

/* A write-combining buffer of a thread's CPU. */
struct sim_pex_buffer {
    uint64_t line_off, mask; /* of bytes; 0: free */
    unsigned region;
    const struct sim_thread *thread;
    unsigned char data[64];
};

struct sim_pex_channel {
    uint32_t control, starts_count; /* posted starts that the engine has not begun */
    uint16_t era;                   /* starts of an earlier era were aborted */
    bool is_stalled, is_hung;       /* is_stalled: until an abort; is_hung: until a reset */
};

/* A host's DMA function. */
struct sim_pex_engine {
    struct sim_pex_device device; /* first */
    int irq_fd;                   /* owned: the model signals it */
    int driver_fd;                /* borrowed; -1: off */
    uint32_t irqs_coming;
    bool stops_silently, writes_back_late;
    struct sim_pex_channel channels[4];
};

/* A host's path to its function. */
struct sim_pex_side {
    struct sim_pex_device device; /* first */
    struct sim_pex *pex;
    struct sim_end *end;
    struct via_driver_host host;
    struct via_port *port; /* the driver's clock; NULL: the host is down */
    bool is_dead;          /* the process is killed: its writes reach nothing any more */
    bool wants_service;
    bool has_lost_bells; /* until the driver's link is up again */
    uint64_t service_ns; /* by the host's clock */
    uint32_t irqs_coming;
    uint64_t irqs_seen; /* of the model's interrupt count, when it was last checked */
    struct sim_pex_write *head, *tail;
    uint32_t writes_count;
    uint64_t free_ns; /* when the link has sent all posted writes */
    uint64_t due_ns;  /* number of the last requested event; 0: none */
    struct sim_pex_buffer buffers[SIM_WC_BUFFERS_MAX];
    struct sim_pex_engine engine;
};

struct sim_pex {
    struct via_rng rng; /* settings of the link, and counts of its lives */
    struct via_pex_options options;
    struct via_pex_config config; /* of both ends; b2b: each has a chip of its own */
    struct via_pex *model;        /* the first of two chips */
    uint64_t
        registers_bytes; /* in the BAR of the window: registers of the peer's chip come first */
    struct sim_pex_side sides[2]; /* virtual, link; b2b: virtual of each chip */
    uint32_t payload_bytes;       /* maximum of a packet */
    uint32_t bytes_per_us;        /* bandwidth of the link */
    uint32_t buffers_count;       /* per end, write-combining buffers; 0: writes stay in order */
    bool has_engines, engine_stops_silently, engine_writes_back_late;
    bool engine_is_refused; /* its requests carry an id that no table has */
};

/* The chip with a side's function, and the function's number. */
static inline struct via_pex *sim_pex_chip(const struct sim_pex_side *side)
{
    bool is_second = side->pex->config.b2b && side == &side->pex->sides[1];
    return is_second ? via_pex_joined(side->pex->model) : side->pex->model;
}

static inline enum via_pex_side sim_pex_function(const struct sim_pex_side *side)
{
    bool is_link = !side->pex->config.b2b && side == &side->pex->sides[VIA_PEX_LINK];
    return is_link ? VIA_PEX_LINK : VIA_PEX_VIRTUAL;
}

static inline uint32_t sim_pex_number(const struct sim_pex_side *side)
{
    return (uint32_t)(side - side->pex->sides);
}

/* The calls of the driver to a function behind the bus. */
extern const struct via_pci_ops sim_pex_bus_ops;
/* Delivers the first `count` writes under way. */
void sim_pex_bus_arrive(struct sim_pex_side *side, uint32_t count);
/* Delivers the writes whose time has come. */
void sim_pex_bus_due(struct sim_pex_side *side);
void sim_pex_bus_drop(struct sim_pex_side *side);
/* The cable between the host and its function is pulled: of the writes under way, only those for
 * the host's own DMA function arrive. */
void sim_pex_bus_cut(struct sim_pex_side *side);
/* Schedules checks that no thread of the end's host sleeps although something has arrived for
 * it. */
void sim_pex_audit(const struct sim_end *end);
/* Posts bytes as packets. */
void sim_pex_bus_post(struct sim_pex_side *side, unsigned region, uint64_t off, const void *data,
                      size_t len);

/* --- engine.c --- */

struct via_pci *sim_pex_engine_open(struct sim_pex_side *side);
/* Posted bytes of the driver arrive at the function. */
void sim_pex_engine_write(struct sim_pex_engine *engine, uint64_t off, const void *data,
                          uint32_t bytes);
void sim_pex_engine_start(struct sim_pex_engine *engine, unsigned channel, unsigned era);
/* Called after any access that may make the function interrupt its host. */
void sim_pex_engine_check(struct sim_pex_engine *engine);
void sim_pex_engine_interrupt(struct sim_pex_engine *engine);
bool sim_pex_engine_is_ringing(const struct sim_pex_engine *engine);

/* --- combine.c --- */

/* Stores of the running thread. They wait in a buffer, or evict the contents of one. */
void sim_pex_combine(struct sim_pex_side *side, unsigned region, uint64_t off,
                     const unsigned char *data, size_t len);
/* Drains the buffers of the running thread, in any order. */
void sim_pex_combine_fence(struct sim_pex_side *side);
/* Called after any access that may make the chip interrupt a host. */
void sim_pex_bus_check(struct sim_pex *pex);

static inline uint32_t sim_pex_bus_count(const struct sim_pex_side *side)
{
    return side->writes_count;
}

#endif
