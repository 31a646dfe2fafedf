/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLANKS " \t\r"

/* Removes blanks on both sides, in place. */
static char *trim(char *text)
{
    text += strspn(text, BLANKS);
    size_t bytes = strlen(text);
    while (bytes > 0 && strchr(BLANKS, text[bytes - 1]) != NULL) {
        text[--bytes] = '\0';
    }
    return text;
}

static void take_section(char *text, struct via_config_line *line,
                         const struct via_config_calls *calls)
{
    size_t bytes = strlen(text);
    if (text[bytes - 1] != ']') {
        calls->error(calls->ctx, line->number, "a section is not closed: the line ends with ]");
        return;
    }
    text[bytes - 1] = '\0';
    line->section = trim(text + 1);
    calls->line(calls->ctx, line);
}

static void take_key(char *text, struct via_config_line *line, const struct via_config_calls *calls)
{
    char *equals = strchr(text, '=');
    if (equals == NULL) {
        calls->error(calls->ctx, line->number, "neither [SECTION] nor KEY = VALUE");
        return;
    }
    *equals = '\0';
    line->key = trim(text);
    line->value = trim(equals + 1);
    calls->line(calls->ctx, line);
}

void via_config_file_parse(const char *text, size_t bytes, const struct via_config_calls *calls)
{
    const char *end = text + bytes;
    struct via_config_line line = {0};
    while (text < end) {
        char copy[VIA_CONFIG_LINE_BYTES_MAX + 1];
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline != NULL ? newline : end) - text);
        line = (struct via_config_line){.number = line.number + 1};
        if (length >= sizeof(copy)) {
            calls->error(calls->ctx, line.number, "the line is longer than 1023 bytes");
        } else if (memchr(text, '\0', length) != NULL) {
            calls->error(calls->ctx, line.number, "the line contains a zero byte");
        } else {
            memcpy(copy, text, length);
            copy[length] = '\0';
            char *content = trim(copy);
            if (*content == '[') {
                take_section(content, &line, calls);
            } else if (*content != '\0' && *content != '#' && *content != ';') {
                take_key(content, &line, calls);
            }
        }
        if (newline == NULL) {
            return;
        }
        text = newline + 1;
    }
}
_Static_assert(VIA_CONFIG_LINE_BYTES_MAX == 1023, "the error text above names the limit");

static int read_all(int fd, size_t bytes_max, char *text, size_t *ret_bytes, struct via_error *err)
{
    size_t bytes = 0;
    ssize_t count;
    while (bytes <= bytes_max && (count = read(fd, text + bytes, bytes_max + 1 - bytes)) != 0) {
        if (count < 0 && errno != EINTR) {
            return via_error_set(err, -errno, "read: %s", strerror(errno));
        }
        bytes += count > 0 ? (size_t)count : 0;
    }
    *ret_bytes = bytes;
    return bytes <= bytes_max ? 0
                              : via_error_set(err, -EFBIG, "read: more than %zu bytes", bytes_max);
}

int via_config_file_read(const char *path, size_t bytes_max, char **ret_text, size_t *ret_bytes,
                         struct via_error *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return via_error_set(err, -errno, "open: %s", strerror(errno));
    }
    char *text = malloc(bytes_max + 1);
    int rc = 0;
    if (text == NULL) {
        rc = via_error_set(err, -ENOMEM, "read: %s", strerror(ENOMEM));
    } else if (fstat(fd, &info) != 0) {
        rc = via_error_set(err, -errno, "fstat: %s", strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        rc = via_error_set(err, -EINVAL, "is no regular file");
    } else if ((info.st_uid != 0 && info.st_uid != geteuid()) || (info.st_mode & 022) != 0) {
        rc = via_error_set(err, -EPERM,
                           "belongs to user %u with mode %03o; only root or the user of this "
                           "process may be able to write it",
                           info.st_uid, info.st_mode & 0777);
    } else {
        rc = read_all(fd, bytes_max, text, ret_bytes, err);
    }
    close(fd);
    if (rc != 0) {
        free(text);
        return rc;
    }
    *ret_text = text;
    return 0;
}
