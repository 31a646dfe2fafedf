/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Slices between two hosts, while one host does not read the messages of its neighbour. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/host_private.h"
#include "tests/system/host_lab.h"

#define BYTES (1u << 20)
#define READ_WRITE (VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE)
#define IMPORTER 0u
#define OWNER 1u

static struct host_lab lab;
static struct via_attach *near, *owner;
static struct via_segment *segment;
static struct via_remote *remote;

static int set_up(void **state)
{
    (void)state;
    host_lab_init(&lab, 2, false, true);
    lab.options = ",like=pex,window=1MiB";
    host_lab_start_patient(&lab);
    near = host_lab_attach(&lab, IMPORTER);
    owner = host_lab_attach(&lab, OWNER);
    assert_int_equal(via_segment_new(owner, BYTES, READ_WRITE, &segment), 0);
    assert_int_equal(via_remote_open(near, OWNER, via_segment_handle(segment), BYTES, &remote), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    via_remote_close(remote);
    via_segment_free(segment);
    via_attach_close(near);
    via_attach_close(owner);
    host_lab_fini(&lab);
    return 0;
}

/* --- a host that does not read its messages -------------------------------------------------- */

static atomic_bool looks;

static bool arrived(struct via_host *host, uint16_t source, const void *data, uint32_t bytes)
{
    (void)host;
    (void)source;
    (void)data;
    (void)bytes;
    return atomic_load(&looks);
}

static const struct via_host_service stuck = {.arrived = arrived};

static void stop_looking(unsigned id)
{
    struct via_host_messages *messages = &lab.hosts[id]->messages;
    atomic_store(&looks, false);
    pthread_mutex_lock(&messages->lock);
    messages->inbox_head = 0;
    messages->inbox_count = VIA_HOST_ARRIVALS_MAX;
    for (unsigned i = 0; i < VIA_HOST_ARRIVALS_MAX; i++) {
        messages->inbox[i] = (struct via_host_arrival){.service = &stuck};
    }
    pthread_mutex_unlock(&messages->lock);
}

static void poll_again(unsigned id)
{
    atomic_store(&looks, true);
    via_host_poke(lab.hosts[id]);
}

static bool is_stored(void *ctx)
{
    uint64_t before = host_lab_counter(&lab, IMPORTER, "slice_puts");
    uint64_t word = 7;
    (void)ctx;
    assert_int_equal(via_remote_put(remote, 64, &word, sizeof(word), 0), 0);
    assert_int_equal(via_attach_quiet(near), 0);
    return host_lab_counter(&lab, IMPORTER, "slice_puts") != before;
}

static bool put_fails(void *ctx)
{
    uint64_t word = 8;
    (void)ctx;
    return via_remote_put(remote, 64, &word, sizeof(word), 0) == -ECONNRESET;
}

static void an_owner_that_was_silent_is_asked_again(void **state)
{
    (void)state;
    stop_looking(OWNER);
    uint64_t begin_ns = host_lab_now_ns();
    while (host_lab_now_ns() - begin_ns < 1500 * VIA_MSEC_NS) {
        assert_false(is_stored(NULL));
        poll(NULL, 0, 5);
    }
    poll_again(OWNER);
    host_lab_wait(is_stored, NULL, "puts to be stored");
}

static void a_silent_importer_is_notified_again(void **state)
{
    (void)state;
    host_lab_wait(is_stored, NULL, "puts to be stored");
    stop_looking(IMPORTER);
    via_segment_free(segment);
    segment = NULL;
    poll(NULL, 0, (int)(VIA_HOST_MESSAGE_TIMEOUT_NS / VIA_MSEC_NS) + 300);
    poll_again(IMPORTER);
    host_lab_wait(put_fails, NULL, "puts into freed memory to fail");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_owner_that_was_silent_is_asked_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_silent_importer_is_notified_again, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
