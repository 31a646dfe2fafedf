/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Rules in files and variables: their meaning, and the errors for invalid rules. */
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

#include "host/control_rules.h"

static struct via_rules rules_of(const char *key, const char *value)
{
    struct via_rules rules;
    const char *why = "";
    via_rules_init(&rules);
    assert_int_equal(via_rules_set(&rules, key, value, &why), 0);
    return rules;
}

static const unsigned char *ip4(unsigned a, unsigned b, unsigned c, unsigned d)
{
    static unsigned char ip[16] = {[10] = 0xff, [11] = 0xff};
    ip[12] = (unsigned char)a;
    ip[13] = (unsigned char)b;
    ip[14] = (unsigned char)c;
    ip[15] = (unsigned char)d;
    return ip;
}

static void without_rules_all_is_allowed(void **state)
{
    (void)state;
    struct via_rules rules;
    via_rules_init(&rules);
    assert_true(rules.on);
    assert_true(via_rules_is_port_allowed(&rules, 1));
    assert_true(via_rules_is_network_allowed(&rules, ip4(8, 8, 8, 8)));
    assert_true(via_rules_is_program_allowed(&rules, "anything"));
}

static void ports(void **state)
{
    (void)state;
    struct via_rules rules = rules_of("ports", "80, 6000-6010,!6005");
    assert_true(via_rules_is_port_allowed(&rules, 80));
    assert_true(via_rules_is_port_allowed(&rules, 6000) && via_rules_is_port_allowed(&rules, 6010));
    assert_false(via_rules_is_port_allowed(&rules, 6005));
    assert_false(via_rules_is_port_allowed(&rules, 81) || via_rules_is_port_allowed(&rules, 6011));
    rules = rules_of("ports", "!22");
    assert_true(via_rules_is_port_allowed(&rules, 80));
    assert_false(via_rules_is_port_allowed(&rules, 22));
}

static void networks(void **state)
{
    (void)state;
    static const unsigned char loopback6[16] = {[15] = 1};
    struct via_rules rules = rules_of("networks", "127.0.0.0/8,::1,!127.0.0.7,10.1.2.0/23");
    assert_true(via_rules_is_network_allowed(&rules, ip4(127, 255, 0, 1)));
    assert_false(via_rules_is_network_allowed(&rules, ip4(127, 0, 0, 7)));
    assert_false(via_rules_is_network_allowed(&rules, ip4(128, 0, 0, 1)));
    assert_true(via_rules_is_network_allowed(&rules, ip4(10, 1, 3, 255)));
    assert_false(via_rules_is_network_allowed(&rules, ip4(10, 1, 4, 0)));
    assert_true(via_rules_is_network_allowed(&rules, loopback6));
    rules = rules_of("networks", "0.0.0.0/0");
    assert_true(via_rules_is_network_allowed(&rules, ip4(1, 2, 3, 4)));
    assert_false(via_rules_is_network_allowed(&rules, loopback6));
}

static void programs(void **state)
{
    (void)state;
    struct via_rules rules = rules_of("programs", "nginx,redis-*,!redis-cli");
    assert_true(via_rules_is_program_allowed(&rules, "nginx"));
    assert_true(via_rules_is_program_allowed(&rules, "redis-server"));
    assert_false(via_rules_is_program_allowed(&rules, "redis-cli"));
    assert_false(via_rules_is_program_allowed(&rules, "nginx2"));
}

static const char *parse(struct via_rules *rules, const char *text, const char *program)
{
    static struct via_error err;
    via_error_clear(&err);
    via_rules_init(rules);
    int rc = via_rules_parse(rules, "F", text, strlen(text), program, &err);
    assert_true(rc == 0 || rc == -EINVAL);
    assert_int_equal(rc == 0, err.text[0] == '\0');
    return err.text;
}

static void a_file_with_sections(void **state)
{
    (void)state;
    static const char text[] = "# rules\n\n"
                               "[all]\r\n"
                               "ports = 80\r\n"
                               "  after=7  \n"
                               "[ program redis-* ]\n"
                               "ports = 6379\n"
                               "; and\n"
                               "[program ssh]\n"
                               "sockets = off";
    struct via_rules rules;
    assert_string_equal(parse(&rules, text, "nginx"), "");
    assert_true(rules.on && via_rules_is_port_allowed(&rules, 80) && rules.after_calls == 7);
    assert_string_equal(parse(&rules, text, "redis-server"), "");
    assert_true(rules.on && via_rules_is_port_allowed(&rules, 6379) && rules.after_calls == 7);
    assert_false(via_rules_is_port_allowed(&rules, 80));
    assert_string_equal(parse(&rules, text, "ssh"), "");
    assert_false(rules.on);
}

/* An error names the file, the line and the key, also in sections for other programs. */
static void errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"ports = 80\n", "F:1: ports: in front of it a section is missing"},
        {"[all]\nports = 80-\n", "F:2: ports: ports are numbers and ranges"},
        {"[all]\nports = 70000\n", "F:2: ports: "},
        {"[all]\nports = 90-80\n", "F:2: ports: "},
        {"[all]\nports = 1,,2\n", "F:2: ports: "},
        {"[all]\nports = !\n", "F:2: ports: "},
        {"[all]\n\nnetworks = 1.2.3.4/33\n", "F:3: networks: networks are addresses"},
        {"[all]\nnetworks = ::1/129\n", "F:2: networks: "},
        {"[all]\nnetworks = host\n", "F:2: networks: "},
        {"[all]\nprograms = /usr/bin/x\n", "F:2: programs: programs are names without a path"},
        {"[all]\nsockets = maybe\n", "F:2: sockets: neither on nor off"},
        {"[all]\nspin = maybe\n", "F:2: spin: neither on nor off"},
        {"[all]\nafter = -1\n", "F:2: after: not a number from 0 to 1000000"},
        {"[all]\nafter = 1000001\n", "F:2: after: not a number"},
        {"[all]\nport = 80\n", "F:2: port: no such key"},
        {"[all]\nwords\n", "F:2: words: neither a section nor 'key = value'"},
        {"[all\n", "F:1: [all: a section ends with ]"},
        {"[some]\n", "F:1: some: sections are [all] and [program NAME]"},
        {"[program ]\n", "F:1: program: sections are"},
        {"[program other]\nports = x\n", "F:2: ports: "},
    };
    struct via_rules rules;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        const char *error = parse(&rules, cases[i].text, "me");
        if (strncmp(error, cases[i].expected, strlen(cases[i].expected)) != 0) {
            fail_msg("'%s': the error is '%s', not '%s'", cases[i].text, error, cases[i].expected);
        }
    }
}

static void switches_and_bytes(void **state)
{
    (void)state;
    struct via_rules rules;
    const char *why = "";
    via_rules_init(&rules);
    assert_true(rules.memory_bytes > 0 && rules.user_memory_bytes > rules.memory_bytes);
    assert_int_equal(via_rules_set(&rules, "spin", "0", &why), 0);
    assert_false(rules.spin);
    assert_int_equal(via_rules_set(&rules, "spin", "1", &why), 0);
    assert_true(rules.spin);
    assert_int_equal(via_rules_set(&rules, "spin", "2", &why), -EINVAL);
    assert_int_equal(via_rules_set(&rules, "memory", "3G", &why), 0);
    assert_true(rules.memory_bytes == UINT64_C(3) << 30);
    assert_int_equal(via_rules_set(&rules, "user-memory", "0", &why), 0);
    assert_true(rules.user_memory_bytes == 0);
    static const char *const bad[] = {
        "", "K", "-1", "1KB", "1k", "16777216T", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(via_rules_set(&rules, "memory", bad[i], &why), -EINVAL);
    }
    assert_true(rules.memory_bytes == UINT64_C(3) << 30);
}

static void long_things_are_refused(void **state)
{
    (void)state;
    struct via_rules rules;
    struct via_error err = {0};
    char text[2048];
    memset(text, 'x', sizeof(text));
    assert_int_equal(via_rules_parse(&rules, "F", text, sizeof(text), "me", &err), -EINVAL);
    assert_string_equal(err.text, "F:1: line: longer than 1023 bytes");
    assert_int_equal(via_rules_parse(&rules, "F", "[all]\n\0", 7, "me", &err), -EINVAL);
    assert_string_equal(err.text, "F:2: line: a zero byte in it");
    size_t n = 0;
    for (int i = 0; i < 33; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%d,", i);
    }
    const char *why = "";
    assert_int_equal(via_rules_set(&rules, "ports", text, &why), -EINVAL);
    assert_string_equal(why, "more than 32 items");
}

static void variables_go_before_the_file(void **state)
{
    (void)state;
    struct via_rules rules;
    struct via_error err = {0};
    char name[] = "/tmp/via-rules-XXXXXX";
    static const char text[] = "[all]\nports = 80\nafter = 9\n";
    int fd = mkstemp(name);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    setenv("VIADUCT_SOCKETS_CONFIG", name, 1);
    setenv("VIADUCT_SOCKETS_PORTS", "443", 1);
    assert_int_equal(via_rules_load(&rules, "me", &err), 0);
    assert_true(via_rules_is_port_allowed(&rules, 443) && rules.after_calls == 9);
    assert_false(via_rules_is_port_allowed(&rules, 80));
    setenv("VIADUCT_SOCKETS_PORTS", "80-", 1);
    assert_int_equal(via_rules_load(&rules, "me", &err), -EINVAL);
    assert_int_equal(strncmp(err.text, "VIADUCT_SOCKETS_PORTS: '80-': ", 30), 0);
    unlink(name);
    assert_int_equal(via_rules_load(&rules, "me", &err), -ENOENT);
    assert_non_null(strstr(err.text, name));
    unsetenv("VIADUCT_SOCKETS_CONFIG");
    unsetenv("VIADUCT_SOCKETS_PORTS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_rules_all_is_allowed),
        cmocka_unit_test(ports),
        cmocka_unit_test(networks),
        cmocka_unit_test(programs),
        cmocka_unit_test(a_file_with_sections),
        cmocka_unit_test(errors),
        cmocka_unit_test(switches_and_bytes),
        cmocka_unit_test(long_things_are_refused),
        cmocka_unit_test(variables_go_before_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
