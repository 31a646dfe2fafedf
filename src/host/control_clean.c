/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_clean.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* No answer is nested as deeply; jansson itself stops at 2048. */
#define DEPTH_MAX 32u

/* The length of the character at `text`, which is valid UTF-8: jansson has checked it. */
static size_t character_at(const char *text, uint32_t *ret_code)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t bytes = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t code = bytes == 1 ? at[0] : at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        code = code << 6 | (at[i] & 0x3fu);
    }
    *ret_code = code;
    return bytes;
}

static bool is_obeyed(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c ||
           (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

/* A copy without control characters, which the caller frees. NULL: the text has none. */
static char *clean_text(const char *text, size_t bytes)
{
    char *copy = NULL;
    size_t used = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        size_t length = character_at(text + at, &code);
        bool bad = is_obeyed(code);
        if (bad && copy == NULL) {
            copy = malloc(bytes + 1);
            if (copy == NULL) {
                return NULL;
            }
            memcpy(copy, text, at);
            used = at;
        }
        if (copy != NULL && bad) {
            copy[used++] = '?';
        } else if (copy != NULL) {
            memcpy(copy + used, text + at, length);
            used += length;
        }
        at += length;
    }
    if (copy != NULL) {
        copy[used] = '\0';
    }
    return copy;
}

static void clean(json_t *value, unsigned depth);

static void clean_object(json_t *object, unsigned depth)
{
    const char *key;
    json_t *member;
    void *next;
    json_object_foreach_safe(object, next, key, member)
    {
        char *fit = clean_text(key, strlen(key));
        clean(member, depth);
        if (fit != NULL) {
            json_object_set(object, fit, member);
            json_object_del(object, key);
            free(fit);
        }
    }
}

static void clean(json_t *value, unsigned depth)
{
    json_t *member;
    size_t i;
    if (depth == DEPTH_MAX) {
        json_object_clear(value);
        json_array_clear(value);
    } else if (json_is_string(value)) {
        char *fit = clean_text(json_string_value(value), json_string_length(value));
        if (fit != NULL) {
            json_string_set(value, fit);
            free(fit);
        }
    } else if (json_is_object(value)) {
        clean_object(value, depth + 1);
    } else {
        json_array_foreach(value, i, member)
        {
            clean(member, depth + 1);
        }
    }
}

void via_clean_json(json_t *value)
{
    clean(value, 0);
}
