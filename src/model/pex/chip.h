/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of the model. Everything here wants the model's lock. */
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

/* Memory that a host's IOMMU shows to its function. */
struct via_pex_dma {
    uint64_t iova;
    uint64_t bytes;
    unsigned char *at; /* where the model reaches it */
    int fd;            /* dup, what `at` is a mapping of; -1: none */
    uint64_t fd_off;
    uint64_t serial; /* no other mapping has it */
    bool writable;
};

/* The memory within reach of one device of a host: a domain of the host's IOMMU. */
struct via_pex_domain {
    struct via_iova iova;
    unsigned dmas_count;
    struct via_pex_dma dmas[VIA_PEX_DMAS_MAX];
};

/* A run of bytes that all go the same way. */
struct via_pex_run {
    const struct via_pex_dma *dma; /* NULL: nothing answers */
    struct via_pex *registers;     /* of this chip answer, instead of memory */
    uint64_t off;                  /* in it */
    uint64_t bytes;
};

/* A piece of a BAR that a host has mapped. The addresses show what the translation registers
 * select. */
struct via_pex_view {
    unsigned char *at;
    uint64_t off; /* in the BAR */
    uint64_t bytes;
    unsigned bar;   /* index: 0 is BAR 2/3 */
    uint64_t shows; /* hash of what is mapped now */
    bool is_torn;   /* mapping something failed: try again */
};

struct via_pex_function {
    struct via_pci pci;
    struct via_pex *pex;
    enum via_pex_side side;
    bool attached;
    bool removed;
    uint32_t bars_assigned[6]; /* as they were written last, but for their size; 0: not yet */
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
    /* The memory that it reaches: the domain of the NT port's function, as in one container of
     * VFIO, or one of its own, as a device of a virtual machine has. Borrowed. */
    struct via_pex_domain *domain;
    struct via_pex_domain own;
    uint32_t config[64];
    uint32_t regs[0x1000 / 4];
    struct via_pex_engine_faults faults;
    unsigned waits[VIA_PEX_CHANNELS]; /* reads that a slow descriptor still waits for; 0: it has its
                                         turn */
    uint64_t late_address;            /* of a write-back under way; 0: none */
    uint32_t late_value;
};

struct via_pex {
    pthread_mutex_t *lock; /* own_lock, or that of the chip it is joined to */
    pthread_mutex_t own_lock;
    struct via_pex *joined; /* the link sides of both are one cable; NULL: a host is there */
    struct via_pex *twin;   /* the chip's other NT port; NULL: it has one */
    bool is_owned;          /* by the joined one, or by the twin, whose registers it has */
    struct via_pex_options options;
    uint32_t *regs; /* VIA_PEX_CHIP_BYTES; of both NT ports */
    bool cable;     /* is plugged in */
    /* Of the link side's BARs, a bit for BAR 0/1, 2/3, 4/5: the set-up register was written since
     * its reset; a BAR was after that. */
    unsigned setups_written, bars_copied;
    unsigned patterns_locked; /* how many writes to the test patterns are ignored */
    int ones_fd;
    struct via_pex_function function[VIA_PEX_SIDES];
    struct via_pex_engine engine[VIA_PEX_SIDES];
    uint16_t engine_requester[VIA_PEX_SIDES]; /* what requests of a DMA function carry */
    struct via_pex_eeprom eeprom;
    uint64_t serials;
    struct via_pex_stats stats;
    char name[VIA_PEX_NAME_BYTES];
    struct via_pex *next; /* of those that have a name */
};

/* The state of a whole chip is kept at its first NT port. */
static inline struct via_pex *via_pex_first(struct via_pex *pex)
{
    return pex->is_owned && pex->twin != NULL ? pex->twin : pex;
}

/* --- registers.c --- */

static inline uint32_t *via_pex_reg(struct via_pex *pex, enum via_pex_side side, uint32_t off)
{
    return &pex->regs[(via_pex_base(pex->options.nt, side) + off) / 4];
}
/* off: of the chip, a multiple of 4. enables: a bit per byte. */
uint32_t via_pex_chip_read(struct via_pex *pex, uint32_t off);
void via_pex_chip_write(struct via_pex *pex, uint32_t off, uint32_t value, unsigned enables);
/* Registers of a side return to their reset values. */
void via_pex_registers_reset(struct via_pex *pex, enum via_pex_side side);
void via_pex_registers_power_on(struct via_pex *pex);
/* The size that a BAR's set-up register says; 0: it is off. */
uint64_t via_pex_bar_bytes(struct via_pex *pex, enum via_pex_side side, unsigned bar);

/* --- pex.c --- */

bool via_pex_link_is_up(const struct via_pex *pex);
/* Is the function there, as its host sees it? */
bool via_pex_function_is_answering(const struct via_pex_function *function);
/* After what may change an interrupt, or the link. Of one NT port. */
void via_pex_update_interrupts(struct via_pex *pex);
void via_pex_follow_link(struct via_pex *pex, bool was_up);

/* --- window.c --- */

/* Where a byte of a BAR of `side` leads, and how many bytes on go the same way. off < bar bytes.
 * counts: what is refused is counted. */
struct via_pex_run via_pex_resolve(struct via_pex *pex, enum via_pex_side side, unsigned bar,
                                   uint64_t off, bool counts);
struct via_pex_run via_pex_resolve_from(struct via_pex *pex, enum via_pex_side side, unsigned bar,
                                        uint64_t off, uint16_t requester, bool counts);
/* After what may change a translation of the NT port. */
void via_pex_update_views(struct via_pex *pex);
int via_pex_view_init(struct via_pex *pex, struct via_pex_function *function, unsigned bar,
                      uint64_t off, uint64_t bytes, unsigned char **ret_at);
void via_pex_view_fini(struct via_pex_function *function, const unsigned char *at);
int via_pex_ones_new(int *ret_fd);

/* --- domain.c --- */

/* As struct via_pci_ops says; alignment 0: at *ret_iova. */
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
