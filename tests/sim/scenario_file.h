/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Values of scenario files, as tools/sim_scenario.py prints them. */
#ifndef TESTS_SIM_SCENARIO_FILE_H
#define TESTS_SIM_SCENARIO_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cost/scenario.h"

/*
 * Adds the values of sim/scenarios/FILE, with those of parts.ini, to a scenario of that kind.
 * section: only this one; NULL: all. 0, or -1 with a message on standard error.
 */
static inline int scenario_add_file(struct sim_scenario *scenario, const char *kind,
                                    const char *file, const char *section)
{
    const char *source = getenv("VIADUCT_SOURCE_DIR");
    char command[2048], line[1024];
    source = source != NULL ? source : ".";
    snprintf(command, sizeof(command),
             "python3 -B '%s/tools/sim_scenario.py' %s '%s/sim/scenarios/%s' "
             "'%s/sim/scenarios/parts.ini'",
             source, kind, source, file, source);
    FILE *values = popen(command, "re"); /* NOLINT: the words are ours */
    size_t count = 0;
    while (values != NULL && fgets(line, sizeof(line), values) != NULL) {
        struct sim_value value = {0};
        struct via_error err = {0};
        char *rest = line, *words[5] = {0};
        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < 5 && rest != NULL; i++) {
            words[i] = strsep(&rest, "\t");
        }
        if (strcmp(words[0], "value") != 0 || words[4] == NULL ||
            (section != NULL && strcmp(words[1], section) != 0)) {
            continue;
        }
        snprintf(value.section, sizeof(value.section), "%s", words[1]);
        snprintf(value.key, sizeof(value.key), "%s", words[2]);
        snprintf(value.text, sizeof(value.text), "%s", words[4]);
        value.number = strtod(words[3], NULL);
        count += sim_scenario_set(scenario, &value, &err) == 0;
    }
    if (values == NULL || pclose(values) != 0 || count == 0) {
        fprintf(stderr, "%s: no values\n", command);
        return -1;
    }
    return 0;
}

#endif
