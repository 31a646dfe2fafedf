/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An error as a code for the program and a text for people. The text is a trail from the outside
 * in, "object: attempt: cause": the function that finds the cause sets it, and each caller that
 * knows more puts its part in front.
 *
 *     return via_error_set(err, -EPROTO, "version %u, expected %u", theirs, ours);
 *     ...
 *     return via_error_prefix(err, "port %s: bring-up: ", name);
 *
 * All functions take NULL from a caller that wants the code only.
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

/* Replaces what was there. A text too long is cut at its end. Returns code. */
int via_error_set(struct via_error *err, int code, const char *format, ...) VIA_PRINTF(3, 4);

/*
 * Puts text in front, as it is; the code stays. When both do not fit, the end is cut: the cause,
 * but not the object. Returns the code, or 0 without err.
 */
int via_error_prefix(struct via_error *err, const char *format, ...) VIA_PRINTF(2, 3);

/* The text, never NULL. */
const char *via_error_describe(const struct via_error *err);

#endif
