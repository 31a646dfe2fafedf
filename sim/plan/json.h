/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Plans that were written as JSON, read again. The file is not trusted: everything is checked here,
 * once, and what is out of range is refused with line and cause.
 */
#ifndef SIM_PLAN_JSON_H
#define SIM_PLAN_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define PLAN_JSON_BYTES_MAX (1u << 20)
#define PLAN_JSON_VALUES_MAX 4096u
#define PLAN_JSON_DEPTH_MAX 8u
#define PLAN_JSON_TEXT_BYTES 256u /* of a string, its end included */

enum plan_json_kind {
    PLAN_JSON_NULL,
    PLAN_JSON_NUMBER,
    PLAN_JSON_TEXT,
    PLAN_JSON_LIST,
    PLAN_JSON_OBJECT
};

struct plan_json_value {
    enum plan_json_kind kind;
    uint32_t next;     /* of the same parent; 0: none */
    uint32_t first;    /* of a list or an object; 0: it is empty */
    uint32_t name_off; /* of a member, in the text; 0: it has none */
    uint32_t off;      /* of a string */
    double number;
};

struct plan_json {
    char *text; /* owned; strings are ended in place */
    uint32_t values_count;
    struct plan_json_value values[PLAN_JSON_VALUES_MAX]; /* 0: the whole */
};

/*
 * Null, numbers, strings of printable ASCII without '\\', lists, objects: what a plan has. -EINVAL
 * with "name:line: cause"; -EFBIG. Ended by plan_json_fini, also after failure.
 */
int plan_json_parse(const char *name, const char *text, size_t bytes, struct plan_json *ret,
                    struct via_error *err) VIA_MUST_CHECK;
/* The same of a file; also -errno of open and read. */
int plan_json_load(const char *path, struct plan_json *ret, struct via_error *err) VIA_MUST_CHECK;
void plan_json_fini(struct plan_json *json);

/* A member of an object; NULL: there is none of that name and kind. A name that is there twice: the
 * first. */
const struct plan_json_value *plan_json_find(const struct plan_json *json,
                                             const struct plan_json_value *object, const char *name,
                                             enum plan_json_kind kind);
const char *plan_json_text(const struct plan_json *json, const struct plan_json_value *value);
/* The next of a list or an object, or its first; NULL: there is none. */
const struct plan_json_value *plan_json_first(const struct plan_json *json,
                                              const struct plan_json_value *parent);
const struct plan_json_value *plan_json_next(const struct plan_json *json,
                                             const struct plan_json_value *value);

#endif
