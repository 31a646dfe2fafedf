/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Name, fabric and addresses of a host are checked. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "host/host.h"
#include "host/host_identity.h"

static void names_are_checked(void **state)
{
    static const char *const wrong[] = {"",    ".hidden", "-x",  "a b", "a/b", "h\xc3\xb6st",
                                        "a\n", "a\"b",    "a,b", "a:b"};
    struct via_host_identity identity = {0};
    struct via_error err;
    char name[VIA_HOST_NAME_BYTES_MAX + 2];
    (void)state;
    assert_int_equal(via_host_identity_set_name(&identity, "node-2.rack_1", &err), 0);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(via_host_identity_set_name(&identity, wrong[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "letters, digits"));
    }
    assert_string_equal(identity.name, "node-2.rack_1");
    memset(name, 'n', sizeof(name));
    name[VIA_HOST_NAME_BYTES_MAX + 1] = '\0';
    assert_int_equal(via_host_identity_set_name(&identity, name, &err), -EINVAL);
    name[VIA_HOST_NAME_BYTES_MAX] = '\0';
    assert_int_equal(via_host_identity_set_name(&identity, name, &err), 0);
    assert_int_equal(via_host_identity_set_fabric(&identity, "../x", &err), -EINVAL);
    assert_int_equal(via_host_identity_set_fabric(&identity, "rack1", &err), 0);
    assert_string_equal(identity.fabric, "rack1");
}

static void addresses_are_those_of_one_machine(void **state)
{
    static const char *const wrong[] = {"",        "10.0.0",  "10.0.0.256", "10.0.0.1/8",
                                        "0.0.0.0", "0.1.2.3", "224.0.0.1",  "255.255.255.255",
                                        "::",      "ff02::1", "fe80::1",    "::ffff:10.0.0.1",
                                        "node2",   "1::2::3", "fd00::1%lo"};
    struct via_host_identity identity = {0};
    struct via_error err;
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(via_host_identity_add_address(&identity, wrong[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "address '"));
    }
    assert_int_equal(identity.addresses_count, 0);
    assert_int_equal(via_host_identity_add_address(&identity, "10.0.0.2", &err), 0);
    assert_int_equal(via_host_identity_add_address(&identity, "FD00:0:0::2", &err), 0);
    assert_string_equal(identity.addresses[1], "fd00::2");
    assert_int_equal(via_host_identity_add_address(&identity, "fd00::0:2", &err), -EINVAL);
    assert_string_equal(err.text, "address 'fd00::2' is given twice");
    for (unsigned i = 2; i < VIA_HOST_ADDRESSES_MAX; i++) {
        char text[32];
        snprintf(text, sizeof(text), "10.0.1.%u", i);
        assert_int_equal(via_host_identity_add_address(&identity, text, &err), 0);
    }
    assert_int_equal(via_host_identity_add_address(&identity, "10.0.2.1", &err), -EINVAL);
    assert_non_null(strstr(err.text, "at most 16"));
}

static void options_become_all_of_it_or_nothing(void **state)
{
    const char *addresses[] = {"127.77.0.1", "nowhere"};
    struct via_host_options options;
    struct via_host_identity identity = {.name = "before"};
    struct via_error err;
    char name[256] = "";
    (void)state;
    via_host_options_init(&options);
    options.host = 7;
    options.addresses = addresses;
    options.addresses_count = 2;
    assert_int_equal(via_host_identity_init(&identity, &options, &err), -EINVAL);
    assert_string_equal(identity.name, "before");
    options.addresses_count = 1;
    assert_int_equal(via_host_identity_init(&identity, &options, &err), 0);
    assert_string_equal(identity.addresses[0], "127.77.0.1");
    assert_string_equal(identity.fabric, "");
    /* The machine's own name, or a generated one: never an error. */
    assert_int_equal(gethostname(name, sizeof(name) - 1), 0);
    struct via_host_identity fits = {0};
    bool fit = via_host_identity_set_name(&fits, name, NULL) == 0;
    assert_string_equal(identity.name, fit ? name : "host-7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(addresses_are_those_of_one_machine),
        cmocka_unit_test(options_become_all_of_it_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
