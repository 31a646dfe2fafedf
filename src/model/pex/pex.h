/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A register model of a non-transparent (NT) port of a PEX 87xx between two hosts. A chip has one
 * NT port or two. The model uses only public sources: each register names its source (registers.c).
 * Where sources disagree, an option selects one (struct via_pex_switches).
 *
 * The chip has two functions: the virtual side's is on the bus of host 0, the link side's on that
 * of host 1. A host drives its function by struct via_pci (vfio/pci.h). The model translates stores
 * into a memory BAR as the chip does, through the BAR's translation register or the A-LUT. They
 * reach the other host's memory if the requester is in the table of requester ids, the other
 * function may master its bus, and the other host's IOMMU maps the address. Otherwise stores
 * vanish, and loads return all-ones.
 *
 * A model has a lock; any thread may call any function.
 */
#ifndef VIA_MODEL_PEX_PEX_H
#define VIA_MODEL_PEX_PEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/types.h"
#include "vfio/pci.h"

enum via_pex_side { VIA_PEX_VIRTUAL, VIA_PEX_LINK, VIA_PEX_SIDES };

/* Choices where public sources disagree. false: as in FreeBSD's driver. */
struct via_pex_switches {
    bool alut_needs_bit_31;  /* 0xC94: bits 28 and 31 enable, not bit 28 alone */
    bool alut_enable_at_bar; /* 0xC94 of the side of the accessed BAR, not of the side of the memory
                              */
    bool lut_at_db4;         /* the virtual side's requester ids are at 0xDB4 too */
    bool dl_down_keeps_alut; /* DL_Down does not clear the link side's A-LUT array */
    bool unmask_fires_msi;   /* unmasking a pending doorbell counts as 0 -> 1 */
    bool shadows_bars; /* erratum: the link side decodes shadow copies of its BARs. A write of a BAR
                          after its set-up register updates the copy; before that the BAR claims no
                          address */
};

struct via_pex_options {
    uint64_t bar_bytes[VIA_PEX_SIDES][2]; /* BAR 2/3 and 4/5: powers of two from 1 MiB on, or 0 */
    unsigned alut_entries;                /* 0, 128 or 256 */
    unsigned nt;                          /* number of the NT port: 0 or 1 */
    unsigned port;                        /* number of the chip's port, 0..23 */
    unsigned generation, width;           /* of the trained link */
    unsigned generation_max, width_max;
    uint16_t requester[VIA_PEX_SIDES]; /* requester id of the CPU's stores */
    struct via_pex_switches switches;
    uint16_t chip;         /* of port 0: 0x8749, ... */
    unsigned char *eeprom; /* its bytes, borrowed; NULL: no EEPROM */
    uint32_t eeprom_bytes; /* a multiple of 4, from 8 on */
};

/* BAR 2/3 of 4 MiB, A-LUT with 256 entries, Gen3 x8. */
extern const struct via_pex_options via_pex_options_default;

struct via_pex_stats {
    uint64_t unclaimed;         /* accesses without an answer */
    uint64_t requester_refused; /* by the table of requester ids */
    uint64_t iommu_faults;
    uint64_t interrupts[VIA_PEX_SIDES];
    uint64_t interrupts_lost; /* by fault injection */
};

struct via_pex;

VIA_MUST_CHECK int via_pex_new(const struct via_pex_options *options, struct via_pex **ret_pex,
                               struct via_error *err);
void via_pex_free(struct via_pex *pex); /* no process may be attached */

/* Makes two chips back to back: a cable joins the link sides of their NT ports. Each chip accesses
 * the other through the other's link-side BARs. Returns the first chip; the second is freed with
 * it. Both have these options. */
VIA_MUST_CHECK int via_pex_new_pair(const struct via_pex_options *options, struct via_pex **ret_pex,
                                    struct via_error *err);
struct via_pex *via_pex_joined(const struct via_pex *pex); /* NULL: the chip is alone */

/* Makes a chip with two NT ports: host 0 has the virtual sides of both, and two other hosts have
 * the link sides. Returns NT0; NT1 is its twin. They share one set of registers, each function
 * shows all of them, and a reset of host 0 resets both. Each has half of the A-LUT. NT1 is freed
 * with NT0. Both have these options, except nt; NT1's port number is eight higher (modulo 24). */
VIA_MUST_CHECK int via_pex_new_twins(const struct via_pex_options *options,
                                     struct via_pex **ret_pex, struct via_error *err);
struct via_pex *via_pex_twin(const struct via_pex *pex); /* NULL: the chip has one NT port */
unsigned via_pex_number(const struct via_pex *pex);      /* number of the NT port: 0 or 1 */

/* Opens a host's function for its driver. -EBUSY: open already. ops->close() closes it. */
VIA_MUST_CHECK int via_pex_attach(struct via_pex *pex, enum via_pex_side side,
                                  struct via_pci **ret_pci);

/* The requester id of a DMA function, which its driver gets too. */
#define VIA_PEX_ENGINE_REQUESTER 0x0200u

/* Opens a host's DMA function; the caller closes it before the host's function of the NT port.
 * -EBUSY: open already. A host with two NT ports has one DMA function. */
VIA_MUST_CHECK int via_pex_attach_engine(struct via_pex *pex, enum via_pex_side side,
                                         struct via_pci **ret_pci);

/* The same, as a separate device: it can access only memory mapped for it, not memory mapped for
 * the function of the NT port. */
VIA_MUST_CHECK int via_pex_attach_engine_apart(struct via_pex *pex, enum via_pex_side side,
                                               struct via_pci **ret_pci);

/* Named models, so that drivers in one process can find the same model. A model is made at the
 * first open and freed after the last close. */
VIA_MUST_CHECK int via_pex_attach_named(const char *name, enum via_pex_side side,
                                        const struct via_pex_options *options,
                                        struct via_pci **ret_pci, struct via_error *err);
/* Opens the virtual side of end 0 or 1 of two chips back to back, which have one name. */
VIA_MUST_CHECK int via_pex_attach_pair(const char *name, unsigned end,
                                       const struct via_pex_options *options,
                                       struct via_pci **ret_pci, struct via_error *err);
/* Opens a function of a chip with two NT ports. */
VIA_MUST_CHECK int via_pex_attach_named_twin(const char *name, unsigned nt, enum via_pex_side side,
                                             const struct via_pex_options *options,
                                             struct via_pci **ret_pci, struct via_error *err);
/* The model with that name (the first of two chips or NT ports), or NULL. Valid while a function of
 * the model is attached. */
struct via_pex *via_pex_find(const char *name);

/* --- faults --- */

/* Pulls or plugs in the cable of the NT port. */
void via_pex_set_link(struct via_pex *pex, bool up);
/* Retrains the link with these values. */
void via_pex_set_speed(struct via_pex *pex, unsigned generation, unsigned width);
/* Hot reset by the host of that side. The virtual side's host resets the whole chip, with both NT
 * ports. */
void via_pex_reset_host(struct via_pex *pex, enum via_pex_side side);
/* Removes a function, whose reads then return all-ones, or adds it again after a reset. */
void via_pex_remove(struct via_pex *pex, enum via_pex_side side, bool gone);
/* The next `count` interrupts of a side do not arrive. */
void via_pex_lose_interrupts(struct via_pex *pex, enum via_pex_side side, unsigned count);
/* Holds the interrupts of a side until they are released; several held ones arrive as one. */
void via_pex_hold_interrupts(struct via_pex *pex, enum via_pex_side side, bool hold);
/* Sets bits of the link error register (1 correctable, 2 uncorrectable, 8 dropped message). */
void via_pex_raise_error(struct via_pex *pex, uint32_t bits);

struct via_pex_engine_faults {
    bool hangs;           /* busy forever, also after an abort */
    bool stalls;          /* busy until an abort */
    bool stops_silently;  /* stops without an error after each descriptor */
    bool late_write_back; /* write-backs arrive after the interrupt, at the next register read */
    bool fails;           /* each descriptor fails half-way: written back as a failed read */
    bool reset_erases_tuning; /* a function-level reset clears what an EEPROM set: read-request
                                 delay, prefetch, pending reads */
    bool enable_fires_msi;    /* enabling the MSI while a status is pending sends it; no source says
                                 whether a chip does */
    unsigned misaligned_reads; /* a transfer whose source or destination is not 64-byte aligned
                                  takes this number of reads of its control register */
};
void via_pex_engine_set_faults(struct via_pex *pex, enum via_pex_side side,
                               const struct via_pex_engine_faults *faults);

/* Gives the requests another requester id than the driver gets; also for later attachments. */
void via_pex_engine_set_requester(struct via_pex *pex, enum via_pex_side side, uint16_t requester);

struct via_pex_eeprom_faults {
    unsigned busy_reads;    /* busy reads of the control register, after each command */
    unsigned write_polls;   /* busy reads of the status, after each write */
    bool hangs;             /* busy forever */
    bool is_protected;      /* write-protected */
    bool tears_upper_half;  /* the write at which power is lost changes only the upper half */
    unsigned power_loss_at; /* number of the write at which power is lost; 0: never */
};
/* Also restarts the count of writes. */
void via_pex_eeprom_set_faults(struct via_pex *pex, const struct via_pex_eeprom_faults *faults);

void via_pex_stats(struct via_pex *pex, struct via_pex_stats *ret_stats);

/* --- the registers, for tests and documentation --- */

enum via_pex_place { VIA_PEX_AT_VIRTUAL = 1, VIA_PEX_AT_LINK = 2, VIA_PEX_AT_CHIP = 4 };

struct via_pex_register {
    uint32_t off; /* from the function's base, or the chip's */
    uint16_t words;
    uint8_t places; /* of enum via_pex_place */
    const char *name;
    const char *source;
};
/* NULL: index is beyond the last one. */
const struct via_pex_register *via_pex_register_at(unsigned index);

/* Offset of the registers of a side in BAR 0. */
uint32_t via_pex_base(unsigned nt, enum via_pex_side side);

#endif
