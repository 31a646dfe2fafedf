/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Numbers for people. */
#ifndef VIA_CLI_SCALE_H
#define VIA_CLI_SCALE_H

struct via_scaled {
    char text[24];
};

/* For example "1.24 GB/s": three significant digits, prefixes of powers of 1000. */
struct via_scaled via_scale(double value, const char *unit);

#endif
