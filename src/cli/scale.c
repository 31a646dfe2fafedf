/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/scale.h"

#include <stddef.h>
#include <stdio.h>

#include "base/types.h"

struct via_scaled via_scale(double value, const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    struct via_scaled scaled;
    size_t i = 0;
    while (value >= 999.5 && i + 1 < VIA_ARRAY_COUNT(prefixes)) {
        value /= 1000;
        i++;
    }
    int decimals = i == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(scaled.text, sizeof(scaled.text), "%.*f %s%s", decimals, value, prefixes[i], unit);
    return scaled;
}
