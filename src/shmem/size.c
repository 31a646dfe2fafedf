/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/size.h"

#include <errno.h>

/* Further digits do not change the number of bytes noticeably. */
#define FRACTION_SCALE UINT64_C(1000000000000000000)
/* With a larger exponent the number is zero or too large for any digits. */
#define EXPONENT_MAX 60

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

/* whole + fraction / FRACTION_SCALE */
struct number {
    uint64_t whole, fraction;
};

static int append_digit(uint64_t *whole, unsigned digit)
{
    return __builtin_mul_overflow(*whole, 10, whole) || __builtin_add_overflow(*whole, digit, whole)
               ? -ERANGE
               : 0;
}

static int read_digits(const char **text, struct number *ret_number)
{
    uint64_t place = FRACTION_SCALE / 10;
    unsigned digits = 0;

    *ret_number = (struct number){0, 0};
    for (; is_digit(**text); (*text)++, digits++)
        if (append_digit(&ret_number->whole, (unsigned)(**text - '0')) < 0)
            return -ERANGE;
    if (**text == '.') {
        for ((*text)++; is_digit(**text); (*text)++, digits++, place /= 10)
            ret_number->fraction += place * (unsigned)(**text - '0');
    }
    return digits > 0 ? 0 : -EINVAL;
}

/* "e8", "E+8", "e-3"; without digits it is not an exponent, and stays in the text. */
static int read_exponent(const char **text)
{
    const char *at = *text;
    int exponent = 0, sign = 1;

    if (*at != 'e' && *at != 'E')
        return 0;
    at++;
    if (*at == '+' || *at == '-')
        sign = *at++ == '-' ? -1 : 1;
    if (!is_digit(*at))
        return 0;
    for (; is_digit(*at); at++)
        exponent = exponent > EXPONENT_MAX ? exponent : exponent * 10 + (*at - '0');
    *text = at;
    return sign * exponent;
}

/* A lost fraction rounds up, as bytes are rounded up. */
static int move_point(struct number *number, int exponent)
{
    for (; exponent > 0 && (number->whole | number->fraction) != 0; exponent--) {
        if (append_digit(&number->whole, (unsigned)(number->fraction / (FRACTION_SCALE / 10))) < 0)
            return -ERANGE;
        number->fraction = number->fraction % (FRACTION_SCALE / 10) * 10;
    }
    for (; exponent < 0; exponent++) {
        number->fraction = (number->fraction + 9) / 10 + number->whole % 10 * (FRACTION_SCALE / 10);
        number->whole /= 10;
    }
    return 0;
}

/* Uses integers, not strtod(): the decimal point must not depend on the program's locale, and 3.1M
 * must be exactly 3250586. */
int via_size_parse(const char *text, uint64_t *ret_bytes)
{
    struct number number;

    while (*text == ' ' || *text == '\t')
        text++;
    int result = read_digits(&text, &number);
    if (result == 0)
        result = move_point(&number, read_exponent(&text));
    if (result < 0)
        return result;
    int shift = multiplier_shift(*text);
    if (shift < 0)
        return -EINVAL;

    unsigned __int128 bytes = (unsigned __int128)number.whole << shift;
    bytes += (((unsigned __int128)number.fraction << shift) + FRACTION_SCALE - 1) / FRACTION_SCALE;
    if (bytes > UINT64_MAX)
        return -ERANGE;
    *ret_bytes = (uint64_t)bytes;
    return 0;
}
