/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A register model of a non-transparent (NT) port of a PEX 87xx, between two hosts; a chip has one
 * of them, or two. Made from public sources alone: each register names its source (registers.c),
 * and where the sources disagree a switch says which one to follow.
 *
 * The chip has two functions: the virtual side's is on the bus of host 0, the link side's on that
 * of host 1. A host drives its function by struct via_pci (vfio/pci.h). Stores into a memory BAR
 * reach the other host's memory as the chip would translate them: through the BAR's translation or
 * the A-LUT, if the requester is in the table of requester ids, the other function may master its
 * bus, and the other host's IOMMU knows the address. Anything else vanishes and reads all-ones.
 *
 * A model has a lock of its own: all calls may be made by any thread.
 */
#ifndef VIA_MODEL_PEX_PEX_H
#define VIA_MODEL_PEX_PEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/types.h"
#include "vfio/pci.h"

enum via_pex_side { VIA_PEX_VIRTUAL, VIA_PEX_LINK, VIA_PEX_SIDES };

/* Where the public sources disagree. false: as FreeBSD's driver has it. */
struct via_pex_switches {
    bool alut_needs_bit_31;  /* 0xC94: bits 28 and 31 enable, not bit 28 alone */
    bool alut_enable_at_bar; /* 0xC94 of the side whose BAR is hit, not of the side whose memory
                                it shows */
    bool lut_at_db4;         /* the virtual side's requester ids lie at 0xDB4, too */
    bool dl_down_keeps_alut; /* DL_Down does not touch the link side's A-LUT array */
    bool unmask_fires_msi;   /* unmasking a pending doorbell counts as 0 -> 1 */
    bool shadows_bars; /* erratum: the link side decodes copies of its BARs. One is made when a BAR
                          is written after its set-up register; until then it claims nothing */
};

struct via_pex_options {
    uint64_t bar_bytes[VIA_PEX_SIDES][2]; /* BAR 2/3 and 4/5: powers of two from 1 MiB on, or 0 */
    unsigned alut_entries;                /* 0, 128 or 256 */
    unsigned nt;                          /* which NT port: 0 or 1 */
    unsigned port;                        /* number of the chip's port, 0..23 */
    unsigned generation, width;           /* of the link as trained */
    unsigned generation_max, width_max;
    uint16_t requester[VIA_PEX_SIDES]; /* bus, device and function that the CPU's stores carry */
    struct via_pex_switches switches;
    uint16_t chip;         /* of port 0: 0x8749, ... */
    unsigned char *eeprom; /* its bytes, borrowed; NULL: there is none */
    uint32_t eeprom_bytes; /* a multiple of 4, from 8 on */
};

/* BAR 2/3 of 4 MiB, A-LUT with 256 entries, Gen3 x8. */
extern const struct via_pex_options via_pex_options_default;

struct via_pex_stats {
    uint64_t unclaimed;         /* accesses that nothing answered */
    uint64_t requester_refused; /* by the table of requester ids */
    uint64_t iommu_faults;
    uint64_t interrupts[VIA_PEX_SIDES];
    uint64_t interrupts_lost; /* by fault injection */
};

struct via_pex;

VIA_MUST_CHECK int via_pex_new(const struct via_pex_options *options, struct via_pex **ret_pex,
                               struct via_error *err);
void via_pex_free(struct via_pex *pex); /* no process may be attached */

/* Two chips back to back: a cable joins their NT ports' link sides, which no host takes. Each is
 * reached through the other by its link side's BARs. The first is returned, and the second is freed
 * with it. options: of each. */
VIA_MUST_CHECK int via_pex_new_pair(const struct via_pex_options *options, struct via_pex **ret_pex,
                                    struct via_error *err);
struct via_pex *via_pex_joined(const struct via_pex *pex); /* NULL: the chip is alone */

/* A chip with both its NT ports: host 0 has the virtual sides of both, and two other hosts have the
 * link sides. NT0 is returned, and NT1 is its twin: they have one set of registers, each function
 * shows all of them, and a reset of host 0 resets both. Each has half of the A-LUT. NT1 is freed
 * with NT0. options: of both, but nt; the number of NT1's port is eight more (modulo 24). */
VIA_MUST_CHECK int via_pex_new_twins(const struct via_pex_options *options,
                                     struct via_pex **ret_pex, struct via_error *err);
struct via_pex *via_pex_twin(const struct via_pex *pex); /* NULL: the chip has one NT port */
unsigned via_pex_number(const struct via_pex *pex);      /* of the NT port: 0 or 1 */

/* A host's driver takes its function. -EBUSY: it is taken. The function ends with ops->close(). */
VIA_MUST_CHECK int via_pex_attach(struct via_pex *pex, enum via_pex_side side,
                                  struct via_pci **ret_pci);

/* The requester id in requests of a DMA function, and the id that its driver gets. */
#define VIA_PEX_ENGINE_REQUESTER 0x0200u

/* A host's DMA function; ends before the host's function of the NT port does. -EBUSY. The host that
 * has two NT ports has one such function. */
VIA_MUST_CHECK int via_pex_attach_engine(struct via_pex *pex, enum via_pex_side side,
                                         struct via_pci **ret_pci);

/* The same as a device of its own: it reaches what is mapped for it, and not what is mapped for the
 * function of the NT port. */
VIA_MUST_CHECK int via_pex_attach_engine_apart(struct via_pex *pex, enum via_pex_side side,
                                               struct via_pci **ret_pci);

/* Models by name, for drivers that meet in one process: made at the first open, freed after the
 * last close. */
VIA_MUST_CHECK int via_pex_attach_named(const char *name, enum via_pex_side side,
                                        const struct via_pex_options *options,
                                        struct via_pci **ret_pci, struct via_error *err);
/* An end (0 or 1) of two of them back to back, by one name: the virtual side of its chip. */
VIA_MUST_CHECK int via_pex_attach_pair(const char *name, unsigned end,
                                       const struct via_pex_options *options,
                                       struct via_pci **ret_pci, struct via_error *err);
/* A function of a chip with two NT ports. */
VIA_MUST_CHECK int via_pex_attach_named_twin(const char *name, unsigned nt, enum via_pex_side side,
                                             const struct via_pex_options *options,
                                             struct via_pci **ret_pci, struct via_error *err);
/* The model of that name (of two chips or NT ports the first one), or NULL. Lives while a function
 * of it is attached. */
struct via_pex *via_pex_find(const char *name);

/* --- faults --- */

/* The cable of the NT port is pulled or plugged in. */
void via_pex_set_link(struct via_pex *pex, bool up);
/* The link trains anew, now with these. */
void via_pex_set_speed(struct via_pex *pex, unsigned generation, unsigned width);
/* Hot reset by the host of that side. The virtual side's host resets the whole chip, with both NT
 * ports. */
void via_pex_reset_host(struct via_pex *pex, enum via_pex_side side);
/* A function is there no more: all-ones. One that comes back was reset, as by its host. */
void via_pex_remove(struct via_pex *pex, enum via_pex_side side, bool gone);
/* The next `count` interrupts of a side do not arrive. */
void via_pex_lose_interrupts(struct via_pex *pex, enum via_pex_side side, unsigned count);
/* Interrupts of a side wait until they are let go; of many, one arrives. */
void via_pex_hold_interrupts(struct via_pex *pex, enum via_pex_side side, bool hold);
/* Sets bits of the link error register (1 correctable, 2 uncorrectable, 8 dropped message). */
void via_pex_raise_error(struct via_pex *pex, uint32_t bits);

struct via_pex_engine_faults {
    bool hangs;               /* busy forever, also after an abort */
    bool stalls;              /* busy until an abort */
    bool stops_silently;      /* after each descriptor */
    bool late_write_back;     /* after the interrupt, at the next read of a register */
    bool fails;               /* each descriptor half-way: written back as a failed read */
    bool reset_erases_tuning; /* a function-level reset clears what an EEPROM set: read-request
                                 delay, prefetch, pending reads */
    bool enable_fires_msi;    /* switching the MSI on while a status is pending sends it: no source
                                 says whether a chip does */
    unsigned
        misaligned_reads; /* a transfer that does not begin at a multiple of 64 bytes at both
                             ends is slow: it lasts for this number of reads of its control register
                           */
};
void via_pex_engine_set_faults(struct via_pex *pex, enum via_pex_side side,
                               const struct via_pex_engine_faults *faults);

/* Its requests have another id than its driver gets, also when it is attached anew. */
void via_pex_engine_set_requester(struct via_pex *pex, enum via_pex_side side, uint16_t requester);

struct via_pex_eeprom_faults {
    unsigned busy_reads;    /* of its control register, after each command */
    unsigned write_polls;   /* of its status, after each write */
    bool hangs;             /* busy forever */
    bool is_protected;      /* against writes */
    bool tears_upper_half;  /* the write at which power is lost changes this half only */
    unsigned power_loss_at; /* the write of this number; 0: never */
};
/* Counts writes anew. */
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
/* NULL: there are no more. */
const struct via_pex_register *via_pex_register_at(unsigned index);

/* Where the registers of a side begin in BAR 0. */
uint32_t via_pex_base(unsigned nt, enum via_pex_side side);

#endif
