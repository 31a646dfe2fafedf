/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Inside of the pex port. chip.c programs the hardware, link.c brings the link up and down, port.c
 * has the operations of core/port.h, dma.c, engine.c and probe.c the DMA function, driver.c opens.
 *
 * A window begins with a page of the driver's own, the inbox follows. Two lines of the page bring
 * the link up, without a call of the chip: each end keeps its state in the first line of its own
 * page, where the peer reads it through the window, and posts a copy into the second line of the
 * peer's. docs/pex-port.md has the protocol.
 */
#ifndef VIA_PORT_PEX_PORT_H
#define VIA_PORT_PEX_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "core/port.h"
#include "port/driver.h"
#include "vfio/pci.h"

#define VIA_PEX_PAGE_BYTES 4096u
#define VIA_PEX_PAGE_MAGIC UINT64_C(0x31304b4e4c584550) /* "PEXLNK01": name and version */
#define VIA_PEX_PAGE_NAME ((UINT64_C(1) << 48) - 1)

/* A line of the page. Only whole words count, and the word is stored last. */
struct via_pex_line {
    _Atomic uint64_t magic;
    _Atomic uint64_t inbox_bytes;
    _Atomic uint64_t host;
    _Atomic uint64_t reserved[3];
    _Atomic uint64_t ack; /* the receiver's session and round that the sender has adapted to */
    _Atomic uint64_t word;
};
_Static_assert(sizeof(struct via_pex_line) == VIA_CACHELINE, "one line");

#define VIA_PEX_SLICES_MAX 256u

struct via_pex_page {
    struct via_pex_line own;    /* the owner writes, the peer reads */
    struct via_pex_line posted; /* the peer writes */
    _Atomic uint64_t probed[8]; /* the peer's DMA function writes, the peer reads */
    uint64_t reserved[104];
    _Atomic uint64_t exposed[VIA_PEX_SLICES_MAX]; /* the peer writes: what its slices show */
};
_Static_assert(sizeof(struct via_pex_page) <= VIA_PEX_PAGE_BYTES &&
                   offsetof(struct via_pex_page, exposed) == 1024,
               "one page");

/* The word: session (32 bits, never 0 or all-ones), round (16: how often the link was up and went
 * down), flags (16). */
#define VIA_PEX_WORD_READY 1u
#define VIA_PEX_WORD_CUT 2u
#define VIA_PEX_WORD_ID(word) ((word) >> 16)

struct via_pex_config {
    char target[128];
    char engine[108];          /* the DMA function: a vfio-user socket, an address; "": none */
    unsigned bar;              /* 2 or 4 */
    uint64_t window_bytes_max; /* of the window with its page */
    bool alut;                 /* translate by the A-LUT */
    bool alut_at_peer;         /* its enable register is the peer's */
    bool lut_at_db4;           /* the virtual side's requester ids lie at 0xDB4 */
    bool model_link;           /* of a model: the link side */
    enum via_pci_irq_kind irq; /* VIA_PCI_IRQ_KINDS: any kind, MSI first */
    bool polls;                /* no interrupts at all */
    bool slices;               /* of the window, for processes: at both ends or at none */
    bool b2b;                  /* the peer is the virtual side of another chip */
    unsigned b2b_end;          /* 0 or 1: which end this is; they are alike */
    bool twins;                /* of a model: it is a chip with two NT ports */
    unsigned nt;               /* which of them */
    bool any_revision;         /* of the chip will do */
    bool without_iommu;        /* nothing need translate what the function reaches */
};

/* The chip as found. */
struct via_pex_chip {
    unsigned nt;
    bool link_side;
    unsigned revision;
    bool was_found;      /* command_found is what its command register held */
    bool was_programmed; /* its registers are not as they were found */
    uint32_t command_found;
    uint32_t base, peer_base;
    unsigned alut_entries;
    uint64_t bar_bytes;      /* mine */
    uint64_t peer_bar_bytes; /* the other side's */
    /* As read last. */
    unsigned generation, width, generation_max, width_max;
};

struct via_pex_queue {
    _Atomic uint32_t busy VIA_CACHELINE_ALIGNED; /* its thread stores into the window */
    uint32_t downs;                              /* of the port, when the fence was started */
    bool fencing;
};

/* Memory that a slice shows to the peer. */
struct via_pex_shown {
    void *at; /* NULL: nothing */
    uint64_t bytes, iova;
};

/* The control thread's. */
struct via_pex_slices {
    struct via_port_slices base; /* count 0: none */
    unsigned first;              /* entry of the A-LUT of slice 0 */
    struct via_pex_shown shown[VIA_PEX_SLICES_MAX];
    /* For the mappings of this host's processes: exposure, descriptor, offset in it. */
    uint64_t mapped[VIA_PEX_SLICES_MAX], unmapped[VIA_PEX_SLICES_MAX], offs[VIA_PEX_SLICES_MAX];
    int fds[VIA_PEX_SLICES_MAX];
};

struct via_pex_counters {
    _Atomic uint64_t puts_out_of_bounds;
    _Atomic uint64_t puts_vanished;
    _Atomic uint64_t rings;
    _Atomic uint64_t scratchpads_refused;
};

struct via_pex_port {
    struct via_port base;

    /* --- constant while the port is open --- */
    struct via_pci *pci;
    struct via_pci *engine; /* owned: the DMA function that was given, until it is opened; NULL */
    struct via_pex_config config;
    struct via_pex_chip chip; /* but the link's speed, which is the control thread's */
    const struct via_driver_host *host;
    struct via_pci_mapping mapping; /* of the window with its page; at NULL: only by calls */
    struct via_pci_mapping far;     /* back to back: of the peer's registers; at NULL: by calls */
    struct via_pex_page *page;      /* mine; the inbox follows */
    uint64_t memory_bytes;          /* page and inbox */
    uint64_t window_off;            /* in the BAR */
    uint64_t mapped_bytes;          /* and what fills the last huge page */
    int memory_fd;
    uint64_t iova;
    bool asymmetric; /* membarrier() orders `busy` against `up` */
    int epoll_fd, irq_fd, kick_fd;
    bool irq_is_on;
    struct via_pex_dma *dma; /* owned; NULL: no engine */

    struct via_pex_queue queues[VIA_PORT_QUEUES]; /* each its queue's thread's */

    /* --- any thread --- */
    _Atomic bool up; /* release in go_up(), acquire where it is used */
    _Atomic uint64_t events;
    _Atomic uint32_t downs;
    _Atomic uint64_t peer_word; /* of the peer this link is up with */
    const struct via_store
        *_Atomic stores[VIA_STORE_CLASSES]; /* of bodies; NULL: via_copy_once() */
    _Atomic bool is_weak; /* stores into the mapping wait in buffers of the CPU: the BAR is
                             write-combined, or some bodies are copied by such stores */
    _Atomic bool
        suspect; /* a read did not return peer_word: the control thread must check the link */
    struct via_pex_counters counters;

    /* --- control thread --- */
    uint32_t session;
    uint16_t round;
    bool cut;
    bool linked; /* between go_up() and go_down(); `up` may be false already */
    bool hardware_up;
    bool was_gone;
    bool programmed;
    bool quiescing; /* down, but a thread is still storing */
    uint64_t ack;   /* the peer's session and round that this end has adapted to */
    uint64_t posted_word, posted_ack;
    uint64_t post_ns, program_ns, poll_ns, revive_ns; /* when to do so again */
    uint64_t bells_ns;                                /* when doorbells were taken last */
    uint64_t ups_count, downs_count, interrupts_count, bells_late_count;
    struct via_pex_slices slices;
    uint64_t errors[4]; /* correctable, uncorrectable, DL_Down, dropped messages */
    char error[256];
};

static inline struct via_pex_port *via_pex_port_of(const struct via_port *port)
{
    return via_container_of((uintptr_t)port, struct via_pex_port, base);
}

static inline bool via_pex_port_is_up(const struct via_pex_port *pex)
{
    return atomic_load_explicit(&pex->up, memory_order_acquire);
}

extern const struct via_port_ops via_pex_port_ops;

/* --- port.c --- */

/* Stores into the window, its page included: `len` bytes at `off` of it. */
void via_pex_use_store(struct via_port *port, unsigned size_class, const struct via_store *store);
void via_pex_store(struct via_pex_port *pex, uint64_t off, const void *src, size_t len);
void via_pex_store_word(struct via_pex_port *pex, uint64_t off, uint64_t word);
uint64_t via_pex_load_word(struct via_pex_port *pex, uint64_t off);
/* Drains the CPU's buffers. */
void via_pex_drain(struct via_pex_port *pex);
void via_pex_count(_Atomic uint64_t *counter);

/* --- chip.c --- */

int via_pex_chip_identify(struct via_pex_port *pex, struct via_error *err);
/* The function decodes and masters again as it did before. */
void via_pex_chip_leave(struct via_pex_port *pex);
/* Does the function answer, and has the NT port a link? Notes the link's speed and errors. */
bool via_pex_chip_is_up(struct via_pex_port *pex);
/* All that a reset may have cleared. */
void via_pex_chip_program(struct via_pex_port *pex);
/* The peer reaches this end's memory no more. */
void via_pex_chip_conceal(struct via_pex_port *pex);
uint32_t via_pex_chip_take_bells(struct via_pex_port *pex);
void via_pex_chip_ring(struct via_pex_port *pex, uint32_t bits);

/* Scratchpads of the NT port: this end's words are where both can read them. */
uint32_t via_pex_chip_pad(struct via_pex_port *pex, unsigned index);
void via_pex_chip_set_pad(struct via_pex_port *pex, unsigned index, uint32_t value);

/* Entry of the A-LUT of the peer's BAR; off: no other thread gets through. It is in force on
 * return. */
void via_pex_chip_set_alut(struct via_pex_port *pex, unsigned entry, uint64_t address, bool on);

/* --- slice.c --- */

/* bytes: of the window with its page; becomes what is for pipes. */
VIA_MUST_CHECK int via_pex_slices_init(struct via_pex_port *pex, uint64_t *bytes,
                                       struct via_error *err);
struct via_port_slices *via_pex_port_slices(struct via_port *port);
/* The link is down: no slice of this end shows anything, and the peer's are forgotten. */
void via_pex_slices_conceal(struct via_pex_port *pex);
void via_pex_slices_forget(struct via_pex_port *pex);

/* --- dma.c, engine.c --- */

/* Takes the function over, also when it fails. name: by which another port of the host finds it;
 * "": none may. leads: the function has the port's IO virtual addresses, and goes when that does.
 */
VIA_MUST_CHECK int via_pex_dma_open(struct via_pex_port *pex, const char *name, struct via_pci *pci,
                                    bool leads, struct via_error *err);
/* The port shares the function that another port has opened by that name. -ENOENT: none has. */
VIA_MUST_CHECK int via_pex_dma_join(struct via_pex_port *pex, const char *name,
                                    struct via_error *err);
/* Of a function of this machine, opened: the IOMMU learns of the window. */
VIA_MUST_CHECK int via_pex_dma_reach_window(struct via_pex_port *pex, struct via_error *err);
void via_pex_dma_close(struct via_pex_port *pex);
int via_pex_dma_register(struct via_port *port, void *memory, size_t bytes, struct via_error *err);
void via_pex_dma_service(struct via_pex_port *pex, uint64_t now_ns);
void via_pex_dma_program(struct via_pex_port *pex); /* when the window may have moved */
uint16_t via_pex_dma_requester(const struct via_pex_port *pex);
int via_pex_dma_start(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len, uint64_t cookie);
unsigned via_pex_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max);
void via_pex_dma_abort(struct via_port *port, unsigned queue);

/* --- probe.c: does what the DMA function writes arrive? --- */

/* Before it is known DMA is off. */
void via_pex_probe_begin(struct via_pex_port *pex);
/* A bounded step. true: it is known, or there is no DMA function. */
bool via_pex_probe_turn(struct via_pex_port *pex);
/* Frees the slot of a copy whose probe was given up, once the copy has ended; also while the link
 * is down. */
void via_pex_probe_reap(struct via_pex_port *pex);
bool via_pex_probe_is_under_way(const struct via_pex_port *pex);
/* Why bodies go without DMA; false: they do not, or there is none. */
bool via_pex_probe_describe(const struct via_pex_port *pex, char *ret_text, size_t bytes);

/* --- link.c --- */

int via_pex_link_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_pex_link_cut(struct via_port *port, bool cut);
void via_pex_link_close(struct via_pex_port *pex);
uint64_t via_pex_now_ns(const struct via_pex_port *pex);
/* Looks whether a function that is gone is there again: 0, or why not. Not before *next_ns
 * (-EAGAIN), which moves. */
int via_pex_revive(struct via_pci *pci, uint64_t now_ns, uint64_t *next_ns);

/* --- driver.c --- */

/* Opens a port on a function, which the port takes over, also when that fails; NULL: on the one
 * that config->target names. engine: the host's DMA function, taken over likewise; NULL: the one
 * that config and target name, if the host wants DMA. session: of this life of the end; 0: drawn.
 */
VIA_MUST_CHECK int via_pex_port_open(const struct via_pex_config *config, struct via_pci *pci,
                                     struct via_pci *engine, uint32_t session,
                                     const struct via_driver_host *host, struct via_port **ret_port,
                                     struct via_error *err);
void via_pex_port_close(struct via_port *port);

#endif
