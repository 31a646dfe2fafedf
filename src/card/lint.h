/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Finds faults of an image that are known from public sources. */
#ifndef VIA_CARD_LINT_H
#define VIA_CARD_LINT_H

#include "card/image.h"

enum via_card_severity {
    VIA_CARD_ERROR,
    VIA_CARD_WARNING,
    VIA_CARD_UNDECIDED, /* not decidable from public facts */
};

enum via_card_place { VIA_CARD_AT_ENTRY, VIA_CARD_AT_HEAD, VIA_CARD_AT_CRC, VIA_CARD_AT_TAIL };

struct via_card_finding {
    enum via_card_severity severity;
    enum via_card_place place;
    unsigned entry; /* index, for AT_ENTRY */
    const char *text;
};

typedef void via_card_finding_take(void *ctx, const struct via_card_finding *finding);

struct via_card_lint_options {
    const struct via_card *card; /* NULL: the card that the image names */
    int dip;                     /* setting of the card's DIP switches; -1: not known */
};

/* Passes each finding to take(). Returns the number of errors. */
unsigned via_card_lint(const struct via_card_image *image,
                       const struct via_card_lint_options *options, via_card_finding_take *take,
                       void *ctx);

const char *via_card_severity_name(enum via_card_severity severity);

#endif
