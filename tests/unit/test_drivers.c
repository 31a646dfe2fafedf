/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Descriptions of links, and the table of drivers. */
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

#include "port/driver.h"

static void every_driver_is_complete(void **state)
{
    (void)state;
    for (unsigned i = 0; via_drivers[i] != NULL; i++) {
        const struct via_driver *driver = via_drivers[i];
        assert_true(driver->name != NULL && strpbrk(driver->name, ":, '") == NULL);
        assert_non_null(driver->usage);
        assert_true(driver->parse != NULL && driver->open != NULL && driver->describe != NULL &&
                    driver->status != NULL && driver->fd != NULL && driver->service != NULL);
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(driver->name, via_drivers[j]->name);
        }
    }
}

static void an_invalid_description_is_refused(void **state)
{
    static const struct {
        const char *text, *expected;
    } wrong[] = {
        {"", "not DRIVER:TARGET"},
        {"emu", "not DRIVER:TARGET"},
        {":x", "there is no driver ''; there are: emu"},
        {"em:x", "there is no driver 'em'; there are: emu"},
        {"emus:x", "there is no driver 'emus'; there are: emu"},
        {"emu:", "driver emu: the path of a socket is missing"},
        {"emu:,side=1", "driver emu: the path of a socket is missing"},
        {"emu:/x,side=2", "option 'side=2': not one of side=0|1"},
        {"emu:/x,side", "option 'side': not one of"},
        {"emu:/x,", "option '': not one of"},
        {"emu:/x,nodirect=1", "option 'nodirect=1': not one of"},
        {"emu:/x,window=4Mib", "option 'window=4Mib': not one of"},
        {"emu:/x,window=99999999999GiB", "not one of"},
        {"emu:/x,window=", "option 'window=': not one of"},
        {"emu:/x,seed=-1", "option 'seed=-1': not one of"},
        {"emu:/x,like=", "like '': there is no such class of links"},
        {"emu:/x,inbox", "option 'inbox': not once inbox=BYTES"},
        {"emu:/x,inbox=0", "option 'inbox=0': not once"},
        {"emu:/x,inbox=2GiB", "option 'inbox=2GiB': not once"},
        {"emu:/x,inbox=64KiB,inbox=64KiB", "option 'inbox=64KiB': not once"},
        {"ofi:", "driver ofi: '': not PROVIDER://HOST"},
        {"ofi:tcp", "not PROVIDER://HOST"},
        {"ofi:://x", "not PROVIDER://HOST"},
        {"ofi:^tcp://x", "not the name of a provider"},
        {"ofi:aproviderwithsolonganame://x", "not the name of a provider"},
        {"ofi:tcp://", "'': not HOST[:PORT]"},
        {"ofi:tcp://x:", "a port is a number"},
        {"ofi:tcp://x:0", "a port is a number"},
        {"ofi:tcp://x:65536", "a port is a number"},
        {"ofi:tcp://x:1x", "a port is a number"},
        {"ofi:tcp://fe80::1", "an IPv6 address has brackets"},
        {"ofi:tcp://[::1", "a ']' is missing"},
        {"ofi:tcp://[::1]x", "not HOST[:PORT]"},
        {"ofi:tcp://x,listen=y", "listen: 'y': not an address"},
        {"ofi:tcp://x,listen=", "listen: '': not HOST[:PORT]"},
        {"ofi:tcp://x,listen", "option 'listen': not one of"},
        {"ofi:tcp://x,key=1", "option 'key=1': not one of listen="},
        {"pex:", "driver pex: '': not 0000:03:00.0, vfio-user:PATH or model:NAME"},
        {"pex:model:", "driver pex: 'model:': not 0000:03:00.0, vfio-user:PATH or model:NAME"},
        {"pex:0000:03:00.8", "'0000:03:00.8': not 0000:03:00.0"},
        {"pex:03:00.0", "'03:00.0': not 0000:03:00.0"},
        {"pex:model:x,bar=3", "option 'bar=3': not one of side=virtual|link"},
        {"pex:model:x,bar", "option 'bar': not one of"},
        {"pex:model:x,window=4097", "option 'window=4097': not one of"},
        {"pex:model:x,window=4KiB", "option 'window=4KiB': not one of"},
        {"pex:model:x,alut=any", "option 'alut=any': not one of"},
        {"pex:model:x,irq=msix", "option 'irq=msix': not one of"},
        {"pex:model:x,side=0", "option 'side=0': not one of"},
        {"ivshmem:x,side=0", "driver ivshmem: target 'x': neither the absolute path"},
        {"ivshmem:0000:00:04,side=0", "neither the absolute path"},
        {"ivshmem:0000:00:04.0,side=0,access=uio", "option 'access=uio': not one of"},
        {"ivshmem:/x,side=0,access=sysfs", "access= is for PCI functions, not for /x"},
        {"ivshmem:/x", "driver ivshmem: side=0 or side=1 is missing"},
        {"ivshmem:/x,side=2", "option 'side=2': not one of side=0|1"},
        {"ivshmem:/x,side=0,cell=1024", "option 'cell=1024': not one of"},
        {"ivshmem:/x,side=0,window=0", "option 'window=0': not one of"},
        {"emu:/x,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", "more than 16 options"},
    };
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        struct via_link_config config;
        struct via_error err = {0};
        char begins[96];
        assert_int_equal(via_link_parse(wrong[i].text, &config, &err), -EINVAL);
        snprintf(begins, sizeof(begins), "description '%s': ", wrong[i].text);
        assert_int_equal(strncmp(err.text, begins, strlen(begins)), 0);
        if (strstr(err.text, wrong[i].expected) == NULL) {
            fail_msg("'%s' is not in '%s'", wrong[i].expected, err.text);
        }
    }
}

static void a_description_that_is_too_long_is_refused(void **state)
{
    struct via_link_config config;
    struct via_error err;
    char text[600];
    (void)state;
    memset(text, 'a', sizeof(text));
    memcpy(text, "emu:", 4);
    text[599] = '\0';
    assert_int_equal(via_link_parse(text, &config, &err), -EINVAL);
    text[300] = '\0';
    assert_int_equal(via_link_parse(text, &config, &err), -EINVAL);
    text[4 + 108] = '\0';
    assert_int_equal(via_link_parse(text, &config, &err), -ENAMETOOLONG);
    text[4 + 107] = '\0';
    assert_int_equal(via_link_parse(text, &config, &err), 0);
}

static void a_comma_in_a_target_is_doubled(void **state)
{
    struct via_link_config config;
    struct via_error err;
    (void)state;
    assert_int_equal(via_link_parse("emu:/a,,b/c,,,side=1,window=4MiB,seed=7", &config, &err), 0);
    assert_string_equal(config.target, "/a,b/c,");
    assert_int_equal(via_link_parse("emu:/a:b=c,like=pex", &config, &err), 0);
    assert_string_equal(config.target, "/a:b=c");
}

static void every_driver_takes_the_size_of_an_inbox(void **state)
{
    struct via_link_config config;
    struct via_error err = {0};
    (void)state;
    assert_int_equal(via_link_parse("emu:/x,side=1", &config, &err), 0);
    assert_int_equal(config.inbox_bytes, 0);
    assert_int_equal(via_link_parse("emu:/x,inbox=96KiB,side=1", &config, &err), 0);
    assert_int_equal(config.inbox_bytes, 96 << 10);
    assert_int_equal(via_link_parse("ofi:tcp://x,inbox=1MiB", &config, &err), 0);
    assert_int_equal(config.inbox_bytes, 1 << 20);
}

static void sizes_have_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {{"0", 0},
                 {"4096", 4096},
                 {"3KiB", 3072},
                 {"4MiB", UINT64_C(4) << 20},
                 {"2GiB", UINT64_C(2) << 30}};
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(right); i++) {
        struct via_link_word word = {.key = "window", .value = right[i].text};
        uint64_t bytes = 1;
        assert_true(via_link_word_parse_bytes(&word, &bytes));
        assert_true(bytes == right[i].bytes);
    }
}

/* --- a link that is opened through the table alone --- */

struct end {
    struct via_link_config config;
    struct via_driver_host offer;
    struct via_port *port;
    unsigned messages_count;
    char message[16];
};

static void on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds)
{
    struct end *end = ctx;
    (void)fds;
    (void)nfds;
    assert_true(len <= sizeof(end->message));
    memcpy(end->message, msg, len);
    end->messages_count++;
}

static void service(struct end *ends, unsigned turns)
{
    static uint64_t now_ns = VIA_SEC_NS;
    for (unsigned i = 0; i < 2 * turns; i++) {
        uint64_t deadline_ns;
        now_ns += VIA_MSEC_NS;
        (void)ends[i % 2].config.driver->service(ends[i % 2].port, now_ns, &deadline_ns);
    }
}

static void open_ends(struct end *ends, const char *path)
{
    for (unsigned side = 0; side < 2; side++) {
        struct end *end = &ends[side];
        struct via_error err = {0};
        char text[160];
        snprintf(text, sizeof(text), "emu:%s,side=%u,like=pex,window=1MiB", path, side);
        assert_int_equal(via_link_parse(text, &end->config, &err), 0);
        end->offer = (struct via_driver_host){.host = (uint16_t)(7 + side),
                                              .inbox_bytes = 65536,
                                              .bell_fd = -1,
                                              .on_message = on_message,
                                              .ctx = end};
        if (end->config.driver->open(end->config.config, &end->offer, &end->port, &err) != 0) {
            fail_msg("%s", err.text);
        }
    }
}

static void a_link_is_used_by_the_table(void **state)
{
    char directory[] = "/tmp/via-drivers-XXXXXX";
    char path[64];
    char found[128];
    static struct end ends[2];
    struct via_port_status status;
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/link.sock", directory);
    open_ends(ends, path);
    const struct via_driver *driver = ends[0].config.driver;
    driver->describe(ends[0].port, found, sizeof(found));
    assert_string_equal(found, "");
    service(ends, 5);
    assert_true(ends[0].port->ops->link_is_up(ends[0].port));
    assert_int_equal(ends[0].port->caps.window_bytes, 1 << 20);
    assert_true(driver->fd(ends[0].port) >= 0);
    driver->describe(ends[0].port, found, sizeof(found));
    assert_non_null(strstr(found, "host 8, inbox of 1048576 bytes"));

    driver->status(ends[0].port, &status);
    assert_string_equal(status.class_name, "pex");
    assert_false(status.maps_memory);
    assert_int_equal(driver->request(ends[1].port, "hello", 6, NULL, 0), 0);
    service(ends, 2);
    assert_int_equal(ends[0].messages_count, 1);
    assert_string_equal(ends[0].message, "hello");

    driver->cut(ends[0].port, true);
    service(ends, 2);
    driver->status(ends[0].port, &status);
    assert_true(status.cut);
    assert_false(ends[1].port->ops->link_is_up(ends[1].port));
    for (unsigned side = 0; side < 2; side++) {
        ends[side].port->ops->close(ends[side].port);
    }
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_driver_is_complete),
        cmocka_unit_test(an_invalid_description_is_refused),
        cmocka_unit_test(a_description_that_is_too_long_is_refused),
        cmocka_unit_test(a_comma_in_a_target_is_doubled),
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(every_driver_takes_the_size_of_an_inbox),
        cmocka_unit_test(a_link_is_used_by_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
