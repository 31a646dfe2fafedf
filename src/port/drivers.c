/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "port/driver.h"
#include "port/emu/driver.h"
#include "port/ivshmem/driver.h"
#include "port/ofi/driver.h"
#include "port/pex/driver.h"

const struct via_driver *const via_drivers[] = {
    &via_emu_driver, &via_ofi_driver, &via_pex_driver, &via_ivshmem_driver, NULL,
};

/* --- words of a description --- */

/* Ends the target at the first comma that is not doubled, and replaces doubled commas by single
 * ones, in place. Returns the text after that comma, or NULL. */
static char *end_target(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        if (*from == ',' && from[1] != ',') {
            *to = '\0';
            return text + (from + 1 - text);
        }
        from += *from == ',';
        *to++ = *from;
    }
    *to = '\0';
    return NULL;
}

static int split(const char *text, struct via_link_words *words, struct via_error *err)
{
    if (strlen(text) >= sizeof(words->text)) {
        return via_error_set(err, -EINVAL, "longer than %zu bytes", sizeof(words->text) - 1);
    }
    strcpy(words->text, text);
    words->target = words->text;
    words->count = 0;
    for (char *rest = end_target(words->text); rest != NULL;) {
        char *key = strsep(&rest, ",");
        if (words->count == VIA_LINK_WORDS_MAX) {
            return via_error_set(err, -EINVAL, "more than %u options", VIA_LINK_WORDS_MAX);
        }
        char *value = strchr(key, '=');
        if (value != NULL) {
            *value++ = '\0';
        }
        words->word[words->count++] = (struct via_link_word){.key = key, .value = value};
    }
    return 0;
}

/* --- the table --- */

static const struct via_driver *find(const char *name, size_t length)
{
    for (unsigned i = 0; via_drivers[i] != NULL; i++) {
        if (strlen(via_drivers[i]->name) == length &&
            memcmp(via_drivers[i]->name, name, length) == 0) {
            return via_drivers[i];
        }
    }
    return NULL;
}

static int refuse_name(const char *name, size_t length, struct via_error *err)
{
    char names[128] = "";
    for (unsigned i = 0; via_drivers[i] != NULL; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", i != 0 ? ", " : "",
                 via_drivers[i]->name);
    }
    return via_error_set(err, -EINVAL, "there is no driver '%.*s'; there are: %s", (int)length,
                         name, names);
}

/* Removes inbox=BYTES from the words, because no driver parses it. */
static int take_inbox(struct via_link_words *words, uint64_t *ret_bytes, struct via_error *err)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < words->count; i++) {
        const struct via_link_word *word = &words->word[i];
        if (strcmp(word->key, "inbox") != 0) {
            words->word[kept++] = *word;
            continue;
        }
        if (*ret_bytes != 0 || !via_link_word_parse_bytes(word, ret_bytes) || *ret_bytes == 0 ||
            *ret_bytes > VIA_LINK_INBOX_BYTES_MAX) {
            return via_error_set(
                err, -EINVAL, "option 'inbox%s%s': not once inbox=BYTES, 1 to %llu",
                word->value != NULL ? "=" : "", word->value != NULL ? word->value : "",
                (unsigned long long)VIA_LINK_INBOX_BYTES_MAX);
        }
    }
    words->count = kept;
    return 0;
}

static int parse(const char *text, struct via_link_config *ret_config, struct via_error *err)
{
    struct via_link_words words;
    size_t length = strcspn(text, ":");
    if (text[length] == '\0') {
        return via_error_set(err, -EINVAL, "not DRIVER:TARGET[,KEY=VALUE...]");
    }
    const struct via_driver *driver = find(text, length);
    if (driver == NULL) {
        return refuse_name(text, length, err);
    }
    int rc = split(text + length + 1, &words, err);
    if (rc == 0 && strlen(words.target) >= sizeof(ret_config->target)) {
        rc = via_error_set(err, -EINVAL, "%s: longer than %zu bytes", words.target,
                           sizeof(ret_config->target) - 1);
    }
    if (rc == 0) {
        *ret_config = (struct via_link_config){.driver = driver};
        strcpy(ret_config->target, words.target);
        rc = take_inbox(&words, &ret_config->inbox_bytes, err);
    }
    if (rc == 0) {
        rc = driver->parse(&words, ret_config->config, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "driver %s: ", driver->name);
    }
    return rc;
}

int via_link_parse(const char *text, struct via_link_config *ret_config, struct via_error *err)
{
    int rc = parse(text, ret_config, err);
    if (rc != 0) {
        via_error_prefix(err, "description '%.200s': ", text);
    }
    return rc;
}
