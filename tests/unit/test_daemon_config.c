/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Configuration files of the daemon: what is accepted, and the text of errors. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/config.h"

#define LEAST "[host]\nid = 1\n"

static struct via_daemon_options options;
static struct via_daemon_report report;

static int parse(const char *text)
{
    memset(&report, 0, sizeof(report));
    via_daemon_options_init(&options);
    return via_daemon_config_parse("F", text, strlen(text), &options, &report);
}

static void all_of_a_file_is_understood(void **state)
{
    (void)state;
    assert_int_equal(
        parse("# a comment\r\n; another\n\n"
              " [host] \nid=7\n\tname = node-7 \naddresses = 10.0.0.7 , fd00::7\n"
              "listen = 0.0.0.0:7471\nrundir = /run/other\n"
              "[fabric]\nname = rack\nkey = /etc/viaduct/key\nhosts-max = 100\n"
              "[rights]\nattach = user:4711, group:4712\nadmin = all\n"
              "[quota]\nsegments = 10\nmemory = 2G\npipes = 8\nnotes = 9\n"
              "[limits]\nprocesses = 12\nlinks = 3\n"
              "[transport]\nchannels = 3\nslots = 64\nframe-bytes = 4096\n"
              "[times]\ngive-up-ms = 0\nwait-ms = 70\nheartbeat-ms = 10\ndead-ms = 50\n"
              "spin-us = 0\n"
              "[log]\nfile = /var/log/x.log\nlevel = warn\nbytes = 65536\n"
              "[link rack-2]\nto = emu:/a=b,side=1\npeer = 99\ndimension = 2\n"
              "[link\track-3]\nto = emu:/c,side=0"),
        0);
    assert_int_equal(report.lines_count, 0);
    const struct via_host_options *host = &options.host;
    assert_int_equal(host->host, 7);
    assert_string_equal(host->name, "node-7");
    assert_int_equal(host->addresses_count, 2);
    assert_string_equal(host->addresses[1], "fd00::7");
    assert_string_equal(host->listen, "0.0.0.0:7471");
    assert_string_equal(host->rundir, "/run/other");
    assert_string_equal(host->fabric, "rack");
    assert_string_equal(options.key_path, "/etc/viaduct/key");
    assert_int_equal(host->hosts_max, 100);
    assert_int_equal(host->attach.count, 2);
    assert_int_equal(host->attach.entries[1].id, 4712);
    assert_int_equal(host->admin.entries[0].kind, VIA_RIGHTS_ALL);
    assert_int_equal(host->quota.memory_bytes, UINT64_C(2) << 30);
    assert_int_equal(host->quota.notes, 9);
    assert_int_equal(host->processes_max, 12);
    assert_int_equal(host->links_max, 3);
    assert_int_equal(host->channels_count, 3);
    assert_true(host->give_up_ns == VIA_NEVER_NS);
    assert_int_equal(host->wait_ns_max, 70 * VIA_MSEC_NS);
    assert_int_equal(host->spin_ns_max, 1);
    assert_int_equal(options.log_level, VIA_LOG_WARN);
    assert_int_equal(host->links_count, 2);
    assert_string_equal(host->links[0].description, "emu:/a=b,side=1");
    assert_string_equal(host->links[0].name, "rack-2");
    assert_int_equal(host->links[0].peer, 99);
    assert_int_equal(host->links[0].dimension, 2);
    assert_int_equal(host->links[1].peer, VIA_HOST_PEER_LEARNED);
}

static void a_missing_key_has_a_default(void **state)
{
    (void)state;
    assert_int_equal(parse(LEAST), 0);
    assert_string_equal(options.host.rundir, "/run/viaduct");
    assert_null(options.host.name);
    assert_null(options.host.fabric);
    assert_null(options.host.listen);
    assert_null(options.key_path);
    assert_int_equal(options.host.links_max, VIA_DAEMON_LINKS_MAX);
    assert_int_equal(options.log_level, VIA_LOG_INFO);
}

static void errors_name_line_section_key_and_cause(void **state)
{
    static const struct {
        const char *text;
        const char *expected;
    } wrong[] = {
        {"", "F: [host] id: is missing\n"},
        {"id = 1\n" LEAST, "F:1: id: in front of it a section is missing, such as [host]\n"},
        {LEAST "id = 1\n", "F:3: [host] id: is given already, in line 2\n"},
        {LEAST "nonsense\n", "F:3: neither [SECTION] nor KEY = VALUE\n"},
        {LEAST "= 3\n", "F:3: [host] : there is no such key; there are id, name,"},
        {LEAST "Name = x\n", "F:3: [host] Name: there is no such key"},
        {LEAST "[host", "F:3: a section is not closed: the line ends with ]\n"},
        {LEAST "[log] level = info\n", "F:3: a section is not closed"},
        {LEAST "[]\n", "F:3: []: there is no such section; there are host, fabric,"},
        {LEAST "[linkage]\n", "F:3: [linkage]: there is no such section"},
        {LEAST "[link]\n", "F:3: [link ]: a link has a name of 1 to 32 letters"},
        {LEAST "[link a b]\n", "F:3: [link a b]: a link has a name"},
        {LEAST "[link a]\n", "F:3: [link a] to: is missing\n"},
        {LEAST "[link a]\nto = emu:/x,side=0\n[link a]\n",
         "F:5: [link a]: is a duplicate of line 3\n"},
        {LEAST "[link a]\nto = emu:/x,side=0\n[link b]\nto = emu:/x,side=0\n",
         "F:6: [link b] to: is the same as that of [link a] in line 4\n"},
        {LEAST "[link a]\nto = emu:/x,side=0\npeer = 1\n",
         "F:5: [link a] peer = 1: is the id of this host itself\n"},
        {LEAST "[link a]\nto = emu:/x,side=0\npeer = 64\n",
         "F:5: [link a] peer = 64: ids of this fabric are below hosts-max\n"},
        {LEAST "[link a]\nto = emu:/x,side=0\nspeed = 3\n",
         "F:5: [link a] speed: there is no such key; there are to, peer and dimension\n"},
        {LEAST "[link a]\nto = vme:3\n",
         "F:4: [link a] to = vme:3: description 'vme:3': there is no"},
        {LEAST "[link a]\nto = nothing\n",
         "F:4: [link a] to = nothing: description 'nothing': not DRIVER:TARGET"},
        {"[host]\nid = 64\n", "F: [host] id = 64: ids of this fabric are below hosts-max, 64\n"},
        {"[host]\nid = 0x1\n", "F:2: [host] id = 0x1: a number from 0 to 1023 is expected\n"},
        {"[host]\nid = -1\n", "F:2: [host] id = -1: a number from"},
        {"[host]\nid =\n", "F:2: [host] id = : a number from"},
        {LEAST "rundir = run\n", "F:3: [host] rundir = run: is not an absolute path\n"},
        {LEAST "[fabric]\nkey = /k\nencrypt = maybe\n",
         "F:5: [fabric] encrypt = maybe: yes or no is expected\n"},
        {LEAST "[fabric]\nencrypt = yes\n", "F:4: [fabric] encrypt = yes: needs [fabric] key\n"},
        {LEAST "addresses = 10.0.0.1 10.0.0.2\n",
         "F:3: [host] addresses = 10.0.0.1 10.0.0.2: addresses are separated by commas\n"},
        {LEAST "addresses = 10.0.0.1,\n", "address '': neither an IPv4 nor an IPv6 address\n"},
        {LEAST "[rights]\nattach = user:a user:b\n", "users and groups are separated by commas\n"},
        {LEAST "[rights]\nadmin = boss\n", "F:4: [rights] admin = boss: 'boss': all, owner,"},
        {LEAST "[quota]\nnotes = 0\n", "F:4: [quota] notes = 0: 'notes=0': a number from 1 on"},
        {LEAST "[quota]\nnotes = 1,pipes=1\n", "F:4: [quota] notes = 1,pipes=1: a number"},
        {LEAST "[log]\nlevel = loud\n", "F:4: [log] level = loud: error, warn, info, debug or"},
        {LEAST "[transport]\nslots = 33\n",
         "F: 2 channels, 33 slots, frames of 32768 bytes, 64 ids"},
        {LEAST "[limits]\nlinks = 1\n[link a]\nto = emu:/a,side=0\n[link b]\nto = emu:/b,side=0\n",
         "F: 2 links, more than the 1 that there may be\n"},
    };
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(parse(wrong[i].text), -EINVAL);
        if (strstr(report.text, wrong[i].expected) == NULL) {
            fail_msg("%s\nis answered: %s\nand not: %s", wrong[i].text, report.text,
                     wrong[i].expected);
        }
        assert_int_equal(report.lines_count, 1);
    }
}

static void zero_bytes_and_long_lines_are_errors(void **state)
{
    char text[4096];
    (void)state;
    memset(text, 'a', sizeof(text));
    memcpy(text, LEAST, strlen(LEAST));
    text[2000] = '\n';
    text[2010] = '\0';
    text[2020] = '\n';
    memset(text + 2021, ' ', sizeof(text) - 2021);
    memset(&report, 0, sizeof(report));
    via_daemon_options_init(&options);
    assert_int_equal(via_daemon_config_parse("F", text, sizeof(text), &options, &report), -EINVAL);
    assert_string_equal(report.text, "F:3: the line is longer than 1023 bytes\n"
                                     "F:4: the line contains a zero byte\n"
                                     "F:5: the line is longer than 1023 bytes\n");
}

static void count_line(void *ctx, const char *line)
{
    unsigned *count = ctx;
    assert_null(strchr(line, '\n'));
    ++*count;
}

/* A file with many errors, some with bytes that are no text: the report is readable and bounded. */
static void all_errors_are_reported_as_far_as_there_is_room(void **state)
{
    static char text[65536];
    unsigned count = 0;
    (void)state;
    strcpy(text, LEAST);
    for (unsigned i = 0; i < 1000; i++) {
        strcat(text, "\x1b[31m\xff = 1\n");
    }
    assert_int_equal(parse(text), -EINVAL);
    assert_int_equal(report.lines_count, 1000);
    assert_non_null(strstr(report.text, "F:3: [host] ?[31m?: there is no such key"));
    via_daemon_report_each(&report, count_line, &count);
    assert_int_equal(count, 1000 - report.omitted_count + 1);
    assert_true(count > 50);
}

static void a_printed_configuration_is_accepted_again(void **state)
{
    char *first = NULL;
    char *second = NULL;
    size_t bytes;
    (void)state;
    assert_int_equal(parse(LEAST "name = a\naddresses = fd00::1,10.0.0.1\n[times]\ngive-up-ms = 0\n"
                                 "[rights]\nattach = user:3, all\n[quota]\nmemory = 3M\n"
                                 "[link x]\nto = emu:/y,side=0\n[link z]\nto = emu:/q,side=1\n"
                                 "peer = 4\ndimension = 1\n"),
                     0);
    FILE *file = open_memstream(&first, &bytes);
    via_daemon_config_print(&options, file);
    fclose(file);
    assert_int_equal(parse(first), 0);
    file = open_memstream(&second, &bytes);
    via_daemon_config_print(&options, file);
    fclose(file);
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "give-up-ms = 0\n"));
    free(first);
    free(second);
}

static void settings_that_need_a_restart_are_listed(void **state)
{
    static struct via_daemon_options running;
    (void)state;
    assert_int_equal(parse(LEAST), 0);
    running = options;
    assert_int_equal(parse("[host]\nid = 2\nname = x\n[times]\ndead-ms = 80\n[log]\nlevel = debug\n"
                           "[fabric]\nkey = /k\n[transport]\nslots = 64\n"),
                     0);
    memset(&report, 0, sizeof(report));
    assert_int_equal(via_daemon_config_compare(&running, &options, &report), 3);
    assert_string_equal(
        report.text, "[host] id: stays 1, not 2: it changes when the daemon restarts\n"
                     "[fabric] key: stays unset, not /k: it changes when the daemon restarts\n"
                     "[transport] slots: stays 32, not 64: it changes when the daemon restarts\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_file_is_understood),
        cmocka_unit_test(a_missing_key_has_a_default),
        cmocka_unit_test(errors_name_line_section_key_and_cause),
        cmocka_unit_test(zero_bytes_and_long_lines_are_errors),
        cmocka_unit_test(all_errors_are_reported_as_far_as_there_is_room),
        cmocka_unit_test(a_printed_configuration_is_accepted_again),
        cmocka_unit_test(settings_that_need_a_restart_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
