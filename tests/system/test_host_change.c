/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Links of a host are added and removed while processes store, send and get over them: nothing is
 * lost. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/system/host_lab.h"

#define ROUNDS 24u
#define BYTES 262144u

/* Host 0, the options with which it was opened, and the requested changes. */
static struct {
    struct host_lab lab;
    struct via_host_options options;
    struct via_host_link links[2];
    char descriptions[2][200];
    unsigned wanted; /* bit i: link i. Written before a request, read by the control thread */
    struct via_host_change change;
    unsigned failures; /* control thread */
} test;

static void capture(struct via_host_options *options)
{
    options->links_max = 3;
    test.options = *options;
    test.options.rundir = test.lab.rundir;
    test.options.links = test.links;
    for (unsigned i = 0; i < options->links_count; i++) {
        strcpy(test.descriptions[i], options->links[i].description);
        test.links[i] = options->links[i];
        test.links[i].description = test.descriptions[i];
    }
}

static void note(void *ctx, bool failed, const char *text)
{
    (void)ctx;
    if (failed) {
        fprintf(stderr, "%s\n", text);
        test.failures++;
    }
}

static void done(void *ctx)
{
    (void)ctx;
    via_host_reloaded(test.lab.hosts[0], test.failures != 0, NULL, 0);
}

static void reload(void *ctx)
{
    struct via_host_options options = test.options;
    struct via_host_link links[2];
    struct via_error err;
    (void)ctx;
    options.links = links;
    options.links_count = 0;
    for (unsigned i = 0; i < 2; i++) {
        if ((test.wanted >> i & 1) != 0) {
            links[options.links_count++] = test.links[i];
        }
    }
    via_host_reload_started(test.lab.hosts[0]);
    if (via_host_change(test.lab.hosts[0], &options, &test.change, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        test.failures++;
        done(NULL);
    }
}

static void want(unsigned links)
{
    test.wanted = links;
    json_decref(host_lab_request(&test.lab, 0, json_pack("{s:s}", "cmd", "reload")));
}

static unsigned links_count(void)
{
    json_t *status = host_lab_status(&test.lab, 0);
    unsigned count = (unsigned)json_array_size(json_object_get(status, "links"));
    json_decref(status);
    return count;
}

struct traffic {
    struct via_attach *from, *to;
    struct via_segment *segment; /* segment of `to` */
    struct via_remote *remote;
    _Atomic bool stop;
    unsigned rounds;
};

/* Puts of many sizes, large and small ones, each followed by a get of the same bytes. */
static void *run_traffic(void *argument)
{
    struct traffic *traffic = argument;
    unsigned char *data = malloc(BYTES);
    unsigned char *back = malloc(BYTES);
    while (!atomic_load(&traffic->stop)) {
        unsigned seed = ++traffic->rounds;
        for (unsigned i = 0; i < BYTES; i++) {
            data[i] = (unsigned char)(i * 31 + seed);
        }
        size_t at = 0;
        for (size_t bytes = 8; at + bytes <= BYTES; at += bytes, bytes *= 2) {
            assert_int_equal(via_remote_put(traffic->remote, at, data + at, bytes, 0), 0);
        }
        assert_int_equal(via_attach_quiet(traffic->from), 0);
        assert_memory_equal(via_segment_base(traffic->segment), data, at);
        assert_int_equal(via_remote_get(traffic->remote, 0, back, at), 0);
        assert_memory_equal(back, data, at);
    }
    free(data);
    free(back);
    return NULL;
}

static void open_lab(bool direct, const char *options)
{
    struct via_error err;
    memset(&test, 0, sizeof(test));
    host_lab_init(&test.lab, 3, true, direct);
    test.lab.options = options;
    test.change = (struct via_host_change){.note = note, .done = done};
    for (unsigned i = 1; i < 3; i++) {
        host_lab_start(&test.lab, i, NULL);
    }
    host_lab_start(&test.lab, 0, capture);
    host_lab_end(&test.lab, 0);
    assert_int_equal(via_host_open(&test.options, &test.lab.hosts[0], &err), 0);
    via_host_set_reload(test.lab.hosts[0], reload, NULL);
    assert_int_equal(via_host_start(test.lab.hosts[0], &err), 0);
    host_lab_wait_routes(&test.lab);
}

static void change_under_traffic(bool direct, const char *options)
{
    struct traffic traffic = {0};
    pthread_t thread;
    open_lab(direct, options);
    traffic.from = host_lab_attach(&test.lab, 0);
    traffic.to = host_lab_attach(&test.lab, 1);
    assert_int_equal(via_segment_new(traffic.to, BYTES,
                                     VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE,
                                     &traffic.segment),
                     0);
    assert_int_equal(via_remote_open(traffic.from, 1, via_segment_handle(traffic.segment), BYTES,
                                     &traffic.remote),
                     0);
    assert_int_equal(pthread_create(&thread, NULL, run_traffic, &traffic), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        /* Without one of the links, then for a moment without both, then with both. */
        static const unsigned wants[] = {1, 2, 3, 0};
        want(wants[i % 4]);
        assert_int_equal(links_count(), (unsigned)__builtin_popcount(wants[i % 4]));
    }
    want(3);
    host_lab_wait_hops(&test.lab, 0, 1, 1);
    atomic_store(&traffic.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(test.failures, 0);
    assert_true(traffic.rounds > 0);
    via_remote_close(traffic.remote);
    via_segment_free(traffic.segment);
    via_attach_close(traffic.from);
    via_attach_close(traffic.to);
    host_lab_fini(&test.lab);
}

static void links_that_processes_map(void **state)
{
    (void)state;
    change_under_traffic(true, NULL);
}

static void links_that_carry_frames(void **state)
{
    (void)state;
    change_under_traffic(false, NULL);
}

static void links_with_slices(void **state)
{
    (void)state;
    change_under_traffic(false, ",like=pex,window=1MiB");
}

static void a_removed_link_leaves_nothing_behind(void **state)
{
    (void)state;
    open_lab(true, ",like=pex,window=1MiB");
    want(0);
    unsigned fds = host_lab_fds(0);
    for (unsigned i = 0; i < 10; i++) {
        want(3);
        want(0);
    }
    /* The neighbours have closed their ends of the cables, too. */
    for (unsigned i = 0; i < 1000 && host_lab_fds(0) > fds; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_true(host_lab_fds(0) <= fds);
    assert_int_equal(test.failures, 0);
    host_lab_fini(&test.lab);
}

static void more_links_than_there_may_be_change_nothing(void **state)
{
    (void)state;
    struct via_host_link links[4];
    struct via_host_options options;
    struct via_error err;
    open_lab(true, NULL);
    options = test.options;
    for (unsigned i = 0; i < 4; i++) {
        links[i] = test.links[0];
    }
    options.links = links;
    options.links_count = 4;
    /* The host refuses the change before it reads anything that belongs to the control thread. */
    assert_int_equal(via_host_change(test.lab.hosts[0], &options, &test.change, &err), -EINVAL);
    assert_string_equal(err.text, "host 0: 4 links, more than the 3 that there may be");
    assert_int_equal(links_count(), 2);
    host_lab_fini(&test.lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_that_processes_map),
        cmocka_unit_test(links_that_carry_frames),
        cmocka_unit_test(links_with_slices),
        cmocka_unit_test(a_removed_link_leaves_nothing_behind),
        cmocka_unit_test(more_links_than_there_may_be_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
