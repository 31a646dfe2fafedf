/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mutant.h"

int via_card_lines_complain(const struct via_card_lines *lines, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return via_error_set(lines->err, -EINVAL, "%s:%u: %s", lines->name, lines->line, text);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int add_word(struct via_card_lines *lines, const char *word, size_t bytes)
{
    if (lines->words_count == VIA_CARD_WORDS_MAX && !VIA_MUTANT(CARD_WORDS)) {
        return via_card_lines_complain(lines, "more than %u words", VIA_CARD_WORDS_MAX);
    }
    if (bytes >= VIA_CARD_WORD_BYTES) {
        return via_card_lines_complain(lines, "a word of %zu bytes, %u are allowed", bytes,
                                       VIA_CARD_WORD_BYTES - 1);
    }
    char *to = lines->words[lines->words_count++];
    memcpy(to, word, bytes);
    to[bytes] = '\0';
    return 0;
}

static int split(struct via_card_lines *lines, const char *line, size_t bytes)
{
    lines->words_count = 0;
    size_t at = 0;
    while (at < bytes && line[at] != '#') {
        if (is_space(line[at])) {
            at++;
            continue;
        }
        size_t begin = at;
        while (at < bytes && line[at] != '#' && !is_space(line[at])) {
            if (line[at] <= ' ' || line[at] > '~') {
                return via_card_lines_complain(lines, "byte 0x%02x is no printable character",
                                               (unsigned char)line[at]);
            }
            at++;
        }
        int rc = add_word(lines, line + begin, at - begin);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int via_card_lines_next(struct via_card_lines *lines)
{
    while (lines->at < lines->bytes) {
        const char *line = lines->text + lines->at;
        const char *end = memchr(line, '\n', lines->bytes - lines->at);
        size_t bytes = end != NULL ? (size_t)(end - line) : lines->bytes - lines->at;
        lines->at += bytes + (end != NULL ? 1 : 0);
        lines->line++;
        int rc = split(lines, line, bytes);
        if (rc != 0 || lines->words_count != 0) {
            return rc != 0 ? rc : 1;
        }
    }
    return 0;
}

static int digit_of(char c, unsigned base)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
    return digit < (int)base ? digit : -1;
}

int via_card_lines_number(const struct via_card_lines *lines, unsigned word, const char *what,
                          uint32_t max, uint32_t *ret_number)
{
    const char *text = lines->words[word];
    bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    uint64_t number = 0;
    const char *at = text + (is_hex ? 2 : 0);
    bool good = *at != '\0';
    for (; good && *at != '\0'; at++) {
        int digit = digit_of(*at, is_hex ? 16 : 10);
        good = digit >= 0;
        number = number * (is_hex ? 16 : 10) + (good ? (uint64_t)digit : 0);
        good = good && number <= max;
    }
    if (!good) {
        return via_card_lines_complain(lines, "'%s': %s is a number up to 0x%x", text, what, max);
    }
    *ret_number = (uint32_t)number;
    return 0;
}
