/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A planted bug for a fuzzer to catch: catch.sh.
 *
 *   fuzz_NAME --plants          lists them: the first part of a name is that of its fuzzer
 *   fuzz_NAME --plant=PLANT ... runs with that bug; options of libFuzzer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"
#include "base/types.h"

#define PLANT(symbol, name, text) {name, text, VIA_MUTANT_##symbol},
static const struct {
    const char *name, *text;
    int number;
} plants[] = {VIA_MUTANTS_OF_FUZZERS_EACH(PLANT)};

static void choose(const char *name)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(plants); i++) {
        if (strcmp(plants[i].name, name) == 0) {
            via_mutant = plants[i].number;
            return;
        }
    }
    fprintf(stderr, "%s: no such plant\n", name);
    exit(2);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char option[] = "--plant=";
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        char *word = (*argv)[i];
        if (strcmp(word, "--plants") == 0) {
            for (size_t k = 0; k < VIA_ARRAY_COUNT(plants); k++) {
                printf("%s %s\n", plants[k].name, plants[k].text);
            }
            exit(0);
        }
        if (strncmp(word, option, strlen(option)) == 0) {
            choose(word + strlen(option));
        } else {
            (*argv)[kept++] = word;
        }
    }
    (*argv)[kept] = NULL;
    *argc = kept;
    return 0;
}
