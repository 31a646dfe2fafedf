/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Requests of other hosts that keep no rule: host 0 is asked, host 1 is said to ask. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "host/host_private.h"
#include "tests/system/host_lab.h"

#define ASKED 0u
#define ASKS 1u

static struct host_lab lab;

static int set_up(void **state)
{
    (void)state;
    host_lab_init(&lab, 2, false, false);
    host_lab_start_all(&lab);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    host_lab_fini(&lab);
    return 0;
}

/* As transfer thread 0 does with a message for the control thread. */
static void deliver_request(uint32_t id, const char *text)
{
    struct via_remote_message message = {.type = VIA_REMOTE_REQUEST,
                                         .id = id,
                                         .total_bytes = (uint32_t)strlen(text),
                                         .bytes = (uint16_t)strlen(text)};
    memcpy(message.data, text, message.bytes);
    const struct via_delivery delivery = {.source = ASKS,
                                          .endpoint = VIA_HOST_ENDPOINT_REMOTE,
                                          .source_endpoint = VIA_HOST_ENDPOINT_REMOTE,
                                          .data = &message,
                                          .bytes = VIA_REMOTE_HEAD_BYTES + message.bytes};
    assert_int_equal(via_host_message_deliver(lab.hosts[ASKED], &delivery), 0);
}

static bool is_answered(void *ctx)
{
    (void)ctx;
    json_t *request = json_pack("{s:s, s:i}", "cmd", "directory", "host", ASKED);
    json_t *answer = host_lab_ask(&lab, ASKS, request);
    bool good = json_is_true(json_object_get(answer, "ok"));
    json_decref(answer);
    return good;
}

/* Answers of one number can not be told apart when their messages have arrived, so there is one. */
static void a_request_that_comes_twice_is_answered_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VIA_REMOTE_ANSWERS_OF_HOST_MAX; i++) {
        deliver_request(7, "{\"cmd\":\"status\"}");
    }
    host_lab_wait(is_answered, NULL, "an answer after requests that came twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_that_comes_twice_is_answered_once, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
