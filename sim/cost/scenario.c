/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/scenario.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL: there is none. */
static struct sim_value *look_up(const struct sim_scenario *scenario, const char *section,
                                 const char *key)
{
    for (size_t i = 0; i < scenario->values_count; i++) {
        const struct sim_value *value = &scenario->values[i];
        if (strcmp(value->key, key) == 0 && strcmp(value->section, section) == 0) {
            return (struct sim_value *)(uintptr_t)value;
        }
    }
    return NULL;
}

struct sim_value *sim_scenario_find(const struct sim_scenario *scenario, const char *section,
                                    const char *key)
{
    struct sim_value *value = look_up(scenario, section, key);
    if (value == NULL) {
        fprintf(stderr, "scenario %s: asked for [%s] %s, which it does not have\n", scenario->name,
                section, key);
        abort();
    }
    return value;
}

int sim_scenario_set(struct sim_scenario *scenario, const struct sim_value *value,
                     struct via_error *err)
{
    struct sim_value *place = look_up(scenario, value->section, value->key);
    if (place == NULL && scenario->values_count == SIM_VALUES_MAX) {
        return via_error_set(err, -ENOSPC, "%.200s: too many values", scenario->name);
    }
    *(place != NULL ? place : &scenario->values[scenario->values_count++]) = *value;
    return 0;
}

double sim_scenario_number(const struct sim_scenario *scenario, const char *section,
                           const char *key)
{
    const struct sim_value *value = sim_scenario_find(scenario, section, key);
    assert(value->text[0] == '\0');
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
    const struct sim_value *value = sim_scenario_find(scenario, section, key);
    assert(value->text[0] != '\0');
    return value->text;
}

const char *sim_scenario_instance(const struct sim_scenario *scenario, const char *kind,
                                  size_t index)
{
    size_t bytes = strlen(kind);
    for (size_t i = 0; i < scenario->values_count; i++) {
        const char *section = scenario->values[i].section;
        bool begins = i == 0 || strcmp(section, scenario->values[i - 1].section) != 0;
        if (begins && strncmp(section, kind, bytes) == 0 && section[bytes] == ' ' && index-- == 0) {
            return section + bytes + 1;
        }
    }
    return NULL;
}
