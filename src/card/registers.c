/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sources: "PCI": the PCI Express base specification; "FreeBSD": sys/dev/ntb/ntb_hw/ntb_hw_plx.c;
 * "VCA": Intel's VCA drivers; "SDK": Broadcom's PCI/PCIe SDK 8; "GEN": tryp/plxtools eeprom_gen.py,
 * for a PEX 8734; "CCT": Concurrent's plx8733.c; "PLXI2C": benmcollins/pex87xx, for a PEX 8724.
 */
#include "card/registers.h"

#include <stdio.h>

#define IN(space) (1u << VIA_CARD_SPACE_##space)
#define NT (IN(NT_LINK) | IN(NT_VIRTUAL))
#define ANY_PORT (IN(PORT) | NT)

/* clang-format off */
static const struct via_card_register registers[] = {
    {ANY_PORT, 0x000, 1, false, "device and vendor id", "PCI", 0, {{31, 16, "device"}, {15, 0, "vendor"}}},
    {ANY_PORT, 0x004, 1, false, "command and status", "PCI", 0,
     {{1, 1, "memory"}, {2, 2, "bus master"}, {10, 10, "INTx off"}}},
    {ANY_PORT, 0x008, 1, false, "class and revision", "PCI", 0, {{31, 8, "class"}, {7, 0, "revision"}}},
    {ANY_PORT, 0x00C, 1, false, "header type and cache line", "PCI", 0, {{0}}},
    {ANY_PORT, 0x010, 6, false, "base addresses", "PCI", 0, {{0}}},
    {NT, 0x02C, 1, false, "subsystem ids", "PCI", 0, {{31, 16, "device"}, {15, 0, "vendor"}}},
    {ANY_PORT, 0x034, 1, false, "first capability", "PCI", 0, {{7, 0, "offset"}}},
    {ANY_PORT, 0x03C, 1, false, "interrupt pin and line", "PCI", 0, {{0}}},
    {ANY_PORT, 0x068, 1, false, "PCI Express capability", "PCI; place follows from 0x78: VCA", 0,
     {{24, 24, "slot implemented"}, {23, 20, "port type"}}},
    {ANY_PORT, 0x06C, 2, false, "device capabilities and control", "PCI; place follows from 0x78: VCA", 0, {{0}}},
    {ANY_PORT, 0x074, 1, false, "link capabilities", "PCI; place follows from 0x78: VCA", 0,
     {{3, 0, "generation"}, {9, 4, "width"}, {31, 24, "port"}}},
    {ANY_PORT, 0x078, 1, false, "link control and status", "VCA, SDK", 0, {{19, 16, "generation"}, {25, 20, "width"}}},
    {IN(PORT), VIA_CARD_REG_SLOT_CAPABILITIES, 1, false, "slot capabilities",
     "PCI; place follows from 0x78: VCA; GEN writes it", 0,
     {{6, 6, "hot-plug"}, {5, 5, "surprise"}, {31, 19, "slot number"}}},
    {ANY_PORT, 0x080, 1, false, "slot control and status", "PCI; place follows from 0x78: VCA", 0, {{0}}},
    {IN(NT_VIRTUAL), VIA_CARD_REG_VIRTUAL_SETUP, 4, false, "BAR 2 to 5 set-up, virtual side",
     "VCA; BAR 4 and 5: assumed", 0, {{0}}},
    {IN(NT_LINK), VIA_CARD_REG_LINK_SETUP0, 1, false, "BAR 0/1 set-up, link side: 2 is 32-bit, 3 is 64-bit",
     "FreeBSD", ~3u, {{1, 0, "set-up"}}},
    {IN(NT_LINK), VIA_CARD_REG_LINK_SETUP, 4, false, "BAR 2 to 5 set-up, link side", "FreeBSD", 0, {{0}}},
    {IN(PORT), 0x208, 1, false, "ports of this station that are disabled", "FreeBSD, GEN", ~0xffu, {{7, 0, "disabled"}}},
    {IN(PORT), 0x20C, 4, false, "PHY test pattern", "FreeBSD (as scratchpads)", 0, {{0}}},
    {IN(PORT), 0x220, 1, false, "physical layer of a station: lane reversal", "GEN; fields: not public", 0, {{0}}},
    {IN(PORT), 0x260, 1, true, "EEPROM control and status", "SDK", 0, {{23, 22, "address bytes"}}},
    {IN(PORT), 0x264, 1, true, "EEPROM data", "SDK", 0, {{0}}},
    {IN(PORT), 0x26C, 1, true, "EEPROM third address byte", "SDK", 0, {{7, 0, "byte"}}},
    {IN(PORT), 0x270, 1, true, "EEPROM CRC", "SDK", 0, {{0}}},
    {IN(PORT), VIA_CARD_REG_STATIONS, 1, true,
     "port configuration of stations: 1 x16, 2 x8x8, 3 x8x4x4, 4 x4x4x4x4",
     "GEN, for a PEX 8734; others: assumed", ~0x1ffu, {{2, 0, "station 0"}, {5, 3, "station 1"}, {8, 6, "station 2"}}},
    {IN(PORT), 0x30C, 1, true, "port clock enables", "GEN", 0, {{0}}},
    {IN(PORT), 0x330, 1, true, "lane status", "CCT", 0, {{0}}},
    {IN(PORT), 0x350, 1, true, "configuration writes", "CCT", 0, {{9, 9, "unlocked"}}},
    {IN(PORT), 0x354, 1, true, "management port", "SDK", 0, {{4, 0, "port"}}},
    {IN(PORT), VIA_CARD_REG_STANDARD, 1, true, "virtual switches: 1 is standard mode", "SDK", 0, {{7, 0, "mode"}}},
    {IN(PORT), VIA_CARD_REG_PORTS, 1, true, "upstream and NT ports (0x1a: none)", "FreeBSD, GEN, CCT", 0x3fc0c0e0u,
     {{4, 0, "upstream"}, {12, 8, "NT0 port"}, {13, 13, "NT0"}, {20, 16, "NT1 port"}, {21, 21, "NT1"},
      {30, 30, "A-LUT NT0"}, {31, 31, "A-LUT NT1"}}},
    {IN(PORT), 0x364, 7, true, "upstream ports of virtual switches 1 to 7", "SDK", 0, {{4, 0, "upstream"}}},
    {IN(PORT), 0x380, 8, true, "ports of virtual switches 0 to 7", "SDK", 0, {{0}}},
    {IN(PORT), 0x3A0, 1, true, "virtual switch reset", "SDK", 0, {{0}}},
    {IN(PORT), 0x3A4, 1, true, "hot-plug controllers A, B, C", "PLXI2C, for a PEX 8724", 0, {{0}}},
    {IN(PORT), 0xA30, 1, false, "reset propagation", "CCT", 0, {{4, 4, "stopped"}}},
    {IN(PORT), 0xF60, 1, false, "NT ROM", "CCT", 0, {{15, 15, "no ROM"}}},
    {NT, 0xC3C, 4, false, "address translation of BAR 2 to 5", "FreeBSD", 0, {{0}}},
    {NT, 0xC4C, 4, false, "virtual side's doorbells", "FreeBSD", 0xffff0000u, {{15, 0, "bits"}}},
    {NT, 0xC5C, 4, false, "link side's doorbells", "FreeBSD", 0xffff0000u, {{15, 0, "bits"}}},
    {NT, 0xC6C, 8, false, "scratchpads", "FreeBSD", 0, {{0}}},
    {NT, 0xC8C, 1, false, "which NT port and side", "FreeBSD; not with revision AA: SDK", 0, {{0, 0, "NT"}, {31, 31, "link side"}}},
    {NT, 0xC90, 1, false, "captured requester id", "FreeBSD", 0, {{0}}},
    {NT, 0xC94, 1, false, "A-LUT enable", "FreeBSD: bit 28; SDK: 28 and 31 (conflict)", 0, {{28, 28, "on"}, {31, 31, "bit 31"}}},
    {NT, 0xD94, 8, false, "requester ids, virtual side", "FreeBSD; VCA has 0xDB4 (conflict)", 0, {{0}}},
    {NT, 0xDB4, 16, false, "requester ids, link side", "FreeBSD", 0, {{0}}},
    {IN(NT_VIRTUAL), 0xFE0, 2, false, "link errors and their mask", "FreeBSD", ~0xfu, {{3, 0, "bits"}}},
    {IN(ALUT), 0x000, 1024, false, "A-LUT", "FreeBSD; the order within a code: assumed", 0, {{0}}},
    {IN(DMA), 0x200, 256, false, "DMA channels", "Linux plx_dma.c", 0, {{0}}},
    {IN(DMA_RAM), 0x000, 1024, false, "DMA descriptors; GEN has the A-LUT here (conflict)", "SDK", 0, {{0}}},
};
/* clang-format on */

enum via_card_space via_card_space_of(unsigned code)
{
    if (code < 0x18) {
        return VIA_CARD_SPACE_PORT;
    }
    if (code >= 0x20 && code <= 0x23) {
        return VIA_CARD_SPACE_ALUT;
    }
    if (code >= 0x28 && code <= 0x2B) {
        return VIA_CARD_SPACE_DMA;
    }
    if (code == 0x2C) {
        return VIA_CARD_SPACE_DMA_RAM;
    }
    if (code >= 0x30 && code <= 0x37) {
        return VIA_CARD_SPACE_STATION;
    }
    if (code >= 0x38 && code <= 0x3B) {
        return code % 2 == 0 ? VIA_CARD_SPACE_NT_LINK : VIA_CARD_SPACE_NT_VIRTUAL;
    }
    return VIA_CARD_SPACE_UNKNOWN;
}

const char *via_card_space_name(unsigned code, char text[VIA_CARD_SPACE_BYTES])
{
    switch (via_card_space_of(code)) {
    case VIA_CARD_SPACE_PORT:
        snprintf(text, VIA_CARD_SPACE_BYTES, "port %u", code & 0x1f);
        break;
    case VIA_CARD_SPACE_ALUT:
        snprintf(text, VIA_CARD_SPACE_BYTES, "A-LUT %u", (code - 0x20) & 3);
        break;
    case VIA_CARD_SPACE_DMA:
        snprintf(text, VIA_CARD_SPACE_BYTES, "DMA %u", (code - 0x28) & 3);
        break;
    case VIA_CARD_SPACE_DMA_RAM:
        snprintf(text, VIA_CARD_SPACE_BYTES, "DMA RAM");
        break;
    case VIA_CARD_SPACE_STATION:
        snprintf(text, VIA_CARD_SPACE_BYTES, "station %u", code & 7);
        break;
    case VIA_CARD_SPACE_NT_LINK:
    case VIA_CARD_SPACE_NT_VIRTUAL:
        snprintf(text, VIA_CARD_SPACE_BYTES, "NT%u %s", code >= 0x3A ? 1 : 0,
                 code % 2 == 0 ? "link" : "virtual");
        break;
    case VIA_CARD_SPACE_UNKNOWN:
        snprintf(text, VIA_CARD_SPACE_BYTES, "code 0x%02x", code & 0x3f);
        break;
    }
    return text;
}

const struct via_card_register *via_card_register_find(uint16_t address)
{
    unsigned code = via_card_address_code(address);
    unsigned off = via_card_address_off(address);
    unsigned space = 1u << via_card_space_of(code);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(registers); i++) {
        const struct via_card_register *one = &registers[i];
        if ((one->spaces & space) != 0 && off >= one->off && off < one->off + 4u * one->words &&
            (!one->of_chip || code == 0)) {
            return one;
        }
    }
    return NULL;
}

static void append(char *text, size_t bytes, size_t *at, int written)
{
    (void)text;
    *at = written < 0 ? *at : via_min(*at + (size_t)written, bytes - 1);
}

void via_card_register_explain(uint16_t address, uint32_t value, char *text, size_t bytes)
{
    const struct via_card_register *one = via_card_register_find(address);
    size_t at = 0;
    if (one == NULL) {
        snprintf(text, bytes, "no public source names this register");
        return;
    }
    append(text, bytes, &at, snprintf(text, bytes, "%s", one->name));
    for (unsigned i = 0; i < VIA_CARD_FIELDS_MAX && one->fields[i].name != NULL; i++) {
        const struct via_card_field *field = &one->fields[i];
        uint32_t mask = field->high - field->low == 31 ? UINT32_MAX
                                                       : (1u << (field->high - field->low + 1)) - 1;
        append(text, bytes, &at,
               snprintf(text + at, bytes - at, "%s %s 0x%x", i == 0 ? ";" : ",", field->name,
                        value >> field->low & mask));
    }
    append(text, bytes, &at, snprintf(text + at, bytes - at, " [%s]", one->source));
}
