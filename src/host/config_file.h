/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONFIG_FILE_H
#define VIA_HOST_CONFIG_FILE_H

#include <stddef.h>

#include "base/error.h"

/*
 * The lines of a configuration file: "[SECTION]", "KEY = VALUE", and comments, lines that begin
 * with # or ;. Blanks around all of these do not count. Any other line is an error, and so are a
 * zero byte and a line that is too long.
 */
#define VIA_CONFIG_LINE_BYTES_MAX 1023u

struct via_config_line {
    unsigned number;     /* from 1 on */
    const char *section; /* between the brackets; NULL: it is a key */
    const char *key;
    const char *value;
};

struct via_config_calls {
    void *ctx;
    void (*line)(void *ctx, const struct via_config_line *line);
    void (*error)(void *ctx, unsigned number, const char *what); /* and the next line follows */
};

void via_config_file_parse(const char *text, size_t bytes, const struct via_config_calls *calls);

/* The caller's: free(). A regular file of at most bytes_max that only root and the user of this
 * process can write: its writer decides what a daemon of root opens and writes. 0, the error of
 * open() or read(), -EINVAL, -EPERM, -EFBIG; err has the cause, without the path. */
VIA_MUST_CHECK int via_config_file_read(const char *path, size_t bytes_max, char **ret_text,
                                        size_t *ret_bytes, struct via_error *err);

#endif
