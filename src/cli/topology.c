/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/topology.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"

#define WORDS_MAX 4u

struct word {
    const char *text;
    size_t bytes;
};

struct parser {
    const char *name;
    unsigned line;
    struct via_topology *topology;
    struct via_error *err;
    unsigned channels_line;                        /* line that sets the channels; 0: none yet */
    unsigned host_line[VIA_TOPOLOGY_HOST_MAX + 1]; /* by id; 0: no such host */
    unsigned link_line[VIA_TOPOLOGY_LINKS_MAX];    /* by link */
    unsigned ports_count[VIA_TOPOLOGY_HOST_MAX + 1];
};

/* A word for "%.*s". Characters that a terminal would act on are replaced. */
static const char *shown(struct word word, char (*buffer)[40])
{
    size_t bytes = via_min(word.bytes, sizeof(*buffer) - 4);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)word.text[i];
        (*buffer)[i] = c > ' ' && c < 0x7f ? (char)c : '?';
    }
    memcpy(*buffer + bytes, bytes < word.bytes ? "..." : "", bytes < word.bytes ? 4 : 1);
    return *buffer;
}

static int complain(struct parser *parser, unsigned line, const char *format, ...) VIA_PRINTF(3, 4);

static int complain(struct parser *parser, unsigned line, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return via_error_set(parser->err, -EINVAL, "%s:%u: %s", parser->name, line, text);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_word(struct word word, const char *text)
{
    return strlen(text) == word.bytes && memcmp(word.text, text, word.bytes) == 0;
}

/* Splits a line into words, up to a comment. Returns WORDS_MAX + 1 if there are more words. */
static unsigned split(const char *line, size_t bytes, struct word words[WORDS_MAX])
{
    unsigned count = 0;
    size_t at = 0;
    while (at < bytes && line[at] != '#') {
        if (is_space(line[at])) {
            at++;
            continue;
        }
        size_t begin = at;
        while (at < bytes && line[at] != '#' && !is_space(line[at])) {
            at++;
        }
        if (count == WORDS_MAX) {
            return count + 1;
        }
        words[count++] = (struct word){.text = line + begin, .bytes = at - begin};
    }
    return count;
}

/* Accepts only decimal digits: strtoul() would accept "-1", "+1" and " 1". */
static int take_number(struct parser *parser, struct word word, const char *what, unsigned min,
                       unsigned max, unsigned *ret_number)
{
    unsigned number = 0;
    bool good = word.bytes > 0;
    for (size_t i = 0; i < word.bytes && good; i++) {
        good = word.text[i] >= '0' && word.text[i] <= '9';
        number = good ? number * 10 + (unsigned)(word.text[i] - '0') : 0;
        good = good && number <= max;
    }
    if (!good || number < min) {
        char buffer[40];
        return complain(parser, parser->line, "'%s': %s is a number from %u to %u",
                        shown(word, &buffer), what, min, max);
    }
    *ret_number = number;
    return 0;
}

static int take_host(struct parser *parser, const struct word *words)
{
    unsigned id;
    int rc = take_number(parser, words[1], "a host id", VIA_TOPOLOGY_HOST_MIN,
                         VIA_TOPOLOGY_HOST_MAX, &id);
    if (rc != 0) {
        return rc;
    }
    if (parser->host_line[id] != 0) {
        return complain(parser, parser->line, "'%u': this host id is taken already, in line %u", id,
                        parser->host_line[id]);
    }
    parser->host_line[id] = parser->line;
    parser->topology->hosts[parser->topology->hosts_count++] = (uint16_t)id;
    return 0;
}

static int take_channels(struct parser *parser, const struct word *words)
{
    unsigned count;
    int rc = take_number(parser, words[1], "the count of channels", 1, VIA_TOPOLOGY_CHANNELS_MAX,
                         &count);
    if (rc != 0) {
        return rc;
    }
    if (parser->channels_line != 0) {
        return complain(parser, parser->line, "'channels': set already, in line %u",
                        parser->channels_line);
    }
    parser->channels_line = parser->line;
    parser->topology->channels_count = count;
    return 0;
}

static int find_doubled(struct parser *parser, unsigned a, unsigned b)
{
    const struct via_topology *topology = parser->topology;
    for (unsigned i = 0; i < topology->links_count; i++) {
        if (topology->links[i].a == a && topology->links[i].b == b) {
            return complain(parser, parser->line,
                            "'link %u %u': this link is there already, in line %u; for two cables "
                            "write 'link %u %u 2' once",
                            a, b, parser->link_line[i], a, b);
        }
    }
    return 0;
}

static int add_link(struct parser *parser, unsigned a, unsigned b, unsigned cables_count)
{
    struct via_topology *topology = parser->topology;
    const unsigned ends[2] = {a, b};
    for (unsigned i = 0; i < 2; i++) {
        unsigned *ports_count = &parser->ports_count[ends[i]];
        *ports_count += cables_count;
        if (*ports_count > VIA_TOPOLOGY_PORTS_MAX && !VIA_MUTANT(TOPOLOGY_PORTS)) {
            return complain(
                parser, parser->line,
                "'link %u %u': host %u would have %u links, a host has at most %u ports", a, b,
                ends[i], *ports_count, VIA_TOPOLOGY_PORTS_MAX);
        }
    }
    for (unsigned i = 0; i < cables_count; i++) {
        /* No overflow: the sum of all ports is at most twice LINKS_MAX. */
        parser->link_line[topology->links_count] = parser->line;
        topology->links[topology->links_count++] =
            (struct via_topology_link){.a = (uint16_t)a, .b = (uint16_t)b, .number = (uint8_t)i};
    }
    return 0;
}

static int take_link(struct parser *parser, const struct word *words, unsigned words_count)
{
    unsigned ends[2];
    unsigned cables_count = 1;
    for (unsigned i = 0; i < 2; i++) {
        int rc = take_number(parser, words[1 + i], "a host id", VIA_TOPOLOGY_HOST_MIN,
                             VIA_TOPOLOGY_HOST_MAX, &ends[i]);
        if (rc != 0) {
            return rc;
        }
    }
    if (words_count == 4) {
        int rc = take_number(parser, words[3], "the count of cables", 1, VIA_TOPOLOGY_PORTS_MAX,
                             &cables_count);
        if (rc != 0) {
            return rc;
        }
    }
    if (ends[0] == ends[1]) {
        return complain(parser, parser->line, "'link %u %u': host %u is linked to itself", ends[0],
                        ends[1], ends[0]);
    }
    unsigned a = via_min(ends[0], ends[1]);
    unsigned b = via_max(ends[0], ends[1]);
    int rc = find_doubled(parser, a, b);
    return rc != 0 ? rc : add_link(parser, a, b, cables_count);
}

static int take_line(struct parser *parser, const char *line, size_t bytes)
{
    struct word words[WORDS_MAX];
    char buffer[40];
    unsigned count = split(line, bytes, words);
    if (count == 0) {
        return 0;
    }
    if (is_word(words[0], "host")) {
        return count == 2 ? take_host(parser, words)
                          : complain(parser, parser->line, "'host': expected 'host ID'");
    }
    if (is_word(words[0], "link")) {
        return count == 3 || count == 4
                   ? take_link(parser, words, count)
                   : complain(parser, parser->line, "'link': expected 'link ID ID [CABLES]'");
    }
    if (is_word(words[0], "channels")) {
        return count == 2 ? take_channels(parser, words)
                          : complain(parser, parser->line, "'channels': expected 'channels COUNT'");
    }
    return complain(parser, parser->line, "'%s': unknown keyword (host, link, channels)",
                    shown(words[0], &buffer));
}

/* Checks that need the whole file, because a link may precede its hosts. */
static int check_whole(struct parser *parser)
{
    const struct via_topology *topology = parser->topology;
    if (topology->hosts_count == 0) {
        return complain(parser, parser->line, "no host in the whole file");
    }
    for (unsigned i = 0; i < topology->links_count; i++) {
        const struct via_topology_link *link = &topology->links[i];
        unsigned unknown = parser->host_line[link->a] == 0 ? link->a : link->b;
        if (parser->host_line[unknown] == 0) {
            return complain(parser, parser->link_line[i],
                            "'link %u %u': there is no line 'host %u' in this file", link->a,
                            link->b, unknown);
        }
    }
    return 0;
}

int via_topology_parse(const char *name, const char *text, size_t bytes, struct via_topology *ret,
                       struct via_error *err)
{
    struct parser parser = {.name = name, .topology = ret, .err = err, .line = 1};
    memset(ret, 0, sizeof(*ret));
    for (size_t at = 0; at < bytes; parser.line++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t line_bytes = end != NULL ? (size_t)(end - text) - at : bytes - at;
        int rc = take_line(&parser, text + at, line_bytes);
        if (rc != 0) {
            return rc;
        }
        at += line_bytes + (end != NULL ? 1 : 0);
        if (at == bytes) {
            break;
        }
    }
    return check_whole(&parser);
}

int via_topology_load(const char *path, struct via_topology *ret, struct via_error *err)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return via_error_set(err, -errno, "%s: open: %s", path, strerror(errno));
    }
    char *text = malloc(VIA_TOPOLOGY_FILE_BYTES_MAX + 1);
    int rc = 0;
    size_t bytes = 0;
    if (text == NULL) {
        rc = via_error_set(err, -ENOMEM, "%s: read: %s", path, strerror(ENOMEM));
    } else {
        bytes = fread(text, 1, VIA_TOPOLOGY_FILE_BYTES_MAX + 1, file);
        if (ferror(file)) {
            rc = via_error_set(err, -errno, "%s: read: %s", path, strerror(errno));
        } else if (bytes > VIA_TOPOLOGY_FILE_BYTES_MAX) {
            rc = via_error_set(err, -EFBIG, "%s: read: more than %u bytes are no topology", path,
                               VIA_TOPOLOGY_FILE_BYTES_MAX);
        } else {
            rc = via_topology_parse(path, text, bytes, ret, err);
        }
    }
    free(text);
    fclose(file);
    return rc;
}
