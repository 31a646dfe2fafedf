/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Bells of hostile peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/client_sys.h"
#include "sockets/conn/bell.h"
#include "sockets/fabric/fabric.h"
#include "sockets/process/fds.h"
#include "sockets/process/real.h"
#include "tests/bell_full.h"

void via_fabric_before_sleep(void)
{
}

/* A bell in the form in which a peer gets it. */
static unsigned own_bell(int *ret_fds)
{
    int own[VIA_BELL_FDS];
    int index = via_sock_bell_of_thread();
    assert_true(index >= 0);
    via_sock_bell_fds((unsigned)index, own);
    for (unsigned i = 0; i < VIA_BELL_FDS; i++) {
        ret_fds[i] = fcntl(own[i], F_DUPFD_CLOEXEC, 0);
        assert_true(ret_fds[i] >= 0);
    }
    return (unsigned)index;
}

static bool is_rung(int epoll_fd)
{
    struct epoll_event event;
    return epoll_wait(epoll_fd, &event, 1, 0) == 1;
}

static int ear_of(int fd)
{
    struct epoll_event event = {.events = VIA_BELL_EVENTS};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_true(epoll_fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
    is_rung(epoll_fd);
    return epoll_fd;
}

static void every_ring_wakes(void **state)
{
    (void)state;
    int fds[VIA_BELL_FDS];
    unsigned index = own_bell(fds);
    int ear = ear_of(via_sock_bell_fd(index));
    int cold_ear = ear_of(via_sock_bell_cold_fd(index));
    struct via_peer_bell *peer = via_peer_bell_get(fds, via_sock_bell_word_index(index), 0);
    assert_non_null(peer);
    assert_false(is_rung(ear) || is_rung(cold_ear));
    for (int i = 0; i < 3; i++) {
        via_peer_bell_ring(peer, false);
        assert_true(is_rung(ear));
        assert_false(is_rung(ear) || is_rung(cold_ear));
        via_peer_bell_ring(peer, true);
        assert_true(is_rung(ear) && is_rung(cold_ear));
    }
    via_peer_bell_put(peer);
    close(ear);
    close(cold_ear);
}

/* A peer, or another process that holds the bell, has filled the count so that a write of 0 blocks.
 */
static void a_full_bell_wakes_and_blocks_no_thread(void **state)
{
    (void)state;
    int fds[VIA_BELL_FDS];
    unsigned index = own_bell(fds);
    int ear = ear_of(via_sock_bell_fd(index));
    int cold_ear = ear_of(via_sock_bell_cold_fd(index));
    int calls = via_sock_bell_calls();
    struct via_peer_bell *peer = via_peer_bell_get(fds, via_sock_bell_word_index(index), 0);
    assert_non_null(peer);
    for (int i = 0; i < 3; i++) {
        for (unsigned k = 0; k < VIA_BELL_EVENTFDS; k++) {
            if (!bell_fill(peer->fds[k])) {
                skip();
            }
        }
        via_sock_bell_calls_take();
        while (is_rung(ear) || is_rung(cold_ear)) {
        }
        alarm(60); /* a ring that blocks ends the test */
        via_peer_bell_ring(peer, true);
        assert_true(is_rung(ear) && is_rung(cold_ear));
        struct pollfd pollfd = {.fd = calls, .events = POLLIN};
        assert_int_equal(poll(&pollfd, 1, 0), 0);
        via_peer_bell_call(peer);
        alarm(0);
        assert_int_equal(poll(&pollfd, 1, 0), 1);
        assert_false(is_rung(ear) || is_rung(cold_ear));
    }
    via_peer_bell_put(peer);
    close(ear);
    close(cold_ear);
}

/* Replaces each eventfd by a file from which a ring would read bytes. */
static void only_what_holds_no_bytes_is_a_bell(void **state)
{
    (void)state;
    for (unsigned place = 0; place < VIA_BELL_EVENTFDS; place++) {
        int fds[VIA_BELL_FDS];
        int pipe_fds[2];
        unsigned index = own_bell(fds);
        close(fds[place]);
        assert_int_equal(pipe(pipe_fds), 0);
        fds[place] = pipe_fds[1];
        assert_null(via_peer_bell_get(fds, via_sock_bell_word_index(index), 0));
        assert_int_equal(fcntl(pipe_fds[1], F_GETFD), -1);
        close(pipe_fds[0]);
        own_bell(fds);
        close(fds[place]);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pipe_fds), 0);
        fds[place] = pipe_fds[1];
        assert_null(via_peer_bell_get(fds, via_sock_bell_word_index(index), 0));
        close(pipe_fds[0]);
    }
}

static void its_word_must_be_in_a_page_that_stays(void **state)
{
    (void)state;
    int fds[VIA_BELL_FDS];
    unsigned index = own_bell(fds);
    assert_null(via_peer_bell_get(fds, 1u << 20, 0));
    own_bell(fds);
    close(fds[VIA_BELL_EVENTFDS]);
    fds[VIA_BELL_EVENTFDS] = eventfd(0, EFD_CLOEXEC);
    assert_null(via_peer_bell_get(fds, via_sock_bell_word_index(index), 0));
}

/* Every peer of a process has the page and the descriptors of its bells: a page alone must not
 * prove which bell a descriptor is. */
static void a_page_alone_is_no_bell(void **state)
{
    (void)state;
    int fds[VIA_BELL_FDS];
    unsigned index = own_bell(fds);
    uint32_t word = via_sock_bell_word_index(index);
    int ear = ear_of(via_sock_bell_fd(index));
    for (unsigned place = 0; place <= VIA_BELL_EVENTFDS; place++) {
        if (place < VIA_BELL_EVENTFDS) {
            close(fds[place]);
            fds[place] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        }
        struct via_peer_bell *false_one =
            via_peer_bell_get(fds, place < VIA_BELL_EVENTFDS ? word : word + 1, 7);
        own_bell(fds);
        struct via_peer_bell *true_one = via_peer_bell_get(fds, word, 8);
        own_bell(fds);
        assert_non_null(false_one);
        assert_non_null(true_one);
        assert_ptr_not_equal(false_one, true_one);
        assert_ptr_equal(via_peer_bell_get(fds, word, 8), true_one);
        via_peer_bell_ring(true_one, false);
        assert_true(is_rung(ear));
        via_peer_bell_put(true_one);
        via_peer_bell_put(true_one);
        via_peer_bell_put(false_one);
        own_bell(fds);
    }
    for (unsigned i = 0; i < VIA_BELL_FDS; i++) {
        close(fds[i]);
    }
    close(ear);
}

static int set_up(void **state)
{
    (void)state;
    via_real_init();
    return via_fds_init();
}

static void *sleep_on(void *of_bells)
{
    struct via_bell_sleep sleep;
    via_sock_bell_enter(&sleep, *(uint64_t *)of_bells);
    via_sock_bell_leave(&sleep);
    return NULL;
}

static unsigned bell_after_sleep_of_another(unsigned bell)
{
    pthread_t thread;
    uint64_t bells = VIA_BELL_MASK(bell);
    assert_int_equal(pthread_create(&thread, NULL, sleep_on, &bells), 0);
    pthread_join(thread, NULL);
    return (unsigned)via_sock_bell_of_thread();
}

/* A thread that waits for another one's connection must not wake for the later ones of that. */
static void a_bell_of_two_threads_has_no_more_connections(void **state)
{
    (void)state;
    uint64_t first = (uint64_t)via_sock_bell_of_thread();
    struct via_bell_sleep sleep;
    via_sock_bell_enter(&sleep, VIA_BELL_MASK(first));
    via_sock_bell_leave(&sleep);
    assert_int_equal(via_sock_bell_of_thread(), first);
    unsigned second = bell_after_sleep_of_another((unsigned)first);
    assert_int_not_equal(second, first);
    assert_int_equal(bell_after_sleep_of_another(second), second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ring_wakes),
        cmocka_unit_test(a_full_bell_wakes_and_blocks_no_thread),
        cmocka_unit_test(only_what_holds_no_bytes_is_a_bell),
        cmocka_unit_test(a_page_alone_is_no_bell),
        cmocka_unit_test(its_word_must_be_in_a_page_that_stays),
        cmocka_unit_test(a_bell_of_two_threads_has_no_more_connections),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
