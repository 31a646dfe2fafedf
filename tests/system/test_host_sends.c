/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A change of the fabric wakes only the processes that use the hosts affected by it. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "host/host_private.h"
#include "tests/system/host_raw.h"

static struct host_lab lab;

/* Links must not go down because the machine is busy. */
static void be_patient(struct via_host_options *options)
{
    options->dead_ns = 10 * VIA_SEC_NS;
}

/* The chain 0-1-2. */
static int set_up(void **state)
{
    (void)state;
    host_lab_init(&lab, 3, false, false);
    for (unsigned i = 0; i < lab.hosts_count; i++) {
        host_lab_start(&lab, i, be_patient);
    }
    host_lab_wait_routes(&lab);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    host_lab_fini(&lab);
    return 0;
}

struct watcher {
    struct via_attach *attach;
    int epoll_fd;
};

static bool is_rung(const struct watcher *watcher, int timeout_ms)
{
    struct epoll_event event;
    return epoll_wait(watcher->epoll_fd, &event, 1, timeout_ms) == 1;
}

static void watcher_open(struct watcher *watcher)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    watcher->attach = host_lab_attach(&lab, 0);
    watcher->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(
        epoll_ctl(watcher->epoll_fd, EPOLL_CTL_ADD, via_attach_bell_fd(watcher->attach), &event),
        0);
}

static void watcher_close(struct watcher *watcher)
{
    close(watcher->epoll_fd);
    via_attach_close(watcher->attach);
}

static void forget_rings(const struct watcher *watcher)
{
    while (is_rung(watcher, 100)) {
    }
}

static void only_who_has_to_do_with_the_host_is_woken(void **state)
{
    (void)state;
    struct watcher of_near, of_far, of_none;
    watcher_open(&of_near);
    watcher_open(&of_far);
    watcher_open(&of_none);
    assert_int_equal(via_attach_hops(of_near.attach, 1), 1);
    assert_int_equal(via_attach_hops(of_far.attach, 2), 2);
    for (unsigned i = 0; i < 4; i++) {
        forget_rings(&of_near);
        forget_rings(&of_far);
        forget_rings(&of_none);
        uint64_t rings = host_lab_counter(&lab, 0, "change_rings");
        bool cut = i % 2 == 0;
        host_lab_cut(&lab, 1, 2, cut ? "cut" : "mend");
        host_lab_wait_hops(&lab, 0, 2, cut ? -1 : 2);
        assert_true(is_rung(&of_far, 5000));
        assert_false(is_rung(&of_near, 100) || is_rung(&of_none, 0));
        assert_true(host_lab_counter(&lab, 0, "change_rings") > rings);
    }
    /* All hosts, once this process has asked for them. */
    uint16_t hosts[3];
    assert_int_equal(via_attach_hosts(of_none.attach, hosts, 3), 3);
    forget_rings(&of_none);
    host_lab_cut(&lab, 1, 2, "cut");
    assert_true(is_rung(&of_none, 5000));
    watcher_close(&of_near);
    watcher_close(&of_far);
    watcher_close(&of_none);
}

/* --- descriptors that no process receives ----------------------------------------------------- */

#define MAPS 64u

/* Takes the answers. Returns how many of them have descriptors. */
static unsigned take_answers(struct host_raw *raw, unsigned count)
{
    unsigned with = 0;
    for (unsigned i = 0; i < count; i++) {
        struct via_attach_answer answer;
        int fds[HOST_RAW_FDS_MAX];
        unsigned fds_count;
        assert_int_equal(host_raw_receive(raw->fd, &answer, fds, &fds_count), 0);
        assert_int_equal(answer.status, fds_count != 0 ? 0 : -EXDEV);
        with += fds_count != 0;
        for (unsigned k = 0; k < fds_count; k++) {
            close(fds[k]);
        }
    }
    return with;
}

static void request_map(struct host_raw *raw, uint64_t handle, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct via_attach_request request = host_raw_request(raw, VIA_ATTACH_MAP);
        request.handle = handle;
        assert_int_equal(host_raw_send(raw->fd, &request, sizeof(request), NULL, 0), 0);
    }
}

static void a_process_that_does_not_read_has_few_descriptors_under_way(void **state)
{
    struct host_raw raw;
    struct via_segment *segment;
    (void)state;
    struct via_attach *owner = host_lab_attach(&lab, 0);
    assert_int_equal(
        via_segment_new(owner, 4096, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &segment), 0);
    host_raw_open(&raw, &lab, 0);
    request_map(&raw, via_segment_handle(segment), MAPS);
    poll(NULL, 0, 300); /* all requests are answered, and this process has read no answer */
    unsigned with = take_answers(&raw, MAPS);
    assert_in_range(with, 4, MAPS / 2);
    /* The same number again after this process has read the first answers. */
    for (unsigned i = 0; i < MAPS; i++) {
        request_map(&raw, via_segment_handle(segment), 1);
        assert_int_equal(take_answers(&raw, 1), 1);
    }
    host_raw_close(&raw);
    via_segment_free(segment);
    via_attach_close(owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_who_has_to_do_with_the_host_is_woken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_process_that_does_not_read_has_few_descriptors_under_way,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
