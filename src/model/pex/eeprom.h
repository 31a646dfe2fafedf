/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The serial EEPROM and its controller, part of the model. Callers hold the model's lock. */
#ifndef VIA_MODEL_PEX_EEPROM_H
#define VIA_MODEL_PEX_EEPROM_H

#include "model/pex/pex.h"

struct via_pex_eeprom {
    uint32_t control; /* 0x260 as last written; state bits are computed at each read */
    uint32_t data;    /* 0x264 */
    uint32_t third;   /* 0x26C */
    uint32_t crc;     /* 0x270, computed at power-on */
    uint8_t status;   /* of the EEPROM, as last read: bits 31:24 of 0x260 */
    uint8_t state;    /* bits 17:16 of 0x260 */
    uint8_t address_bytes;
    bool crc_error; /* bit 19: blocks all commands until cleared */
    bool is_write_enabled;
    bool has_lost_power;
    unsigned busy_left;        /* remaining reads of 0x260 that return busy */
    unsigned write_polls_left; /* remaining status reads until the write cycle ends */
    struct via_pex_eeprom_faults faults;
    uint64_t writes_count;
};

/* Power-on: the chip reads the EEPROM. */
void via_pex_eeprom_reset(struct via_pex_eeprom *eeprom, const struct via_pex_options *options);
uint32_t via_pex_eeprom_get(struct via_pex_eeprom *eeprom, uint32_t off);
void via_pex_eeprom_put(struct via_pex_eeprom *eeprom, const struct via_pex_options *options,
                        uint32_t off, uint32_t value);

#endif
