/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A process that does not take its messages delays only the processes that send to it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "tests/system/host_lab.h"

#define MESSAGES 4000u

struct flood {
    struct via_attach *attach;
    unsigned host;
    _Atomic unsigned sent;
};

static void *flood(void *ctx)
{
    struct flood *work = ctx;
    char text[1000] = "";
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (via_message_send(work->attach, work->host, 7, 1, text, sizeof(text)) != 0) {
            return (void *)1;
        }
        work->sent = i + 1;
    }
    return NULL;
}

/* Waits until no more messages are accepted. */
static void wait_until_stuck(const struct flood *work)
{
    unsigned before;
    do {
        before = work->sent;
        usleep(200000);
    } while (work->sent != before);
    assert_true(before < MESSAGES);
}

/* All messages are on one channel, so that they could block each other. */
static struct via_attach *attach(const struct host_lab *lab, int host)
{
    struct via_attach_options options = {
        .size = sizeof(options),
        .rundir = lab->rundir,
        .host = host,
        .channel = 0,
    };
    struct via_attach *ret;
    assert_int_equal(via_attach_open(&options, &ret), 0);
    return ret;
}

static void a_process_that_does_not_receive_blocks_its_senders_only(void **state)
{
    (void)state;
    struct host_lab lab;
    struct via_segment *segment;
    struct via_remote *remote;
    pthread_t thread;
    void *failed;
    host_lab_init(&lab, 2, false, false);
    host_lab_start_all(&lab);
    struct via_attach *lazy = attach(&lab, 1);
    struct via_attach *owner = attach(&lab, 1);
    struct via_attach *other = attach(&lab, 0);
    struct flood work = {.attach = attach(&lab, 0), .host = 1};
    assert_int_equal(via_endpoint_open(lazy, 7), 0);
    assert_int_equal(via_segment_new(owner, 1 << 20, VIADUCT_SEGMENT_WRITE, &segment), 0);
    assert_int_equal(via_remote_open(other, 1, via_segment_handle(segment), 1 << 20, &remote), 0);
    pthread_create(&thread, NULL, flood, &work);
    wait_until_stuck(&work);

    static unsigned char data[1 << 20];
    memset(data, 9, sizeof(data));
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(via_remote_put(remote, 0, data, 4096, 0), 0);
        assert_int_equal(via_attach_quiet(other), 0);
    }
    assert_int_equal(via_remote_put(remote, 0, data, sizeof(data), 0), 0);
    assert_int_equal(via_attach_quiet(other), 0);
    assert_memory_equal(via_segment_base(segment), data, sizeof(data));

    /* The receiver may still start to take messages. */
    for (unsigned i = 0; i < MESSAGES; i++) {
        char text[1000];
        assert_int_equal(via_message_receive(lazy, text, sizeof(text), 60000, NULL), sizeof(text));
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    via_remote_close(remote);
    via_attach_close(work.attach);
    via_attach_close(other);
    via_attach_close(owner);
    via_attach_close(lazy);
    host_lab_fini(&lab);
}

int main(void)
{
    alarm(800);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_does_not_receive_blocks_its_senders_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
