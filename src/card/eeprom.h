/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The serial EEPROM of a chip, by its controller at 0x260 in BAR 0 (SDK Eep_8000.c). Tried on the
 * register model only (src/model/pex/eeprom.c).
 */
#ifndef VIA_CARD_EEPROM_H
#define VIA_CARD_EEPROM_H

#include "base/error.h"
#include "card/image.h"
#include "vfio/pci.h"

struct via_card_eeprom {
    struct via_pci *pci;
    /* Waits for `us` between reads of a register; NULL: no pause. */
    void (*pause)(unsigned us);
    uint16_t chip;         /* device id of port 0, which an image may have changed */
    uint8_t address_bytes; /* 1 to 3 */
    bool is_valid;         /* as the chip saw it at power-on */
    bool had_crc_error;
    bool is_protected; /* some of its blocks, as its status says */
};

/*
 * Finds the chip and its EEPROM. address_bytes 0: the width that the chip found; a blank EEPROM has
 * none, and it must be given. -ENODEV (gone, no such chip, no EEPROM), -EINVAL (no width), -ETIME
 * (busy for too long).
 */
VIA_MUST_CHECK int via_card_eeprom_open(struct via_card_eeprom *eeprom, struct via_pci *pci,
                                        unsigned address_bytes, void (*pause)(unsigned us),
                                        struct via_error *err);

/* off and count are multiples of 4. -ETIME, -ENODEV, -EINVAL (beyond what the width reaches). */
VIA_MUST_CHECK int via_card_eeprom_read(struct via_card_eeprom *eeprom, uint32_t off,
                                        uint8_t *bytes, size_t count, struct via_error *err);

/*
 * Replaces the image. Whenever power is lost, the chip finds the old image, one without registers,
 * or the new one, and never a mixture: first the header says "no registers, no CRC", then the rest
 * is written and read back, then the header. Bytes behind the image stay. -EACCES
 * (write-protected), -EIO (reads back otherwise; the EEPROM holds an image without registers then),
 * and as above.
 */
VIA_MUST_CHECK int via_card_eeprom_flash(struct via_card_eeprom *eeprom, const uint8_t *image,
                                         size_t count, struct via_error *err);

/* Where the EEPROM differs from the image; -1: nowhere. 0 or as read. */
VIA_MUST_CHECK int via_card_eeprom_verify(struct via_card_eeprom *eeprom, const uint8_t *image,
                                          size_t count, int64_t *ret_off, struct via_error *err);

#endif
