/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct card: the table of its commands, and the functions that they share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/text.h"
#include "cli/card.h"
#include "cli/cli.h"

static const char help[] =
    "usage: viaduct card roles [CARD|--verilog]\n"
    "       viaduct card image make|dump|compile|lint|diff ...\n"
    "       viaduct card eeprom read|verify|flash ...\n"
    "       viaduct card check FILE [--svg FILE]\n"
    "       viaduct card status --device D\n"
    "\n"
    "Adapter cards with a PEX 8749 or PEX 8733:\n"
    "  roles    each card, role, mode and medium: DIP switches, ports, RESET, CLOCK, cables\n"
    "  image    EEPROM images: 'viaduct card image --help'\n"
    "  eeprom   the EEPROM of a card: 'viaduct card eeprom --help'\n"
    "  check    finds mistakes in a system of hosts, boxes, cards and cables\n"
    "  status   the role, link and errors of a card of this machine\n"
    "\n"
    "No card and no chip was at hand: derived, assumed and unknown facts are marked.\n"
    "\n"
    "  -h, --help       this text\n";

/* --- files --- */

int via_cli_card_read(const char *path, size_t bytes_max, unsigned char **ret_bytes,
                      size_t *ret_count, struct via_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rbe");
    if (file == NULL) {
        return via_error_set(err, -errno, "%s: open: %s", path, strerror(errno));
    }
    unsigned char *bytes = malloc(bytes_max + 1);
    int rc = 0;
    if (bytes == NULL) {
        rc = via_error_set(err, -ENOMEM, "%s: read: %s", path, strerror(ENOMEM));
    } else {
        *ret_count = fread(bytes, 1, bytes_max + 1, file);
        if (ferror(file)) {
            rc = via_error_set(err, -errno, "%s: read: %s", path, strerror(errno));
        } else if (*ret_count > bytes_max) {
            rc = via_error_set(err, -EFBIG, "%s: read: more than %zu bytes", path, bytes_max);
        }
    }
    if (!is_stdin) {
        fclose(file);
    }
    if (rc != 0) {
        free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    return 0;
}

static bool is_text(const unsigned char *bytes, size_t count)
{
    return count != 0 && bytes[0] != VIA_CARD_IMAGE_SIGNATURE && bytes[0] < 0x7f &&
           (bytes[0] >= ' ' || bytes[0] == '\n' || bytes[0] == '\t');
}

int via_cli_card_load(const char *path, struct via_cli_card_file **ret_file, struct via_error *err)
{
    unsigned char *bytes;
    size_t count;
    int rc = via_cli_card_read(path, VIA_CARD_TEXT_BYTES_MAX, &bytes, &count, err);
    if (rc != 0) {
        return rc;
    }
    struct via_cli_card_file *file = malloc(sizeof(*file));
    if (file == NULL) {
        rc = via_error_set(err, -ENOMEM, "%s: read: %s", path, strerror(ENOMEM));
    } else {
        file->path = path;
        file->is_text = is_text(bytes, count);
        rc = file->is_text ? via_card_text_parse(path, (const char *)bytes, count, &file->image,
                                                 file->lines, err)
                           : via_card_image_parse(path, bytes, count, &file->image, err);
    }
    free(bytes);
    if (rc != 0) {
        free(file);
        return rc;
    }
    *ret_file = file;
    return 0;
}

int via_cli_card_write(const char *path, const void *bytes, size_t count, struct via_error *err)
{
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *file = is_stdout ? stdout : fopen(path, "wbe");
    if (file == NULL) {
        return via_error_set(err, -errno, "%s: open: %s", path, strerror(errno));
    }
    bool is_written = fwrite(bytes, 1, count, file) == count && fflush(file) == 0;
    int cause = errno;
    if (!is_stdout && fclose(file) != 0 && is_written) {
        is_written = false;
        cause = errno;
    }
    return is_written ? 0 : via_error_set(err, -cause, "%s: write: %s", path, strerror(cause));
}

/* --- findings --- */

static void print_finding(void *ctx, const struct via_card_finding *finding)
{
    const struct via_cli_card_file *file = ctx;
    size_t at[] = {
        [VIA_CARD_AT_ENTRY] = via_card_entry_off(finding->entry),
        [VIA_CARD_AT_HEAD] = 0,
        [VIA_CARD_AT_CRC] = via_card_entry_off(file->image.entries_count),
        [VIA_CARD_AT_TAIL] = via_card_entry_off(file->image.entries_count) + 4,
    };
    printf("%s:", file->path);
    if (!file->is_text) {
        printf(" byte %zu:", at[finding->place]);
    } else if (finding->place == VIA_CARD_AT_ENTRY) {
        printf("%u:", file->lines[finding->entry]);
    }
    printf(" %s: %s\n", via_card_severity_name(finding->severity), finding->text);
}

unsigned via_cli_card_print_lint(const struct via_cli_card_file *file,
                                 const struct via_card_lint_options *options)
{
    return via_card_lint(&file->image, options, print_finding, (void *)(uintptr_t)file);
}

int via_cli_card_take_card(const char *name, const char *text, const struct via_card **ret_card)
{
    *ret_card = via_card_find(text);
    if (*ret_card != NULL) {
        return VIA_CLI_OK;
    }
    char names[128] = "";
    const struct via_card *card;
    for (unsigned i = 0; (card = via_card_at(i)) != NULL; i++) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i == 0 ? "" : ", ",
                 card->name);
    }
    return via_cli_usage(name, "'%s': unknown card (there are: %s)", text, names);
}

/* --- roles --- */

static void print_setup(const struct via_card *card, const struct via_card_setup *setup)
{
    char to[VIA_CARD_DESTINATIONS_BYTES], dip[VIA_CARD_DIP_BYTES];
    printf("  %s, %s, %s\n", via_card_role_name(setup->role), via_card_mode_name(setup->mode),
           via_card_medium_name(setup->medium));
    if (setup->refused != NULL) {
        printf("    no such role: %s\n", setup->refused);
        return;
    }
    printf("    DIP      %s\n", via_card_dip(setup->dip, dip));
    printf("    ports    upstream %u (%s), %s %u (%s), x%u each\n",
           setup->upstream_is_slot ? card->slot_port : card->far_port,
           setup->upstream_is_slot ? "slot" : "cable", setup->has_nt ? "NT0" : "downstream",
           setup->upstream_is_slot ? card->far_port : card->slot_port,
           setup->upstream_is_slot ? "cable" : "slots", card->lanes);
    printf("    RESET    from %s to %s\n", via_card_source_name(setup->reset.from),
           via_card_destinations(setup->reset.to, to));
    printf("    CLOCK    from %s to %s\n", via_card_source_name(setup->clock.from),
           via_card_destinations(setup->clock.to, to));
    unsigned cables = via_card_cables(card, setup->medium);
    if (setup->medium == VIA_CARD_OPTICAL) {
        printf("    cables   %u MPO, up to %u m\n", cables, VIA_CARD_OPTICAL_METRES_MAX);
    } else {
        printf("    cables   %u mini-SAS and 1 sideband, up to %u m\n", cables,
               VIA_CARD_COPPER_METRES_MAX);
    }
}

static void print_card(const struct via_card *card)
{
    const struct via_card_setup *setup;
    printf("%s: PEX %04x, %u lanes, Gen%u x%u\n", card->name, card->chip, card->chip_lanes,
           VIA_CARD_GENERATION, card->lanes);
    if (card->unsure != NULL) {
        printf("  not decidable from public facts: %s\n", card->unsure);
    }
    for (unsigned i = 0; (setup = via_card_setup_at(i)) != NULL; i++) {
        print_setup(card, setup);
    }
}

/* Prints the table for hw/signal_select: {refused, clock to, clock from, reset to, reset from} by
 * role, which is the value of DIP positions 1 to 3. */
static void print_verilog(void)
{
    printf("// Generated from src/card/table.c by 'viaduct card roles --verilog'.\n"
           "function [10:0] role_table(input [2:0] role);\n    case (role)\n");
    for (unsigned dip = 0; dip < VIA_CARD_DIP_EEPROM; dip++) {
        const struct via_card_setup *setup = via_card_setup_by_dip(dip);
        if (setup == NULL) {
            printf("    3'd%u: role_table = {1'b1, 10'd0};\n", dip);
        } else {
            printf("    3'd%u: role_table = {1'b0, 3'd%u, 2'd%u, 3'd%u, 2'd%u}; // %s %s %s\n", dip,
                   setup->clock.to, setup->clock.from, setup->reset.to, setup->reset.from,
                   via_card_role_name(setup->role), via_card_mode_name(setup->mode),
                   via_card_medium_name(setup->medium));
        }
    }
    printf("    endcase\nendfunction\n");
}

static int roles(int argc, char **argv)
{
    const struct via_card *card;
    if (argc > 2) {
        return via_cli_usage(argv[0], "'%s': one argument too many", argv[2]);
    }
    if (argc == 2 && strcmp(argv[1], "--verilog") == 0) {
        print_verilog();
        return VIA_CLI_OK;
    }
    if (argc == 2) {
        int code = via_cli_card_take_card(argv[0], argv[1], &card);
        if (code == VIA_CLI_OK) {
            print_card(card);
        }
        return code;
    }
    for (unsigned i = 0; (card = via_card_at(i)) != NULL; i++) {
        print_card(card);
    }
    printf("DIP positions, and all but chips, widths and cables, are derived: no public source has "
           "them.\n");
    return VIA_CLI_OK;
}

/* --- the command --- */

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} parts[] = {
    {"roles", roles},
    {"image", via_cli_card_image},
    {"eeprom", via_cli_card_eeprom},
    {"check", via_cli_card_check},
    {"status", via_cli_card_status},
};

int via_cli_card(int argc, char **argv)
{
    if (argc < 2) {
        return via_cli_usage(argv[0], "roles, image, eeprom, check or status?");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, stdout);
        return VIA_CLI_OK;
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(parts); i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            char name[64];
            snprintf(name, sizeof(name), "%s %s", argv[0], parts[i].name);
            argv[1] = name;
            return parts[i].run(argc - 1, argv + 1);
        }
    }
    return via_cli_usage(argv[0], "'%s': unknown part of card", argv[1]);
}
