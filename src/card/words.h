/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Lines of words: what the text forms of this folder have in common. */
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

/* The next line that has words ('#' begins a comment): 1; 0: there is none; -EINVAL: a word is too
 * long, there are too many of them, or a byte is no printable character. */
VIA_MUST_CHECK int via_card_lines_next(struct via_card_lines *lines);

/* -EINVAL. */
int via_card_lines_complain(const struct via_card_lines *lines, const char *format, ...)
    VIA_PRINTF(2, 3);

/* Decimal, or hexadecimal after 0x. what: for the complaint. 0 or -EINVAL. */
VIA_MUST_CHECK int via_card_lines_number(const struct via_card_lines *lines, unsigned word,
                                         const char *what, uint32_t max, uint32_t *ret_number);

#endif
