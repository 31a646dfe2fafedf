/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The parts that all viaduct card commands share. */
#ifndef VIA_CLI_CARD_H
#define VIA_CLI_CARD_H

#include <stddef.h>

#include "card/image.h"
#include "card/lint.h"
#include "vfio/pci.h"

/* argv[0]: the name for messages, "viaduct card image". */
int via_cli_card_image(int argc, char **argv);
int via_cli_card_eeprom(int argc, char **argv);
int via_cli_card_check(int argc, char **argv);
int via_cli_card_status(int argc, char **argv);

#define VIA_CLI_CARD_BRIDGE "bridge:"
/* Opens 0000:03:00.0, bridge:0000:02:00.0 (which the kernel's pcieport keeps) or vfio-user:PATH.
 * sysfs: used instead of /sys, or NULL. Errors begin with the device. */
VIA_MUST_CHECK int via_cli_card_open(const char *device, const char *sysfs,
                                     struct via_pci **ret_pci, struct via_error *err);

/* An image, or a text that describes one. */
struct via_cli_card_file {
    const char *path; /* borrowed */
    bool is_text;
    struct via_card_image image;
    unsigned lines[VIA_CARD_ENTRIES_MAX]; /* of each entry, in a text */
};

/* Reads a whole file ("-": standard input) of at most bytes_max bytes. The caller frees
 * *ret_bytes. */
VIA_MUST_CHECK int via_cli_card_read(const char *path, size_t bytes_max, unsigned char **ret_bytes,
                                     size_t *ret_count, struct via_error *err);
/* Loads a file. The caller frees *ret_file. */
VIA_MUST_CHECK int via_cli_card_load(const char *path, struct via_cli_card_file **ret_file,
                                     struct via_error *err);
/* Writes a whole file ("-": standard output). */
VIA_MUST_CHECK int via_cli_card_write(const char *path, const void *bytes, size_t count,
                                      struct via_error *err);

/* Prints the findings of lint, each with its place. Returns the number of errors among them. */
unsigned via_cli_card_print_lint(const struct via_cli_card_file *file,
                                 const struct via_card_lint_options *options);

/* The options of commands that access a card of this machine. */
struct via_cli_card_device {
    const char *name;            /* of the command, for messages */
    const char *device;          /* NULL: not given */
    const char *sysfs;           /* NULL: /sys */
    const struct via_card *card; /* NULL: not given */
    unsigned address_bytes;      /* 0: not given */
    unsigned size;               /* of the EEPROM */
};
/* Entries for long_options, --help among them; "h" is the short option. */
#define VIA_CLI_CARD_DEVICE_OPTIONS                                                              \
    {"sysfs", required_argument, NULL, 'y'}, {"device", required_argument, NULL, 'd'},           \
        {"card", required_argument, NULL, 'c'}, {"address-bytes", required_argument, NULL, 'a'}, \
        {"size", required_argument, NULL, 's'},                                                  \
    {                                                                                            \
        "help", no_argument, NULL, 'h'                                                           \
    }
/* -1: the option was taken. Otherwise the exit code, after the help or a message. */
VIA_MUST_CHECK int via_cli_card_take_device(int opt, const char *help,
                                            struct via_cli_card_device *device);
void via_cli_card_pause_us(unsigned us);

/* Prints the values of the sensors in a table: a file, or a table of this project. i2c: /dev/i2c-N,
 * dump:FILE, or NULL. *ret_wrong: the number of values out of range. */
VIA_MUST_CHECK int via_cli_card_print_sensors(const char *table, const char *i2c,
                                              unsigned *ret_wrong, struct via_error *err);

/* Parses the argument of --card. VIA_CLI_OK; or VIA_CLI_USAGE after a message. */
VIA_MUST_CHECK int via_cli_card_take_card(const char *name, const char *text,
                                          const struct via_card **ret_card);

#endif
