/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The values of a scenario after parsing: scenario_parse.c. */
#include "sim/cost/scenario.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *sim_mark_name(enum sim_mark mark)
{
    static const char *const names[] = {"stated", "spec", "typical", "chosen", "fitted"};
    return names[mark];
}

/* "link cable" is the instance "cable" of "link", "dma" the only one of "dma". */
static bool is_part(const struct sim_part *part, const char *name)
{
    size_t bytes = strlen(part->section->name);
    return strncmp(part->section->name, name, bytes) == 0 &&
           (part->section->named
                ? name[bytes] == ' ' && strcmp(name + bytes + 1, part->instance) == 0
                : name[bytes] == '\0');
}

static struct sim_value *find(const struct sim_scenario *scenario, const char *section,
                              const char *key)
{
    for (size_t i = 0; i < scenario->values_count; i++) {
        const struct sim_value *value = &scenario->values[i];
        if (strcmp(value->key->name, key) == 0 && is_part(&scenario->parts[value->part], section)) {
            return (struct sim_value *)(uintptr_t)value;
        }
    }
    fprintf(stderr, "scenario %s: asked for [%s] %s, which no section declares\n", scenario->name,
            section, key);
    abort();
}

struct sim_value *sim_scenario_find(struct sim_scenario *scenario, const char *section,
                                    const char *key)
{
    return find(scenario, section, key);
}

double sim_scenario_number(const struct sim_scenario *scenario, const char *section,
                           const char *key)
{
    const struct sim_value *value = find(scenario, section, key);
    assert(value->unit_factor > 0);
    return value->number;
}

uint64_t sim_scenario_count(const struct sim_scenario *scenario, const char *section,
                            const char *key)
{
    return (uint64_t)llround(sim_scenario_number(scenario, section, key));
}

uint64_t sim_scenario_ps(const struct sim_scenario *scenario, const char *section, const char *key)
{
    return sim_scenario_count(scenario, section, key);
}

const char *sim_scenario_word(const struct sim_scenario *scenario, const char *section,
                              const char *key)
{
    const struct sim_value *value = find(scenario, section, key);
    assert(value->unit_factor == 0);
    return value->text;
}

bool sim_scenario_has(const struct sim_scenario *scenario, const char *section)
{
    for (size_t i = 0; i < scenario->parts_count; i++) {
        if (is_part(&scenario->parts[i], section)) {
            return true;
        }
    }
    return false;
}

const char *sim_scenario_instance(const struct sim_scenario *scenario, const char *section,
                                  size_t index)
{
    for (size_t i = 0; i < scenario->parts_count; i++) {
        const struct sim_part *part = &scenario->parts[i];
        if (strcmp(part->section->name, section) == 0 && index-- == 0) {
            return part->instance;
        }
    }
    return NULL;
}

int sim_scenario_complain(const struct sim_scenario *scenario, const char *section, const char *key,
                          struct via_error *err, const char *format, ...)
{
    char text[VIA_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const struct sim_value *value = find(scenario, section, key);
    return via_error_set(err, -EINVAL, "%.200s:%u: [%s] %s: %.500s",
                         value->shared ? scenario->parts_name : scenario->name, value->line,
                         section, key, text);
}

void sim_scenario_print(const struct sim_scenario *scenario, FILE *out)
{
    size_t part = SIZE_MAX;
    for (size_t i = 0; i < scenario->values_count; i++) {
        const struct sim_value *value = &scenario->values[i];
        if (value->part != part) {
            part = value->part;
            const char *instance = scenario->parts[part].instance;
            fprintf(out, "[%s%s%s]\n", scenario->parts[part].section->name,
                    instance[0] != '\0' ? " " : "", instance);
        }
        char text[64];
        if (value->unit_factor > 0) {
            snprintf(text, sizeof(text), "%.6g %s", value->number / value->unit_factor,
                     value->unit);
        } else {
            snprintf(text, sizeof(text), "%s", value->text);
        }
        fprintf(out, "  %-20s %-16s %-8s %s\n", value->key->name, text, sim_mark_name(value->mark),
                value->source);
    }
}
