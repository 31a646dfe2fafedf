/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/size.h"

#include <errno.h>

/* More digits than these change nothing that matters of a number of bytes. */
#define FRACTION_DIGITS_MAX 18u

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int multiplier_shift(char c)
{
    switch (c) {
    case '\0':
        return 0;
    case 'k':
    case 'K':
        return 10;
    case 'm':
    case 'M':
        return 20;
    case 'g':
    case 'G':
        return 30;
    case 't':
    case 'T':
        return 40;
    default:
        return -1;
    }
}

/* By integers, not strtod: the decimal point must not depend on the program's locale, and 3.1M is
 * to be 3250586 exactly. */
int via_size_parse(const char *text, uint64_t *ret_bytes)
{
    uint64_t whole = 0, fraction = 0, scale = 1;
    unsigned digits = 0, fraction_digits = 0;

    while (*text == ' ' || *text == '\t')
        text++;
    for (; is_digit(*text); text++, digits++) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
            return -ERANGE;
    }
    if (*text == '.') {
        for (text++; is_digit(*text); text++, digits++) {
            if (fraction_digits >= FRACTION_DIGITS_MAX)
                continue;
            fraction = fraction * 10 + (uint64_t)(*text - '0');
            scale *= 10;
            fraction_digits++;
        }
    }
    int shift = multiplier_shift(*text);
    if (digits == 0 || shift < 0)
        return -EINVAL;

    unsigned __int128 bytes = (unsigned __int128)whole << shift;
    bytes += (((unsigned __int128)fraction << shift) + scale - 1) / scale;
    if (bytes > UINT64_MAX)
        return -ERANGE;
    *ret_bytes = (uint64_t)bytes;
    return 0;
}
