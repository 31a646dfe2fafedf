/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/text.h"

#include <errno.h>
#include <string.h>

#include "card/registers.h"
#include "card/words.h"

#define RUN_BYTES_MIN 8u /* shortest run of equal bytes that is printed as "fill" */
#define BYTES_OF_LINE 16u

/* --- image to text --- */

static void print_entry(const struct via_card_entry *entry, FILE *out)
{
    char space[VIA_CARD_SPACE_BYTES], text[400];
    via_card_register_explain(entry->address, entry->value, text, sizeof(text));
    unsigned code = via_card_address_code(entry->address);
    fprintf(out, "reg 0x%02x 0x%03x 0x%08x  # %s: %s\n", code, via_card_address_off(entry->address),
            entry->value, via_card_space_name(code, space), text);
}

static unsigned run_at(const uint8_t *bytes, unsigned count)
{
    unsigned run = 1;
    while (run < count && bytes[run] == bytes[0]) {
        run++;
    }
    return run;
}

static void print_tail(const uint8_t *tail, unsigned count, FILE *out)
{
    for (unsigned at = 0; at < count;) {
        unsigned run = run_at(tail + at, count - at);
        if (run >= RUN_BYTES_MIN) {
            fprintf(out, "fill 0x%02x %u\n", tail[at], run);
            at += run;
            continue;
        }
        fputs("bytes", out);
        unsigned printed = 0;
        do {
            fprintf(out, " 0x%02x", tail[at++]);
            printed++;
        } while (at < count && printed < BYTES_OF_LINE &&
                 run_at(tail + at, count - at) < RUN_BYTES_MIN);
        fputc('\n', out);
    }
}

void via_card_text_print(const struct via_card_image *image, FILE *out)
{
    fprintf(out, "# EEPROM image of a PEX 87xx: %u registers\n", image->entries_count);
    fprintf(out, "flags 0x%02x  # CRC %s by the chip\n", image->flags,
            (image->flags & VIA_CARD_IMAGE_HAS_CRC) != 0 ? "checked" : "not checked");
    for (unsigned i = 0; i < image->entries_count; i++) {
        print_entry(&image->entries[i], out);
    }
    uint32_t crc = via_card_image_crc(image);
    if (!image->crc_is_there) {
        fputs("crc none\n", out);
    } else if (image->crc == crc) {
        fprintf(out, "crc right  # 0x%08x\n", crc);
    } else {
        fprintf(out, "crc 0x%08x  # WRONG: it should be 0x%08x\n", image->crc, crc);
    }
    struct via_card_mark mark = via_card_mark_find(image->tail, image->tail_bytes);
    if (mark.bytes != 0) {
        fprintf(out, "card %s %s %s %s\n", mark.card->name, via_card_role_name(mark.setup->role),
                via_card_mode_name(mark.setup->mode), via_card_medium_name(mark.setup->medium));
    }
    print_tail(image->tail + mark.bytes, image->tail_bytes - mark.bytes, out);
}

/* --- text to image --- */

struct compiler {
    struct via_card_lines *lines;
    struct via_card_image *image;
    unsigned *entry_lines; /* may be NULL */
    unsigned flags_line, crc_line;
    bool crc_is_right;
};

static int append(struct compiler *compiler, const void *bytes, unsigned count)
{
    struct via_card_image *image = compiler->image;
    if (count > VIA_CARD_IMAGE_BYTES_MAX - image->tail_bytes) {
        return via_card_lines_complain(compiler->lines, "the image has more than 64 KiB");
    }
    memcpy(image->tail + image->tail_bytes, bytes, count);
    image->tail_bytes += count;
    return 0;
}

static int take_reg(struct compiler *compiler)
{
    struct via_card_lines *lines = compiler->lines;
    uint32_t code, off, value;
    if (lines->words_count != 4) {
        return via_card_lines_complain(lines, "'reg': expected 'reg CODE OFFSET VALUE'");
    }
    int rc = via_card_lines_number(lines, 1, "the code of a port", 0x3f, &code);
    rc = rc == 0 ? via_card_lines_number(lines, 2, "an offset", 0xffc, &off) : rc;
    rc = rc == 0 ? via_card_lines_number(lines, 3, "a value", UINT32_MAX, &value) : rc;
    if (rc != 0) {
        return rc;
    }
    if (off % 4 != 0) {
        return via_card_lines_complain(lines, "'%s': an offset is a multiple of 4",
                                       lines->words[2]);
    }
    unsigned index = compiler->image->entries_count;
    if (via_card_image_add(compiler->image, via_card_address(code, off), value) != 0) {
        return via_card_lines_complain(lines, "more than %u registers are no image",
                                       VIA_CARD_ENTRIES_MAX);
    }
    if (compiler->entry_lines != NULL) {
        compiler->entry_lines[index] = lines->line;
    }
    return 0;
}

static int check_once(struct compiler *compiler, unsigned *line)
{
    struct via_card_lines *lines = compiler->lines;
    if (lines->words_count != 2) {
        return via_card_lines_complain(lines, "'%s': expected one value", lines->words[0]);
    }
    if (*line != 0) {
        return via_card_lines_complain(lines, "'%s': given already, in line %u", lines->words[0],
                                       *line);
    }
    *line = lines->line;
    return 0;
}

static int take_flags(struct compiler *compiler)
{
    uint32_t flags;
    int rc = check_once(compiler, &compiler->flags_line);
    rc = rc == 0 ? via_card_lines_number(compiler->lines, 1, "flags", 0xff, &flags) : rc;
    if (rc == 0) {
        compiler->image->flags = (uint8_t)flags;
    }
    return rc;
}

static int take_crc(struct compiler *compiler)
{
    int rc = check_once(compiler, &compiler->crc_line);
    const char *word = compiler->lines->words[1];
    if (rc != 0) {
        return rc;
    }
    compiler->crc_is_right = strcmp(word, "right") == 0;
    compiler->image->crc_is_there = strcmp(word, "none") != 0;
    if (compiler->crc_is_right || !compiler->image->crc_is_there) {
        return 0;
    }
    return via_card_lines_number(compiler->lines, 1, "a CRC ('right', 'none' or its value)",
                                 UINT32_MAX, &compiler->image->crc);
}

static int take_card(struct compiler *compiler)
{
    struct via_card_lines *lines = compiler->lines;
    enum via_card_role role;
    enum via_card_mode mode;
    enum via_card_medium medium;
    char text[VIA_CARD_MARK_BYTES];
    const struct via_card *card = lines->words_count == 5 ? via_card_find(lines->words[1]) : NULL;
    if (card == NULL || via_card_role_parse(lines->words[2], &role) != 0 ||
        via_card_mode_parse(lines->words[3], &mode) != 0 ||
        via_card_medium_parse(lines->words[4], &medium) != 0) {
        return via_card_lines_complain(lines, "'card': expected 'card CARD ROLE MODE MEDIUM', as "
                                              "'viaduct card roles' lists them");
    }
    const struct via_card_setup *setup = via_card_setup_find(role, mode, medium);
    if (setup->refused != NULL) {
        return via_card_lines_complain(lines, "'card': %s", setup->refused);
    }
    return append(compiler, text, via_card_mark_make(card, setup, text));
}

static int take_fill(struct compiler *compiler)
{
    static const unsigned step = 64;
    uint8_t bytes[64];
    uint32_t byte, count;
    if (compiler->lines->words_count != 3) {
        return via_card_lines_complain(compiler->lines, "'fill': expected 'fill BYTE COUNT'");
    }
    int rc = via_card_lines_number(compiler->lines, 1, "a byte", 0xff, &byte);
    rc = rc == 0 ? via_card_lines_number(compiler->lines, 2, "a count", VIA_CARD_IMAGE_BYTES_MAX,
                                         &count)
                 : rc;
    if (rc != 0) {
        return rc;
    }
    memset(bytes, (int)byte, sizeof(bytes));
    for (; rc == 0 && count != 0; count -= via_min(count, step)) {
        rc = append(compiler, bytes, via_min(count, step));
    }
    return rc;
}

static int take_bytes(struct compiler *compiler)
{
    uint32_t number;
    int rc = 0;
    for (unsigned i = 1; rc == 0 && i < compiler->lines->words_count; i++) {
        rc = via_card_lines_number(compiler->lines, i, "a byte", 0xff, &number);
        uint8_t byte = rc == 0 ? (uint8_t)number : 0;
        rc = rc == 0 ? append(compiler, &byte, 1) : rc;
    }
    return rc;
}

static int take_line(struct compiler *compiler)
{
    static const struct {
        const char *word;
        int (*take)(struct compiler *compiler);
    } keywords[] = {{"reg", take_reg},   {"flags", take_flags}, {"crc", take_crc},
                    {"card", take_card}, {"fill", take_fill},   {"bytes", take_bytes}};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(keywords); i++) {
        if (strcmp(compiler->lines->words[0], keywords[i].word) == 0) {
            return keywords[i].take(compiler);
        }
    }
    return via_card_lines_complain(compiler->lines,
                                   "'%s': unknown keyword (flags, reg, crc, card, fill, bytes)",
                                   compiler->lines->words[0]);
}

static int check_whole(struct compiler *compiler)
{
    struct via_card_image *image = compiler->image;
    if (via_card_entry_off(image->entries_count) + 4 + image->tail_bytes >
        VIA_CARD_IMAGE_BYTES_MAX) {
        return via_card_lines_complain(compiler->lines, "the image has more than 64 KiB");
    }
    if (!image->crc_is_there &&
        (image->tail_bytes != 0 || (image->flags & VIA_CARD_IMAGE_HAS_CRC) != 0)) {
        return via_card_lines_complain(
            compiler->lines, "'crc none': only where flags have no bit 7 and nothing follows");
    }
    if (compiler->crc_is_right) {
        image->crc = via_card_image_crc(image);
    }
    return 0;
}

int via_card_text_parse(const char *name, const char *text, size_t bytes,
                        struct via_card_image *ret_image,
                        unsigned entry_lines[VIA_CARD_ENTRIES_MAX], struct via_error *err)
{
    struct via_card_lines lines = {.name = name, .text = text, .bytes = bytes, .err = err};
    struct compiler compiler = {
        .lines = &lines, .image = ret_image, .entry_lines = entry_lines, .crc_is_right = true};
    ret_image->flags = VIA_CARD_IMAGE_HAS_CRC;
    ret_image->crc_is_there = true;
    ret_image->crc = 0;
    ret_image->entries_count = 0;
    ret_image->tail_bytes = 0;
    int rc;
    while ((rc = via_card_lines_next(&lines)) > 0) {
        rc = take_line(&compiler);
        if (rc != 0) {
            return rc;
        }
    }
    return rc != 0 ? rc : check_whole(&compiler);
}
