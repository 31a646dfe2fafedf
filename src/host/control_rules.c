/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Uses no library but the C library, because the preload library loads it into programs. */
#include "host/control_rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mutant.h"

void via_rules_init(struct via_rules *rules)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *rules = (struct via_rules){
        .on = true,
        .spin = true,
        .after_calls = VIA_RULES_AFTER_DEFAULT,
        .memory_bytes = machine / 8,
        .user_memory_bytes = machine / 4,
    };
}

/* --- values ---------------------------------------------------------------------------------- */

static int refuse_value(const char **ret_why, const char *why)
{
    *ret_why = why;
    return -EINVAL;
}

static int parse_number(const char *text, const char **ret_end, unsigned long max,
                        unsigned long *ret_value)
{
    char *end;
    if (*text < '0' || *text > '9') {
        return -EINVAL;
    }
    errno = 0;
    *ret_value = strtoul(text, &end, 10);
    *ret_end = end;
    return errno != 0 || *ret_value > max ? -EINVAL : 0;
}

#define BLANKS " \t"

/* Takes the next item of a list separated by commas. Removes blanks around it and a "!" in front
 * (*ret_out). 0: the end of the list. Negative: the item is empty, or longer than any valid
 * item. */
static int next_item(const char **text, char *ret_item, size_t max, bool *ret_out)
{
    const char *from = *text + strspn(*text, BLANKS);
    if (*from == '\0') {
        return 0;
    }
    size_t length = strcspn(from, ",");
    *text = from + length + (from[length] == ',' ? 1 : 0);
    while (length > 0 && strchr(BLANKS, from[length - 1]) != NULL) {
        length--;
    }
    *ret_out = length > 0 && *from == '!';
    if (*ret_out) {
        from++;
        length--;
    }
    if (length == 0 || length >= max) {
        return -EINVAL;
    }
    memcpy(ret_item, from, length);
    ret_item[length] = '\0';
    return 1;
}

#define WHY_BYTES "not a number of bytes such as 512M"
#define WHY_MANY "more than 32 items"
_Static_assert(VIA_RULES_ITEMS_MAX == 32, "the error text above names the limit");

static int set_ports(struct via_rules *rules, const char *text, const char **ret_why)
{
    static const char why[] = "ports are numbers and ranges such as 80,6000-6010,!22";
    char item[32];
    struct via_rules_ports ports;
    int rc;
    rules->ports_count = 0;
    while ((rc = next_item(&text, item, sizeof(item), &ports.out)) > 0) {
        unsigned long first, last;
        const char *end;
        if (parse_number(item, &end, UINT16_MAX, &first) != 0) {
            return refuse_value(ret_why, why);
        }
        last = first;
        if (*end == '-' && parse_number(end + 1, &end, UINT16_MAX, &last) != 0) {
            return refuse_value(ret_why, why);
        }
        if (*end != '\0' || last < first) {
            return refuse_value(ret_why, why);
        }
        if (rules->ports_count == VIA_RULES_ITEMS_MAX) {
            return refuse_value(ret_why, WHY_MANY);
        }
        ports.first = (uint16_t)first;
        ports.last = (uint16_t)last;
        rules->ports[rules->ports_count++] = ports;
    }
    return rc < 0 ? refuse_value(ret_why, why) : 0;
}

static int parse_network(char *item, struct via_rules_network *network)
{
    static const unsigned char v4_prefix[12] = {[10] = 0xff, [11] = 0xff};
    char *slash = strchr(item, '/');
    unsigned long bits = 128;
    const char *end;
    if (slash != NULL) {
        *slash = '\0';
        if (parse_number(slash + 1, &end, 128, &bits) != 0 || *end != '\0') {
            return -EINVAL;
        }
    }
    if (inet_pton(AF_INET, item, network->ip + 12) == 1) {
        memcpy(network->ip, v4_prefix, sizeof(v4_prefix));
        if (slash != NULL && bits > 32 && !VIA_MUTANT(RULES_PREFIX)) {
            return -EINVAL;
        }
        bits = slash != NULL ? bits + 96 : 128;
    } else if (inet_pton(AF_INET6, item, network->ip) != 1) {
        return -EINVAL;
    }
    network->prefix_bits = (uint8_t)bits;
    return 0;
}

static int set_networks(struct via_rules *rules, const char *text, const char **ret_why)
{
    static const char why[] = "networks are addresses such as 127.0.0.0/8,::1,!10.0.0.1";
    char item[64];
    struct via_rules_network network;
    int rc;
    rules->networks_count = 0;
    while ((rc = next_item(&text, item, sizeof(item), &network.out)) > 0) {
        if (parse_network(item, &network) != 0) {
            return refuse_value(ret_why, why);
        }
        if (rules->networks_count == VIA_RULES_ITEMS_MAX) {
            return refuse_value(ret_why, WHY_MANY);
        }
        rules->networks[rules->networks_count++] = network;
    }
    return rc < 0 ? refuse_value(ret_why, why) : 0;
}

static int set_programs(struct via_rules *rules, const char *text, const char **ret_why)
{
    struct via_rules_program program;
    int rc;
    rules->programs_count = 0;
    while ((rc = next_item(&text, program.pattern, sizeof(program.pattern), &program.out)) > 0) {
        if (strchr(program.pattern, '/') != NULL) {
            return refuse_value(ret_why,
                                "programs are names without a path, such as nginx,redis-*,!sshd");
        }
        if (rules->programs_count == VIA_RULES_ITEMS_MAX) {
            return refuse_value(ret_why, WHY_MANY);
        }
        rules->programs[rules->programs_count++] = program;
    }
    return rc < 0 ? refuse_value(ret_why, "an empty name, or one of more than 63 bytes") : 0;
}

static int set_switch(bool *ret_on, const char *text, const char **ret_why)
{
    bool on = strcmp(text, "on") == 0 || strcmp(text, "1") == 0;
    if (!on && strcmp(text, "off") != 0 && strcmp(text, "0") != 0) {
        return refuse_value(ret_why, "neither on nor off");
    }
    *ret_on = on;
    return 0;
}

static int set_on(struct via_rules *rules, const char *text, const char **ret_why)
{
    return set_switch(&rules->on, text, ret_why);
}

static int set_network_links(struct via_rules *rules, const char *text, const char **ret_why)
{
    return set_switch(&rules->network_links, text, ret_why);
}

static int set_spin(struct via_rules *rules, const char *text, const char **ret_why)
{
    return set_switch(&rules->spin, text, ret_why);
}

static int set_after(struct via_rules *rules, const char *text, const char **ret_why)
{
    unsigned long value;
    const char *end;
    if (parse_number(text, &end, VIA_RULES_AFTER_MAX, &value) != 0 || *end != '\0') {
        return refuse_value(ret_why, "not a number from 0 to 1000000");
    }
    rules->after_calls = (uint32_t)value;
    return 0;
}
_Static_assert(VIA_RULES_AFTER_MAX == 1000000, "the error text above names the limit");

/* Parses a number of bytes; K, M, G and T stand for powers of 1,024. */
static int set_bytes(uint64_t *ret_bytes, const char *text, const char **ret_why)
{
    static const char units[] = "KMGT";
    unsigned long value;
    const char *end;
    if (parse_number(text, &end, ULONG_MAX, &value) != 0) {
        return refuse_value(ret_why, WHY_BYTES);
    }
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    if (end[unit != NULL ? 1 : 0] != '\0' || value > UINT64_MAX >> shift) {
        return refuse_value(ret_why, WHY_BYTES);
    }
    *ret_bytes = (uint64_t)value << shift;
    return 0;
}

static int set_memory(struct via_rules *rules, const char *text, const char **ret_why)
{
    return set_bytes(&rules->memory_bytes, text, ret_why);
}

static int set_user_memory(struct via_rules *rules, const char *text, const char **ret_why)
{
    return set_bytes(&rules->user_memory_bytes, text, ret_why);
}

static const struct {
    const char *key;
    const char *variable;
    int (*set)(struct via_rules *rules, const char *text, const char **ret_why);
} keys[] = {
    {"sockets", "VIADUCT_SOCKETS", set_on},
    {"ports", "VIADUCT_SOCKETS_PORTS", set_ports},
    {"networks", "VIADUCT_SOCKETS_NETWORKS", set_networks},
    {"programs", "VIADUCT_SOCKETS_PROGRAMS", set_programs},
    {"after", "VIADUCT_SOCKETS_AFTER", set_after},
    {"network-links", "VIADUCT_SOCKETS_NETWORK_LINKS", set_network_links},
    {"spin", "VIADUCT_SOCKETS_SPIN", set_spin},
    {"memory", "VIADUCT_SOCKETS_MEMORY", set_memory},
    {"user-memory", "VIADUCT_SOCKETS_USER_MEMORY", set_user_memory},
};

int via_rules_set(struct via_rules *rules, const char *key, const char *value, const char **ret_why)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(keys); i++) {
        if (strcmp(keys[i].key, key) == 0) {
            return keys[i].set(rules, value, ret_why);
        }
    }
    *ret_why =
        "no such key; there are sockets, ports, networks, programs, after, network-links, spin, "
        "memory and user-memory";
    return -ENOENT;
}

/* --- files ----------------------------------------------------------------------------------- */

#define LINE_BYTES_MAX 1024u

struct reading {
    struct via_rules *rules;
    const char *name;
    const char *program;
    struct via_error *err;
    unsigned line;
    bool concerns_us; /* the present section applies to this program */
    bool began;       /* a section has begun */
};

static int complain(struct reading *reading, const char *object, const char *why)
{
    return via_error_set(reading->err, -EINVAL, "%s:%u: %s: %s", reading->name, reading->line,
                         object, why);
}

/* Removes blanks on both sides, in place. */
static char *trim(char *text)
{
    text += strspn(text, BLANKS "\r");
    size_t length = strlen(text);
    while (length > 0 && strchr(BLANKS "\r", text[length - 1]) != NULL) {
        text[--length] = '\0';
    }
    return text;
}

static int take_section(struct reading *reading, char *line)
{
    size_t length = strlen(line);
    if (line[length - 1] != ']') {
        return complain(reading, line, "a section ends with ]");
    }
    line[length - 1] = '\0';
    char *name = trim(line + 1);
    reading->began = true;
    if (strcmp(name, "all") == 0) {
        reading->concerns_us = true;
        return 0;
    }
    if (strncmp(name, "program ", 8) != 0 || *trim(name + 8) == '\0') {
        return complain(reading, name, "sections are [all] and [program NAME]");
    }
    reading->concerns_us = fnmatch(trim(name + 8), reading->program, 0) == 0;
    return 0;
}

static int take_line(struct reading *reading, char *line)
{
    struct via_rules unused;
    const char *why = "";
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        return complain(reading, line, "neither a section nor 'key = value'");
    }
    *equals = '\0';
    char *key = trim(line);
    if (!reading->began) {
        return complain(reading, key,
                        "in front of it a section is missing: [all] or "
                        "[program NAME]");
    }
    struct via_rules *rules = reading->concerns_us ? reading->rules : &unused;
    if (via_rules_set(rules, key, trim(equals + 1), &why) != 0) {
        return complain(reading, key, why);
    }
    return 0;
}

int via_rules_parse(struct via_rules *rules, const char *name, const char *text, size_t bytes,
                    const char *program, struct via_error *err)
{
    struct reading reading = {.rules = rules, .name = name, .program = program, .err = err};
    const char *end = text + bytes;
    while (text < end) {
        char buffer[LINE_BYTES_MAX];
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop != NULL ? stop : end) - text);
        reading.line++;
        if (length >= sizeof(buffer) || memchr(text, '\0', length) != NULL) {
            return complain(&reading, "line",
                            length >= sizeof(buffer) ? "longer than 1023 bytes"
                                                     : "a zero byte in it");
        }
        memcpy(buffer, text, length);
        buffer[length] = '\0';
        text += length + 1;
        char *line = trim(buffer);
        if (*line == '\0' || *line == '#' || *line == ';') {
            continue;
        }
        int rc = *line == '[' ? take_section(&reading, line) : take_line(&reading, line);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
_Static_assert(LINE_BYTES_MAX == 1024, "the error text above names the limit");

static int load_file(struct via_rules *rules, const char *name, const char *program,
                     struct via_error *err)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return via_error_set(err, -errno, "%s: open: %s", name, strerror(errno));
    }
    char *text = malloc(VIA_RULES_FILE_BYTES_MAX + 1);
    ssize_t n = -1;
    size_t bytes = 0;
    if (text == NULL) {
        errno = ENOMEM;
    } else {
        while (bytes <= VIA_RULES_FILE_BYTES_MAX &&
               (n = read(fd, text + bytes, VIA_RULES_FILE_BYTES_MAX + 1 - bytes)) > 0) {
            bytes += (size_t)n;
        }
    }
    int rc = 0;
    if (n < 0) {
        rc = via_error_set(err, -errno, "%s: read: %s", name, strerror(errno));
    } else if (bytes > VIA_RULES_FILE_BYTES_MAX) {
        rc = via_error_set(err, -EFBIG, "%s: read: more than %u bytes", name,
                           VIA_RULES_FILE_BYTES_MAX);
    } else {
        rc = via_rules_parse(rules, name, text, bytes, program, err);
    }
    free(text);
    close(fd);
    return rc;
}

int via_rules_load(struct via_rules *rules, const char *program, struct via_error *err)
{
    const char *file = getenv("VIADUCT_SOCKETS_CONFIG");
    via_rules_init(rules);
    int rc = 0;
    if (file != NULL && *file != '\0') {
        rc = load_file(rules, file, program, err);
    } else if (access(VIA_RULES_FILE, F_OK) == 0) {
        rc = load_file(rules, VIA_RULES_FILE, program, err);
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(keys) && rc == 0; i++) {
        const char *value = getenv(keys[i].variable);
        const char *why = "";
        if (value != NULL && *value != '\0' && keys[i].set(rules, value, &why) != 0) {
            rc = via_error_set(err, -EINVAL, "%s: '%s': %s", keys[i].variable, value, why);
        }
    }
    return rc;
}

/* --- decisions -------------------------------------------------------------------------------- */

/* The result over all items: whether one includes the object, whether one excludes it, and whether
 * any item includes something. */
struct verdict {
    bool taken, out, any_takes;
};

static void add_to_verdict(struct verdict *verdict, bool matches, bool out)
{
    verdict->any_takes |= !out;
    verdict->taken |= matches && !out;
    verdict->out |= matches && out;
}

static bool is_allowed(const struct verdict *verdict)
{
    return !verdict->out && (verdict->taken || !verdict->any_takes);
}

bool via_rules_is_program_allowed(const struct via_rules *rules, const char *program)
{
    struct verdict verdict = {0};
    for (unsigned i = 0; i < rules->programs_count; i++) {
        add_to_verdict(&verdict, fnmatch(rules->programs[i].pattern, program, 0) == 0,
                       rules->programs[i].out);
    }
    return is_allowed(&verdict);
}

bool via_rules_is_port_allowed(const struct via_rules *rules, uint16_t port)
{
    struct verdict verdict = {0};
    for (unsigned i = 0; i < rules->ports_count; i++) {
        add_to_verdict(&verdict, port >= rules->ports[i].first && port <= rules->ports[i].last,
                       rules->ports[i].out);
    }
    return is_allowed(&verdict);
}

static bool is_in_network(const struct via_rules_network *network, const unsigned char *ip)
{
    unsigned bytes = network->prefix_bits / 8;
    unsigned bits = network->prefix_bits % 8;
    if (memcmp(network->ip, ip, bytes) != 0) {
        return false;
    }
    return bits == 0 || (network->ip[bytes] ^ ip[bytes]) >> (8 - bits) == 0;
}

bool via_rules_is_network_allowed(const struct via_rules *rules, const unsigned char *ip)
{
    struct verdict verdict = {0};
    for (unsigned i = 0; i < rules->networks_count; i++) {
        add_to_verdict(&verdict, is_in_network(&rules->networks[i], ip), rules->networks[i].out);
    }
    return is_allowed(&verdict);
}
