/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void via_error_clear(struct via_error *err)
{
    if (!err)
        return;
    err->text[0] = '\0';
    err->code = 0;
}

int via_error_set(struct via_error *err, int code, const char *format, ...)
{
    if (!err)
        return code;

    /* An argument may be the old text ("%s again"), so the old text is replaced only when the new
     * one is complete. */
    char text[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(err->text, text, strlen(text) + 1);
    err->code = code;
    return code;
}

int via_error_prefix(struct via_error *err, const char *format, ...)
{
    if (!err)
        return 0;

    char text[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    size_t prefix_bytes = strlen(text);
    size_t kept_bytes = via_min(strlen(err->text), sizeof(err->text) - 1 - prefix_bytes);
    memmove(err->text + prefix_bytes, err->text, kept_bytes);
    memcpy(err->text, text, prefix_bytes);
    err->text[prefix_bytes + kept_bytes] = '\0';
    return err->code;
}

const char *via_error_describe(const struct via_error *err)
{
    return err ? err->text : "";
}
