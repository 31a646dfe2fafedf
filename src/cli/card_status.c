/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct card status: is a card what its image says, and its link what the card can do? */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/eeprom.h"
#include "card/make.h"
#include "card/registers.h"
#include "cli/card.h"
#include "cli/cli.h"

/* In BAR 0 (FreeBSD ntb_hw_plx.c; link status: VCA). */
#define NT0_VIRTUAL 0x3E000u
#define LINK_STATUS 0x78u
#define LINK_ERRORS 0xFE0u
#define NT0_ON (1u << 13)
#define NT_ALUTS (3u << 30)

static const char help[] =
    "usage: viaduct card status --device D [--card CARD] [--address-bytes N] [--size BYTES]\n"
    "\n"
    "A card of this machine: its chip, the role in force and the one of its EEPROM's image, the\n"
    "link of its NT port, and link errors. Exit status 1 if anything is not as it should be.\n"
    "Tried on a register model, never on a chip.\n"
    "\n"
    "  --device D         0000:03:00.0 (bound to vfio-pci) or vfio-user:PATH\n"
    "  --card CARD        the card that it is, if its image does not say so\n"
    "  --address-bytes N  1 to 3, of a blank EEPROM\n"
    "  --size BYTES       of the EEPROM, a multiple of 4 up to 65536 (default 512 are looked at)\n"
    "  -h, --help         this text\n";

static const struct option long_options[] = {VIA_CLI_CARD_DEVICE_OPTIONS, {NULL, 0, NULL, 0}};

struct status {
    struct via_pci *pci;
    const struct via_card *card; /* NULL: not known */
    const struct via_card_setup *setup;
    unsigned wrong_count;
};

/* --- the image --- */

/* Prints what the EEPROM has; takes the card and the role from it. */
static void print_image(struct status *status, unsigned address_bytes, unsigned size)
{
    static struct via_card_image image;
    static uint8_t bytes[VIA_CARD_IMAGE_BYTES_MAX];
    struct via_card_eeprom eeprom;
    struct via_error err = {0};
    int rc = via_card_eeprom_open(&eeprom, status->pci, address_bytes, via_cli_card_pause_us, &err);
    rc = rc == 0 ? via_card_eeprom_read(&eeprom, 0, bytes, size, &err) : rc;
    rc = rc == 0 ? via_card_image_parse("image", bytes, size, &image, &err) : rc;
    if (rc != 0) {
        printf("EEPROM    %s\n", via_error_describe(&err));
        status->wrong_count++;
        return;
    }
    bool is_checked = (image.flags & VIA_CARD_IMAGE_HAS_CRC) != 0;
    bool is_right = image.crc_is_there && image.crc == via_card_image_crc(&image);
    status->wrong_count += is_checked && !is_right;
    printf("EEPROM    %u registers, CRC %s; at power-on the chip found it %s\n",
           image.entries_count,
           !is_checked ? "not checked"
           : is_right  ? "right"
                       : "WRONG",
           eeprom.is_valid ? "valid" : "not valid");
    struct via_card_mark mark = via_card_mark_find(image.tail, image.tail_bytes);
    if (mark.card == NULL) {
        printf("image     names no card\n");
        return;
    }
    printf("image     %s, %s, %s, %s\n", mark.card->name, via_card_role_name(mark.setup->role),
           via_card_mode_name(mark.setup->mode), via_card_medium_name(mark.setup->medium));
    status->card = status->card != NULL ? status->card : mark.card;
    status->setup = mark.setup;
}

/* --- what is in force --- */

static void print_role(struct status *status)
{
    uint32_t ports = via_pci_read32(status->pci, 0, VIA_CARD_REG_PORTS);
    printf("in force  upstream port %u, NT0 ", ports & 0x1f);
    if ((ports & NT0_ON) != 0) {
        printf("port %u\n", ports >> 8 & 0x1f);
    } else {
        printf("off\n");
    }
    if (status->card == NULL || status->setup == NULL) {
        printf("          the card or its role is not known: nothing to compare with\n");
        return;
    }
    uint32_t expected = via_card_ports_value(status->card, status->setup, false);
    /* The number of a port that is off says nothing. */
    uint32_t counts = 0x1fu | NT0_ON | ((expected & NT0_ON) != 0 ? 0x1f00u : 0);
    if (((ports ^ expected) & counts) != 0) {
        printf("          the image's role has 0x360 = 0x%08x, in force is 0x%08x: NOT as in the "
               "image (power-on since it was written? DIP position 4?)\n",
               expected, ports & ~NT_ALUTS);
        status->wrong_count++;
    }
}

static void print_link(struct status *status)
{
    uint32_t link = via_pci_read32(status->pci, 0, NT0_VIRTUAL + LINK_STATUS);
    unsigned generation = link >> 16 & 0xf, width = link >> 20 & 0x1f;
    uint32_t errors = via_pci_read32(status->pci, 0, NT0_VIRTUAL + LINK_ERRORS);
    if (link == UINT32_MAX || generation == 0 || width == 0) {
        printf("NT link   down\n");
        status->wrong_count++;
    } else {
        printf("NT link   Gen%u x%u", generation, width);
        if (status->card != NULL &&
            (generation < VIA_CARD_GENERATION || width < status->card->lanes)) {
            printf(", NOT Gen%u x%u as the card can", VIA_CARD_GENERATION, status->card->lanes);
            status->wrong_count++;
        }
        printf("\n");
    }
    printf("errors    0x%x%s%s%s%s\n", errors & 0xf, (errors & 1) != 0 ? " correctable" : "",
           (errors & 2) != 0 ? " uncorrectable" : "", (errors & 4) != 0 ? " link-down" : "",
           (errors & 8) != 0 ? " message-dropped" : "");
    status->wrong_count += (errors & 2) != 0;
}

static int print_status(const struct via_cli_card_device *device)
{
    struct status status = {.card = device->card};
    struct via_error err = {0};
    if (via_cli_card_open(device->device, &status.pci, &err) != 0) {
        return via_cli_fail(device->name, &err);
    }
    print_image(&status, device->address_bytes, device->size);
    uint32_t ids = via_pci_read32(status.pci, 0, 0);
    printf("chip      PEX %04x\n", ids >> 16);
    if (status.card != NULL && status.card->chip != ids >> 16) {
        printf("          NOT the PEX %04x of %s\n", status.card->chip, status.card->name);
        status.wrong_count++;
    }
    print_role(&status);
    print_link(&status);
    printf("sensors   not decidable from public facts: the optics' I2C map and the chip's "
           "temperature register\n");
    status.pci->ops->close(status.pci);
    return status.wrong_count == 0 ? VIA_CLI_OK : VIA_CLI_FAILED;
}

int via_cli_card_status(int argc, char **argv)
{
    struct via_cli_card_device device = {.name = argv[0], .size = 512};
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        int code = via_cli_card_take_device(c, help, &device);
        if (code >= 0) {
            return code;
        }
    }
    if (optind != argc || device.device == NULL) {
        return via_cli_usage(argv[0],
                             optind != argc ? "one argument too many" : "--device is missing");
    }
    return print_status(&device);
}
