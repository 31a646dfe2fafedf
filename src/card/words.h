/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Splits text into lines of words, for the text formats of this folder. */
#ifndef VIA_CARD_WORDS_H
#define VIA_CARD_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define VIA_CARD_WORDS_MAX 24u
#define VIA_CARD_WORD_BYTES 64u

/* Reads a text line by line. Errors begin with "name:line: ". */
struct via_card_lines {
    const char *name;
    const char *text;
    size_t bytes;
    size_t at;
    unsigned line; /* the current one; 0 before the first */
    struct via_error *err;
    unsigned words_count;
    char words[VIA_CARD_WORDS_MAX][VIA_CARD_WORD_BYTES];
};

/* Reads the next line with words ('#' begins a comment). 1: a line; 0: end of the text; -EINVAL: a
 * word is too long, the line has too many words, or a byte is not printable. */
VIA_MUST_CHECK int via_card_lines_next(struct via_card_lines *lines);

/* Sets the error, with name and line; returns -EINVAL. */
int via_card_lines_complain(const struct via_card_lines *lines, const char *format, ...)
    VIA_PRINTF(2, 3);

/* Parses a decimal number, or a hexadecimal one after 0x. what: name of the value for the error. 0
 * or -EINVAL. */
VIA_MUST_CHECK int via_card_lines_number(const struct via_card_lines *lines, unsigned word,
                                         const char *what, uint32_t max, uint32_t *ret_number);

#endif
