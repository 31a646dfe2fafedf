/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port_conform.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conform_pair.h"

#define TESTS_MAX 64u

unsigned conform_patience_ms = 60000;

static const struct conform_kind *current_kind;
static enum conform_place current_place;

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    pair->kind = current_kind;
    pair->place = current_place;
    snprintf(pair->directory, sizeof(pair->directory), "/tmp/via-conform-XXXXXX");
    if (mkdtemp(pair->directory) == NULL) {
        free(pair);
        return -1;
    }
    *state = pair;
    if (pair->kind->begin != NULL && pair->kind->begin(pair->directory) != 0) {
        return -1;
    }
    /* Both orders of the two sides. */
    static unsigned first;
    first = 1 - first;
    for (unsigned i = 0; i < 2; i++) {
        unsigned side = i == 0 ? first : 1 - first;
        if (conform_agent_start(&pair->agent[side], pair->kind, pair->place, side, pair->directory,
                                &pair->end[side]) != 0) {
            return -1;
        }
    }
    pair_wait_up(pair);
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    int rc = conform_agent_quit(&pair->agent[0]);
    if (conform_agent_quit(&pair->agent[1]) != 0) {
        rc = -1;
    }
    if (pair->kind->end != NULL) {
        pair->kind->end(pair->directory);
    }
    if (rmdir(pair->directory) != 0) { /* a closed end leaves no resources behind */
        fprintf(stderr, "%s: %s\n", pair->directory, strerror(errno));
        rc = -1;
    }
    free(pair);
    return rc;
}

int conform_run(const struct conform_kind *kind, enum conform_place place)
{
    static const char *const places[] = {"two threads", "two processes", "one thread"};
    struct CMUnitTest tests[TESTS_MAX];
    unsigned count = conform_tests_of_dma(tests);
    if (!kind->only_dma) {
        count += conform_tests_of_puts(tests + count);
        count += conform_tests_of_fences(tests + count);
        count += conform_tests_of_doorbells(tests + count);
        count += conform_tests_of_links(tests + count);
    }
    for (unsigned i = 0; i < count; i++) {
        tests[i].setup_func = set_up;
        tests[i].teardown_func = tear_down;
    }
    if (getenv("CONFORM_TEST") != NULL) {
        cmocka_set_test_filter(getenv("CONFORM_TEST")); /* one test, or a pattern */
    }
    char name[96];
    snprintf(name, sizeof(name), "%s, %s", kind->name, places[place]);
    current_kind = kind;
    current_place = place;
    return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}
