/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/eeprom.h"

#include <errno.h>
#include <string.h>

/* SDK Eep_8000.c; status bits 3:2: AT25 data sheets. */
#define CONTROL 0x260u
#define DATA 0x264u
#define THIRD 0x26Cu
#define INDEX 0x1fffu
#define INDEX_13 (1u << 20)
#define COMMAND_SHIFT 13u
#define COMMAND_MASK (7u << COMMAND_SHIFT)
#define PRESENT (1u << 16)
#define BAD (1u << 17)
#define BUSY (1u << 18)
#define CRC_ERROR (1u << 19)
#define WIDTH_MINE (1u << 21)
#define WIDTH_SHIFT 22u
#define STATUS_IN_CYCLE (1u << 24 | 7u << 28)
#define STATUS_PROTECTED (3u << 26)
#define STATUS_MASK 0xff000000u

enum { WRITE = 2, READ = 3, READ_STATUS = 5, WRITE_ENABLE = 6 };

#define PAUSE_US 20u
#define COMMAND_POLLS_MAX 5000u /* 0.1 s */
#define CYCLE_POLLS_MAX 500u    /* of 0.2 ms: a write cycle takes 5 ms (AT25) */
#define CYCLE_PAUSE_US 200u
#define CRC_PAUSE_US 50000u

/* --- commands --- */

static uint32_t get(struct via_card_eeprom *eeprom, unsigned off)
{
    return via_pci_read32(eeprom->pci, 0, off);
}

static void put(struct via_card_eeprom *eeprom, unsigned off, uint32_t value)
{
    via_pci_write32(eeprom->pci, 0, off, value);
}

static void pause_us(struct via_card_eeprom *eeprom, unsigned us)
{
    if (eeprom->pause != NULL) {
        eeprom->pause(us);
    }
}

static int report_gone(struct via_error *err)
{
    return via_error_set(err, -ENODEV, "EEPROM: the function does not answer any more");
}

/* Waits for the end of a command. */
static int finish(struct via_card_eeprom *eeprom, uint32_t *ret_control, struct via_error *err)
{
    for (unsigned i = 0; i < COMMAND_POLLS_MAX; i++) {
        uint32_t control = get(eeprom, CONTROL);
        if (control == UINT32_MAX) {
            return report_gone(err);
        }
        if ((control & BUSY) == 0) {
            *ret_control = control;
            return 0;
        }
        pause_us(eeprom, PAUSE_US);
    }
    return via_error_set(err, -ETIME, "EEPROM: the controller stays busy (0x260 bit 18)");
}

static int command(struct via_card_eeprom *eeprom, unsigned number, uint32_t dword,
                   uint32_t *ret_control, struct via_error *err)
{
    uint32_t value = (dword & INDEX) | ((dword & 0x2000u) != 0 ? INDEX_13 : 0) |
                     number << COMMAND_SHIFT | WIDTH_MINE |
                     (uint32_t)eeprom->address_bytes << WIDTH_SHIFT;
    put(eeprom, CONTROL, value);
    return finish(eeprom, ret_control, err);
}

/* Waits for the end of a write cycle. */
static int wait_write_cycle(struct via_card_eeprom *eeprom, struct via_error *err)
{
    uint32_t control;
    for (unsigned i = 0; i < CYCLE_POLLS_MAX; i++) {
        int rc = command(eeprom, READ_STATUS, 0, &control, err);
        if (rc != 0) {
            return rc;
        }
        if ((control & STATUS_IN_CYCLE) == 0) {
            eeprom->is_protected = (control & STATUS_PROTECTED) != 0;
            return 0;
        }
        pause_us(eeprom, CYCLE_PAUSE_US);
    }
    return via_error_set(err, -ETIME, "EEPROM: its write cycle does not end");
}

static void set_third(struct via_card_eeprom *eeprom, uint32_t off)
{
    if (eeprom->address_bytes == 3) {
        put(eeprom, THIRD, (get(eeprom, THIRD) & ~0xffu) | (off >> 16 & 0xff));
    }
}

static int read_dword(struct via_card_eeprom *eeprom, uint32_t off, uint32_t *ret_value,
                      struct via_error *err)
{
    uint32_t control;
    set_third(eeprom, off);
    int rc = command(eeprom, READ, off / 4, &control, err);
    if (rc == 0) {
        *ret_value = get(eeprom, DATA);
    }
    return rc;
}

static int write_dword(struct via_card_eeprom *eeprom, uint32_t off, uint32_t value,
                       struct via_error *err)
{
    uint32_t control;
    set_third(eeprom, off);
    int rc = command(eeprom, WRITE_ENABLE, 0, &control, err);
    if (rc != 0) {
        return rc;
    }
    put(eeprom, DATA, value);
    rc = command(eeprom, WRITE, off / 4, &control, err);
    return rc == 0 ? wait_write_cycle(eeprom, err) : rc;
}

/* --- finding it --- */

static int find_chip(struct via_card_eeprom *eeprom, struct via_error *err)
{
    uint32_t ids = get(eeprom, 0);
    if (ids == UINT32_MAX) {
        return via_error_set(err, -ENODEV, "chip: BAR 0 reads all ones: nothing answers");
    }
    if ((ids & 0xffff) != 0x10b5) {
        return via_error_set(err, -ENODEV, "chip: port 0 has ids %04x:%04x: not a PEX 87xx (10b5)",
                             ids & 0xffff, ids >> 16);
    }
    eeprom->chip = (uint16_t)(ids >> 16);
    return 0;
}

/* A CRC error at power-on blocks the controller until it is cleared, together with a dummy read
 * (SDK). */
static void clear_crc_error(struct via_card_eeprom *eeprom, uint32_t control)
{
    put(eeprom, CONTROL,
        (control & ~(STATUS_MASK | COMMAND_MASK)) | CRC_ERROR | READ << COMMAND_SHIFT);
    pause_us(eeprom, CRC_PAUSE_US);
}

int via_card_eeprom_open(struct via_card_eeprom *eeprom, struct via_pci *pci,
                         unsigned address_bytes, void (*pause)(unsigned us), struct via_error *err)
{
    struct via_pci_region region;
    uint32_t command_register, control;
    *eeprom = (struct via_card_eeprom){.pci = pci, .pause = pause};
    if (pci->ops->region(pci, 0, &region) != 0 || region.bytes <= THIRD + 4) {
        return via_error_set(err, -ENODEV, "BAR 0: it does not show the chip's registers");
    }
    int rc = pci->ops->config_read(pci, VIA_PCI_COMMAND, 2, &command_register);
    rc = rc == 0 ? pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                          command_register | VIA_PCI_COMMAND_MEMORY)
                 : rc;
    if (rc != 0) {
        return via_error_set(err, rc, "memory decoding: %s", strerror(-rc));
    }
    rc = find_chip(eeprom, err);
    rc = rc == 0 ? finish(eeprom, &control, err) : rc;
    if (rc != 0) {
        return rc;
    }
    if ((control & PRESENT) == 0) {
        return via_error_set(err, -ENODEV, "EEPROM: the chip found none (0x260 bit 16)");
    }
    eeprom->is_valid = (control & BAD) == 0;
    eeprom->had_crc_error = (control & CRC_ERROR) != 0;
    unsigned found = control >> WIDTH_SHIFT & 3;
    eeprom->address_bytes = (uint8_t)(address_bytes != 0 ? address_bytes : found);
    if (eeprom->address_bytes == 0) {
        return via_error_set(err, -EINVAL,
                             "EEPROM: the chip does not know how many bytes its addresses have (it "
                             "may be blank): --address-bytes, 2 for 512 bytes to 64 KiB");
    }
    if (eeprom->had_crc_error) {
        clear_crc_error(eeprom, control);
    }
    return wait_write_cycle(eeprom, err);
}

/* --- reading --- */

static int check_range(const struct via_card_eeprom *eeprom, uint64_t end, struct via_error *err)
{
    uint64_t reach = eeprom->address_bytes == 1 ? 256 : VIA_CARD_IMAGE_BYTES_MAX;
    return end <= reach ? 0
                        : via_error_set(err, -EINVAL,
                                        "EEPROM: byte %llu is beyond what %u address bytes reach",
                                        (unsigned long long)end - 1, eeprom->address_bytes);
}

static uint32_t take32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

int via_card_eeprom_read(struct via_card_eeprom *eeprom, uint32_t off, uint8_t *bytes, size_t count,
                         struct via_error *err)
{
    int rc = off % 4 != 0 || count % 4 != 0
                 ? via_error_set(err, -EINVAL, "EEPROM: reads are of whole dwords")
                 : check_range(eeprom, (uint64_t)off + count, err);
    for (size_t at = 0; rc == 0 && at < count; at += 4) {
        uint32_t value;
        rc = read_dword(eeprom, off + (uint32_t)at, &value, err);
        if (rc == 0) {
            memcpy(bytes + at, &value, 4);
        }
    }
    return rc;
}

/* --- writing --- */

/* A dword of the image; bytes behind the image keep the EEPROM's contents. */
static int image_dword(struct via_card_eeprom *eeprom, const uint8_t *image, size_t count,
                       uint32_t off, uint32_t *ret_value, struct via_error *err)
{
    uint32_t value = 0;
    size_t here = via_min(count - off, (size_t)4);
    if (here < 4) {
        int rc = read_dword(eeprom, off, &value, err);
        if (rc != 0) {
            return rc;
        }
    }
    memcpy(&value, image + off, here);
    *ret_value = value;
    return 0;
}

/* Each step changes only one 16-bit half, so that a write interrupted by power loss leaves the old
 * or the new value. The halves of the header are {signature, flags} and {byte count}. */
static int write_header(struct via_card_eeprom *eeprom, const uint32_t *steps, unsigned count,
                        struct via_error *err)
{
    for (unsigned i = 0; i < count; i++) {
        int rc = write_dword(eeprom, 0, steps[i], err);
        if (rc != 0) {
            return rc;
        }
    }
    uint32_t value;
    int rc = read_dword(eeprom, 0, &value, err);
    if (rc == 0 && value != steps[count - 1]) {
        return via_error_set(err, -EIO, "EEPROM: byte 0: reads 0x%08x after a write of 0x%08x: %s",
                             value, steps[count - 1],
                             "is it write-protected (its WP pin, a jumper)?");
    }
    return rc;
}

#define EMPTY 0x0000005Au /* no CRC, no registers */

static int make_empty(struct via_card_eeprom *eeprom, struct via_error *err)
{
    uint32_t old;
    int rc = read_dword(eeprom, 0, &old, err);
    if (rc != 0) {
        return rc;
    }
    if ((old & 0xff) == VIA_CARD_IMAGE_SIGNATURE) { /* a valid image: first disable its CRC */
        const uint32_t steps[] = {(old & 0xffff0000u) | EMPTY, EMPTY};
        return write_header(eeprom, steps, VIA_ARRAY_COUNT(steps), err);
    }
    const uint32_t steps[] = {old & 0xffffu,
                              EMPTY}; /* no valid image: first clear the byte count */
    return write_header(eeprom, steps, VIA_ARRAY_COUNT(steps), err);
}

static int write_body(struct via_card_eeprom *eeprom, const uint8_t *image, size_t count,
                      struct via_error *err)
{
    for (uint32_t off = 4; off < count; off += 4) {
        uint32_t wanted, there;
        int rc = image_dword(eeprom, image, count, off, &wanted, err);
        rc = rc == 0 ? read_dword(eeprom, off, &there, err) : rc;
        if (rc == 0 && there != wanted) {
            rc = write_dword(eeprom, off, wanted, err);
            rc = rc == 0 ? read_dword(eeprom, off, &there, err) : rc;
        }
        if (rc != 0) {
            return rc;
        }
        if (there != wanted) {
            return via_error_set(err, -EIO, "EEPROM: byte %u: reads 0x%08x after a write of 0x%08x",
                                 off, there, wanted);
        }
    }
    return 0;
}

int via_card_eeprom_flash(struct via_card_eeprom *eeprom, const uint8_t *image, size_t count,
                          struct via_error *err)
{
    int rc = count < 8 || image[0] != VIA_CARD_IMAGE_SIGNATURE
                 ? via_error_set(err, -EINVAL, "image: a chip would reject it")
                 : check_range(eeprom, count, err);
    if (rc != 0) {
        return rc;
    }
    rc = wait_write_cycle(eeprom, err);
    if (rc == 0 && eeprom->is_protected) {
        return via_error_set(err, -EACCES,
                             "EEPROM: its blocks are write-protected (status bits 3:2); nothing "
                             "was written");
    }
    rc = rc == 0 ? make_empty(eeprom, err) : rc;
    rc = rc == 0 ? write_body(eeprom, image, count, err) : rc;
    if (rc != 0) {
        return rc;
    }
    /* The addresses of a short EEPROM wrap, so writes beyond its end overwrite its beginning. */
    int64_t differs;
    rc = via_card_eeprom_verify(eeprom, image, count, &differs, err);
    if (rc != 0 || differs >= 4) {
        return rc != 0 ? rc
                       : via_error_set(err, -EIO, "EEPROM: byte %lld does not keep its value",
                                       (long long)differs);
    }
    uint32_t header = take32(image);
    const uint32_t steps[] = {(header & 0xffff0000u) | EMPTY, header};
    return write_header(eeprom, steps, VIA_ARRAY_COUNT(steps), err);
}

int via_card_eeprom_verify(struct via_card_eeprom *eeprom, const uint8_t *image, size_t count,
                           int64_t *ret_off, struct via_error *err)
{
    int rc = check_range(eeprom, count, err);
    *ret_off = -1;
    /* Compares from the end to the header, because the header differs until the rest is written. */
    for (uint32_t off = (uint32_t)((count + 3) / 4 * 4); rc == 0 && off > 0 && *ret_off < 0;) {
        uint32_t wanted, there;
        off -= 4;
        rc = image_dword(eeprom, image, count, off, &wanted, err);
        rc = rc == 0 ? read_dword(eeprom, off, &there, err) : rc;
        if (rc == 0 && there != wanted) {
            *ret_off = off;
        }
    }
    return rc;
}
