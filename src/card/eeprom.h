/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The serial EEPROM of a chip, through its controller at 0x260 in BAR 0 (SDK Eep_8000.c). Tested
 * only on the register model (src/model/pex/eeprom.c).
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
    bool is_valid;         /* as found by the chip at power-on */
    bool had_crc_error;
    bool is_protected; /* some blocks are write-protected, by its status */
};

/*
 * Finds the chip and its EEPROM. address_bytes 0: the width that the chip has found; for a blank
 * EEPROM the caller must give it. -ENODEV (function lost, unknown chip, no EEPROM), -EINVAL
 * (unknown width), -ETIME (busy for too long).
 */
VIA_MUST_CHECK int via_card_eeprom_open(struct via_card_eeprom *eeprom, struct via_pci *pci,
                                        unsigned address_bytes, void (*pause)(unsigned us),
                                        struct via_error *err);

/* off and count are multiples of 4. -ETIME, -ENODEV, -EINVAL (not addressable with this width). */
VIA_MUST_CHECK int via_card_eeprom_read(struct via_card_eeprom *eeprom, uint32_t off,
                                        uint8_t *bytes, size_t count, struct via_error *err);

/*
 * Replaces the image. If power is lost at any time, the chip finds the old image, an image without
 * registers, or the new image, never a mixture: the first write makes the header say "no registers,
 * no CRC"; then the rest is written and read back, then the header. Bytes behind the image stay.
 * -EACCES (write-protected), -EIO (a dword reads back different; the EEPROM then holds an image
 * without registers), and errors as above.
 */
VIA_MUST_CHECK int via_card_eeprom_flash(struct via_card_eeprom *eeprom, const uint8_t *image,
                                         size_t count, struct via_error *err);

/* Finds an offset at which the EEPROM differs from the image; -1: none. 0 or errors of
 * via_card_eeprom_read(). */
VIA_MUST_CHECK int via_card_eeprom_verify(struct via_card_eeprom *eeprom, const uint8_t *image,
                                          size_t count, int64_t *ret_off, struct via_error *err);

#endif
