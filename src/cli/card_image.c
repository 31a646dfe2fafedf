/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct card image: EEPROM images as files. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/make.h"
#include "card/registers.h"
#include "card/text.h"
#include "cli/card.h"
#include "cli/cli.h"

static const char help[] =
    "usage: viaduct card image make --card CARD --role ROLE [OPTION...] --output FILE\n"
    "       viaduct card image dump IMAGE\n"
    "       viaduct card image compile TEXT --output FILE\n"
    "       viaduct card image lint FILE [--card CARD] [--dip DIGITS]\n"
    "       viaduct card image diff FILE FILE\n"
    "\n"
    "EEPROM images of adapter cards. A FILE is an image, or its text as dump prints it; '-' is\n"
    "standard input or output.\n"
    "  make      an image for a card in a role\n"
    "  dump      an image as text that explains each register\n"
    "  compile   the text as an image\n"
    "  lint      finds mistakes in it; exit status 1 if anything is an error\n"
    "  diff      which registers differ; exit status 1 if any does\n"
    "\n"
    "  --card CARD      pex8749-x8 or pex8733-x16\n"
    "  --role ROLE      host or box\n"
    "  --mode MODE      transparent or ntb (default transparent)\n"
    "  --medium MEDIUM  optical or copper (default optical)\n"
    "  --bar MIB        ntb: size of BAR 2/3 of both sides, a power of two (default 4)\n"
    "  --alut           ntb: an address look-up table with 256 entries\n"
    "  --no-assumed     leave out registers that only other chips' documents name\n"
    "  --dip DIGITS     the card's DIP switches, positions 1 to 4, 1 is on: 0101\n"
    "  --output FILE    where the image goes\n"
    "  -h, --help       this text\n";

enum { OPT_CARD = 256, OPT_ROLE, OPT_MODE, OPT_MEDIUM, OPT_BAR, OPT_ALUT, OPT_NO_ASSUMED, OPT_DIP };

static const struct option long_options[] = {
    {"card", required_argument, NULL, OPT_CARD},
    {"role", required_argument, NULL, OPT_ROLE},
    {"mode", required_argument, NULL, OPT_MODE},
    {"medium", required_argument, NULL, OPT_MEDIUM},
    {"bar", required_argument, NULL, OPT_BAR},
    {"alut", no_argument, NULL, OPT_ALUT},
    {"no-assumed", no_argument, NULL, OPT_NO_ASSUMED},
    {"dip", required_argument, NULL, OPT_DIP},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct options {
    const char *name; /* of the command */
    const struct via_card *card;
    const char *role;
    enum via_card_role role_number;
    enum via_card_mode mode;
    enum via_card_medium medium;
    uint64_t bar_bytes;
    bool with_alut, with_assumed;
    int dip; /* -1: not given */
    const char *output;
};

/* Parses DIP positions such as "0101". */
static int take_dip(const char *text, int *ret_dip)
{
    if (strlen(text) != VIA_CARD_DIP_POSITIONS || strspn(text, "01") != VIA_CARD_DIP_POSITIONS) {
        return -EINVAL;
    }
    *ret_dip = 0;
    for (unsigned i = 0; i < VIA_CARD_DIP_POSITIONS; i++) {
        *ret_dip |= text[i] == '1' ? 1 << i : 0;
    }
    return 0;
}

static int complain(const struct options *options, const char *option, const char *what)
{
    return via_cli_usage(options->name, "--%s: '%s': %s", option, optarg, what);
}

/* -1: the option was taken; otherwise the exit code. */
static int take_option(int opt, struct options *options)
{
    unsigned number;
    switch (opt) {
    case OPT_CARD:
        return via_cli_card_take_card(options->name, optarg, &options->card) == VIA_CLI_OK
                   ? -1
                   : VIA_CLI_USAGE;
    case OPT_ROLE:
        options->role = optarg;
        return via_card_role_parse(optarg, &options->role_number) == 0
                   ? -1
                   : complain(options, "role", "neither host nor box");
    case OPT_MODE:
        return via_card_mode_parse(optarg, &options->mode) == 0
                   ? -1
                   : complain(options, "mode", "neither transparent nor ntb");
    case OPT_MEDIUM:
        return via_card_medium_parse(optarg, &options->medium) == 0
                   ? -1
                   : complain(options, "medium", "neither optical nor copper");
    case OPT_BAR:
        if (via_cli_number(optarg, 1, 65536, &number) != 0) {
            return complain(options, "bar", "a number from 1 to 65536");
        }
        options->bar_bytes = (uint64_t)number << 20;
        return -1;
    case OPT_ALUT:
        options->with_alut = true;
        return -1;
    case OPT_NO_ASSUMED:
        options->with_assumed = false;
        return -1;
    case OPT_DIP:
        return take_dip(optarg, &options->dip) == 0
                   ? -1
                   : complain(options, "dip", "not four digits 0 or 1");
    case 'o':
        options->output = optarg;
        return -1;
    default:
        return via_cli_take_help(options->name, opt, help);
    }
}

static int write_image(const struct options *options, const struct via_card_image *image)
{
    static uint8_t bytes[VIA_CARD_IMAGE_BYTES_MAX];
    struct via_error err = {0};
    size_t count;
    int rc = via_card_image_write(image, bytes, &count);
    if (rc != 0) {
        via_error_set(&err, rc, "%s: more than 64 KiB", options->output);
    } else {
        rc = via_cli_card_write(options->output, bytes, count, &err);
    }
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(options->name, &err);
}

/* --- make --- */

static void print_assumptions(const struct options *options)
{
    fprintf(stderr,
            "%s: which ports are at the slot and at the cable is derived, not public; the image "
            "was never tried on a card\n",
            options->name);
    if (options->with_assumed) {
        fprintf(stderr, "%s: assumed, as in a PEX 8734: 0x300%s (--no-assumed leaves it out)\n",
                options->name,
                options->role_number == VIA_CARD_HOST && options->mode == VIA_CARD_TRANSPARENT
                    ? ", and the place of 0x07c"
                    : "");
    }
    if (options->card->unsure != NULL) {
        fprintf(stderr, "%s: not decidable from public facts: %s\n", options->name,
                options->card->unsure);
    }
}

static int make(struct options *options, char **words)
{
    static struct via_card_image image;
    struct via_error err = {0};
    (void)words;
    if (options->card == NULL || options->role == NULL || options->output == NULL) {
        return via_cli_usage(options->name, "--card, --role and --output are needed");
    }
    struct via_card_make_options how = {
        .card = options->card,
        .setup = via_card_setup_find(options->role_number, options->mode, options->medium),
        .bar_bytes = options->bar_bytes,
        .with_alut = options->with_alut,
        .with_assumed = options->with_assumed,
    };
    if (via_card_image_make(&how, &image, &err) != 0) {
        return via_cli_fail(options->name, &err);
    }
    int code = write_image(options, &image);
    if (code == VIA_CLI_OK) {
        print_assumptions(options);
    }
    return code;
}

/* --- dump, compile, lint --- */

static int dump(struct options *options, char **words)
{
    struct via_cli_card_file *file;
    struct via_error err = {0};
    if (via_cli_card_load(words[0], &file, &err) != 0) {
        return via_cli_fail(options->name, &err);
    }
    via_card_text_print(&file->image, stdout);
    free(file);
    return VIA_CLI_OK;
}

static int compile(struct options *options, char **words)
{
    struct via_cli_card_file *file;
    struct via_error err = {0};
    if (options->output == NULL) {
        return via_cli_usage(options->name, "--output is missing");
    }
    if (via_cli_card_load(words[0], &file, &err) != 0) {
        return via_cli_fail(options->name, &err);
    }
    int code = write_image(options, &file->image);
    free(file);
    return code;
}

static int lint(struct options *options, char **words)
{
    struct via_cli_card_file *file;
    struct via_error err = {0};
    if (via_cli_card_load(words[0], &file, &err) != 0) {
        return via_cli_fail(options->name, &err);
    }
    const struct via_card_lint_options how = {.card = options->card, .dip = options->dip};
    unsigned errors = via_cli_card_print_lint(file, &how);
    printf("%s: %u registers, %u error%s\n", file->path, file->image.entries_count, errors,
           errors == 1 ? "" : "s");
    free(file);
    return errors == 0 ? VIA_CLI_OK : VIA_CLI_FAILED;
}

/* --- diff --- */

struct last {
    const struct via_card_image *image;
    unsigned by_address[1u << 16]; /* index of the last entry, + 1 */
};

static void last_init(struct last *last, const struct via_card_image *image)
{
    memset(last, 0, sizeof(*last));
    last->image = image;
    for (unsigned i = 0; i < image->entries_count; i++) {
        last->by_address[image->entries[i].address] = i + 1;
    }
}

static void print_side(char sign, const struct last *last, unsigned address)
{
    char text[400], space[VIA_CARD_SPACE_BYTES];
    unsigned code = via_card_address_code((uint16_t)address);
    if (last->by_address[address] == 0) {
        return;
    }
    uint32_t value = last->image->entries[last->by_address[address] - 1].value;
    via_card_register_explain((uint16_t)address, value, text, sizeof(text));
    printf("%c reg 0x%02x 0x%03x 0x%08x  # %s: %s\n", sign, code,
           via_card_address_off((uint16_t)address), value, via_card_space_name(code, space), text);
}

/* Compares by address, using the last value that the chip loads for each. */
static unsigned diff_registers(const struct via_card_image *a, const struct via_card_image *b)
{
    static struct last lasts[2];
    unsigned differ = 0;
    last_init(&lasts[0], a);
    last_init(&lasts[1], b);
    for (unsigned address = 0; address < 1u << 16; address++) {
        unsigned left = lasts[0].by_address[address], right = lasts[1].by_address[address];
        bool is_same = (left == 0) == (right == 0) &&
                       (left == 0 || a->entries[left - 1].value == b->entries[right - 1].value);
        if (!is_same) {
            print_side('-', &lasts[0], address);
            print_side('+', &lasts[1], address);
            differ++;
        }
    }
    return differ;
}

static bool is_same_order(const struct via_card_image *a, const struct via_card_image *b)
{
    for (unsigned i = 0; i < a->entries_count && i < b->entries_count; i++) {
        if (a->entries[i].address != b->entries[i].address ||
            a->entries[i].value != b->entries[i].value) {
            return false;
        }
    }
    return a->entries_count == b->entries_count;
}

static unsigned diff_rest(const struct via_card_image *a, const struct via_card_image *b,
                          unsigned registers)
{
    unsigned differ = 0;
    if (a->flags != b->flags) {
        printf("- flags 0x%02x\n+ flags 0x%02x\n", a->flags, b->flags);
        differ++;
    }
    if (registers == 0 && !is_same_order(a, b)) {
        printf("the same registers, in another order or more than once\n");
        differ++;
    }
    bool is_right[2] = {a->crc == via_card_image_crc(a), b->crc == via_card_image_crc(b)};
    if (a->crc_is_there != b->crc_is_there || is_right[0] != is_right[1]) {
        printf("- crc %s\n+ crc %s\n",
               !a->crc_is_there ? "none"
               : is_right[0]    ? "right"
                                : "wrong",
               !b->crc_is_there ? "none"
               : is_right[1]    ? "right"
                                : "wrong");
        differ++;
    }
    if (a->tail_bytes != b->tail_bytes || memcmp(a->tail, b->tail, a->tail_bytes) != 0) {
        struct via_card_mark left = via_card_mark_find(a->tail, a->tail_bytes);
        struct via_card_mark right = via_card_mark_find(b->tail, b->tail_bytes);
        printf("- behind the CRC: %u bytes%s%.*s", a->tail_bytes, left.bytes != 0 ? ": " : "\n",
               (int)left.bytes, (const char *)a->tail);
        printf("+ behind the CRC: %u bytes%s%.*s", b->tail_bytes, right.bytes != 0 ? ": " : "\n",
               (int)right.bytes, (const char *)b->tail);
        differ++;
    }
    return differ;
}

static int diff(struct options *options, char **words)
{
    struct via_cli_card_file *files[2] = {NULL, NULL};
    struct via_error err = {0};
    int code = VIA_CLI_OK;
    for (unsigned i = 0; i < 2 && code == VIA_CLI_OK; i++) {
        if (via_cli_card_load(words[i], &files[i], &err) != 0) {
            files[i] = NULL;
            code = via_cli_fail(options->name, &err);
        }
    }
    if (code == VIA_CLI_OK) {
        unsigned registers = diff_registers(&files[0]->image, &files[1]->image);
        unsigned differ = registers + diff_rest(&files[0]->image, &files[1]->image, registers);
        code = differ == 0 ? VIA_CLI_OK : VIA_CLI_FAILED;
    }
    free(files[0]);
    free(files[1]);
    return code;
}

/* --- the command --- */

static const struct {
    const char *name;
    unsigned files_count;
    int (*run)(struct options *options, char **words);
} verbs[] = {
    {"make", 0, make}, {"dump", 1, dump}, {"compile", 1, compile},
    {"lint", 1, lint}, {"diff", 2, diff},
};

static int run_verb(struct options *options, const char *verb, int words_count, char **words)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(verbs); i++) {
        if (strcmp(verbs[i].name, verb) != 0) {
            continue;
        }
        if ((unsigned)words_count != verbs[i].files_count) {
            return via_cli_usage(options->name, "%s: %d files given, %u wanted", verb, words_count,
                                 verbs[i].files_count);
        }
        return verbs[i].run(options, words);
    }
    return via_cli_usage(options->name, "'%s': unknown verb", verb);
}

int via_cli_card_image(int argc, char **argv)
{
    struct options options = {.name = argv[0],
                              .mode = VIA_CARD_TRANSPARENT,
                              .medium = VIA_CARD_OPTICAL,
                              .bar_bytes = UINT64_C(4) << 20,
                              .with_assumed = true,
                              .dip = -1};
    for (int c; (c = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1;) {
        int code = take_option(c, &options);
        if (code >= 0) {
            return code;
        }
    }
    if (optind == argc) {
        return via_cli_usage(argv[0], "make, dump, compile, lint or diff?");
    }
    return run_verb(&options, argv[optind], argc - optind - 1, argv + optind + 1);
}
