/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The registers of the NT port: identification, set-up, doorbells. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "port/pex/port.h"
#include "port/pex/regs.h"

#define BELL_ROUNDS_MAX 8u

static uint32_t read_own(struct via_pex_port *pex, uint32_t off)
{
    return via_pci_read32(pex->pci, PEX_REGISTERS, pex->chip.base + off);
}

static void write_own(struct via_pex_port *pex, uint32_t off, uint32_t value)
{
    via_pci_write32(pex->pci, PEX_REGISTERS, pex->chip.base + off, value);
}

static void write_peer(struct via_pex_port *pex, uint32_t off, uint32_t value)
{
    via_pci_write32(pex->pci, PEX_REGISTERS, pex->chip.peer_base + off, value);
}

/* Back to back: writes a register of the peer's chip, on its virtual side, through the window's
 * BAR. */
static void write_far(struct via_pex_port *pex, uint32_t off, uint32_t value)
{
    if (pex->far.at == NULL) {
        via_pci_write32(pex->pci, pex->config.bar, pex->chip.base + off, value);
        return;
    }
    via_pex_drain(pex); /* earlier stores into the window leave first */
    *(volatile uint32_t *)(void *)(pex->far.at + pex->chip.base + off) = value;
    via_pex_drain(pex);
}

/* --- identification --- */

/* A 64-bit set-up register holds the BAR's size as a mask (ones above it), and type bits. */
static uint64_t bytes_of_setup(uint32_t low, uint32_t high)
{
    uint64_t mask = (low | (uint64_t)high << 32) & ~UINT64_C(0xf);
    uint64_t bytes = ~mask + 1;
    return mask != 0 && (bytes & (bytes - 1)) == 0 ? bytes : 0;
}

static uint64_t setup_of(struct via_pex_port *pex, bool link_side)
{
    uint32_t base = link_side == pex->chip.link_side ? pex->chip.base : pex->chip.peer_base;
    unsigned bar = pex->config.bar;
    uint32_t off = link_side ? PEX_LINK_SETUP(bar) : PEX_VIRTUAL_SETUP(bar);
    uint32_t low = via_pci_read32(pex->pci, PEX_REGISTERS, base + off);
    uint32_t high = via_pci_read32(pex->pci, PEX_REGISTERS, base + off + 4);
    return low == UINT32_MAX ? 0 : bytes_of_setup(low, high);
}

/* A revision has a letter for the silicon and one for its metal layers. Published lspci listings
 * show PEX 8718 with AB, and PEX 8732 and 8747 with CA; AA and BA are accepted as earlier revisions
 * of the family. */
static bool is_known_revision(uint32_t revision)
{
    return revision == 0xaa || revision == 0xab || revision == 0xba || revision == 0xca;
}

/* Identifies the function by its ids. */
static int check_ids(struct via_pex_port *pex, struct via_error *err)
{
    uint32_t ids = 0, revision = 0;
    (void)pex->pci->ops->config_read(pex->pci, VIA_PCI_VENDOR_ID, 4, &ids);
    (void)pex->pci->ops->config_read(pex->pci, VIA_PCI_REVISION, 1, &revision);
    unsigned device = ids >> 16 & ~1u;
    if (ids == UINT32_MAX) {
        return via_error_set(err, -ENODEV,
                             "the function does not answer: its link is down, or it "
                             "was removed");
    }
    if ((ids & 0xffff) != PEX_VENDOR || (device != PEX_NT0_LINK && device != PEX_NT0_VIRTUAL)) {
        return via_error_set(err, -ENODEV,
                             "vendor %04x, device %04x: no NT port of a PEX 87xx (10b5:87a0, 87a1, "
                             "87b0, 87b1)",
                             ids & 0xffff, ids >> 16);
    }
    if (!pex->config.any_revision && !is_known_revision(revision)) {
        return via_error_set(
            err, -ENOTSUP,
            "revision %02X of the chip is none that this driver knows (AA, AB, BA, CA); "
            "the option revision=any takes it nevertheless",
            revision);
    }
    pex->chip.revision = revision;
    pex->chip.nt = ids >> 16 & 1;
    pex->chip.link_side = device == PEX_NT0_LINK;
    return 0;
}

static int check_bars(struct via_pex_port *pex, struct via_error *err)
{
    struct via_pci_region registers, window;
    int rc = pex->pci->ops->region(pex->pci, PEX_REGISTERS, &registers);
    if (rc == 0) {
        rc = pex->pci->ops->region(pex->pci, pex->config.bar, &window);
    }
    if (rc != 0 || registers.bytes < PEX_REGISTERS_BYTES) {
        return via_error_set(err, rc != 0 ? rc : -ENODEV,
                             "BAR 0 has %llu bytes: the chip's registers take 262144",
                             (unsigned long long)(rc == 0 ? registers.bytes : 0));
    }
    if (window.bytes < 2 * VIA_PEX_PAGE_BYTES || (window.bytes & (window.bytes - 1)) != 0) {
        return via_error_set(err, -ENODEV,
                             "BAR %u has %llu bytes: the EEPROM gives it no size, or an odd one",
                             pex->config.bar, (unsigned long long)window.bytes);
    }
    pex->chip.bar_bytes = window.bytes;
    return 0;
}

static int check_registers(struct via_pex_port *pex, struct via_error *err)
{
    struct via_pex_chip *chip = &pex->chip;
    uint32_t who = read_own(pex, PEX_WHO);
    bool link_side = (who & PEX_WHO_LINK_SIDE) != 0;
    if (who == UINT32_MAX || (who & 1) != chip->nt || link_side != chip->link_side) {
        return via_error_set(err, -ENODEV,
                             "register 0xC8C is %08x: not NT%u's %s side, which its device id says",
                             who, chip->nt, chip->link_side ? "link" : "virtual");
    }
    if (pex->config.b2b && (link_side || chip->bar_bytes < PEX_CABLE_WINDOW_MIN)) {
        return via_error_set(err, -ENOTSUP, "b2b: %s",
                             link_side ? "this is a link side, and back to back both are virtual"
                                       : "the BAR is shared with the peer's registers: it needs "
                                         "2 MiB");
    }
    uint32_t ports = via_pci_read32(pex->pci, PEX_REGISTERS, PEX_PORTS);
    chip->alut_entries = (ports & PEX_PORTS_ALUT(chip->nt)) == 0       ? 0
                         : (ports & PEX_PORTS_ALUT(1 - chip->nt)) != 0 ? 128
                                                                       : 256;
    if (pex->config.alut && (chip->alut_entries == 0 || pex->config.bar != 2)) {
        return via_error_set(err, -ENOTSUP, "the A-LUT is %s",
                             chip->alut_entries == 0 ? "off by EEPROM" : "of BAR 2 alone");
    }
    uint64_t own_bytes = setup_of(pex, chip->link_side);
    if (own_bytes != chip->bar_bytes) {
        return via_error_set(err, -ENODEV,
                             "BAR %u has %llu bytes, its set-up register says %llu, which the "
                             "other side uses: the EEPROM contradicts the configuration",
                             pex->config.bar, (unsigned long long)chip->bar_bytes,
                             (unsigned long long)own_bytes);
    }
    if (pex->config.b2b) {
        /* This end sets up the link side of its own chip with this size, so the peer must have the
         * same BAR. */
        chip->peer_bar_bytes = chip->bar_bytes / 2;
        pex->window_off = chip->bar_bytes / 2;
        return 0;
    }
    chip->peer_bar_bytes = setup_of(pex, !chip->link_side);
    if (chip->peer_bar_bytes == 0) {
        return via_error_set(err, -ENODEV,
                             "BAR %u of the other side has no size: its EEPROM does not enable it",
                             pex->config.bar);
    }
    return 0;
}

static int identify(struct via_pex_port *pex, struct via_error *err)
{
    struct via_pex_chip *chip = &pex->chip;
    int rc = check_ids(pex, err);
    if (rc != 0) {
        return rc;
    }
    chip->base =
        (chip->nt == 0 ? PEX_NT0_BASE : PEX_NT1_BASE) + (chip->link_side ? PEX_LINK_SIDE : 0);
    chip->peer_base = chip->base ^ PEX_LINK_SIDE;
    rc = pex->pci->ops->config_read(pex->pci, VIA_PCI_COMMAND, 2, &chip->command_found);
    rc = rc == 0 && chip->command_found == UINT16_MAX ? -ENODEV : rc; /* all-ones: no answer */
    chip->was_found = rc == 0;
    rc = rc == 0 ? pex->pci->ops->config_write(pex->pci, VIA_PCI_COMMAND, 2, VIA_PCI_COMMAND_MEMORY)
                 : rc;
    if (rc != 0) {
        return via_error_set(err, rc, "enable memory decoding: %s", strerror(-rc));
    }
    rc = check_bars(pex, err);
    return rc == 0 ? check_registers(pex, err) : rc;
}

/* If the function was lost meanwhile, its registers read all-ones, and the error of identify()
 * would mislead. */
int via_pex_chip_identify(struct via_pex_port *pex, struct via_error *err)
{
    int rc = identify(pex, err);
    return rc != 0 && pex->pci->ops->gone(pex->pci)
               ? via_error_set(err, -ENODEV, "the function does not answer any more")
               : rc;
}

void via_pex_chip_leave(struct via_pex_port *pex)
{
    if (pex->chip.was_found) {
        (void)pex->pci->ops->config_write(pex->pci, VIA_PCI_COMMAND, 2, pex->chip.command_found);
    }
}

/* --- the link of the NT port --- */

static void note_errors(struct via_pex_port *pex, uint32_t errors)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(pex->errors); i++) {
        pex->errors[i] += errors >> i & 1;
    }
}

/* After a reset the function does not decode memory. This enables decoding; the caller treats the
 * link as down. */
static void decode_again(struct via_pex_port *pex)
{
    uint32_t ids = UINT32_MAX;
    (void)pex->pci->ops->config_read(pex->pci, VIA_PCI_VENDOR_ID, 4, &ids);
    if (ids != UINT32_MAX) {
        (void)pex->pci->ops->config_write(pex->pci, VIA_PCI_COMMAND, 2, VIA_PCI_COMMAND_MEMORY);
    }
}

bool via_pex_chip_is_up(struct via_pex_port *pex)
{
    struct via_pex_chip *chip = &pex->chip;
    uint32_t who = read_own(pex, PEX_WHO);
    if (who == UINT32_MAX || ((who & PEX_WHO_LINK_SIDE) != 0) != chip->link_side) {
        decode_again(pex);
        return false;
    }
    bool dl_down = false;
    if (!chip->link_side) {
        uint32_t errors = read_own(pex, PEX_ERRORS);
        if (errors != 0 && errors != UINT32_MAX) {
            write_own(pex, PEX_ERRORS, errors);
            note_errors(pex, errors);
            dl_down = (errors & PEX_ERROR_DL_DOWN) != 0;
        }
    }
    uint32_t status = read_own(pex, PEX_LINK_STATUS);
    uint32_t capability = read_own(pex, PEX_LINK_CAPABILITY);
    if (status == UINT32_MAX || capability == UINT32_MAX) {
        return false;
    }
    chip->generation = status >> 16 & 0xf;
    chip->width = status >> 20 & 0x1f;
    chip->generation_max = capability & 0xf;
    chip->width_max = capability >> 4 & 0x3f;
    /* The link may be up again now, but it was down, and the link side was reset. */
    return chip->width != 0 && !dl_down;
}

/* --- set-up --- */

/* The requesters that may send through this side's BARs: 0:0, which chipsets use that do not issue
 * requests with the id of a root port; the id that the chip has seen; and the DMA function. */
static void program_requesters(struct via_pex_port *pex)
{
    uint32_t off = pex->chip.link_side || pex->config.lut_at_db4 ? PEX_LUT_LINK : PEX_LUT_VIRTUAL;
    uint32_t requester = read_own(pex, PEX_REQUESTER) & PEX_LUT_REQUESTER;
    write_own(pex, off, (requester | PEX_LUT_ENABLE) << 16 | PEX_LUT_ENABLE);
    uint32_t engine = via_pex_dma_requester(pex) & PEX_LUT_REQUESTER;
    write_own(pex, off + 4, engine != 0 ? engine | PEX_LUT_ENABLE : 0);
}

/* The array of this BAR; array 1 belongs to the link side (F). */
static uint32_t alut_at(const struct via_pex_port *pex, unsigned entry)
{
    const struct via_pex_chip *chip = &pex->chip;
    bool wide = chip->alut_entries == 256;
    uint32_t array = (chip->link_side ? 0u : 1u) + (wide ? 0 : 2 * chip->nt);
    return PEX_ALUT + array * (wide ? 0x2000u : 0x1000u) + entry % 128 * 4 +
           (entry >= 128 ? 0x1000u : 0);
}

static void write_alut(struct via_pex_port *pex, unsigned entry, uint64_t address, bool on)
{
    uint32_t at = alut_at(pex, entry);
    via_pci_write32(pex->pci, PEX_REGISTERS, at, (uint32_t)address);
    via_pci_write32(pex->pci, PEX_REGISTERS, at + PEX_ALUT_HIGH, (uint32_t)(address >> 32));
    via_pci_write32(pex->pci, PEX_REGISTERS, at + PEX_ALUT_PERMISSION,
                    on ? PEX_ALUT_READ_WRITE : 0);
}

/* Programs the A-LUT of the peer's BAR: each entry maps one piece of this end's memory. */
static void program_alut(struct via_pex_port *pex)
{
    const struct via_pex_chip *chip = &pex->chip;
    uint64_t piece = chip->peer_bar_bytes / chip->alut_entries;
    for (unsigned i = 0; i < chip->alut_entries; i++) {
        bool shows = i * piece < pex->memory_bytes;
        write_alut(pex, i, shows ? pex->iova + i * piece : 0, shows);
    }
}

void via_pex_chip_set_alut(struct via_pex_port *pex, unsigned entry, uint64_t address, bool on)
{
    /* Disabled before the address changes: an address with halves of two values would point
     * anywhere. */
    via_pci_write32(pex->pci, PEX_REGISTERS, alut_at(pex, entry) + PEX_ALUT_PERMISSION, 0);
    write_alut(pex, entry, address, on);
    /* A read completes after all earlier writes have reached the chip. */
    (void)via_pci_read32(pex->pci, PEX_REGISTERS, alut_at(pex, entry));
}

/* The enable register is on the side whose memory is mapped (F). */
static void enable_alut(struct via_pex_port *pex, bool on)
{
    (pex->config.alut_at_peer ? write_peer : write_own)(pex, PEX_ALUT_ENABLE,
                                                        on ? PEX_ALUT_ENABLED : 0);
}

static void program_translation(struct via_pex_port *pex, uint64_t address)
{
    /* The peer's BAR translates to this end's memory. */
    write_peer(pex, PEX_TRANSLATION(pex->config.bar), (uint32_t)address);
    write_peer(pex, PEX_TRANSLATION(pex->config.bar) + 4, (uint32_t)(address >> 32));
}

static void write_peer64(struct via_pex_port *pex, uint32_t off, uint64_t value)
{
    write_peer(pex, off, (uint32_t)value);
    write_peer(pex, off + 4, (uint32_t)(value >> 32));
}

/* Back to back: requests from the cable arrive at the link side of this chip, whose BARs are at
 * fixed addresses: the registers at the address to which the begin of the peer's BAR translates,
 * and the window in the upper half. This end's BAR translates to the same addresses at the peer's
 * chip (F). */
static void program_cable(struct via_pex_port *pex)
{
    const unsigned bar = pex->config.bar;
    uint64_t cable = PEX_CABLE(bar), bytes = pex->chip.peer_bar_bytes;
    write_peer(pex, PEX_LINK_SETUP0, PEX_LINK_SETUP0_64);
    write_peer64(pex, PEX_BAR(0), cable | PEX_BAR_64);
    write_own(pex, PEX_TRANSLATION(bar), (uint32_t)cable);
    write_own(pex, PEX_TRANSLATION(bar) + 4, (uint32_t)(cable >> 32));
    if (pex->chip.alut_entries != 0) {
        write_peer(pex, PEX_ALUT_ENABLE, 0);
    }
    /* Requests of the peer carry the index of an entry in the peer's requester table as requester
     * id. */
    for (uint32_t i = 0; i < PEX_LUT_ENTRIES; i += 2) {
        write_peer(pex, PEX_LUT_LINK + 2 * i,
                   (i << 3 | PEX_LUT_ENABLE) | ((i + 1) << 3 | PEX_LUT_ENABLE) << 16);
    }
    write_peer64(pex, PEX_LINK_SETUP(bar), ~(bytes - 1) | PEX_BAR_SETUP_64);
    write_peer64(pex, PEX_BAR(bar), cable + pex->window_off);
    write_peer(pex, VIA_PCI_COMMAND, VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER);
}

static uint32_t own_bell(const struct via_pex_port *pex)
{
    return pex->chip.link_side ? PEX_BELL_LINK : PEX_BELL_VIRTUAL;
}

void via_pex_chip_program(struct via_pex_port *pex)
{
    struct via_pex_chip *chip = &pex->chip;
    chip->was_programmed = true;
    (void)pex->pci->ops->config_write(pex->pci, VIA_PCI_COMMAND, 2,
                                      VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER);
    write_own(pex, own_bell(pex) + PEX_BELL_CLEAR, 0xffff);
    program_requesters(pex);
    program_translation(pex, pex->iova);
    if (pex->config.b2b) {
        program_cable(pex);
    }
    if (pex->config.alut) {
        program_alut(pex);
    }
    if (chip->alut_entries != 0) {
        enable_alut(pex, pex->config.alut);
    }
    if (pex->dma != NULL) {
        via_pex_dma_program(pex);
    }
    if (pex->irq_is_on && pex->config.irq == VIA_PCI_MSI) {
        /* A reset clears the MSI address; the backend writes it again. */
        (void)pex->pci->ops->irq_set(pex->pci, VIA_PCI_MSI, 1, &pex->irq_fd);
    }
    if (!chip->link_side) {
        write_own(pex, PEX_ERRORS_MASK, 0);
    }
    write_own(pex, own_bell(pex) + PEX_BELL_UNMASK, 0xffff);
}

void via_pex_chip_conceal(struct via_pex_port *pex)
{
    if (!pex->chip.was_programmed) {
        return;
    }
    if (pex->config.alut) {
        enable_alut(pex, false);
    }
    program_translation(pex, 0);
    if (pex->config.b2b) {
        write_peer(pex, VIA_PCI_COMMAND, 0);
    }
    write_own(pex, own_bell(pex) + PEX_BELL_MASK, 0xffff);
    if (!pex->chip.link_side) {
        write_own(pex, PEX_ERRORS_MASK, 0xf);
    }
}

/* --- doorbells --- */

/* Reads and clears until the register is zero, because an interrupt fires only when it leaves zero
 * (F). Bounded: if the peer rings without pause, the next call continues. */
uint32_t via_pex_chip_take_bells(struct via_pex_port *pex)
{
    uint32_t taken = 0;
    for (unsigned i = 0; i < BELL_ROUNDS_MAX; i++) {
        uint32_t bells = read_own(pex, own_bell(pex));
        if (bells == 0 || bells == UINT32_MAX) {
            break;
        }
        write_own(pex, own_bell(pex) + PEX_BELL_CLEAR, bells);
        taken |= bells & 0xffff;
    }
    return taken;
}

void via_pex_chip_ring(struct via_pex_port *pex, uint32_t bits)
{
    if (pex->config.b2b) {
        write_far(pex, PEX_BELL_VIRTUAL, bits);
    } else {
        write_own(pex, pex->chip.link_side ? PEX_BELL_VIRTUAL : PEX_BELL_LINK, bits);
    }
}

/* --- scratchpads: back to back each chip has its own, and the writer writes both --- */

uint32_t via_pex_chip_pad(struct via_pex_port *pex, unsigned index)
{
    return read_own(pex, PEX_PADS + 4 * index);
}

void via_pex_chip_set_pad(struct via_pex_port *pex, unsigned index, uint32_t value)
{
    write_own(pex, PEX_PADS + 4 * index, value);
    if (pex->config.b2b) {
        write_far(pex, PEX_PADS + 4 * index, value);
    }
}
