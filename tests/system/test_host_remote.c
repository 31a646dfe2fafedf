/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Requests of other hosts that break the rules: the test sends them to host 0 in the name of host
 * 1. And hosts that do not take answers, on a chain of six hosts. */
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
    host_lab_start_patient(&lab);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    host_lab_fini(&lab);
    return 0;
}

/* Delivers a request, as transfer thread 0 does with a message for the control thread. */
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
    json_t *answer = host_lab_request(&lab, ASKS, request);
    bool good = json_is_true(json_object_get(answer, "ok"));
    json_decref(answer);
    return good;
}

/* Answers with the same number can not be distinguished after their messages have arrived, so the
 * test uses one. */
static void a_request_that_comes_twice_is_answered_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VIA_REMOTE_ANSWERS_OF_HOST_MAX; i++) {
        deliver_request(7, "{\"cmd\":\"status\"}");
    }
    host_lab_wait(is_answered, NULL, "an answer after requests that came twice");
}

/* --- hosts that do not take answers ----------------------------------------------------------- */

#define MIDDLE 2u

static int set_up_six(void **state)
{
    (void)state;
    host_lab_init(&lab, 6, false, false);
    host_lab_start_patient(&lab);
    return 0;
}

static bool take_never(struct via_host *host, uint16_t source, const void *data, uint32_t bytes)
{
    (void)host;
    (void)source;
    (void)data;
    (void)bytes;
    return false;
}

static const struct via_host_service stuck = {.arrived = take_never};

/* From now on messages to the host stay under way. */
static void stop_taking(struct via_host *host)
{
    struct via_host_messages *messages = &host->messages;
    pthread_mutex_lock(&messages->lock);
    messages->inbox_head = 0;
    messages->inbox_count = VIA_HOST_ARRIVALS_MAX;
    for (unsigned i = 0; i < VIA_HOST_ARRIVALS_MAX; i++) {
        messages->inbox[i] = (struct via_host_arrival){.service = &stuck};
    }
    pthread_mutex_unlock(&messages->lock);
}

/* The host posts notes to the middle host as fast as the middle host accepts them. Returns how many
 * it accepted. */
static unsigned flood(uint16_t source, unsigned count)
{
    const struct via_board_message message = {.type = VIA_BOARD_POST, .ttl_ms = 1, .key_bytes = 0};
    const struct via_delivery delivery = {.source = source,
                                          .endpoint = VIA_HOST_ENDPOINT_BOARD,
                                          .source_endpoint = VIA_HOST_ENDPOINT_BOARD,
                                          .data = &message,
                                          .bytes = VIA_BOARD_MESSAGE_HEAD_BYTES};
    unsigned taken = 0;
    while (taken < count && via_host_message_deliver(lab.hosts[MIDDLE], &delivery) == 0) {
        taken++;
    }
    return taken;
}

static bool middle_answers(void)
{
    json_t *request = json_pack("{s:s, s:i}", "cmd", "directory", "host", (int)MIDDLE);
    json_t *answer = host_lab_request(&lab, 1, request);
    bool good = json_is_true(json_object_get(answer, "ok"));
    json_decref(answer);
    return good;
}

static void assert_quick_while_flooded(const uint16_t *sources, unsigned count, uint64_t ns_max)
{
    unsigned taken = 0;
    for (unsigned i = 0; i < count; i++) {
        stop_taking(lab.hosts[sources[i]]);
    }
    for (unsigned turn = 0; turn < 200; turn++) {
        for (unsigned i = 0; i < count; i++) {
            taken += flood(sources[i], 16);
        }
        poll(NULL, 0, 1);
    }
    assert_true(taken > VIA_HOST_SENDS_MAX);
    uint64_t begin_ns = host_lab_now_ns();
    assert_true(middle_answers());
    assert_true(host_lab_now_ns() - begin_ns < ns_max);
}

static void a_host_that_takes_no_answers_delays_no_other_host(void **state)
{
    static const uint16_t hostile[] = {4};
    (void)state;
    assert_quick_while_flooded(hostile, 1, VIA_SEC_NS);
}

/* Four hosts together use up all places, but only for a short time. */
static void nor_do_four_of_them_for_long(void **state)
{
    static const uint16_t hostile[] = {0, 3, 4, 5};
    (void)state;
    assert_quick_while_flooded(hostile, 4, 2 * VIA_SEC_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_host_that_takes_no_answers_delays_no_other_host,
                                        set_up_six, tear_down),
        cmocka_unit_test_setup_teardown(nor_do_four_of_them_for_long, set_up_six, tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_comes_twice_is_answered_once, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
