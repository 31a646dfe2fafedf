/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct card status: compares a card with its image, and its link with the capabilities of the
 * card. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/eeprom.h"
#include "card/make.h"
#include "card/registers.h"
#include "cli/card.h"
#include "cli/cli.h"
#include "vfio/kernel.h"

/* In BAR 0 (FreeBSD ntb_hw_plx.c; link status: VCA). */
#define NT0_VIRTUAL 0x3E000u
#define LINK_STATUS 0x78u
#define LINK_ERRORS 0xFE0u
#define NT0_ON (1u << 13)
#define NT_ALUTS (3u << 30)

static const char help[] =
    "usage: viaduct card status --device D [--card CARD] [--sensors TABLE [--i2c BUS]]\n"
    "                           [--address-bytes N] [--size BYTES]\n"
    "\n"
    "A card of this machine: its chip, the role in force and the one of its EEPROM's image, its\n"
    "links beside what they can do, errors, and sensors. Exit status 1 if anything is not as it\n"
    "should be. Tried on a register model, never on a chip.\n"
    "\n"
    "  --device D         0000:03:00.0 (an NT port, bound to vfio-pci), bridge:0000:02:00.0 (the\n"
    "                     upstream port of a transparent card, which its driver keeps) or\n"
    "                     vfio-user:PATH\n"
    "  --card CARD        the card that it is, if its image does not say so\n"
    "  --address-bytes N  1 to 3, of a blank EEPROM\n"
    "  --size BYTES       of the EEPROM, a multiple of 4 up to 65536 (512 by default)\n"
    "  --sensors TABLE    a file (viaduct-card(1) has its lines), or ecuo-x4, the map of like "
    "modules\n"
    "  --i2c BUS          /dev/i2c-N, or dump:FILE: a recorded dump of one\n"
    "  --sysfs DIR        instead of /sys\n"
    "  -h, --help         this text\n";

enum { OPT_SENSORS = 256, OPT_I2C };

static const struct option long_options[] = {{"sensors", required_argument, NULL, OPT_SENSORS},
                                             {"i2c", required_argument, NULL, OPT_I2C},
                                             VIA_CLI_CARD_DEVICE_OPTIONS,
                                             {NULL, 0, NULL, 0}};

struct status {
    const struct via_cli_card_device *device;
    const char *sensors, *i2c; /* NULL: not named */
    struct via_pci *pci;
    const struct via_card *card; /* NULL: not known */
    const struct via_card_setup *setup;
    unsigned wrong_count;
};

/* --- the image --- */

/* Prints the image in the EEPROM, and takes card and role from it. */
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

/* --- settings in force --- */

static void print_role(struct status *status)
{
    uint32_t ports = via_pci_read32(status->pci, 0, VIA_CARD_REG_PORTS);
    unsigned upstream = ports & 0x1f;
    bool has_nt = (ports & NT0_ON) != 0;
    printf("in force  upstream port %u, NT0 ", upstream);
    if (has_nt) {
        printf("port %u", ports >> 8 & 0x1f);
    } else {
        printf("off");
    }
    if (status->card != NULL) {
        bool is_host = upstream == status->card->slot_port;
        printf(": %s", is_host && has_nt                               ? "host, ntb"
                       : is_host                                       ? "host, transparent"
                       : upstream == status->card->far_port && !has_nt ? "box, transparent"
                                                                       : "no role of the table");
    }
    printf("\n");
    if (status->card == NULL || status->setup == NULL) {
        printf("          the card or its role is not known: nothing to compare with\n");
        return;
    }
    uint32_t expected = via_card_ports_value(status->card, status->setup, false);
    /* The port number of a port that is off has no meaning. */
    uint32_t counts = 0x1fu | NT0_ON | ((expected & NT0_ON) != 0 ? 0x1f00u : 0);
    if (((ports ^ expected) & counts) != 0) {
        printf("          the image's role has 0x360 = 0x%08x, in force is 0x%08x: NOT as in the "
               "image (power-on since it was written? DIP position 4?)\n",
               expected, ports & ~NT_ALUTS);
        status->wrong_count++;
    }
}

/* Prints the trained state of a link beside the wanted one; 0: unknown. */
static void print_trained(struct status *status, const char *name, unsigned generation,
                          unsigned width, unsigned generation_wanted, unsigned width_wanted)
{
    if (generation == 0 || width == 0) {
        printf("%-9s down\n", name);
        status->wrong_count++;
        return;
    }
    printf("%-9s Gen%u x%u", name, generation, width);
    if (generation < generation_wanted || width < width_wanted) {
        printf(", NOT Gen%u x%u as the card can", generation_wanted, width_wanted);
        status->wrong_count++;
    }
    printf("\n");
}

static void print_register_link(struct status *status, const char *name, uint32_t off)
{
    uint32_t link = via_pci_read32(status->pci, 0, off + LINK_STATUS);
    bool answers = link != UINT32_MAX;
    print_trained(status, name, answers ? link >> 16 & 0xf : 0, answers ? link >> 20 & 0x1f : 0,
                  status->card != NULL ? VIA_CARD_GENERATION : 0,
                  status->card != NULL ? status->card->lanes : 0);
}

/* Prints the links. The registers of a port begin at 4 KiB times its number (as FreeBSD's driver
 * finds 0x208). */
static void print_links(struct status *status)
{
    uint32_t ports = via_pci_read32(status->pci, 0, VIA_CARD_REG_PORTS);
    if ((ports & NT0_ON) != 0) {
        uint32_t errors = via_pci_read32(status->pci, 0, NT0_VIRTUAL + LINK_ERRORS);
        print_register_link(status, "NT link", NT0_VIRTUAL);
        printf("errors    0x%x%s%s%s%s\n", errors & 0xf, (errors & 1) != 0 ? " correctable" : "",
               (errors & 2) != 0 ? " uncorrectable" : "", (errors & 4) != 0 ? " link-down" : "",
               (errors & 8) != 0 ? " message-dropped" : "");
        status->wrong_count += (errors & 2) != 0;
    } else if (status->card == NULL) {
        printf("links     the card is not known, so which ports they are is not: --card\n");
    } else {
        print_register_link(status, "slot link", (uint32_t)status->card->slot_port << 12);
        print_register_link(status, "far link", (uint32_t)status->card->far_port << 12);
    }
}

/* --- counters of the kernel --- */

/* The number of "TOTAL_ERR_COR 3" in a file of the kernel's advanced error reporting; -1: none. */
static long read_total(const struct status *status, const char *address, const char *file)
{
    char path[256], word[64];
    long number, total = -1;
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s",
             status->device->sysfs != NULL ? status->device->sysfs : "/sys", address, file);
    FILE *in = fopen(path, "re");
    if (in == NULL) {
        return -1;
    }
    for (unsigned i = 0; i < 64 && fscanf(in, "%63s %ld", word, &number) == 2; i++) {
        total = strncmp(word, "TOTAL_", 6) == 0 ? number : total;
    }
    fclose(in);
    return total;
}

static void print_counters(struct status *status)
{
    static const char *const files[] = {"aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"};
    static const char *const names[] = {"correctable", "nonfatal", "fatal"};
    const char *address = status->device->device;
    if (strncmp(address, VIA_CLI_CARD_BRIDGE, strlen(VIA_CLI_CARD_BRIDGE)) == 0) {
        address += strlen(VIA_CLI_CARD_BRIDGE);
    } else if (!via_kernel_is_address(address)) {
        return;
    }
    printf("counters ");
    bool any = false;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(files); i++) {
        long total = read_total(status, address, files[i]);
        if (total >= 0) {
            printf("%s %s %ld", any ? "," : "", names[i], total);
            status->wrong_count += i > 0 && total > 0;
            any = true;
        }
    }
    printf(any ? " (since it was found)\n" : " the kernel has none of this function (AER)\n");
}

static int print_sensors(struct status *status, struct via_error *err)
{
    unsigned wrong = 0;
    if (status->sensors == NULL) {
        printf("sensors   none was named (--sensors TABLE): the map of the cards' optics is not "
               "public\n");
        return 0;
    }
    int rc = via_cli_card_print_sensors(status->sensors, status->i2c, &wrong, err);
    status->wrong_count += wrong;
    return rc;
}

static int print_status(struct status *status)
{
    const struct via_cli_card_device *device = status->device;
    struct via_error err = {0};
    if (via_cli_card_open(device->device, device->sysfs, &status->pci, &err) != 0) {
        return via_cli_fail(device->name, &err);
    }
    print_image(status, device->address_bytes, device->size);
    uint32_t ids = via_pci_read32(status->pci, 0, 0);
    printf("chip      PEX %04x\n", ids >> 16);
    if (status->card != NULL && status->card->chip != ids >> 16) {
        printf("          NOT the PEX %04x of %s\n", status->card->chip, status->card->name);
        status->wrong_count++;
    }
    print_role(status);
    print_links(status);
    print_counters(status);
    status->pci->ops->close(status->pci);
    if (print_sensors(status, &err) != 0) {
        return via_cli_fail(device->name, &err);
    }
    return status->wrong_count == 0 ? VIA_CLI_OK : VIA_CLI_FAILED;
}

int via_cli_card_status(int argc, char **argv)
{
    struct via_cli_card_device device = {.name = argv[0], .size = 512};
    struct status status = {.device = &device};
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (c == OPT_SENSORS || c == OPT_I2C) {
            *(c == OPT_SENSORS ? &status.sensors : &status.i2c) = optarg;
            continue;
        }
        int code = via_cli_card_take_device(c, help, &device);
        if (code >= 0) {
            return code;
        }
    }
    if (optind != argc || device.device == NULL) {
        return via_cli_usage(argv[0],
                             optind != argc ? "one argument too many" : "--device is missing");
    }
    if (status.i2c != NULL && status.sensors == NULL) {
        return via_cli_usage(argv[0], "--i2c: which --sensors?");
    }
    status.card = device.card;
    return print_status(&status);
}
