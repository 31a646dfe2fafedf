/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The client library against a fake host that the test controls. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "core/node.h"
#include "host/client_sys.h"
#include "tests/unit/client_fixture.h"
#include "wire/frame.h"

/* Number of short sleeps; an event that has not happened by then will not happen. */
#define EVENTUALLY_TRIES 3000

/* --- attaching ---------------------------------------------------------------------------------*/

static void attach_returns_the_reason_of_a_refusal(void **state)
{
    struct fixture *fixture = *state;
    struct fake_host *fake = &fixture->fake;
    struct via_attach *attach;
    struct via_attach_options options = {.size = sizeof(options), .host = -1, .channel = -1};

    /* The fake host serves one process. */
    via_remote_close(fixture->remote);
    via_attach_close(fixture->attach);
    fixture->remote = NULL;
    fixture->attach = NULL;
    options.rundir = fake->rundir;
    unsetenv("VIADUCT_HOST");
    assert_int_equal(via_attach_open(&options, &attach), -EINVAL);
    client_assert_text_has("VIADUCT_HOST");
    setenv("VIADUCT_DIRECT", "always", 1);
    assert_int_equal(via_attach_open(NULL, &attach), -EINVAL);
    client_assert_text_has("VIADUCT_DIRECT='always' is none of auto, asked and off");
    unsetenv("VIADUCT_DIRECT");
    setenv("VIADUCT_HOST", "7x", 1);
    assert_int_equal(via_attach_open(&options, &attach), -EINVAL);
    client_assert_text_has("7x");
    unsetenv("VIADUCT_HOST");

    options.host = 4;
    assert_int_equal(via_attach_open(&options, &attach), -ENOENT);
    client_assert_text_has("host 4: attach");
    fake->version = 9;
    assert_int_equal(client_attach_to(fake, &attach), -EPROTO);
    client_assert_text_has("version 9");
    client_assert_text_has("version 6");
    fake_host_die(fake);
    assert_int_equal(client_attach_to(fake, &attach), -ECONNREFUSED);
    client_assert_text_has("died");
}

static unsigned open_fds_below(int limit)
{
    unsigned count = 0;
    for (int fd = 0; fd < limit; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static void descriptors_are_high_and_close_on_exec(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int floor = (int)via_min(limit.rlim_cur / 2, (rlim_t)4096);
    fake_host_set_way(&fixture->fake, FAKE_PEER, 77, 2, 1, true);
    /* The fake host's end of the connection has a low number, and exists already. */
    unsigned before = open_fds_below(floor);
    assert_non_null(via_remote_direct(fixture->remote));
    assert_int_equal(open_fds_below(floor), before);
    assert_true(via_attach_bell_fd(fixture->attach) >= floor);
    for (int fd = floor; fd < floor + 64; fd++) {
        int flags = fcntl(fd, F_GETFD);
        assert_true(flags < 0 || (flags & FD_CLOEXEC) != 0);
    }
}

static void the_status_page_shows_reachable_hosts(void **state)
{
    struct fixture *fixture = *state;
    uint16_t hosts[1];
    fake_host_set_way(&fixture->fake, 5, 3, 1, VIA_STATUS_UNREACHABLE, false);
    assert_int_equal(via_attach_host(fixture->attach), 1);
    assert_int_equal(via_attach_hosts(fixture->attach, hosts, 1), 2);
    assert_int_equal(hosts[0], 1);
    assert_int_equal(via_attach_hops(fixture->attach, 1), 0);
    assert_int_equal(via_attach_hops(fixture->attach, FAKE_PEER), 2);
    assert_int_equal(via_attach_hops(fixture->attach, 5), -EHOSTUNREACH);
    fake_host_set_way(&fixture->fake, 5, 3, 1, 1023, false);
    assert_int_equal(via_attach_hops(fixture->attach, 5), 1023);
    fake_host_set_way(&fixture->fake, 5, 3, 1, VIA_STATUS_UNREACHABLE, false);
    assert_int_equal(via_attach_hops(fixture->attach, 4000), -EHOSTUNREACH);
}

/* --- by frames ---------------------------------------------------------------------------------*/

static void puts_longer_than_the_pipe_arrive_whole(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char data[50000];
    client_fill(data, sizeof(data), 1);
    assert_int_equal(via_remote_put(fixture->remote, 100, data, sizeof(data),
                                    VIADUCT_PUT_NOTIFY | VIADUCT_PUT_LAST_WORD),
                     0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(via_remote_pending(fixture->remote), 0);
    assert_memory_equal(fixture->peer->view + 100, data, sizeof(data));
    /* The flags apply to the end of a put. */
    unsigned count = fixture->fake.commands_count;
    assert_int_equal(count, (sizeof(data) + FAKE_BODY_BYTES - 1) / FAKE_BODY_BYTES);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(fixture->fake.log[i].flags,
                         i + 1 == count ? VIA_FRAME_FLAG_NOTIFY | VIA_FRAME_FLAG_LAST_WORD : 0);
        assert_int_not_equal(fixture->fake.log[i].cookie, 0);
    }
}

static void gets_bring_all_pieces(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char data[40001];
    client_fill(fixture->peer->view, FAKE_PEER_BYTES, 5);
    assert_int_equal(via_remote_get(fixture->remote, 77, data, sizeof(data)), 0);
    assert_memory_equal(data, fixture->peer->view + 77, sizeof(data));
    assert_int_equal(via_remote_get(fixture->remote, 8, data, 3), 0);
    assert_memory_equal(data, fixture->peer->view + 8, 3);
    assert_int_equal(via_remote_get(fixture->remote, 8, data, 0), 0);
}

static void own_segments_are_used_without_a_copy(void **state)
{
    struct fixture *fixture = *state;
    struct via_segment *segment;
    assert_int_equal(via_segment_new(fixture->attach, 10000, VIADUCT_SEGMENT_READ, &segment), 0);
    assert_int_equal(via_segment_bytes(segment), 12288);
    unsigned char *base = via_segment_base(segment);
    client_fill(base, 10000, 9);
    assert_int_equal(via_remote_put_from(fixture->remote, 0, segment, 50, 9000, 0), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(fixture->fake.commands_count, 1);
    assert_int_equal(fixture->fake.log[0].source, VIA_SOURCE_SEGMENT);
    assert_memory_equal(fixture->peer->view, base + 50, 9000);

    assert_int_equal(via_remote_get(fixture->remote, 100, base, 8000), 0);
    assert_int_equal(fixture->fake.commands_count, 2);
    assert_int_equal(fixture->fake.log[1].source, VIA_SOURCE_SEGMENT);
    assert_memory_equal(base, fixture->peer->view + 100, 8000);

    assert_int_equal(via_remote_put_from(fixture->remote, 0, segment, 12000, 500, 0), -ERANGE);
    via_segment_free(segment);
}

static void own_segments_are_lent_without_waiting(void **state)
{
    struct fixture *fixture = *state;
    struct via_segment *segment;
    unsigned accepted = 0;
    int rc;
    assert_int_equal(via_segment_new(fixture->attach, 100000, 0, &segment), 0);
    unsigned char *base = via_segment_base(segment);
    client_fill(base, 100000, 10);
    /* More bytes than a command pipe holds: the client writes none of them there. */
    fixture->fake.hold = true;
    while ((rc = via_remote_try_put_from(fixture->remote, 0, segment, 7, FAKE_PEER_BYTES, 0)) ==
           0) {
        accepted++;
    }
    assert_int_equal(rc, -EAGAIN);
    assert_int_equal(accepted, FAKE_SLOTS);
    assert_int_equal(via_remote_pending(fixture->remote), FAKE_SLOTS);
    assert_int_equal(via_remote_try_put_from(fixture->remote, 0, segment, 102400 - 8, 9, 0),
                     -ERANGE);
    client_assert_text_has("own segment");
    assert_int_equal(
        via_remote_try_put_from(fixture->remote, FAKE_PEER_BYTES - 8, segment, 0, 9, 0), -ERANGE);
    fixture->fake.hold = false;
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    /* Read before the log, as fake_host.h requires. */
    assert_int_equal(fixture->fake.commands_count, FAKE_SLOTS);
    assert_int_equal(fixture->fake.log[0].source, VIA_SOURCE_SEGMENT);
    assert_memory_equal(fixture->peer->view, base + 7, FAKE_PEER_BYTES);
    assert_int_equal(via_remote_try_put_from(fixture->remote, 0, segment, 0, 0, 0), 0);
    assert_int_equal(fixture->fake.commands_count, FAKE_SLOTS);
    via_segment_free(segment);
}

static void adopted_memory_must_be_sealed(void **state)
{
    struct fixture *fixture = *state;
    struct via_segment *segment;
    int memfd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(memfd, 4096), 0);
    assert_int_equal(
        via_segment_adopt(fixture->attach, memfd, 4096, NULL, VIADUCT_SEGMENT_READ, &segment),
        -EPERM);
    client_assert_text_has("F_SEAL_SHRINK");
    assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(
        via_segment_adopt(fixture->attach, memfd, 4096, NULL, VIADUCT_SEGMENT_READ, &segment), 0);
    assert_null(via_segment_base(segment));
    via_segment_free(segment);
    close(memfd);
}

static void signals_come_after_what_was_put(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char data[5000];
    client_fill(data, sizeof(data), 3);
    uint64_t *signal = (uint64_t *)(void *)(fixture->peer->view + 6000);
    *signal = 40;
    assert_int_equal(
        via_remote_put_signal(fixture->remote, 0, data, sizeof(data), 6000, 2, VIADUCT_SIGNAL_ADD),
        0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(*signal, 42);
    assert_memory_equal(fixture->peer->view, data, sizeof(data));
    unsigned last = fixture->fake.commands_count - 1;
    assert_int_equal(fixture->fake.log[last].kind, VIA_OP_PUT_SIGNAL);
    assert_int_equal(fixture->fake.log[last - 1].kind, VIA_OP_PUT);
    assert_int_equal(
        via_remote_put_signal(fixture->remote, 0, data, 8, 6001, 2, VIADUCT_SIGNAL_SET), -EINVAL);
}

static void atomics_are_done_at_the_owner(void **state)
{
    struct fixture *fixture = *state;
    uint64_t *wide = (uint64_t *)(void *)fixture->peer->view;
    uint32_t *narrow = (uint32_t *)(void *)(fixture->peer->view + 12);
    uint64_t old;
    *wide = 5;
    *narrow = 0xffffffff;
    assert_int_equal(via_remote_atomic(fixture->remote, 0, 8, VIADUCT_ATOMIC_ADD, 10, 0, &old), 0);
    assert_int_equal(old, 5);
    assert_int_equal(
        via_remote_atomic(fixture->remote, 0, 8, VIADUCT_ATOMIC_COMPARE_SWAP, 99, 15, &old), 0);
    assert_int_equal(old, 15);
    assert_int_equal(*wide, 99);
    assert_int_equal(via_remote_atomic(fixture->remote, 12, 4, VIADUCT_ATOMIC_ADD, 1, 0, &old), 0);
    assert_true(old == 0xffffffff && *narrow == 0);
    assert_int_equal(via_remote_atomic(fixture->remote, 10, 4, VIADUCT_ATOMIC_ADD, 1, 0, &old),
                     -EINVAL);
    assert_int_equal(via_remote_atomic(fixture->remote, 0, 2, VIADUCT_ATOMIC_ADD, 1, 0, &old),
                     -EINVAL);
}

/* Many gets at a time: the client reads the answers during a quiet, or during a wait for room. */
static void operations_without_a_result_are_under_way_together(void **state)
{
    struct fixture *fixture = *state;
    uint64_t *words = (uint64_t *)(void *)fixture->peer->view;
    uint64_t got[200], old[200];
    uint32_t narrow[400];
    memset(got, 0xff, sizeof(got));
    memset(old, 0xff, sizeof(old));
    memset(narrow, 0xff, sizeof(narrow));
    words[0] = 5;
    words[1] = words[2] = 0;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(
            via_remote_atomic_start(fixture->remote, 0, 8, VIADUCT_ATOMIC_ADD, 10, 0, NULL), 0);
        assert_int_equal(via_remote_get_start(fixture->remote, 0, &got[i], 8), 0);
        assert_int_equal(
            via_remote_atomic_start(fixture->remote, 8, 8, VIADUCT_ATOMIC_ADD, 1, 0, &old[i]), 0);
        assert_int_equal(via_remote_atomic_start(fixture->remote, 20, 4,
                                                 VIADUCT_ATOMIC_COMPARE_SWAP, (uint64_t)i + 1,
                                                 (uint64_t)i, &narrow[2 * i]),
                         0);
    }
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(via_remote_pending(fixture->remote), 0);
    assert_int_equal(words[0], 2005);
    /* A get is executed after all updates that were started before it. */
    for (int i = 0; i < 200; i++) {
        assert_int_equal(got[i], 5 + 10 * (i + 1));
        assert_int_equal(old[i], i);
        /* Only four bytes are written. */
        assert_true(narrow[2 * i] == (uint32_t)i && narrow[2 * i + 1] == 0xffffffff);
    }
    assert_int_equal(words[1], 200);
    assert_int_equal(via_remote_get_start(fixture->remote, FAKE_PEER_BYTES - 4, got, 8), -ERANGE);
    assert_int_equal(
        via_remote_atomic_start(fixture->remote, 0, 8, VIADUCT_ATOMIC_COMPARE_SWAP, 1, 0, NULL),
        -EINVAL);
    assert_int_equal(
        via_remote_atomic_start(fixture->remote, 0, 8, VIADUCT_ATOMIC_FETCH, 0, 0, NULL), -EINVAL);
    assert_int_equal(via_remote_atomic_start(fixture->remote, 4, 8, VIADUCT_ATOMIC_ADD, 1, 0, NULL),
                     -EINVAL);
}

static void blocks_are_packed(void **state)
{
    struct fixture *fixture = *state;
    static uint64_t data[3000];
    uint64_t *words = (uint64_t *)(void *)fixture->peer->view;
    size_t words_count = FAKE_PEER_BYTES / sizeof(*words);
    client_fill((unsigned char *)data, sizeof(data), 5);
    memset(words, 0, FAKE_PEER_BYTES);
    unsigned before = fixture->fake.commands_count;
    assert_int_equal(via_remote_put_strided(fixture->remote, 8, 16, data, 24, 8, 200), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    /* 1,600 bytes in bodies of FAKE_BODY_BYTES. */
    assert_int_equal(fixture->fake.commands_count, before + 2);
    for (size_t i = 0; i < words_count; i++) {
        assert_int_equal(words[i], i % 2 == 1 && i < 400 ? data[i / 2 * 3] : 0);
    }
    memset(words, 0, FAKE_PEER_BYTES);
    /* With a negative stride, and longer than a packed put. */
    assert_int_equal(via_remote_put_strided(fixture->remote, FAKE_PEER_BYTES - 80, -100,
                                            data + 2000, -160, 80, 5),
                     0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    for (size_t i = 0; i < 5; i++) {
        assert_memory_equal(fixture->peer->view + FAKE_PEER_BYTES - 80 - 100 * i,
                            data + 2000 - 20 * i, 80);
    }
    assert_int_equal(via_remote_put_strided(fixture->remote, 0, 16, data, 8, 8, words_count),
                     -ERANGE);
    assert_int_equal(via_remote_put_strided(fixture->remote, 16, -16, data, 8, 8, 3), -ERANGE);
    assert_int_equal(via_remote_put_strided(fixture->remote, 0, INT64_MAX, data, 8, 8, 3), -ERANGE);
}

static void no_memory_outside_the_segment_changes(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 1;
    struct via_remote *remote = fixture->remote;
    assert_int_equal(via_remote_put(remote, FAKE_PEER_BYTES - 7, &word, 8, 0), -ERANGE);
    assert_int_equal(via_remote_put(remote, UINT64_MAX - 3, &word, 8, 0), -ERANGE);
    assert_int_equal(via_remote_get(remote, FAKE_PEER_BYTES + 1, &word, 0), -ERANGE);
    assert_int_equal(
        via_remote_put_signal(remote, 0, &word, 8, FAKE_PEER_BYTES, 1, VIADUCT_SIGNAL_SET),
        -ERANGE);
    assert_int_equal(via_remote_atomic(remote, FAKE_PEER_BYTES, 8, VIADUCT_ATOMIC_ADD, 1, 0, &word),
                     -ERANGE);
    client_assert_text_has("outside");
    assert_int_equal(fixture->fake.commands_count, 0);
}

static void puts_and_quiet_each_report_a_failure_once(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 1;
    fixture->fake.command_status = -ECONNRESET;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    while (via_remote_pending(fixture->remote) != 0) {
        client_nap_ms(1);
    }
    fixture->fake.command_status = 0;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), -ECONNRESET);
    client_assert_text_has("earlier put");
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), -ECONNRESET);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    /* A call that waits for its answer handles the error itself. */
    fixture->fake.command_status = -EACCES;
    assert_int_equal(via_remote_get(fixture->remote, 0, &word, 8), -EACCES);
    assert_int_equal(via_remote_atomic(fixture->remote, 0, 8, VIADUCT_ATOMIC_ADD, 1, 0, &word),
                     -EACCES);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
}

static void try_put_never_waits(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 1;
    unsigned accepted = 0;
    fixture->fake.hold = true;
    int rc;
    while ((rc = via_remote_try_put(fixture->remote, 8, &word, 8, 0)) == 0) {
        accepted++;
    }
    assert_int_equal(rc, -EAGAIN);
    assert_int_equal(accepted, FAKE_SLOTS);
    assert_int_equal(via_remote_pending(fixture->remote), FAKE_SLOTS);
    assert_int_equal(
        via_remote_try_put(fixture->remote, 8, &word, via_remote_try_max(fixture->remote) + 1, 0),
        -EMSGSIZE);
    fixture->fake.hold = false;
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(via_remote_try_put(fixture->remote, 8, &word, 8, 0), 0);
}

static void *release_later(void *ctx)
{
    struct fake_host *fake = ctx;
    client_nap_ms(50);
    fake->hold = false;
    return NULL;
}

static void a_full_pipe_is_waited_for(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char data[30000];
    pthread_t thread;
    client_fill(data, sizeof(data), 8);
    fixture->fake.hold = true;
    pthread_create(&thread, NULL, release_later, &fixture->fake);
    assert_int_equal(via_remote_put(fixture->remote, 0, data, sizeof(data), 0), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_memory_equal(fixture->peer->view, data, sizeof(data));
    pthread_join(thread, NULL);
}

static uint32_t rings_count(struct fake_host *fake)
{
    uint32_t count = 0;
    for (unsigned i = 0; i < FAKE_CHANNELS; i++) {
        count += atomic_load(&fake->bells[i].count);
    }
    return count;
}

static void commands_ring_a_host_that_has_armed(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 1;
    uint32_t rung = 0;
    /* The host arms its bell some time after the last command, on a busy machine later. */
    for (unsigned i = 0; i < EVENTUALLY_TRIES && rung == 0; i++) {
        client_nap_ms(20);
        uint32_t before = rings_count(&fixture->fake);
        assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
        rung = rings_count(&fixture->fake) - before;
        assert_int_equal(via_attach_quiet(fixture->attach), 0);
    }
    assert_int_equal(rung, 1);
}

static void a_remote_may_be_closed_before_its_puts_have_ended(void **state)
{
    struct fixture *fixture = *state;
    struct via_remote *remote;
    uint64_t word = 6;
    fixture->fake.hold = true;
    assert_int_equal(via_remote_open(fixture->attach, FAKE_PEER, FAKE_PEER_HANDLE, 64, &remote), 0);
    assert_int_equal(via_remote_put(remote, 0, &word, 8, 0), 0);
    via_remote_close(remote);
    fixture->fake.hold = false;
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(fixture->peer->view[0], 6);
}

/* --- directly ----------------------------------------------------------------------------------*/

/* An epoll set that reports each ring from now on. */
static int listen_to(int bell_fd)
{
    struct epoll_event event = {.events = VIA_BELL_EVENTS};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell_fd, &event), 0);
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 1);
    return epoll_fd;
}

static void direct_puts_are_stores(void **state)
{
    struct fixture *fixture = *state;
    unsigned char data[100];
    uint64_t old;
    client_fill(data, sizeof(data), 2);
    fake_host_set_way(&fixture->fake, FAKE_PEER, 77, 2, 1, true);
    for (unsigned bytes = 1; bytes <= sizeof(data); bytes++) {
        for (unsigned off = 0; off < 16; off++) {
            memset(fixture->peer->view, 0, 256);
            assert_int_equal(via_remote_put(fixture->remote, off, data, bytes,
                                            off % 2 != 0 ? VIADUCT_PUT_LAST_WORD : 0),
                             0);
            assert_memory_equal(fixture->peer->view + off, data, bytes);
            assert_int_equal(fixture->peer->view[off + bytes], 0);
        }
    }
    assert_int_equal(via_remote_get(fixture->remote, 15, data, 99), 0);
    int epoll_fd = listen_to(fixture->peer->bell_fd);
    assert_int_equal(via_remote_put(fixture->remote, 0, NULL, 0, VIADUCT_PUT_NOTIFY), 0);
    struct epoll_event event = {.events = VIA_BELL_EVENTS};
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 1);
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
    assert_int_equal(via_remote_ring(fixture->remote), 0);
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 1);
    close(epoll_fd);
    memset(fixture->peer->view, 0, 64);
    assert_int_equal(via_remote_put_signal(fixture->remote, 0, data, 8, 16, 7, VIADUCT_SIGNAL_ADD),
                     0);
    assert_int_equal(via_remote_atomic(fixture->remote, 16, 8, VIADUCT_ATOMIC_ADD, 3, 0, &old), 0);
    assert_int_equal(old, 7);
    assert_int_equal(
        via_remote_atomic(fixture->remote, 16, 4, VIADUCT_ATOMIC_COMPARE_SWAP, 1, 10, &old), 0);
    assert_int_equal(old, 10);
    assert_int_equal(fixture->peer->view[16], 1);
    assert_int_equal(fixture->fake.commands_count, 0);
    assert_int_equal(fixture->fake.maps_count, 1);
}

static void frames_take_over_when_the_link_goes_down(void **state)
{
    struct fixture *fixture = *state;
    struct fake_host *fake = &fixture->fake;
    uint64_t word = 1;
    fake_host_set_way(fake, FAKE_PEER, 77, 2, 1, true);
    assert_non_null(via_remote_direct(fixture->remote));
    fake_host_set_way(fake, FAKE_PEER, 77, 3, 2, false);
    assert_null(via_remote_direct(fixture->remote));
    fake->hold = true;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    assert_int_equal(via_remote_pending(fixture->remote), 1);

    /* The link is up again, but a direct store would overtake frames under way, to any memory of
     * that host. */
    fake_host_set_way(fake, FAKE_PEER, 77, 4, 1, true);
    struct via_remote *other;
    assert_int_equal(via_remote_open(fixture->attach, FAKE_PEER, FAKE_PEER_HANDLE, 4096, &other),
                     0);
    assert_null(via_remote_direct(fixture->remote));
    assert_null(via_remote_direct(other));
    assert_int_equal(via_remote_try_put(fixture->remote, 0, &word, 8, 0), -EAGAIN);

    pthread_t thread;
    pthread_create(&thread, NULL, release_later, fake);
    word = 2;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    pthread_join(thread, NULL);
    assert_int_equal(fake->commands_count, 1);
    assert_int_equal(fixture->peer->view[0], 2);
    assert_non_null(via_remote_direct(fixture->remote));
    assert_non_null(via_remote_direct(other));
    /* One mapping for each, because the session is the same. */
    assert_int_equal(fake->maps_count, 2);
    via_remote_close(other);
}

static void a_refused_mapping_is_asked_for_once_per_generation(void **state)
{
    struct fixture *fixture = *state;
    struct fake_host *fake = &fixture->fake;
    uint64_t word = 1;
    fake->map_status = -EXDEV;
    fake_host_set_way(fake, FAKE_PEER, 77, 2, 1, true);
    for (unsigned i = 0; i < 20; i++) {
        assert_null(via_remote_direct(fixture->remote));
        assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    }
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(fake->maps_count, 1);
    assert_int_equal(fake->commands_count, 20);
    fake->map_status = 0;
    fake_host_set_way(fake, FAKE_PEER, 77, 3, 1, true);
    assert_non_null(via_remote_direct(fixture->remote));
    assert_int_equal(fake->maps_count, 2);
}

static void memory_of_a_restarted_host_is_lost(void **state)
{
    struct fixture *fixture = *state;
    struct fake_host *fake = &fixture->fake;
    uint64_t word = 1;
    fake_host_set_way(fake, FAKE_PEER, 77, 2, 1, true);
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    fake->map_status = -ENOENT;
    fake_host_set_way(fake, FAKE_PEER, 78, 3, 1, true);
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), -ECONNRESET);
    assert_int_equal(via_remote_get(fixture->remote, 0, &word, 8), -ECONNRESET);
    assert_null(via_remote_direct(fixture->remote));
    assert_int_equal(fake->maps_count, 2);
}

static void memory_whose_place_another_has_taken_is_lost(void **state)
{
    struct fixture *fixture = *state;
    struct fake_host *fake = &fixture->fake;
    uint64_t word = 5;
    _Atomic uint64_t *life = &fake->lives[FAKE_PEER_HANDLE & 0xffff];
    fake_host_set_way(fake, FAKE_PEER, 77, 2, 1, true);
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    /* The next segment with this index: the client makes no check in between. */
    *life = *life + 1;
    word = 6;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), -ECONNRESET);
    assert_int_equal(fixture->peer->view[0], 5);
    assert_null(via_remote_direct(fixture->remote));
    /* A lost segment stays lost, whatever its life page says later. */
    *life = *life - 1;
    assert_int_equal(via_remote_get(fixture->remote, 0, &word, 8), -ECONNRESET);
    assert_int_equal(fake->commands_count, 0);
    assert_int_equal(fake->maps_count, 1);
}

static void memory_that_outlives_its_owner_stays_mapped(void **state)
{
    struct fixture *fixture = *state;
    struct fake_host *fake = &fixture->fake;
    uint64_t word = 5;
    via_client_remote_keep_mapping(fixture->remote);
    fake_host_set_way(fake, FAKE_PEER, 77, 2, 1, true);
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    fake->lives[FAKE_PEER_HANDLE & 0xffff] = 0;
    word = 6;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    assert_int_equal(via_remote_ring(fixture->remote), 0);
    fake_host_set_way(fake, FAKE_PEER, 77, 3, 1, true);
    assert_non_null(via_remote_direct(fixture->remote));
    assert_int_equal(fixture->peer->view[0], 6);
}

static void a_wrong_handle_is_found_out_when_it_can_be_mapped(void **state)
{
    struct fixture *fixture = *state;
    struct via_remote *remote;
    uint64_t word;
    assert_int_equal(via_remote_open(fixture->attach, FAKE_PEER, 12345, 64, &remote), 0);
    assert_int_equal(via_remote_get(remote, 0, &word, 8), -EACCES);
    via_remote_close(remote);
    fake_host_set_way(&fixture->fake, FAKE_PEER, 77, 2, 1, true);
    assert_int_equal(via_remote_open(fixture->attach, FAKE_PEER, 12345, 64, &remote), -EACCES);
    assert_int_equal(
        via_remote_open(fixture->attach, FAKE_PEER, FAKE_PEER_HANDLE, FAKE_PEER_BYTES + 1, &remote),
        -ERANGE);
}

/* --- death -------------------------------------------------------------------------------------*/

static void *die_later(void *ctx)
{
    client_nap_ms(50);
    fake_host_die(ctx);
    return NULL;
}

static void *receive_until_death(void *ctx)
{
    char buffer[8];
    int rc = via_message_receive(ctx, buffer, sizeof(buffer), -1, NULL);
    return (void *)(intptr_t)rc;
}

static void the_death_of_the_host_ends_every_wait(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 1;
    pthread_t threads[3];
    void *result;
    fixture->fake.hold = true;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    pthread_create(&threads[0], NULL, receive_until_death, fixture->attach);
    pthread_create(&threads[1], NULL, receive_until_death, fixture->attach);
    pthread_create(&threads[2], NULL, die_later, &fixture->fake);
    assert_int_equal(via_attach_quiet(fixture->attach), -ENOTCONN);
    client_assert_text_has("host 1");
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], &result);
        assert_int_equal((intptr_t)result, -ENOTCONN);
    }
    pthread_join(threads[2], NULL);

    struct via_segment *segment;
    assert_int_equal(via_attach_poll(fixture->attach), -ENOTCONN);
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), -ENOTCONN);
    assert_int_equal(via_remote_try_put(fixture->remote, 0, &word, 8, 0), -ENOTCONN);
    assert_int_equal(via_remote_get(fixture->remote, 0, &word, 8), -ENOTCONN);
    assert_int_equal(via_segment_new(fixture->attach, 1, VIADUCT_SEGMENT_READ, &segment),
                     -ENOTCONN);
    assert_int_equal(via_message_send(fixture->attach, 2, 1, 1, &word, 8), -ENOTCONN);
    assert_int_equal(via_message_receive(fixture->attach, &word, 8, 0, NULL), -ENOTCONN);
    assert_int_equal(via_board_take(fixture->attach, "k", 1, &word, 8), -ENOTCONN);
}

static void death_is_noticed_by_polling(void **state)
{
    struct fixture *fixture = *state;
    assert_true(via_attach_poll(fixture->attach) >= 0);
    fake_host_die(&fixture->fake);
    int rc = 0;
    for (unsigned i = 0; i < EVENTUALLY_TRIES && rc >= 0; i++) {
        client_nap_ms(10);
        rc = via_attach_poll(fixture->attach);
    }
    assert_int_equal(rc, -ENOTCONN);
}

static void death_is_noticed_by_direct_puts(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 1;
    int rc = 0;
    fake_host_set_way(&fixture->fake, FAKE_PEER, 77, 2, 1, true);
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    fake_host_die(&fixture->fake);
    for (unsigned i = 0; i < EVENTUALLY_TRIES && rc == 0; i++) {
        client_nap_ms(1);
        for (unsigned k = 0; k < 2000 && rc == 0; k++) {
            rc = via_remote_put(fixture->remote, 0, &word, 8, 0);
        }
    }
    assert_int_equal(rc, -ENOTCONN);
    assert_null(via_remote_direct(fixture->remote));
}

static void a_child_lets_go_of_an_attachment_without_harm(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 4;
    int status;
    fixture->fake.hold = true;
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, 8, 0), 0);
    pid_t pid = fork();
    if (pid == 0) {
        via_attach_close(fixture->attach);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fixture->fake.hold = false;
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(fixture->peer->view[0], 4);
}

int main(void)
{
    alarm(250); /* a wait that never ends must fail the test, too */
    const struct CMUnitTest tests[] = {
        WITH_HOST(attach_returns_the_reason_of_a_refusal),
        WITH_HOST(descriptors_are_high_and_close_on_exec),
        WITH_HOST(the_status_page_shows_reachable_hosts),
        WITH_HOST(puts_longer_than_the_pipe_arrive_whole),
        WITH_HOST(gets_bring_all_pieces),
        WITH_HOST(own_segments_are_used_without_a_copy),
        WITH_HOST(own_segments_are_lent_without_waiting),
        WITH_HOST(adopted_memory_must_be_sealed),
        WITH_HOST(signals_come_after_what_was_put),
        WITH_HOST(atomics_are_done_at_the_owner),
        WITH_HOST(operations_without_a_result_are_under_way_together),
        WITH_HOST(blocks_are_packed),
        WITH_HOST(no_memory_outside_the_segment_changes),
        WITH_HOST(puts_and_quiet_each_report_a_failure_once),
        WITH_HOST(try_put_never_waits),
        WITH_HOST(a_full_pipe_is_waited_for),
        WITH_HOST(commands_ring_a_host_that_has_armed),
        WITH_HOST(a_remote_may_be_closed_before_its_puts_have_ended),
        WITH_HOST(direct_puts_are_stores),
        WITH_HOST(frames_take_over_when_the_link_goes_down),
        WITH_HOST(a_refused_mapping_is_asked_for_once_per_generation),
        WITH_HOST(memory_of_a_restarted_host_is_lost),
        WITH_HOST(memory_whose_place_another_has_taken_is_lost),
        WITH_HOST(memory_that_outlives_its_owner_stays_mapped),
        WITH_HOST(a_wrong_handle_is_found_out_when_it_can_be_mapped),
        WITH_HOST(the_death_of_the_host_ends_every_wait),
        WITH_HOST(death_is_noticed_by_polling),
        WITH_HOST(death_is_noticed_by_direct_puts),
        WITH_HOST(a_child_lets_go_of_an_attachment_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
