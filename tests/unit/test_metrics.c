/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Metrics as text: effects of a hostile status, and addresses of the server. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "metrics/server.h"
#include "metrics/text.h"

static char *write_of(const char *json)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *status = json_loads(json, 0, NULL);
    assert_non_null(status);
    const struct via_metrics_host host = {.host = 3, .status = status};
    assert_int_equal(via_metrics_write(&host, 1, &text, &bytes), 0);
    assert_int_equal(bytes, strlen(text));
    json_decref(status);
    return text;
}

static void test_labels_are_escaped(void **state)
{
    (void)state;
    char *text = write_of("{\"name\":\"a\\\"b\\\\c\\nd\",\"fabric\":\"f\",\"protocol_version\":3,"
                          "\"links\":[{\"peer\":-1,\"driver\":\"x\\\"} 9\\n\",\"state\":\"up\"}]}");
    assert_non_null(strstr(text, "viaduct_host_info{host=\"3\",name=\"a\\\"b\\\\c?d\",fabric=\"f\","
                                 "protocol=\"3\"} 1\n"));
    assert_non_null(strstr(text, "viaduct_link_up{host=\"3\",port=\"0\",peer=\"\","
                                 "driver=\"x\\\"} 9?\"} 1\n"));
    free(text);
}

static void test_values_of_another_type_are_left_out(void **state)
{
    (void)state;
    char *text =
        write_of("{\"uptime_ns\":\"1\",\"counters\":[1],\"links\":{\"peer\":1},\"users\":7,"
                 "\"routes\":[1,null,{\"host\":\"2\"}]}");
    assert_non_null(strstr(text, "viaduct_host_up{host=\"3\"} 1\n"));
    assert_null(strstr(text, "viaduct_host_uptime_seconds{"));
    assert_null(strstr(text, "viaduct_route_hops{"));
    free(text);
}

static void test_addresses(void **state)
{
    (void)state;
    struct sockaddr_storage address;
    struct via_error err;
    assert_int_equal(via_metrics_parse_address("127.0.0.1:1", &address, &err), 0);
    assert_int_equal(address.ss_family, AF_INET);
    assert_int_equal(via_metrics_parse_address("[::]:65535", &address, &err), 0);
    assert_int_equal(address.ss_family, AF_INET6);
    static const char *const wrong[] = {
        "",
        ":",
        ":1",
        "[]:1",
        "[:1",
        "::1:80",
        "1.2.3.4",
        "1.2.3:4:5",
        "1.2.3.4:-1",
        "1.2.3.4: 1",
        "1.2.3.4:99999999999999999999",
        "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]:1"};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(via_metrics_parse_address(wrong[i], &address, &err), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_are_escaped),
        cmocka_unit_test(test_values_of_another_type_are_left_out),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
