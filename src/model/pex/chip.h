/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Internals of the model. Callers hold the model's lock. */
#ifndef VIA_MODEL_PEX_CHIP_H
#define VIA_MODEL_PEX_CHIP_H

#include <pthread.h>
#include <stdatomic.h>

#include "model/pex/eeprom.h"
#include "model/pex/pex.h"
#include "vfio/iova.h"

#define VIA_PEX_CHIP_BYTES 0x40000u
#define VIA_PEX_FUNCTION_BYTES 0x1000u
#define VIA_PEX_BARS 2u /* BAR 2/3 and 4/5 */
#define VIA_PEX_MAPPINGS_MAX 160u
#define VIA_PEX_DMAS_MAX VIA_IOVA_RANGES_MAX
#define VIA_PEX_NAME_BYTES 128u

/* A mapping of memory in a host's IOMMU. */
struct via_pex_dma {
    uint64_t iova;
    uint64_t bytes;
    unsigned char *at; /* address at which the model accesses it */
    int fd;            /* dup of the descriptor behind `at`; -1: none */
    uint64_t fd_off;
    uint64_t serial; /* unique among all mappings */
    bool writable;
};

/* A domain of a host's IOMMU: the memory that one device can access. */
struct via_pex_domain {
    struct via_iova iova;
    unsigned dmas_count;
    struct via_pex_dma dmas[VIA_PEX_DMAS_MAX];
};

/* A range of a BAR whose bytes have the same target. */
struct via_pex_run {
    const struct via_pex_dma *dma; /* NULL: nothing answers */
    struct via_pex *registers;     /* not NULL: registers of this chip, not memory */
    uint64_t off;                  /* in the memory or registers */
    uint64_t bytes;
};

/* A part of a BAR that a host has mapped. Its addresses show the memory that the translation
 * registers select. */
struct via_pex_view {
    unsigned char *at;
    uint64_t off; /* in the BAR */
    uint64_t bytes;
    unsigned bar;   /* index: 0 is BAR 2/3 */
    uint64_t shows; /* hash of the present mappings */
    bool is_torn;   /* a mapping failed: retry */
};

struct via_pex_function {
    struct via_pci pci;
    struct via_pex *pex;
    enum via_pex_side side;
    bool attached;
    bool removed;
    uint32_t bars_assigned[6]; /* addresses as last written, size probes excluded; 0: none */
    /* Interrupts. */
    enum via_pci_irq_kind irq_kind;
    int irq_fd; /* borrowed; -1: off */
    bool intx_masked;
    bool asserted[2]; /* doorbells, link errors */
    bool held, held_one;
    unsigned lose;
    struct via_pex_domain domain;
    unsigned views_count;
    struct via_pex_view views[VIA_PEX_MAPPINGS_MAX];
    char describe[192];
};

#define VIA_PEX_CHANNELS 4u
struct via_pex_engine {
    struct via_pci pci;
    struct via_pex *pex;
    enum via_pex_side side;
    bool attached;
    int irq_fd; /* borrowed; -1: off */
    /* The memory that the engine can access: the domain of the NT port's function, as in a shared
     * VFIO container, or `own`, as for a separate device of a virtual machine. Borrowed. */
    struct via_pex_domain *domain;
    struct via_pex_domain own;
    uint32_t config[64];
    uint32_t regs[0x1000 / 4];
    struct via_pex_engine_faults faults;
    unsigned waits[VIA_PEX_CHANNELS]; /* remaining reads until a slow descriptor executes; 0: not
                                         waiting */
    uint64_t late_address;            /* of a delayed write-back; 0: none */
    uint32_t late_value;
};

struct via_pex {
    pthread_mutex_t *lock; /* own_lock, or that of the joined chip or of the twin */
    pthread_mutex_t own_lock;
    struct via_pex *joined; /* the chip at the other end of the cable; NULL: a host */
    struct via_pex *twin;   /* the chip's other NT port; NULL: the chip has one */
    bool is_owned;          /* freed with `joined`, or with `twin`, which has the registers */
    struct via_pex_options options;
    uint32_t *regs; /* VIA_PEX_CHIP_BYTES; of both NT ports */
    bool cable;     /* plugged in */
    /* Link side, a bit each for BAR 0/1, 2/3, 4/5: the set-up register was written since its reset;
     * the BAR was written after that. */
    unsigned setups_written, bars_copied;
    unsigned patterns_locked; /* remaining writes to the test patterns that are ignored */
    int ones_fd;
    struct via_pex_function function[VIA_PEX_SIDES];
    struct via_pex_engine engine[VIA_PEX_SIDES];
    uint16_t engine_requester[VIA_PEX_SIDES]; /* requester id of the DMA function */
    struct via_pex_eeprom eeprom;
    uint64_t serials;
    struct via_pex_stats stats;
    char name[VIA_PEX_NAME_BYTES];
    struct via_pex *next; /* in the list of named models */
};

/* The struct of a chip's first NT port holds the state of the whole chip. */
static inline struct via_pex *via_pex_first(struct via_pex *pex)
{
    return pex->is_owned && pex->twin != NULL ? pex->twin : pex;
}

/* --- registers.c --- */

static inline uint32_t *via_pex_reg(struct via_pex *pex, enum via_pex_side side, uint32_t off)
{
    return &pex->regs[(via_pex_base(pex->options.nt, side) + off) / 4];
}
/* off: in the chip's registers, a multiple of 4. enables: byte enables, a bit per byte. */
uint32_t via_pex_chip_read(struct via_pex *pex, uint32_t off);
void via_pex_chip_write(struct via_pex *pex, uint32_t off, uint32_t value, unsigned enables);
/* Sets the registers of a side to their reset values. */
void via_pex_registers_reset(struct via_pex *pex, enum via_pex_side side);
void via_pex_registers_power_on(struct via_pex *pex);
/* The size in a BAR's set-up register; 0: disabled. */
uint64_t via_pex_bar_bytes(struct via_pex *pex, enum via_pex_side side, unsigned bar);

/* --- pex.c --- */

bool via_pex_link_is_up(const struct via_pex *pex);
/* True if the function answers accesses of its host. */
bool via_pex_function_is_answering(const struct via_pex_function *function);
/* Called after changes that may affect interrupts, or the link, of one NT port. */
void via_pex_update_interrupts(struct via_pex *pex);
void via_pex_follow_link(struct via_pex *pex, bool was_up);

/* --- window.c --- */

/* Finds the target of a byte of a BAR of `side`, and the number of following bytes with the same
 * target. off < bar bytes. counts: count refused accesses in the statistics. */
struct via_pex_run via_pex_resolve(struct via_pex *pex, enum via_pex_side side, unsigned bar,
                                   uint64_t off, bool counts);
struct via_pex_run via_pex_resolve_from(struct via_pex *pex, enum via_pex_side side, unsigned bar,
                                        uint64_t off, uint16_t requester, bool counts);
/* Called after changes that may affect a translation of the NT port. */
void via_pex_update_views(struct via_pex *pex);
int via_pex_view_init(struct via_pex *pex, struct via_pex_function *function, unsigned bar,
                      uint64_t off, uint64_t bytes, unsigned char **ret_at);
void via_pex_view_fini(struct via_pex_function *function, const unsigned char *at);
int via_pex_ones_new(int *ret_fd);

/* --- domain.c --- */

/* See dma_map() and dma_unmap() of struct via_pci_ops. */
int via_pex_domain_map(struct via_pex *pex, struct via_pex_domain *domain,
                       const struct via_pci_memory *memory, uint64_t alignment, uint64_t *ret_iova);
int via_pex_domain_unmap(struct via_pex *pex, struct via_pex_domain *domain, uint64_t iova);
void via_pex_domain_clear(struct via_pex *pex, struct via_pex_domain *domain);

/* --- function.c --- */

extern const struct via_pci_ops via_pex_function_ops;
void via_pex_function_detach(struct via_pex_function *function);
/* --- named.c --- */
void via_pex_named_closed(struct via_pex *pex);

#endif
