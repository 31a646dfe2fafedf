/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Scenario files: errors name file, line and key. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/cost/net.h"
#include "sim/paper/idle.h"
#include "sim/paper/model.h"

static const struct sim_key box_keys[] = {
    {"time", SIM_TIME, 0, 1e9, NULL},         {"bytes", SIM_BYTES, 1, 4096, NULL},
    {"count", SIM_COUNT, 1, 8, NULL},         {"rate", SIM_RATE, 1, 10, NULL},
    {"share", SIM_PERCENT, 0, 1, NULL},       {"speed", SIM_BANDWIDTH, 1, 1e12, NULL},
    {"colour", SIM_WORD, 0, 0, "red yellow"}, {"peer", SIM_NAME, 0, 0, NULL},
};
static const struct sim_section box = {"box", false, box_keys, VIA_ARRAY_COUNT(box_keys)};
static const struct sim_key thing_keys[] = {{"length", SIM_LENGTH, 0, 10, NULL}};
static const struct sim_section thing = {"thing", true, thing_keys, VIA_ARRAY_COUNT(thing_keys)};
static const struct sim_section *const sections[] = {&box, &thing};

static const char good[] = "# comment\n"
                           "[box]\n"
                           "time = 1.5 us [stated] the paper; \n"
                           "bytes = 2 KiB [spec] a = b\n"
                           "count = 4 lanes [typical] x\n"
                           "rate = 2.5 GT/s [chosen] x\n"
                           "share = 50 % [fitted] x\n"
                           "speed = 8 Gb/s [stated] x\n"
                           "colour = red [stated] x\n"
                           "peer = b-1 [stated] x\n"
                           "[thing one]\n"
                           "length = 25 cm [stated] x\n"
                           "[thing two]\n"
                           "  length = 2 m [stated] x";

static int parse(const char *text, size_t bytes, struct sim_scenario *ret, struct via_error *err)
{
    return sim_scenario_parse("F", text, bytes, sections, VIA_ARRAY_COUNT(sections), ret, err);
}

static void values_are_in_base_units(void **state)
{
    (void)state;
    static struct sim_scenario scenario;
    struct via_error err = {0};
    int rc = parse(good, sizeof(good) - 1, &scenario, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    assert_int_equal(sim_scenario_ps(&scenario, "box", "time"), 1500000);
    assert_int_equal(sim_scenario_count(&scenario, "box", "bytes"), 2048);
    assert_int_equal(sim_scenario_count(&scenario, "box", "count"), 4);
    assert_true(sim_scenario_number(&scenario, "box", "rate") == 2.5);
    assert_true(sim_scenario_number(&scenario, "box", "share") == 0.5);
    assert_true(sim_scenario_number(&scenario, "box", "speed") == 1e9);
    assert_string_equal(sim_scenario_word(&scenario, "box", "colour"), "red");
    assert_string_equal(sim_scenario_word(&scenario, "box", "peer"), "b-1");
    assert_true(sim_scenario_number(&scenario, "thing one", "length") == 0.25);
    assert_true(sim_scenario_number(&scenario, "thing two", "length") == 2);
    assert_string_equal(sim_scenario_instance(&scenario, "thing", 1), "two");
    assert_null(sim_scenario_instance(&scenario, "thing", 2));
    assert_true(sim_scenario_has(&scenario, "thing one"));
    assert_false(sim_scenario_has(&scenario, "thing three"));
    const struct sim_value *value = sim_scenario_find(&scenario, "box", "time");
    assert_int_equal(value->line, 3);
    assert_int_equal(value->mark, SIM_STATED);
    assert_string_equal(value->source, "the paper;");
    assert_string_equal(sim_scenario_find(&scenario, "box", "bytes")->source, "a = b");
}

/* The good file with one line in the place of another; expected: how the error begins. */
static const struct {
    const char *line, *instead, *expected;
} bad[] = {
    {"count = 4 lanes [typical] x", "count = 4 lanes [typical] x\ncounts = 1 x [stated] x",
     "F:6: [box] counts: unknown key"},
    {"count = 4 lanes [typical] x", "count = 4 lanes [typical] x\ncount = 4 lanes [typical] x",
     "F:6: [box] count: is given twice"},
    {"count = 4 lanes [typical] x", "count = 4 [typical] x",
     "F:5: [box] count: the unit is missing: expected a word"},
    {"time = 1.5 us [stated] the paper; ", "time = 1.5",
     "F:3: [box] time: the unit is missing: expected ps, ns"},
    {"time = 1.5 us [stated] the paper; ", "time = 1.5 m [stated] x",
     "F:3: [box] time: unknown unit: expected ps, ns"},
    {"time = 1.5 us [stated] the paper; ", "time = 1.5 ms [stated] x",
     "F:3: [box] time: out of range: 0 to 1 ms are allowed"},
    {"time = 1.5 us [stated] the paper; ", "time = -1 us [stated] x",
     "F:3: [box] time: out of range"},
    {"time = 1.5 us [stated] the paper; ", "time = nan us [stated] x",
     "F:3: [box] time: not a number: nan"},
    {"time = 1.5 us [stated] the paper; ", "time = 1.5us us [stated] x",
     "F:3: [box] time: not a number: 1.5us"},
    {"time = 1.5 us [stated] the paper; ", "time =", "F:3: [box] time: not a number"},
    {"time = 1.5 us [stated] the paper; ", "time = 1.5 us stated x",
     "F:3: [box] time: expected [stated], [spec], [typical], [chosen] or [fitted] after the value, "
     "not stated"},
    {"time = 1.5 us [stated] the paper; ", "time = 1.5 us [guessed] x",
     "F:3: [box] time: expected [stated]"},
    {"time = 1.5 us [stated] the paper; ", "time = 1.5 us [stated]",
     "F:3: [box] time: the source is missing"},
    {"time = 1.5 us [stated] the paper; ", "", "F:2: [box] time: is missing"},
    {"count = 4 lanes [typical] x", "count = 2.5 lanes [typical] x",
     "F:5: [box] count: not a whole number: 2.5"},
    {"count = 4 lanes [typical] x", "count = 9 lanes [typical] x",
     "F:5: [box] count: out of range"},
    {"colour = red [stated] x", "colour = re [stated] x",
     "F:9: [box] colour: expected one of: red yellow"},
    {"peer = b-1 [stated] x", "peer = 1b [stated] x", "F:10: [box] peer: not a name: 1b"},
    {"[thing one]", "[thing]", "F:11: [thing]: expected a name: [thing NAME]"},
    {"[thing one]", "[thing two]", "F:13: [thing two]: is in line 11 already"},
    {"[thing one]", "[box one]", "F:11: [box one]: takes no name"},
    {"[thing one]", "[sphere one]", "F:11: [sphere one]: unknown section"},
    {"[thing one]", "[thing one", "F:11: neither [section] nor key = value"},
    {"[thing one]", "thing one", "F:11: neither [section] nor key = value"},
    {"[box]", "count = 1 x [stated] x\n[box]", "F:2: count: stands before the first [section]"},
};

static void what_is_wrong_is_said_with_file_line_and_key(void **state)
{
    (void)state;
    static struct sim_scenario scenario;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(bad); i++) {
        char text[2048];
        struct via_error err = {0};
        const char *at = strstr(good, bad[i].line);
        assert_non_null(at);
        int bytes = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, bad[i].instead,
                             at + strlen(bad[i].line));
        int rc = parse(text, (size_t)bytes, &scenario, &err);
        if (rc != -EINVAL || strncmp(err.text, bad[i].expected, strlen(bad[i].expected)) != 0) {
            fail_msg("'%s': expected '%s', got %d '%s'", bad[i].instead, bad[i].expected, rc,
                     err.text);
        }
    }
}

static void no_text_of_any_kind_is_taken_for_a_scenario(void **state)
{
    (void)state;
    static struct sim_scenario scenario;
    struct via_error err = {0};
    char line[400];
    assert_int_equal(parse("", 0, &scenario, &err), -EINVAL);
    assert_string_equal(err.text, "F:1: [box]: the section is missing");
    assert_int_equal(parse("[box]\n\0\n", 8, &scenario, &err), -EINVAL);
    assert_string_equal(err.text, "F:2: line: holds a zero byte: not a text file");
    memset(line, 'x', sizeof(line));
    assert_int_equal(parse(line, sizeof(line), &scenario, &err), -EINVAL);
    assert_string_equal(err.text, "F:1: line: longer than 198 bytes");
    assert_int_equal(sim_scenario_load("/no/such/file", NULL, sections, VIA_ARRAY_COUNT(sections),
                                       &scenario, &err),
                     -ENOENT);
    assert_string_equal(err.text, "/no/such/file: open: No such file or directory");
}

/* --- topologies that do not close ------------------------------------------------------------- */

static const struct {
    const char *line, *instead, *expected;
} broken[] = {
    {"b = kintex [stated] endpoint", "b = virtex [stated] endpoint",
     "] b: there is no host, switch or device 'virtex'"},
    {"b = kintex [stated] endpoint", "b = xeon [stated] endpoint", "] b: both ends are 'xeon'"},
    {"length = 0.2 m", "length = 2 m", "] length: 2 m, but trace reaches no farther than 0.5 m"},
    {"rate = 8 GT/s", "rate = 2.5 GT/s", "] generation: needs 5 GT/s a lane, but trace carries"},
    {"medium = trace", "medium = ether", "] medium: there is no [medium ether]"},
    {"lanes = 8 lanes", "lanes = 6 lanes", "] lanes: a link has 1, 2, 4, 8 or 16"},
    {"mps = 128 B", "mps = 200 B", "] mps: not a power of two"},
    {"[device kintex]", "[device xeon]", "[device xeon] write: there is another node 'xeon'"},
    {"[medium trace]",
     "[switch s]\nforward = 1 ns [chosen] x\nnt = 0 ns [chosen] x\nread = 1 ns [chosen] x\n"
     "lanes = 4 lanes [chosen] x\nports = 2 ports [chosen] x\n[medium trace]",
     "[switch s] read: no link ends at 's'"},
    {"[link slot]\na = xeon",
     "[switch s]\nforward = 1 ns [chosen] x\nnt = 0 ns [chosen] x\nread = 1 ns [chosen] x\n"
     "lanes = 4 lanes [chosen] x\nports = 2 ports [chosen] x\n[link slot]\na = s",
     "] a: s has 4 lanes, and its links want 8"},
};

static char *scenario_text(const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/tests/sim/%s", getenv("VIADUCT_SOURCE_DIR"), name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    assert_in_range(fread(text, 1, 65535, file), 1, 65534);
    fclose(file);
    return text;
}

static void topologies_that_do_not_close_are_refused(void **state)
{
    (void)state;
    size_t count;
    const struct sim_section *const *stores = sim_model_sections("stores", &count);
    static struct sim_scenario scenario;
    char *text = scenario_text("complete.ini");
    char *changed = calloc(1, 70000);
    assert_non_null(changed);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(broken); i++) {
        struct via_error err = {0};
        struct sim_idle idle;
        const char *at = strstr(text, broken[i].line);
        assert_non_null(at);
        int bytes = snprintf(changed, 70000, "%.*s%s%s", (int)(at - text), text, broken[i].instead,
                             at + strlen(broken[i].line));
        int rc = sim_scenario_parse("F", changed, (size_t)bytes, stores, count, &scenario, &err);
        assert_string_equal(err.text, "");
        assert_int_equal(rc, 0);
        rc = sim_idle_init(&idle, &scenario, "xeon", "kintex", &err);
        sim_idle_fini(&idle);
        if (rc != -EINVAL || strncmp(err.text, "F:", 2) != 0 ||
            strstr(err.text, broken[i].expected) == NULL) {
            fail_msg("'%s': expected '%s', got %d '%s'", broken[i].instead, broken[i].expected, rc,
                     err.text);
        }
    }
    free(changed);
    free(text);
}

/* --- parts that stand once ------------------------------------------------------------------- */

static void write_text(char path[64], const char *text)
{
    snprintf(path, 64, "/tmp/cost-scenario-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* Loads text with the parts "[thing one] length = 4 m", "[box]" and one that no caller declares. */
static int load_with_parts(const char *text, struct sim_scenario *ret, struct via_error *err)
{
    char file[64], parts[64], library[1024];
    snprintf(library, sizeof(library), "%s\n[cloud grey]\nheight = 3 m [stated] x\n", good);
    write_text(file, text);
    write_text(parts, library);
    int rc = sim_scenario_load(file, parts, sections, VIA_ARRAY_COUNT(sections), ret, err);
    unlink(file);
    unlink(parts);
    return rc;
}

static void what_a_scenario_leaves_out_is_of_the_parts(void **state)
{
    (void)state;
    static struct sim_scenario scenario;
    struct via_error err = {0};
    int rc = load_with_parts("[thing near: one]\n[thing far: two]\nlength = 9 m [stated] x\n"
                             "[box]\ncount = 3 lanes [stated] x\n",
                             &scenario, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    assert_true(sim_scenario_number(&scenario, "thing near", "length") == 0.25);
    assert_true(sim_scenario_number(&scenario, "thing far", "length") == 9);
    assert_int_equal(sim_scenario_count(&scenario, "box", "count"), 3);
    assert_int_equal(sim_scenario_count(&scenario, "box", "bytes"), 2048);
    assert_false(sim_scenario_has(&scenario, "thing one"));
    assert_int_equal(load_with_parts("[thing near: three]\n", &scenario, &err), -EINVAL);
    assert_non_null(strstr(err.text, ":1: [thing near: three]: /tmp/"));
    assert_non_null(strstr(err.text, "has no such part"));
    err = (struct via_error){0};
    assert_int_equal(load_with_parts("[thing near]\n", &scenario, &err), -EINVAL);
    assert_non_null(strstr(err.text, "[thing near] length: is missing"));
    err = (struct via_error){0};
    assert_int_equal(load_with_parts("[cloud grey]\n", &scenario, &err), -EINVAL);
    assert_non_null(strstr(err.text, "[cloud grey]: unknown section"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_in_base_units),
        cmocka_unit_test(what_is_wrong_is_said_with_file_line_and_key),
        cmocka_unit_test(no_text_of_any_kind_is_taken_for_a_scenario),
        cmocka_unit_test(topologies_that_do_not_close_are_refused),
        cmocka_unit_test(what_a_scenario_leaves_out_is_of_the_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
