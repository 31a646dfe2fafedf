/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Parses values in descriptions of links, for drivers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "port/driver.h"

bool via_link_word_parse_number(const struct via_link_word *word, uint64_t max,
                                uint64_t *ret_number)
{
    char *end;
    if (word->value == NULL || word->value[0] < '0' || word->value[0] > '9') {
        return false;
    }
    errno = 0;
    unsigned long long number = strtoull(word->value, &end, 10);
    if (errno != 0 || *end != '\0' || number > max) {
        return false;
    }
    *ret_number = number;
    return true;
}

bool via_link_word_parse_bytes(const struct via_link_word *word, uint64_t *ret_bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    char digits[32];
    size_t count = word->value != NULL ? strspn(word->value, "0123456789") : 0;
    if (count == 0 || count >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, word->value, count);
    digits[count] = '\0';
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(units); i++) {
        if (strcmp(word->value + count, units[i]) == 0) {
            struct via_link_word number = {.value = digits};
            if (!via_link_word_parse_number(&number, UINT64_MAX >> (10 * i), ret_bytes)) {
                return false;
            }
            *ret_bytes <<= 10 * i;
            return true;
        }
    }
    return false;
}
