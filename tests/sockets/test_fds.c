/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A thread that forks, and threads that change descriptors, wait for each other. */
#include "sockets/process/fds.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sockets/process/os.h"

#define FORKERS 4
#define FORK_US 2000u
#define CHANGES_COUNT 10
#define SOON_NS (VIA_FDS_CHANGE_NS / 2)

static uint64_t fork_ns(void)
{
    uint64_t begin_ns = via_os_now_ns();
    via_fds_fork_prepare();
    via_fds_fork_parent();
    return via_os_now_ns() - begin_ns;
}

static void *begin_and_end_thread(void *unused)
{
    via_fds_begin_change();
    return unused;
}

#define CHANGE_US 50000u
static pthread_barrier_t begun;

static void *change_slowly(void *unused)
{
    via_fds_begin_change();
    pthread_barrier_wait(&begun);
    usleep(CHANGE_US);
    via_fds_end_change();
    return unused;
}

static void a_change_that_never_ends_delays_one_fork(void **state)
{
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, begin_and_end_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(fork_ns() >= VIA_FDS_CHANGE_NS);
    for (int i = 0; i < 3; i++) {
        assert_true(fork_ns() < SOON_NS);
    }
    /* A fork still waits for other changes. */
    assert_int_equal(pthread_barrier_init(&begun, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, change_slowly, NULL), 0);
    pthread_barrier_wait(&begun);
    assert_true(fork_ns() >= CHANGE_US * UINT64_C(1000) / 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static pthread_barrier_t may_end;

static void *change_until_stopped(void *unused)
{
    via_fds_begin_change();
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&may_end);
    via_fds_end_change();
    return unused;
}

/* A change ends during a later change of another thread. Before, a fork has given up waiting for
 * it. */
static void a_fork_waits_for_changes_after_a_stuck_one(void **state)
{
    pthread_t stuck, later;
    (void)state;
    assert_int_equal(pthread_barrier_init(&begun, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&may_end, NULL, 2), 0);
    assert_int_equal(pthread_create(&stuck, NULL, change_until_stopped, NULL), 0);
    pthread_barrier_wait(&begun);
    assert_true(fork_ns() >= VIA_FDS_CHANGE_NS);
    assert_int_equal(pthread_create(&later, NULL, change_slowly, NULL), 0);
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&may_end);
    assert_int_equal(pthread_join(stuck, NULL), 0);
    assert_true(fork_ns() >= CHANGE_US * UINT64_C(1000) / 2);
    assert_int_equal(pthread_join(later, NULL), 0);
}

static _Atomic bool forking;

static void *fork_again_and_again(void *unused)
{
    while (forking) {
        via_fds_fork_prepare();
        usleep(FORK_US);
        via_fds_fork_parent();
    }
    return unused;
}

/* At any time one of the threads forks. */
static void forks_in_turn_do_not_keep_a_change_waiting(void **state)
{
    pthread_t threads[FORKERS];
    uint64_t begin_ns = via_os_now_ns();
    (void)state;
    forking = true;
    for (int i = 0; i < FORKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fork_again_and_again, NULL), 0);
    }
    for (int i = 0; i < CHANGES_COUNT; i++) {
        usleep(FORK_US); /* the threads get out of step */
        via_fds_begin_change();
        via_fds_end_change();
    }
    uint64_t took_ns = via_os_now_ns() - begin_ns;
    forking = false;
    for (int i = 0; i < FORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_true(took_ns < VIA_FDS_CHANGE_NS);
}

#define MANY_FORKERS 8
static _Atomic unsigned forks;
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;

/* Copies a large process: the kernel and the C library make one copy at a time. */
static void *fork_a_large_process(void *unused)
{
    while (forking) {
        via_fds_fork_prepare();
        pthread_mutex_lock(&fork_lock);
        usleep(FORK_US);
        forks++;
        pthread_mutex_unlock(&fork_lock);
        via_fds_fork_parent();
    }
    return unused;
}

static void a_change_waits_for_one_fork(void **state)
{
    pthread_t threads[MANY_FORKERS];
    unsigned waited = 0;
    (void)state;
    forking = true;
    for (int i = 0; i < MANY_FORKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fork_a_large_process, NULL), 0);
    }
    for (int i = 0; i < CHANGES_COUNT; i++) {
        usleep(MANY_FORKERS * FORK_US);
        unsigned before = forks;
        via_fds_begin_change();
        waited += forks - before;
        via_fds_end_change();
    }
    forking = false;
    for (int i = 0; i < MANY_FORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_true(waited <= 2 * CHANGES_COUNT);
}

static void *fork_during_a_change(void *ret_ns)
{
    via_fds_begin_change();
    pthread_barrier_wait(&begun);
    *(uint64_t *)ret_ns = fork_ns(); /* by a signal handler */
    via_fds_end_change();
    return NULL;
}

static void handlers_that_fork_during_changes_do_not_wait(void **state)
{
    pthread_t threads[FORKERS];
    uint64_t ns[FORKERS];
    (void)state;
    assert_int_equal(pthread_barrier_init(&begun, NULL, FORKERS), 0);
    for (int i = 0; i < FORKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fork_during_a_change, &ns[i]), 0);
    }
    for (int i = 0; i < FORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(ns[i] < SOON_NS);
    }
    /* A thread without a change of its own still waits for changes. */
    assert_int_equal(pthread_barrier_init(&begun, NULL, 2), 0);
    assert_int_equal(pthread_create(&threads[0], NULL, change_slowly, NULL), 0);
    pthread_barrier_wait(&begun);
    assert_true(fork_ns() >= CHANGE_US * UINT64_C(1000) / 2);
    assert_int_equal(pthread_join(threads[0], NULL), 0);
}

/* close_range(2) checks only numbers that may be the library's. */
static void blocks_of_unused_numbers_are_skipped(void **state)
{
    static const unsigned used[] = {3, 4, 700, 40000, 65535};
    struct via_file file = {.users = 1};
    unsigned fd = 0;
    unsigned visited = 0;
    (void)state;
    assert_int_equal(via_fds_init(), 0);
    assert_int_equal(via_fds_next_used(0), via_fds_count);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(used); i++) {
        if (i % 2 == 0) {
            assert_true(via_fd_set((int)used[i], &file));
        } else {
            via_fd_mark((int)used[i], VIA_FD_IS_SET, true);
        }
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(used); i++) {
        for (; fd != used[i]; fd = via_fds_next_used(fd + 1)) {
            assert_true(fd < used[i]);
            visited++;
        }
    }
    assert_true(visited < 4096);
    assert_int_equal(via_fds_next_used(65536), via_fds_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_unused_numbers_are_skipped),
        cmocka_unit_test(forks_in_turn_do_not_keep_a_change_waiting),
        cmocka_unit_test(a_change_waits_for_one_fork),
        cmocka_unit_test(handlers_that_fork_during_changes_do_not_wait),
        cmocka_unit_test(a_fork_waits_for_changes_after_a_stuck_one),
        cmocka_unit_test(a_change_that_never_ends_delays_one_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
