/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The EEPROM controller, at 0x260 of the chip. Sources: "SDK": Broadcom's PCI/PCIe SDK 8,
 * Eep_8000.c and Eep_8000.h; "AT25": data sheets of Atmel's AT25 SPI EEPROMs, whose commands these
 * are. Facts without a source are marked as assumed.
 *
 *   0x260 12:0   dword index, bit 13 of it in bit 20 (SDK)
 *         15:13  command: 1 write status, 2 write, 3 read, 4 write disable, 5 read status,
 *                6 write enable (SDK)
 *         16     present, 17 blank or bad (SDK)
 *         18     the command is under way (SDK)
 *         19     CRC error at power-on: write 1 with a read, which is a dummy (SDK)
 *         21     the width of 23:22 is the driver's (SDK)
 *         23:22  bytes of an address; 0 with a blank EEPROM (SDK; 0 when blank: assumed)
 *         31:24  the EEPROM's status (SDK): ones within a write cycle, else bit 1 write enabled,
 *                3:2 blocks that are protected (AT25)
 *   0x264        data (SDK)
 *   0x26C 7:0    third byte of an address (SDK)
 *   0x270        the CRC (SDK)
 *
 * The model checks the image, but does not load it into its registers.
 */
#include "model/pex/eeprom.h"

#include <string.h>

#define CONTROL 0x260u
#define DATA 0x264u
#define THIRD 0x26Cu
#define CRC 0x270u

#define INDEX 0x1fffu
#define INDEX_13 (1u << 20)
#define COMMAND_SHIFT 13u
#define STATE_SHIFT 16u
#define BUSY (1u << 18)
#define CRC_ERROR (1u << 19)
#define WIDTH_MINE (1u << 21)
#define WIDTH_SHIFT 22u
#define STATUS_SHIFT 24u

#define STATE_GOOD 1u
#define STATE_BAD 3u
#define STATUS_CYCLE 0xffu
#define STATUS_ENABLED 0x02u
#define STATUS_PROTECTED 0x0cu

enum { WRITE_STATUS = 1, WRITE, READ, WRITE_DISABLE, READ_STATUS, WRITE_ENABLE };

/* --- power-on --- */

static uint32_t next_crc(uint32_t crc, uint32_t dword)
{
    for (unsigned bit = 0; bit < 32; bit++) {
        uint32_t top = (crc >> 31) ^ (dword >> (31 - bit) & 1);
        crc = (crc << 1) ^ (top != 0 ? 0xDB710641u : 0);
    }
    return crc;
}

static uint32_t crc_of(const uint8_t *bytes, uint32_t from, uint32_t to)
{
    uint32_t crc = UINT32_MAX;
    for (uint32_t at = from; at < to; at += 4) {
        uint32_t dword = 0;
        for (uint32_t i = 0; i < 4 && at + i < to; i++) {
            dword |= (uint32_t)bytes[at + i] << 8 * i;
        }
        crc = next_crc(crc, dword);
    }
    return crc;
}

void via_pex_eeprom_reset(struct via_pex_eeprom *eeprom, const struct via_pex_options *options)
{
    struct via_pex_eeprom_faults faults = eeprom->faults;
    const uint8_t *bytes = options->eeprom;
    memset(eeprom, 0, sizeof(*eeprom));
    eeprom->faults = faults;
    if (bytes == NULL) {
        return;
    }
    /* The chip finds the address width by the signature; without a signature it is unknown. */
    eeprom->state = STATE_BAD;
    if (bytes[0] != 0x5A) {
        return;
    }
    eeprom->address_bytes = options->eeprom_bytes > 65536 ? 3 : options->eeprom_bytes > 256 ? 2 : 1;
    uint32_t end = 4 + (bytes[2] | (uint32_t)bytes[3] << 8);
    bool is_checked = (bytes[1] & 0x80) != 0;
    if (end + (is_checked ? 4 : 0) > options->eeprom_bytes) {
        eeprom->crc_error = true;
        return;
    }
    eeprom->crc = crc_of(bytes, 2, end);
    uint32_t stored = 0;
    for (unsigned i = 0; is_checked && i < 4; i++) {
        stored |= (uint32_t)bytes[end + i] << 8 * i;
    }
    eeprom->crc_error = is_checked && stored != eeprom->crc;
    eeprom->state = eeprom->crc_error ? STATE_BAD : STATE_GOOD;
}

/* --- commands --- */

/* The address within the EEPROM: higher addresses wrap (AT25). */
static uint32_t address_of(const struct via_pex_eeprom *eeprom,
                           const struct via_pex_options *options, uint32_t control)
{
    uint32_t index = (control & INDEX) | ((control & INDEX_13) != 0 ? 0x2000u : 0);
    uint32_t address = index * 4;
    if (eeprom->address_bytes == 3) {
        address = (address & 0xffff) | (eeprom->third & 0xff) << 16;
    } else if (eeprom->address_bytes <= 1) {
        address &= 0xff;
    }
    return address % options->eeprom_bytes;
}

/* During a write cycle the EEPROM accepts only "read status" (AT25). */
static void write_dword(struct via_pex_eeprom *eeprom, const struct via_pex_options *options,
                        uint32_t address)
{
    bool is_accepted = eeprom->is_write_enabled && !eeprom->faults.is_protected;
    eeprom->is_write_enabled = false; /* cleared by each write (AT25) */
    if (!is_accepted) {
        return;
    }
    eeprom->writes_count++;
    unsigned from = 0, to = 4;
    if (eeprom->faults.power_loss_at != 0 && eeprom->writes_count == eeprom->faults.power_loss_at) {
        eeprom->has_lost_power = true;
        from = eeprom->faults.tears_upper_half ? 2 : 0;
        to = from + 2;
    }
    for (unsigned i = from; i < to; i++) {
        options->eeprom[address + i] = (uint8_t)(eeprom->data >> 8 * i);
    }
    eeprom->write_polls_left = eeprom->faults.write_polls;
}

static void execute(struct via_pex_eeprom *eeprom, const struct via_pex_options *options,
                    uint32_t control)
{
    unsigned command = control >> COMMAND_SHIFT & 7;
    uint32_t address = address_of(eeprom, options, control);
    if (command == READ_STATUS) {
        bool is_cycle = eeprom->write_polls_left != 0;
        eeprom->write_polls_left -= is_cycle && !eeprom->faults.hangs;
        eeprom->status = is_cycle ? STATUS_CYCLE
                                  : (uint8_t)((eeprom->is_write_enabled ? STATUS_ENABLED : 0) |
                                              (eeprom->faults.is_protected ? STATUS_PROTECTED : 0));
        return;
    }
    if (eeprom->write_polls_left != 0) {
        return;
    }
    switch (command) {
    case WRITE:
        write_dword(eeprom, options, address);
        break;
    case READ:
        memcpy(&eeprom->data, options->eeprom + address, 4);
        break;
    case WRITE_ENABLE:
    case WRITE_DISABLE:
        eeprom->is_write_enabled = command == WRITE_ENABLE;
        break;
    default:
        break; /* "write status" would change the protection, which is a fault option here */
    }
}

static void put_control(struct via_pex_eeprom *eeprom, const struct via_pex_options *options,
                        uint32_t value)
{
    unsigned command = value >> COMMAND_SHIFT & 7;
    if (eeprom->busy_left != 0) {
        return; /* assumed: no effect on a command under way */
    }
    eeprom->control = value & (INDEX | INDEX_13 | 7u << COMMAND_SHIFT | WIDTH_MINE);
    if ((value & WIDTH_MINE) != 0) {
        eeprom->address_bytes = (uint8_t)(value >> WIDTH_SHIFT & 3);
    }
    if (command == 0 || options->eeprom == NULL) {
        return;
    }
    eeprom->busy_left = eeprom->faults.busy_reads;
    if (eeprom->crc_error) {
        if ((value & CRC_ERROR) != 0) {
            eeprom->crc_error = false; /* the command of this write is a dummy */
        }
        return;
    }
    execute(eeprom, options, value);
}

/* --- registers --- */

uint32_t via_pex_eeprom_get(struct via_pex_eeprom *eeprom, uint32_t off)
{
    if (eeprom->has_lost_power) {
        return UINT32_MAX;
    }
    if (off != CONTROL) {
        return off == DATA ? eeprom->data : off == THIRD ? eeprom->third : eeprom->crc;
    }
    bool is_busy = eeprom->busy_left != 0;
    eeprom->busy_left -= is_busy && !eeprom->faults.hangs;
    return eeprom->control | (uint32_t)eeprom->state << STATE_SHIFT | (is_busy ? BUSY : 0) |
           (eeprom->crc_error ? CRC_ERROR : 0) | (uint32_t)eeprom->address_bytes << WIDTH_SHIFT |
           (uint32_t)eeprom->status << STATUS_SHIFT;
}

void via_pex_eeprom_put(struct via_pex_eeprom *eeprom, const struct via_pex_options *options,
                        uint32_t off, uint32_t value)
{
    if (eeprom->has_lost_power) {
        return;
    }
    if (off == CONTROL) {
        put_control(eeprom, options, value);
    } else if (off == DATA) {
        eeprom->data = value;
    } else if (off == THIRD) {
        eeprom->third = value & 0xff;
    }
}
