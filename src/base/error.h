/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An error as a code for the program and a text for people. The text is a trail from the outside
 * in, "object: attempt: cause". The function that finds the cause sets the text, and each caller
 * that knows more adds its part in front.
 *
 *     return via_error_set(err, -EPROTO, "version %u, expected %u", theirs, ours);
 *     ...
 *     return via_error_prefix(err, "port %s: bring-up: ", name);
 *
 * All functions accept NULL, from a caller that needs only the code.
 */
#ifndef VIA_BASE_ERROR_H
#define VIA_BASE_ERROR_H

#include "base/types.h"

#define VIA_ERROR_TEXT_BYTES 512

/* Caller's storage; no function keeps a pointer to it. */
struct via_error {
    char text[VIA_ERROR_TEXT_BYTES];
    int code; /* negative errno, 0 for none */
};

void via_error_clear(struct via_error *err);

/* Replaces the text. A text that is too long is cut at its end. Returns code. */
int via_error_set(struct via_error *err, int code, const char *format, ...) VIA_PRINTF(3, 4);

/*
 * Inserts text in front; the code stays. If both do not fit, the end is cut: a part of the cause,
 * not of the object. Returns the code, or 0 without err.
 */
int via_error_prefix(struct via_error *err, const char *format, ...) VIA_PRINTF(2, 3);

/* The text, never NULL. */
const char *via_error_describe(const struct via_error *err);

#endif
