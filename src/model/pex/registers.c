/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The table of registers: offsets, writable bits, and public sources. Sources: "PCI": PCI Local Bus
 * 3.0 and PCI Express base specification; "FreeBSD": sys/dev/ntb/ ntb_hw/ntb_hw_plx.c; "VCA":
 * Intel's VCA drivers; "SDK": Broadcom's PCI/PCIe SDK 8. "assumed": no public source states it, and
 * drivers must not rely on it.
 */
#include <string.h>

#include "model/pex/chip.h"

enum kind {
    PLAIN,    /* stored; written by the rules of `writable` and `clears` */
    BAR,      /* the set-up register decides which bits exist */
    BELL_SET, /* doorbells and masks belong to the port: both functions show them */
    BELL_CLEAR,
    MASK_SET,
    MASK_CLEAR,
    SHARED,   /* belongs to the port: stored at the virtual side */
    CAPTURED, /* captured requester id */
    LINK_STATUS,
    EEPROM,  /* implemented in eeprom.c */
    PATTERN, /* temporarily read-only after link down */
};

struct definition {
    struct via_pex_register info;
    enum kind kind;
    uint32_t writable;
    uint32_t clears; /* writing 1 clears */
    uint32_t reset;
    bool moves_windows;
    bool interrupts;
};

#define BOTH (VIA_PEX_AT_VIRTUAL | VIA_PEX_AT_LINK)
#define ALL UINT32_MAX

#define COMMAND 0x004u
#define BAR0 0x010u
#define BAR2 0x018u
#define MSI_CONTROL 0x048u
#define LINK_CAPABILITY 0x074u
#define LINK_STATUS_OFF 0x078u
#define VIRTUAL_SETUP 0x0D4u
#define LINK_SETUP0 0x0E4u
#define LINK_SETUP 0x0E8u
#define BELL_VIRTUAL 0xC4Cu
#define BELL_LINK 0xC5Cu
#define MASK_OF_BELL 8u /* from the bell's set register */
#define PADS 0xC6Cu
#define LINK_ERROR 0xFE0u
#define PATTERNS 0x20Cu
#define PATTERN_TRIES 100u

/* clang-format off */
static const struct definition definitions[] = {
    {{0x000, 1, BOTH, "device and vendor id", "PCI; ids: FreeBSD"}, .kind = PLAIN},
    {{COMMAND, 1, BOTH, "command and status", "PCI"}, .writable = 0x0546, .clears = 0xf9000000,
     .reset = 0x00100000, .moves_windows = true, .interrupts = true},
    {{0x008, 1, BOTH, "class and revision", "PCI; other bridge, revision CA: assumed"}, .reset = 0x068000ca},
    {{0x00c, 1, BOTH, "header type and cache line", "PCI"}, .writable = 0x000000ff},
    {{BAR0, 6, BOTH, "base addresses", "PCI"}, .kind = BAR, .moves_windows = true},
    {{0x02c, 1, BOTH, "subsystem ids", "PCI"}, .reset = 0x874910b5},
    {{0x034, 1, BOTH, "first capability", "PCI; place: assumed"}, .reset = 0x48},
    {{0x03c, 1, BOTH, "interrupt pin and line", "PCI"}, .writable = 0xff, .reset = 0x100},
    {{MSI_CONTROL, 1, BOTH, "MSI control", "PCI; one vector: FreeBSD; place: assumed"},
     .writable = 0x00010000, .reset = 0x00806805, .interrupts = true},
    {{0x04c, 3, BOTH, "MSI address and data", "PCI"}, .writable = ALL},
    {{0x068, 1, BOTH, "PCI Express capability", "PCI; place follows from 0x78: VCA"}, .reset = 0x00020010},
    {{LINK_CAPABILITY, 1, BOTH, "link capabilities", "PCI"}, .kind = PLAIN},
    {{LINK_STATUS_OFF, 1, BOTH, "link control and status: generation 19:16, width 24:20", "VCA, SDK"},
     .kind = LINK_STATUS, .writable = 0x00000fff},
    {{VIRTUAL_SETUP, 4, VIA_PEX_AT_VIRTUAL, "BAR 2 to 5 set-up, virtual side", "VCA; BAR 4 and 5: assumed"},
     .writable = ALL, .moves_windows = true},
    {{LINK_SETUP0, 1, VIA_PEX_AT_LINK, "BAR 0/1 set-up: 2 is 32-bit, 3 is 64-bit", "FreeBSD"},
     .writable = 3, .reset = 2, .moves_windows = true},
    {{LINK_SETUP, 4, VIA_PEX_AT_LINK, "BAR 2 to 5 set-up, link side", "FreeBSD"},
     .writable = ALL, .moves_windows = true},
    {{0xC3C, 4, BOTH, "address translation of BAR 2 to 5", "FreeBSD"}, .writable = ALL, .moves_windows = true},
    {{BELL_VIRTUAL, 1, BOTH, "virtual side's doorbells: set", "FreeBSD"}, .kind = BELL_SET, .interrupts = true},
    {{BELL_VIRTUAL + 4, 1, BOTH, "virtual side's doorbells: clear", "FreeBSD"}, .kind = BELL_CLEAR, .interrupts = true},
    {{BELL_VIRTUAL + 8, 1, BOTH, "virtual side's doorbells: mask", "FreeBSD"}, .kind = MASK_SET, .interrupts = true},
    {{BELL_VIRTUAL + 12, 1, BOTH, "virtual side's doorbells: unmask", "FreeBSD"}, .kind = MASK_CLEAR, .interrupts = true},
    {{BELL_LINK, 1, BOTH, "link side's doorbells: set", "FreeBSD"}, .kind = BELL_SET, .interrupts = true},
    {{BELL_LINK + 4, 1, BOTH, "link side's doorbells: clear", "FreeBSD"}, .kind = BELL_CLEAR, .interrupts = true},
    {{BELL_LINK + 8, 1, BOTH, "link side's doorbells: mask", "FreeBSD"}, .kind = MASK_SET, .interrupts = true},
    {{BELL_LINK + 12, 1, BOTH, "link side's doorbells: unmask", "FreeBSD"}, .kind = MASK_CLEAR, .interrupts = true},
    {{PADS, 8, BOTH, "scratchpads", "FreeBSD"}, .kind = SHARED, .writable = ALL},
    {{0xC8C, 1, BOTH, "bit 0 NT number, bit 31 link side", "FreeBSD"}, .kind = PLAIN},
    {{0xC90, 1, BOTH, "captured requester id", "FreeBSD"}, .kind = CAPTURED},
    {{0xC94, 1, BOTH, "A-LUT enable", "FreeBSD: bit 28; SDK: 28 and 31"}, .writable = ALL, .moves_windows = true},
    {{0xD94, 8, VIA_PEX_AT_VIRTUAL, "requester ids, virtual side", "FreeBSD"}, .writable = ALL, .moves_windows = true},
    {{0xDB4, 16, BOTH, "requester ids, link side (VCA: of both sides)", "FreeBSD"}, .writable = ALL, .moves_windows = true},
    {{LINK_ERROR, 1, VIA_PEX_AT_VIRTUAL, "link errors", "FreeBSD"}, .clears = 0xf, .interrupts = true},
    {{LINK_ERROR + 4, 1, VIA_PEX_AT_VIRTUAL, "link error mask", "FreeBSD; masked at reset: assumed"},
     .writable = 0xf, .reset = 0xf, .interrupts = true},
    /* Registers of the chip. */
    {{0x360, 1, VIA_PEX_AT_CHIP, "NT ports and A-LUT", "FreeBSD"}, .kind = PLAIN},
    {{0x208, 1, VIA_PEX_AT_CHIP, "ports disabled, of a station", "FreeBSD"}, .writable = 0xff},
    {{0x000, 1, VIA_PEX_AT_CHIP, "device and vendor id of port 0", "PCI; BAR 0 begins with port 0: SDK"}, .kind = PLAIN},
    {{0x260, 2, VIA_PEX_AT_CHIP, "EEPROM control and data", "SDK; eeprom.c"}, .kind = EEPROM},
    {{0x26C, 2, VIA_PEX_AT_CHIP, "EEPROM third address byte and CRC", "SDK; eeprom.c"}, .kind = EEPROM},
    {{PATTERNS, 4, VIA_PEX_AT_CHIP, "PHY test pattern, as scratchpads", "FreeBSD"}, .kind = PATTERN, .writable = ALL},
};
/* clang-format on */

const struct via_pex_register *via_pex_register_at(unsigned index)
{
    return index < VIA_ARRAY_COUNT(definitions) ? &definitions[index].info : NULL;
}

uint32_t via_pex_base(unsigned nt, enum via_pex_side side)
{
    return (nt == 0 ? 0x3E000u : 0x3C000u) + (side == VIA_PEX_LINK ? 0x1000u : 0u);
}

/* --- finding a register --- */

struct place {
    const struct definition *definition; /* NULL: no register */
    struct via_pex *pex;                 /* the NT port that it belongs to */
    bool of_function;
    enum via_pex_side side;
    uint32_t off; /* from the beginning of the definition */
    bool moves_windows;
};

static const struct definition *find(uint32_t off, unsigned places)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(definitions); i++) {
        const struct via_pex_register *info = &definitions[i].info;
        if ((info->places & places) != 0 && off >= info->off &&
            off < info->off + 4u * info->words) {
            return &definitions[i];
        }
    }
    return NULL;
}

/* Maps offsets of registers of a station, or of its first port, to offsets in the table. */
static uint32_t chip_off(const struct via_pex *pex, uint32_t off)
{
    uint32_t station = (pex->options.port & ~7u) << 12;
    uint32_t patterns = (pex->options.nt * 8) << 12;
    if (off == station + 0x208) {
        return 0x208;
    }
    if (off >= patterns + PATTERNS && off < patterns + PATTERNS + 16) {
        return off - patterns;
    }
    bool is_eeprom = off == 0x260 || off == 0x264 || off == 0x26C || off == 0x270;
    return off == 0 || off == 0x360 || is_eeprom ? off : UINT32_MAX;
}

static bool is_alut(uint32_t off)
{
    return off >= 0x38000u && off < 0x3C000u && (off & 0x3ffu) < 0x200u && (off & 0xfffu) < 0xa00u;
}

static struct place place_in(struct via_pex *pex, uint32_t off)
{
    uint32_t first = via_pex_base(pex->options.nt, VIA_PEX_VIRTUAL);
    struct place place = {.pex = pex};
    if (off >= first && off < first + 2 * VIA_PEX_FUNCTION_BYTES) {
        place.of_function = true;
        place.side = off < first + VIA_PEX_FUNCTION_BYTES ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
        uint32_t within = off % VIA_PEX_FUNCTION_BYTES;
        place.definition =
            find(within, place.side == VIA_PEX_VIRTUAL ? VIA_PEX_AT_VIRTUAL : VIA_PEX_AT_LINK);
        place.off = place.definition != NULL ? within - place.definition->info.off : 0;
    } else {
        uint32_t within = chip_off(pex, off);
        place.definition = within != UINT32_MAX ? find(within, VIA_PEX_AT_CHIP) : NULL;
        place.off = place.definition != NULL ? within - place.definition->info.off : 0;
    }
    return place;
}

static struct place place_of(struct via_pex *pex, uint32_t off)
{
    struct place place = place_in(pex, off);
    return place.definition == NULL && pex->twin != NULL ? place_in(pex->twin, off) : place;
}

/* --- BARs --- */

static uint64_t setup_of(struct via_pex *pex, enum via_pex_side side, unsigned bar)
{
    uint32_t off = (side == VIA_PEX_VIRTUAL ? VIRTUAL_SETUP : LINK_SETUP) + 8 * bar;
    return *via_pex_reg(pex, side, off) | (uint64_t)*via_pex_reg(pex, side, off + 4) << 32;
}

uint64_t via_pex_bar_bytes(struct via_pex *pex, enum via_pex_side side, unsigned bar)
{
    uint64_t mask = setup_of(pex, side, bar) & ~UINT64_C(0xf);
    /* The mask has ones above the size; other values are no valid size. */
    uint64_t bytes = ~mask + 1;
    return mask != 0 && (bytes & (bytes - 1)) == 0 && bytes >= 4096 ? bytes : 0;
}

/* The writable and the fixed bits of BAR register `index`. */
static uint32_t bar_mask(struct via_pex *pex, enum via_pex_side side, unsigned index,
                         uint32_t *ret_fixed)
{
    bool wide = side == VIA_PEX_LINK && *via_pex_reg(pex, side, LINK_SETUP0) == 3;
    *ret_fixed = 0;
    if (index == 0) {
        bool off = side == VIA_PEX_LINK && *via_pex_reg(pex, side, LINK_SETUP0) < 2;
        *ret_fixed = wide ? 4 : 0;
        return off ? 0 : ~(VIA_PEX_CHIP_BYTES - 1);
    }
    if (index == 1) {
        return wide ? ALL : 0;
    }
    uint64_t bytes = via_pex_bar_bytes(pex, side, (index - 2) / 2);
    if (bytes == 0) {
        return 0;
    }
    *ret_fixed = index % 2 == 0 ? 0xc : 0; /* 64-bit, prefetchable */
    return (uint32_t)(~(bytes - 1) >> (index % 2 == 0 ? 0 : 32)) & ~*ret_fixed;
}

/* --- reading --- */

static uint32_t link_status(struct via_pex *pex)
{
    const struct via_pex_options *options = &pex->options;
    return via_pex_link_is_up(pex) ? options->generation << 16 | options->width << 20 : 0;
}

uint32_t via_pex_chip_read(struct via_pex *pex, uint32_t off)
{
    struct place place = place_of(pex, off);
    uint32_t stored = pex->regs[off / 4];
    pex = place.pex;
    if (place.definition == NULL) {
        return is_alut(off) && pex->options.alut_entries != 0 ? stored : 0;
    }
    uint32_t at = place.definition->info.off + place.off;
    uint32_t fixed;
    switch (place.definition->kind) {
    case BAR:
        return (stored & bar_mask(pex, place.side, place.off / 4, &fixed)) | fixed;
    case BELL_SET:
        return *via_pex_reg(pex, VIA_PEX_VIRTUAL, at);
    case BELL_CLEAR:
        return *via_pex_reg(pex, VIA_PEX_VIRTUAL, at - 4);
    case MASK_SET:
        return *via_pex_reg(pex, VIA_PEX_VIRTUAL, at);
    case MASK_CLEAR:
        return *via_pex_reg(pex, VIA_PEX_VIRTUAL, at - 4);
    case SHARED:
        return *via_pex_reg(pex, VIA_PEX_VIRTUAL, at);
    case CAPTURED:
        return pex->options.requester[place.side];
    case LINK_STATUS:
        return (stored & place.definition->writable) | link_status(pex);
    case EEPROM:
        return via_pex_eeprom_get(&via_pex_first(pex)->eeprom, at);
    case PLAIN:
    case PATTERN:
        break;
    }
    return stored;
}

/* --- writing --- */

static void write_bits(uint32_t *reg, uint32_t value, uint32_t writable)
{
    *reg = (*reg & ~writable) | (value & writable);
}

static void write_of_kind(const struct place *place, uint32_t off, uint32_t value, uint32_t lanes)
{
    const struct definition *definition = place->definition;
    struct via_pex *pex = place->pex;
    uint32_t at = definition->info.off + place->off;
    uint32_t fixed;
    switch (definition->kind) {
    case BAR:
        write_bits(&pex->regs[off / 4], value,
                   bar_mask(pex, place->side, place->off / 4, &fixed) & lanes);
        return;
    case BELL_SET:
    case MASK_SET:
        *via_pex_reg(pex, VIA_PEX_VIRTUAL, at) |= value & lanes & 0xffff;
        return;
    case BELL_CLEAR:
    case MASK_CLEAR:
        *via_pex_reg(pex, VIA_PEX_VIRTUAL, at - 4) &= ~(value & lanes);
        return;
    case SHARED:
        write_bits(via_pex_reg(pex, VIA_PEX_VIRTUAL, at), value, lanes);
        return;
    case PATTERN:
        if (pex->patterns_locked != 0) {
            pex->patterns_locked--;
            return;
        }
        write_bits(&pex->regs[off / 4], value, lanes);
        return;
    case EEPROM:
        if (lanes == ALL) { /* assumed: only 32-bit writes */
            struct via_pex *first = via_pex_first(pex);
            via_pex_eeprom_put(&first->eeprom, &first->options, at, value);
        }
        return;
    case CAPTURED:
        return;
    case LINK_STATUS:
    case PLAIN:
        break;
    }
    pex->regs[off / 4] &= ~(value & definition->clears & lanes);
    write_bits(&pex->regs[off / 4], value, definition->writable & lanes);
}

/* Called for both NT ports, because a host may write registers of the other port, or of the
 * chip. */
static void follow_write(struct via_pex *pex, const struct definition *definition, bool was_up)
{
    if (definition == NULL || definition->moves_windows) {
        via_pex_update_views(pex);
    }
    if (definition != NULL && definition->interrupts) {
        via_pex_update_interrupts(pex);
    }
    via_pex_follow_link(pex, was_up);
}

/* Implements the erratum of shadow BARs (options.switches.shadows_bars). */
static void follow_shadow(const struct place *place)
{
    uint32_t first = place->definition->info.off, at = first + place->off;
    struct via_pex *pex = place->pex;
    if (!place->of_function || place->side != VIA_PEX_LINK) {
        return;
    }
    if (first == LINK_SETUP0 || first == LINK_SETUP) {
        unsigned bar = first == LINK_SETUP0 ? 1u : 2u << (at - LINK_SETUP) / 8;
        pex->setups_written |= bar;
        pex->bars_copied &= ~bar;
    } else if (first == BAR0) {
        pex->bars_copied |= 1u << (at - BAR0) / 8 & pex->setups_written;
    }
}

void via_pex_chip_write(struct via_pex *pex, uint32_t off, uint32_t value, unsigned enables)
{
    struct place place = place_of(pex, off);
    struct via_pex *twin = pex->twin;
    bool was_up = via_pex_link_is_up(pex), twin_was_up = twin != NULL && via_pex_link_is_up(twin);
    uint32_t lanes = 0;
    for (unsigned i = 0; i < 4; i++) {
        lanes |= (enables >> i & 1) != 0 ? 0xffu << 8 * i : 0;
    }
    if (place.definition != NULL) {
        write_of_kind(&place, off, value, lanes);
        follow_shadow(&place);
    } else if (is_alut(off) && pex->options.alut_entries != 0) {
        uint32_t before = pex->regs[off / 4];
        write_bits(&pex->regs[off / 4], value, lanes);
        if (pex->regs[off / 4] == before) {
            return; /* unchanged: drivers rewrite whole tables, and each change costs a walk of all
                       views */
        }
    } else {
        return;
    }
    follow_write(pex, place.definition, was_up);
    if (twin != NULL) {
        follow_write(twin, place.definition, twin_was_up);
    }
}

/* --- reset --- */

static void reset_setups(struct via_pex *pex, enum via_pex_side side)
{
    uint32_t off = side == VIA_PEX_VIRTUAL ? VIRTUAL_SETUP : LINK_SETUP;
    for (unsigned bar = 0; bar < VIA_PEX_BARS; bar++) {
        uint64_t bytes = pex->options.bar_bytes[side][bar];
        uint64_t setup = bytes != 0 ? (~(bytes - 1) | 0xc) : 0;
        *via_pex_reg(pex, side, off + 8 * bar) = (uint32_t)setup;
        *via_pex_reg(pex, side, off + 8 * bar + 4) = (uint32_t)(setup >> 32);
    }
}

static void reset_alut(struct via_pex *pex, enum via_pex_side side)
{
    bool wide = pex->options.alut_entries == 256;
    unsigned array = (side == VIA_PEX_LINK ? 1u : 0u) + (wide ? 0 : 2 * pex->options.nt);
    uint32_t bytes = wide ? 0x2000u : 0x1000u;
    if (pex->options.alut_entries != 0) {
        memset((unsigned char *)pex->regs + 0x38000u + array * bytes, 0, bytes);
    }
}

void via_pex_registers_reset(struct via_pex *pex, enum via_pex_side side)
{
    unsigned places = side == VIA_PEX_VIRTUAL ? VIA_PEX_AT_VIRTUAL : VIA_PEX_AT_LINK;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(definitions); i++) {
        const struct definition *definition = &definitions[i];
        bool shared = definition->kind == SHARED ||
                      (definition->kind >= BELL_SET && definition->kind <= MASK_CLEAR);
        if ((definition->info.places & places) == 0 || shared) {
            continue;
        }
        for (unsigned word = 0; word < definition->info.words; word++) {
            *via_pex_reg(pex, side, definition->info.off + 4 * word) = definition->reset;
        }
    }
    const struct via_pex_options *options = &pex->options;
    uint32_t device = (side == VIA_PEX_VIRTUAL ? 0x87B0u : 0x87A0u) + options->nt;
    *via_pex_reg(pex, side, 0) = device << 16 | 0x10B5u;
    *via_pex_reg(pex, side, LINK_CAPABILITY) = options->generation_max | options->width_max << 4;
    *via_pex_reg(pex, side, 0xC8C) = options->nt | (side == VIA_PEX_LINK ? 0x80000000u : 0);
    reset_setups(pex, side);
    if (side == VIA_PEX_LINK) {
        pex->setups_written = pex->bars_copied = 0;
    }
    if (side == VIA_PEX_VIRTUAL || !options->switches.dl_down_keeps_alut) {
        reset_alut(pex, side);
    }
}

/* Resets an NT port, and returns its bits of register 0x360. */
static uint32_t power_on_port(struct via_pex *pex)
{
    const struct via_pex_options *options = &pex->options;
    pex->patterns_locked = 0;
    via_pex_registers_reset(pex, VIA_PEX_VIRTUAL);
    via_pex_registers_reset(pex, VIA_PEX_LINK);
    /* Doorbells are masked until a driver unmasks them: assumed. */
    *via_pex_reg(pex, VIA_PEX_VIRTUAL, BELL_VIRTUAL + MASK_OF_BELL) = 0xffff;
    *via_pex_reg(pex, VIA_PEX_VIRTUAL, BELL_LINK + MASK_OF_BELL) = 0xffff;
    uint32_t ports =
        options->port << (options->nt == 0 ? 8 : 16) | 1u << (options->nt == 0 ? 13 : 21);
    if (options->alut_entries == 256) {
        ports |= 1u << (30 + options->nt);
    } else if (options->alut_entries == 128) {
        ports |= 3u << 30;
    }
    return ports;
}

void via_pex_registers_power_on(struct via_pex *pex)
{
    struct via_pex *first = via_pex_first(pex);
    memset(pex->regs, 0, VIA_PEX_CHIP_BYTES);
    uint32_t ports = power_on_port(pex);
    pex->regs[0x360 / 4] = ports | (pex->twin != NULL ? power_on_port(pex->twin) : 0);
    pex->regs[0] = (uint32_t)first->options.chip << 16 | 0x10B5u;
    via_pex_eeprom_reset(&first->eeprom, &first->options);
}
