/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Internals of the pex port. chip.c programs the hardware, link.c brings the link up and down,
 * port.c implements the operations of core/port.h, dma.c, engine.c and probe.c drive the DMA
 * function, driver.c opens and closes the port.
 *
 * A window begins with a page for the driver; the inbox follows. Two lines of the page bring the
 * link up, without registers of the chip. Each end keeps its state in the first line of its own
 * page, where the peer reads it through the window, and posts a copy into the second line of the
 * peer's page. docs/pex-port.md specifies the protocol.
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

/* A line of the page. Fields are read and written as whole words; the writer stores `word` last. */
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
    struct via_pex_line own;    /* this host writes, the peer reads */
    struct via_pex_line posted; /* the peer writes */
    _Atomic uint64_t probed[8]; /* the peer's DMA function writes, the peer reads */
    uint64_t reserved[104];
    _Atomic uint64_t exposed[VIA_PEX_SLICES_MAX]; /* the peer writes: exposures of its slices */
};
_Static_assert(sizeof(struct via_pex_page) <= VIA_PEX_PAGE_BYTES &&
                   offsetof(struct via_pex_page, exposed) == 1024,
               "one page");

/* The word: session (32 bits, never 0 or all-ones), round (16 bits, counts how often the link went
 * down), flags (16 bits). */
#define VIA_PEX_WORD_READY 1u
#define VIA_PEX_WORD_CUT 2u
#define VIA_PEX_WORD_ID(word) ((word) >> 16)

struct via_pex_config {
    char target[128];
    char engine[108];          /* the DMA function: vfio-user socket or PCI address; "": none */
    unsigned bar;              /* 2 or 4 */
    uint64_t window_bytes_max; /* of the window, page included */
    bool alut;                 /* translate addresses by the A-LUT */
    bool alut_at_peer;         /* its enable register is on the peer's side */
    bool lut_at_db4;           /* the virtual side's table of requester ids is at 0xDB4 */
    bool model_link;           /* model: this end is the link side */
    enum via_pci_irq_kind irq; /* VIA_PCI_IRQ_KINDS: any kind, MSI first */
    bool polls;                /* no interrupts at all */
    bool slices;               /* slices for processes: at both ends or at none */
    bool b2b;                  /* the peer is the virtual side of another chip */
    unsigned b2b_end;          /* 0 or 1: which of the two identical ends this is */
    bool twins;                /* model: a chip with two NT ports */
    unsigned nt;               /* which of the two NT ports */
    bool any_revision;         /* accept unknown revisions of the chip */
    bool without_iommu;        /* the function may run without an IOMMU */
};

/* Properties of the chip. */
struct via_pex_chip {
    unsigned nt;
    bool link_side;
    unsigned revision;
    bool was_found;      /* command_found is valid */
    bool was_programmed; /* the port has changed its registers */
    uint32_t command_found;
    uint32_t base, peer_base;
    unsigned alut_entries;
    uint64_t bar_bytes;      /* of this end */
    uint64_t peer_bar_bytes; /* of the peer's side */
    /* As last read. */
    unsigned generation, width, generation_max, width_max;
};

struct via_pex_queue {
    _Atomic uint32_t busy VIA_CACHELINE_ALIGNED; /* the queue's thread stores into the window */
    uint32_t downs;                              /* of the port, when the fence was started */
    bool fencing;
};

/* Memory that a slice shows to the peer. */
struct via_pex_shown {
    void *at; /* NULL: the slice shows nothing */
    uint64_t bytes, iova;
};

/* Belongs to the control thread. */
struct via_pex_slices {
    struct via_port_slices base; /* count 0: none */
    unsigned first;              /* A-LUT entry of slice 0 */
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
    struct via_pci *engine; /* owned: the caller's DMA function, until it is opened; NULL */
    struct via_pex_config config;
    struct via_pex_chip chip; /* except the link's speed: control thread */
    const struct via_driver_host *host;
    struct via_pci_mapping mapping; /* window and its page; at == NULL: only by calls */
    struct via_pci_mapping far;     /* back to back: the peer's registers; at == NULL: by calls */
    struct via_pex_page *page;      /* of this host; the inbox follows */
    uint64_t memory_bytes;          /* page and inbox */
    uint64_t window_off;            /* in the BAR */
    uint64_t mapped_bytes;          /* memory_bytes, rounded up to huge pages */
    int memory_fd;
    uint64_t iova;
    bool asymmetric; /* membarrier() orders `busy` against `up` */
    int epoll_fd, irq_fd, kick_fd;
    bool irq_is_on;
    struct via_pex_dma *dma; /* owned; NULL: no engine */

    struct via_pex_queue queues[VIA_PORT_QUEUES]; /* each belongs to its queue's thread */

    /* --- any thread --- */
    _Atomic bool up; /* release in set_up(), acquire in via_pex_port_is_up() and enter() */
    _Atomic uint64_t events;
    _Atomic uint32_t downs;
    _Atomic uint64_t peer_word; /* of the peer, when the link came up */
    const struct via_store
        *_Atomic stores[VIA_STORE_CLASSES]; /* of bodies; NULL: via_copy_once() */
    _Atomic bool is_weak; /* stores into the mapping may wait in buffers of the CPU: the BAR is
                             write-combined, or some bodies are copied by non-temporal stores */
    _Atomic bool
        suspect; /* a read did not return peer_word: the control thread takes the link down */
    struct via_pex_counters counters;

    /* --- control thread --- */
    uint32_t session;
    uint16_t round;
    bool cut;
    bool linked; /* between set_up() and set_down(); `up` may be false already */
    bool hardware_up;
    bool was_gone;
    bool programmed;
    bool quiescing; /* down, but a thread is still storing */
    uint64_t ack;   /* the peer's session and round that this end has adapted to */
    uint64_t posted_word, posted_ack;
    uint64_t post_ns, program_ns, poll_ns, revive_ns; /* times of the next ones */
    uint64_t bells_ns;                                /* when doorbells were last read */
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

/* Stores and loads at offset `off` of the window, page included. */
void via_pex_use_store(struct via_port *port, unsigned size_class, const struct via_store *store);
void via_pex_store(struct via_pex_port *pex, uint64_t off, const void *src, size_t len);
void via_pex_store_word(struct via_pex_port *pex, uint64_t off, uint64_t word);
uint64_t via_pex_load_word(struct via_pex_port *pex, uint64_t off);
/* Drains the CPU's store and write-combining buffers. */
void via_pex_drain(struct via_pex_port *pex);
void via_pex_count(_Atomic uint64_t *counter);

/* --- chip.c --- */

int via_pex_chip_identify(struct via_pex_port *pex, struct via_error *err);
/* Restores the command register that the port found. */
void via_pex_chip_leave(struct via_pex_port *pex);
/* True if the function answers and the NT port has a link. Records the link's speed and errors. */
bool via_pex_chip_is_up(struct via_pex_port *pex);
/* Programs all registers that a reset may have cleared. */
void via_pex_chip_program(struct via_pex_port *pex);
/* Removes the peer's access to this end's memory. */
void via_pex_chip_conceal(struct via_pex_port *pex);
uint32_t via_pex_chip_take_bells(struct via_pex_port *pex);
void via_pex_chip_ring(struct via_pex_port *pex, uint32_t bits);

/* Scratchpads of the NT port, which both ends can read. */
uint32_t via_pex_chip_pad(struct via_pex_port *pex, unsigned index);
void via_pex_chip_set_pad(struct via_pex_port *pex, unsigned index, uint32_t value);

/* Sets an entry of the A-LUT of the peer's BAR; on == false: accesses are refused. In force on
 * return. */
void via_pex_chip_set_alut(struct via_pex_port *pex, unsigned entry, uint64_t address, bool on);

/* --- slice.c --- */

/* bytes: of the window, page included; reduced to the part for pipes. */
VIA_MUST_CHECK int via_pex_slices_init(struct via_pex_port *pex, uint64_t *bytes,
                                       struct via_error *err);
struct via_port_slices *via_pex_port_slices(struct via_port *port);
/* After link down. conceal: no slice of this end shows memory. forget: drops the peer's
 * exposures. */
void via_pex_slices_conceal(struct via_pex_port *pex);
void via_pex_slices_forget(struct via_pex_port *pex);

/* --- dma.c, engine.c --- */

/* Takes ownership of pci, also if it fails. name: another port of the host can join the engine by
 * it; "": none can. leads: the function shares the port's IO virtual addresses, and is closed with
 * the port.
 */
VIA_MUST_CHECK int via_pex_dma_open(struct via_pex_port *pex, const char *name, struct via_pci *pci,
                                    bool leads, struct via_error *err);
/* Joins the engine that another port has opened under that name. -ENOENT: there is none. */
VIA_MUST_CHECK int via_pex_dma_join(struct via_pex_port *pex, const char *name,
                                    struct via_error *err);
/* Maps the window in the IOMMU, for an open function of this machine. */
VIA_MUST_CHECK int via_pex_dma_reach_window(struct via_pex_port *pex, struct via_error *err);
void via_pex_dma_close(struct via_pex_port *pex);
int via_pex_dma_register(struct via_port *port, void *memory, size_t bytes, struct via_error *err);
void via_pex_dma_service(struct via_pex_port *pex, uint64_t now_ns);
void via_pex_dma_program(
    struct via_pex_port *pex); /* reads the bus address of the window, which may have changed */
uint16_t via_pex_dma_requester(const struct via_pex_port *pex);
int via_pex_dma_start(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len, uint64_t cookie);
unsigned via_pex_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max);
void via_pex_dma_abort(struct via_port *port, unsigned queue);

/* --- probe.c: checks whether writes of the DMA function arrive --- */

/* DMA is off until the result is known. */
void via_pex_probe_begin(struct via_pex_port *pex);
/* A bounded step. true: the result is known, or there is no DMA function. */
bool via_pex_probe_turn(struct via_pex_port *pex);
/* Frees the slot of an abandoned probe when its copy has ended; also while the link is down. */
void via_pex_probe_reap(struct via_pex_port *pex);
bool via_pex_probe_is_under_way(const struct via_pex_port *pex);
/* The reason why bodies are not sent by DMA; false: they are, or there is no DMA function. */
bool via_pex_probe_describe(const struct via_pex_port *pex, char *ret_text, size_t bytes);

/* --- link.c --- */

int via_pex_link_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_pex_link_cut(struct via_port *port, bool cut);
void via_pex_link_close(struct via_pex_port *pex);
uint64_t via_pex_now_ns(const struct via_pex_port *pex);
/* Tries to reconnect to a lost function: 0, or negative errno. -EAGAIN before *next_ns, or if the
 * function is not lost. Sets *next_ns. */
int via_pex_revive(struct via_pci *pci, uint64_t now_ns, uint64_t *next_ns);

/* --- driver.c --- */

/* Opens a port on the function pci; NULL: the function that config->target names. engine: the
 * host's DMA function; NULL: the one that config and target name, if the host wants DMA. Takes
 * ownership of both, also if it fails. session: the session number; 0: drawn at random.
 */
VIA_MUST_CHECK int via_pex_port_open(const struct via_pex_config *config, struct via_pci *pci,
                                     struct via_pci *engine, uint32_t session,
                                     const struct via_driver_host *host, struct via_port **ret_port,
                                     struct via_error *err);
void via_pex_port_close(struct via_port *port);

#endif
