/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Registers named by public sources, as EEPROM images address them, with their use and source. */
#ifndef VIA_CARD_REGISTERS_H
#define VIA_CARD_REGISTERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

/* Meaning of the upper six bits of an address in an image. These are not offsets in BAR 0. */
enum via_card_space {
    VIA_CARD_SPACE_PORT, /* codes 0x00 to 0x17: the port's number */
    VIA_CARD_SPACE_ALUT,
    VIA_CARD_SPACE_DMA,
    VIA_CARD_SPACE_DMA_RAM,
    VIA_CARD_SPACE_STATION,
    VIA_CARD_SPACE_NT_LINK,
    VIA_CARD_SPACE_NT_VIRTUAL,
    VIA_CARD_SPACE_UNKNOWN,
};

#define VIA_CARD_CODE_NT_LINK 0x38u    /* NT0; NT1: plus 2 */
#define VIA_CARD_CODE_NT_VIRTUAL 0x39u /* likewise */

#define VIA_CARD_REG_IDS 0x000u
#define VIA_CARD_REG_SLOT_CAPABILITIES 0x07Cu
#define VIA_CARD_REG_VIRTUAL_SETUP 0x0D4u /* BAR 2 to 5 */
#define VIA_CARD_REG_LINK_SETUP0 0x0E4u
#define VIA_CARD_REG_LINK_SETUP 0x0E8u /* BAR 2 to 5 */
#define VIA_CARD_REG_STATIONS 0x300u
#define VIA_CARD_REG_STANDARD 0x358u
#define VIA_CARD_REG_PORTS 0x360u
#define VIA_CARD_PORT_NONE 0x1Au /* value of an NT field of 0x360 */

struct via_card_field {
    uint8_t high, low;
    const char *name;
};

#define VIA_CARD_FIELDS_MAX 8u
struct via_card_register {
    uint8_t spaces; /* bit mask of enum via_card_space */
    uint16_t off;
    uint16_t words;
    bool of_chip; /* one register for the chip, in the space of port 0 */
    const char *name;
    const char *source;                                /* includes "conflict" and "assumed" */
    uint32_t reserved;                                 /* bits without a source */
    struct via_card_field fields[VIA_CARD_FIELDS_MAX]; /* ends with name NULL */
};

static inline unsigned via_card_address_code(uint16_t address)
{
    return address >> 10;
}

static inline uint16_t via_card_address_off(uint16_t address)
{
    return (uint16_t)((address & 0x3ffu) << 2);
}

static inline uint16_t via_card_address(unsigned code, unsigned off)
{
    return (uint16_t)(code << 10 | (off & 0xfffu) >> 2);
}

enum via_card_space via_card_space_of(unsigned code);

/* "port 8", "NT0 virtual"; uses text as buffer. */
#define VIA_CARD_SPACE_BYTES 24u
const char *via_card_space_name(unsigned code, char text[VIA_CARD_SPACE_BYTES]);

/* NULL: no public source names the register. */
const struct via_card_register *via_card_register_find(uint16_t address);

/* Writes the meaning of the value, "name; field 3, field 0x1a", to text, NUL-terminated. */
void via_card_register_explain(uint16_t address, uint32_t value, char *text, size_t bytes);

#endif
