/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Internals of DMA by the PCI function 87D0 (registers and descriptors: Linux,
 * drivers/dma/plx_dma.c). A host has one such function. The links of both NT ports of a chip share
 * it and all its channels. dma.c starts transfers and collects their results; engine.c opens,
 * shares and closes the function.
 */
#ifndef VIA_PORT_PEX_ENGINE_H
#define VIA_PORT_PEX_ENGINE_H

#include "port/pex/port.h"
#include "vfio/plx_dma.h"

#define VIA_PLX_SLOTS 16u /* of a ring; a power of two */
/* Bounce buffer of each slot, for one body; used if the engine reaches only memory with a
 * descriptor. */
#define VIA_PLX_BOUNCE_BYTES 65536u
#define VIA_PLX_USERS_MAX 2u /* NT ports of a chip */
#define VIA_PLX_NAME_BYTES 160u
#define VIA_PLX_RINGS_BYTES 4096u /* of all channels; probe.c uses the rest of the page */

enum via_plx_slot_state { VIA_PLX_SLOT_FREE, VIA_PLX_SLOT_BUSY, VIA_PLX_SLOT_DONE };

struct via_plx_slot {
    enum via_plx_slot_state state;
    struct via_pex_dma *user;
    unsigned queue;
    uint64_t cookie;
    uint32_t downs;
    int result;
    bool aborted;
};

/* The lock guards all fields. Transfer threads only try to take it, and do not wait. */
struct via_plx_channel {
    atomic_flag lock VIA_CACHELINE_ALIGNED;
    struct via_plx_dma_descriptor *ring;
    uint32_t head, done; /* never wrap to 0; the engine owns the slots from done to head */
    struct via_plx_slot slots[VIA_PLX_SLOTS];
    uint64_t poll_ns;
    uint64_t abort_ns; /* time of the abort; 0: not being aborted */
};

/* An open DMA function. engines_lock (engine.c) guards the list, users and memory. */
struct via_plx_engine {
    struct via_plx_engine *next;
    char name[VIA_PLX_NAME_BYTES]; /* a second port finds the engine by it; "": not shared */
    unsigned users_count;
    struct via_pex_dma *users[VIA_PLX_USERS_MAX];
    struct via_pex_port
        *lead;           /* owner of the IO virtual addresses; NULL: the function has its own */
    struct via_pci *pci; /* NULL: closed, together with the lead */
    int irq_fd;
    int rings_fd;
    unsigned char *rings;
    uint64_t rings_iova;
    const unsigned char *memory;
    uint64_t memory_bytes, memory_iova;
    unsigned char *bounces; /* of all slots; NULL: the engine reads the registered memory */
    uint64_t bounces_iova;
    int bounces_fd;
    uint64_t revive_ns; /* time of the next attempt to reconnect to the function */
    _Atomic bool dead;
    _Atomic uint32_t lives_count; /* counts restarts */
    struct via_plx_channel channels[VIA_PLX_DMA_CHANNELS];
};

enum via_plx_verdict {
    VIA_PLX_UNKNOWN,
    VIA_PLX_WORKS,
    VIA_PLX_REFUSED, /* it reports success, but nothing arrives */
    VIA_PLX_FAILED,
    VIA_PLX_SILENT,
    VIA_PLX_LOST, /* the bus address of the window is not known */
    VIA_PLX_DEAD,
};

enum via_plx_probe_step {
    VIA_PLX_PROBE_DUE,
    VIA_PLX_PROBE_COPIES,
    VIA_PLX_PROBE_READS,
    VIA_PLX_PROBE_OVER,
};

/* A line that the engine writes into the peer's page, and the CPU reads back. Belongs to the
 * control thread. */
struct via_plx_probe {
    enum via_plx_probe_step step;
    enum via_plx_verdict verdict; /* of the last completed probe */
    unsigned tries;
    bool holds_slot; /* of the channel; also while the copy of an abandoned probe is under way */
    uint32_t life;   /* lives_count of the engine at the start */
    uint64_t serial, deadline_ns, again_ns;
    uint64_t line[VIA_CACHELINE / sizeof(uint64_t)];
};

/* A port's share of an engine. */
struct via_pex_dma {
    const struct via_pex_port *pex;
    _Atomic uint64_t *events; /* of the port */
    struct via_plx_engine *engine;
    _Atomic uint64_t window_address; /* on the bus; 0: not known, the registers did not answer */
    uint64_t window_iova;            /* the same, if it is mapped in the IOMMU; 0: not mapped */
    _Atomic uint32_t pending[VIA_PORT_DATA_DOORBELLS]; /* DMAs not yet taken */
    _Atomic bool works;                                /* result of the probe */
    struct via_plx_probe probe;
};

static inline uint32_t via_plx_channel_read(struct via_plx_engine *engine, unsigned channel,
                                            uint32_t off)
{
    return engine->pci != NULL ? via_pci_read32(engine->pci, 0, VIA_PLX_DMA_REG(channel, off))
                               : UINT32_MAX;
}

static inline void via_plx_channel_write(struct via_plx_engine *engine, unsigned channel,
                                         uint32_t off, uint32_t value)
{
    if (engine->pci != NULL) {
        via_pci_write32(engine->pci, 0, VIA_PLX_DMA_REG(channel, off), value);
    }
}

static inline bool via_plx_channel_try_lock(struct via_plx_channel *channel)
{
    return !atomic_flag_test_and_set_explicit(&channel->lock, memory_order_acquire);
}

static inline void via_plx_channel_unlock(struct via_plx_channel *channel)
{
    atomic_flag_clear_explicit(&channel->lock, memory_order_release);
}

/* --- dma.c; with the channel's lock --- */

/* Sets up an idle channel; its ring begins at slot 0. */
void via_plx_channel_set_up(struct via_plx_engine *engine, unsigned index);
/* Ends all DMAs under way: aborted ones with -ECANCELED, others with rc_of_others. */
void via_plx_channel_finish(struct via_plx_channel *channel, int rc_of_others);
void via_plx_channel_collect(struct via_plx_engine *engine, unsigned index,
                             const struct via_pex_port *pex);
/* Aborts the DMAs of this queue of the port on the channel. */
void via_plx_channel_abort(struct via_pex_dma *dma, unsigned index, unsigned queue);
/* Without a lock: removes the engine's access to memory. */
void via_plx_engine_cut_off(struct via_plx_engine *engine);

#endif
