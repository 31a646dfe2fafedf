/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"

struct reader {
    const char *name;
    struct plan_json *json;
    uint32_t at;
    unsigned line;
    struct via_error *err;
};

static int refuse(const struct reader *reader, const char *what)
{
    return via_error_set(reader->err, -EINVAL, "%.200s:%u: %s", reader->name, reader->line, what);
}

/* The next character that is not white space; '\0' at the end. */
static char peek(struct reader *reader)
{
    for (;;) {
        char c = reader->json->text[reader->at];
        if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
            return c;
        }
        reader->line += c == '\n';
        reader->at++;
    }
}

static int read_text(struct reader *reader, uint32_t *ret_off)
{
    char *text = reader->json->text;
    if (peek(reader) != '"') {
        return refuse(reader, "expected a string");
    }
    uint32_t off = ++reader->at;
    while (text[reader->at] != '"') {
        char c = text[reader->at];
        if (c < ' ' || c > '~' || c == '\\') {
            return refuse(reader, "a string with characters that no plan has, or without an end");
        }
        if (++reader->at - off >= PLAN_JSON_TEXT_BYTES) {
            return refuse(reader, "a string of more than 255 characters");
        }
    }
    text[reader->at++] = '\0';
    *ret_off = off;
    return 0;
}

static int read_number(struct reader *reader, double *ret_number)
{
    const char *text = &reader->json->text[reader->at];
    size_t bytes = strspn(text, "+-.0123456789eE");
    char *end;
    *ret_number = strtod(text, &end);
    if (bytes == 0 || bytes > 40 || end != text + bytes || !isfinite(*ret_number)) {
        return refuse(reader, "expected null, a number, a string, a list or an object");
    }
    reader->at += (uint32_t)bytes;
    return 0;
}

static int read_value(struct reader *reader, uint32_t name_off, unsigned depth,
                      uint32_t *ret_index);

/* What stands between the brackets of a list or an object. */
static int read_members(struct reader *reader, uint32_t parent, char end, unsigned depth)
{
    struct plan_json *json = reader->json;
    uint32_t *link = &json->values[parent].first;
    reader->at++;
    if (peek(reader) == end) {
        reader->at++;
        return 0;
    }
    for (;;) {
        uint32_t name_off = 0;
        if (end == '}') {
            int rc = read_text(reader, &name_off);
            if (rc != 0) {
                return rc;
            }
            if (peek(reader) != ':') {
                return refuse(reader, "expected ':' after a name");
            }
            reader->at++;
        }
        int rc = read_value(reader, name_off, depth + 1, link);
        if (rc != 0) {
            return rc;
        }
        link = &json->values[*link].next;
        char c = peek(reader);
        if (c != ',' && c != end) {
            return refuse(reader, end == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
        }
        reader->at++;
        if (c == end) {
            return 0;
        }
    }
}

static int read_value(struct reader *reader, uint32_t name_off, unsigned depth, uint32_t *ret_index)
{
    struct plan_json *json = reader->json;
    if (json->values_count == PLAN_JSON_VALUES_MAX || depth > PLAN_JSON_DEPTH_MAX) {
        return refuse(reader, depth > PLAN_JSON_DEPTH_MAX
                                  ? "lists and objects in each other too deep"
                                  : "more values than any plan has");
    }
    uint32_t index = json->values_count++;
    struct plan_json_value *value = &json->values[index];
    *value = (struct plan_json_value){.name_off = name_off};
    *ret_index = index;
    char c = peek(reader);
    if (c == '{' || c == '[') {
        value->kind = c == '{' ? PLAN_JSON_OBJECT : PLAN_JSON_LIST;
        return read_members(reader, index, c == '{' ? '}' : ']', depth);
    }
    if (c == '"') {
        value->kind = PLAN_JSON_TEXT;
        return read_text(reader, &value->off);
    }
    if (strncmp(&json->text[reader->at], "null", 4) == 0) {
        reader->at += 4;
        return 0;
    }
    value->kind = PLAN_JSON_NUMBER;
    return read_number(reader, &value->number);
}

int plan_json_parse(const char *name, const char *text, size_t bytes, struct plan_json *ret,
                    struct via_error *err)
{
    uint32_t whole;
    ret->values_count = 0;
    ret->text = NULL;
    if (bytes > PLAN_JSON_BYTES_MAX) {
        return via_error_set(err, -EFBIG, "%.200s: more than %u bytes", name, PLAN_JSON_BYTES_MAX);
    }
    ret->text = sim_alloc(bytes + 1);
    memcpy(ret->text, text, bytes);
    struct reader reader = {.name = name, .json = ret, .line = 1, .err = err};
    int rc = read_value(&reader, 0, 0, &whole);
    if (rc == 0 && (peek(&reader) != '\0' || reader.at != bytes)) {
        rc = refuse(&reader, "more after the end of the plan");
    }
    return rc;
}

int plan_json_load(const char *path, struct plan_json *ret, struct via_error *err)
{
    ret->values_count = 0;
    ret->text = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return via_error_set(err, -errno, "%.200s: open: %s", path, strerror(errno));
    }
    char *text = sim_alloc(PLAN_JSON_BYTES_MAX + 1);
    size_t bytes = fread(text, 1, PLAN_JSON_BYTES_MAX + 1, file);
    int rc = ferror(file) != 0 ? via_error_set(err, -EIO, "%.200s: read: %s", path, strerror(EIO))
                               : plan_json_parse(path, text, bytes, ret, err);
    free(text);
    fclose(file);
    return rc;
}

void plan_json_fini(struct plan_json *json)
{
    free(json->text);
    json->text = NULL;
    json->values_count = 0;
}

const struct plan_json_value *plan_json_first(const struct plan_json *json,
                                              const struct plan_json_value *parent)
{
    return parent->first != 0 ? &json->values[parent->first] : NULL;
}

const struct plan_json_value *plan_json_next(const struct plan_json *json,
                                             const struct plan_json_value *value)
{
    return value->next != 0 ? &json->values[value->next] : NULL;
}

const struct plan_json_value *plan_json_find(const struct plan_json *json,
                                             const struct plan_json_value *object, const char *name,
                                             enum plan_json_kind kind)
{
    const struct plan_json_value *value =
        object->kind == PLAN_JSON_OBJECT ? plan_json_first(json, object) : NULL;
    for (; value != NULL; value = plan_json_next(json, value)) {
        if (strcmp(&json->text[value->name_off], name) == 0) {
            return value->kind == kind ? value : NULL;
        }
    }
    return NULL;
}

const char *plan_json_text(const struct plan_json *json, const struct plan_json_value *value)
{
    return &json->text[value->off];
}
