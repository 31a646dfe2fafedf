/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Classes of links: an emulated port promises what the class promises, and no more. Software that
 * relies on more fails here. One thread drives both ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/emu/emu.h"
#include "port/emu/like.h"
#include "port/emu/port.h"

#define INBOX_BYTES (64u << 10)
#define SEEDS 4u
#define ROUNDS 500u /* with each */
#define QUEUE 3u
#define BELL_EVENT VIA_PORT_EVENT_DOORBELL(QUEUE) /* lets the posts of the peer's queue arrive */

struct link {
    char directory[64];
    char path[96];
    struct via_port *port[2];
    uint64_t now_ns;
};

static struct via_emu_options options_of(struct link *link, unsigned side, const char *like,
                                         uint64_t seed)
{
    return (struct via_emu_options){.path = link->path,
                                    .side = side,
                                    .host = (uint16_t)(side + 1),
                                    .inbox_bytes = INBOX_BYTES,
                                    .bell_fd = -1,
                                    .direct = true,
                                    .like = via_emu_like_find(like),
                                    .delay_ns = VIA_SEC_NS, /* not the time decides */
                                    .seed = seed};
}

static void turn(struct link *link, unsigned turns)
{
    uint64_t deadline_ns;
    for (unsigned i = 0; i < turns; i++) {
        link->now_ns += VIA_MSEC_NS;
        for (unsigned side = 0; side < 2; side++) {
            if (link->port[side] != NULL) {
                via_emu_port_service(link->port[side], link->now_ns, &deadline_ns);
            }
        }
    }
}

static void make_path(struct link *link)
{
    *link = (struct link){0};
    snprintf(link->directory, sizeof(link->directory), "/tmp/via-strict-XXXXXX");
    assert_non_null(mkdtemp(link->directory));
    snprintf(link->path, sizeof(link->path), "%s/link-1-2-0.sock", link->directory);
}

static void open_side(struct link *link, unsigned side, const char *like, uint64_t seed)
{
    struct via_emu_options options = options_of(link, side, like, seed);
    struct via_error err = {0};
    if (via_emu_port_open(&options, &link->port[side], &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void close_side(struct link *link, unsigned side)
{
    link->port[side]->ops->close(link->port[side]);
    link->port[side] = NULL;
}

static void open_link(struct link *link, const char *like, uint64_t seed)
{
    make_path(link);
    open_side(link, 0, like, seed);
    open_side(link, 1, like, seed);
    turn(link, 5);
    assert_true(link->port[0]->ops->link_is_up(link->port[0]));
    assert_true(link->port[1]->ops->link_is_up(link->port[1]));
}

static void close_link(struct link *link)
{
    close_side(link, 0);
    close_side(link, 1);
    rmdir(link->directory);
}

/* --- side 0 writes, side 1 reads --- */

static void body(struct link *link, uint64_t off, uint64_t value)
{
    link->port[0]->ops->body(link->port[0], QUEUE, off, &value, sizeof(value));
}

static void commit(struct link *link, uint64_t off, uint64_t value)
{
    link->port[0]->ops->commit(link->port[0], QUEUE, off, &value, sizeof(value));
}

static void flush(struct link *link)
{
    link->port[0]->ops->flush(link->port[0], QUEUE);
}

static void take_writes(struct link *link)
{
    (void)link->port[1]->ops->events(link->port[1], BELL_EVENT);
}

static uint64_t seen(struct link *link, uint64_t off)
{
    return atomic_load_explicit((_Atomic uint64_t *)(void *)(link->port[1]->inbox + off),
                                memory_order_acquire);
}

static int fence(struct link *link, unsigned side, unsigned queue)
{
    struct via_port *port = link->port[side];
    int rc = port->ops->fence_start(port, queue);
    if (rc != 0) {
        return rc;
    }
    while ((rc = port->ops->fence_poll(port, queue)) == 0) {
    }
    return rc == 1 ? 0 : rc;
}

/* The number of rounds, of SEEDS x ROUNDS, in which `shows` finds its effect. */
static unsigned count_rounds(const char *like, bool (*shows)(struct link *link))
{
    unsigned count = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct link link;
        open_link(&link, like, seed);
        for (unsigned round = 0; round < ROUNDS; round++) {
            count += shows(&link) ? 1 : 0;
            assert_int_equal(fence(&link, 0, QUEUE), 0);
            (void)link.port[1]->ops->events(link.port[1], UINT64_MAX);
            memset(link.port[1]->inbox, 0, 128);
        }
        close_link(&link);
    }
    return count;
}

/* --- software that relies on more than is promised --- */

static bool what_is_not_flushed_is_missed(struct link *link)
{
    commit(link, 0, 1);
    for (unsigned i = 0; i < 3; i++) {
        take_writes(link);
    }
    return seen(link, 0) == 0;
}

static bool what_is_flushed_is_missed_without_a_fence(struct link *link)
{
    commit(link, 0, 1);
    flush(link);
    take_writes(link);
    return seen(link, 0) == 0;
}

static bool a_flag_that_is_a_body_comes_before_its_data(struct link *link)
{
    body(link, 64, 1);
    body(link, 0, 1); /* the mistake: flags are committed */
    flush(link);
    take_writes(link);
    return seen(link, 0) == 1 && seen(link, 64) != 1;
}

static bool a_flag_that_comes_first_is_seen_first(struct link *link)
{
    commit(link, 0, 1); /* the mistake: before its data */
    body(link, 64, 1);
    flush(link);
    take_writes(link);
    return seen(link, 0) == 1 && seen(link, 64) != 1;
}

static bool a_doorbell_comes_before_what_was_not_flushed(struct link *link)
{
    commit(link, 0, 1);
    assert_int_equal(link->port[0]->ops->ring(link->port[0], QUEUE, QUEUE), 0); /* no flush */
    return link->port[1]->ops->events(link->port[1], BELL_EVENT) == BELL_EVENT &&
           seen(link, 0) == 0;
}

static bool the_next_body_comes_before_the_last_flag(struct link *link)
{
    commit(link, 0, 1);
    body(link, 64, 1);
    flush(link);
    take_writes(link);
    return seen(link, 64) == 1 && seen(link, 0) == 0;
}

static bool (*const mistakes[])(struct link *link) = {
    what_is_not_flushed_is_missed,
    what_is_flushed_is_missed_without_a_fence,
    a_flag_that_is_a_body_comes_before_its_data,
    a_flag_that_comes_first_is_seen_first,
    a_doorbell_comes_before_what_was_not_flushed,
    the_next_body_comes_before_the_last_flag,
};

static void expect_mistakes_found(const char *like)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(mistakes); i++) {
        unsigned count = count_rounds(like, mistakes[i]);
        if (count < 20) {
            fail_msg("mistake %u shows in %u of %u rounds", i, count, SEEDS * ROUNDS);
        }
    }
}

static void mistakes_are_found_on_pex(void **state)
{
    (void)state;
    expect_mistakes_found("pex");
}

static void mistakes_are_found_on_network(void **state)
{
    (void)state;
    expect_mistakes_found("network");
}

/* Coherent memory hides all of these mistakes, as in a virtual machine. */
static void mistakes_are_not_found_on_ivshmem(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(mistakes); i++) {
        assert_int_equal(count_rounds("ivshmem", mistakes[i]), 0);
    }
}

/* --- software that relies on guarantees --- */

static bool the_promises_are_broken(struct link *link)
{
    struct via_port *reader = link->port[1];
    for (uint64_t round = 1; round <= 10; round++) {
        body(link, 64, round);
        commit(link, 0, round);
        take_writes(link);
        if (seen(link, 0) == round && seen(link, 64) != round) {
            return true; /* a flag before its data */
        }
        flush(link);
        if (round % 2 == 0) {
            assert_int_equal(link->port[0]->ops->ring(link->port[0], QUEUE, QUEUE), 0);
            if (reader->ops->events(reader, BELL_EVENT) == BELL_EVENT && seen(link, 0) != round) {
                return true; /* a doorbell before the flushed writes */
            }
        } else if (fence(link, 1, 0) != 0 || seen(link, 0) != round) {
            return true; /* a fence that does not bring the flushed writes of the peer */
        }
    }
    return false;
}

static void promises_are_kept(void **state)
{
    static const char *const classes[] = {"memory", "pex", "ivshmem", "network"};
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(classes); i++) {
        assert_int_equal(count_rounds(classes[i], the_promises_are_broken), 0);
    }
}

/* --- windows, classes, costs --- */

static void refuse(struct via_emu_options options, int rc, const char *text)
{
    struct via_port *port;
    struct via_error err = {0};
    assert_int_equal(via_emu_port_open(&options, &port, &err), rc);
    if (strstr(err.text, text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, err.text);
    }
}

static void a_window_has_1_to_64_mib(void **state)
{
    static const char *const classes[] = {"pex", "ivshmem"};
    struct link link;
    (void)state;
    make_path(&link);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(classes); i++) {
        struct via_emu_options options = options_of(&link, 0, classes[i], 0);
        options.window_bytes = (UINT64_C(1) << 20) - 4096;
        refuse(options, -EINVAL, "window of 1044480 bytes");
        options.window_bytes = (UINT64_C(64) << 20) + 4096;
        refuse(options, -EINVAL, "window of 67112960 bytes");
        options.window_bytes = UINT64_C(1) << 20;
        options.inbox_bytes = UINT64_C(2) << 20; /* larger than fits: nodes agree on fewer slots */
        struct via_error err;
        assert_int_equal(via_emu_port_open(&options, &link.port[0], &err), 0);
        assert_int_equal(link.port[0]->caps.window_bytes, UINT64_C(1) << 20);
        assert_int_equal(link.port[0]->caps.inbox_bytes, UINT64_C(1) << 20);
        close_side(&link, 0);
    }
    rmdir(link.directory);
}

static void both_ends_must_be_of_one_class(void **state)
{
    struct link link;
    struct via_emu_status status;
    (void)state;
    make_path(&link);
    open_side(&link, 0, "pex", 0);
    open_side(&link, 1, "ivshmem", 0);
    turn(&link, 5);
    via_emu_port_status(link.port[0], &status);
    assert_false(status.connected);
    assert_non_null(strstr(status.error, "a link like 'ivshmem', this one like 'pex'"));
    close_link(&link);
}

/* Neither call waits for it. */
static void a_fence_takes_as_long_as_a_read(void **state)
{
    struct link link;
    (void)state;
    open_link(&link, "network", 0);
    unsigned early = 0;
    for (unsigned i = 0; i < 100; i++) {
        uint64_t begin_ns = via_emu_now_ns();
        assert_int_equal(link.port[0]->ops->fence_start(link.port[0], QUEUE), 0);
        early += link.port[0]->ops->fence_poll(link.port[0], QUEUE) == 0;
        while (link.port[0]->ops->fence_poll(link.port[0], QUEUE) == 0) {
        }
        assert_true(via_emu_now_ns() - begin_ns >= 10 * VIA_USEC_NS);
    }
    assert_true(early > 50);
    close_link(&link);
    uint64_t begin_ns = via_emu_now_ns();
    open_link(&link, "pex", 0);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(fence(&link, 0, QUEUE), 0);
    }
    assert_true(via_emu_now_ns() - begin_ns >= 1500 * VIA_USEC_NS);
    assert_false(link.port[0]->caps.coherent);
    assert_false(link.port[0]->caps.writes_ordered);
    assert_null(link.port[0]->window);
    close_link(&link);
}

/* --- a hostile peer --- */

static struct via_emu_lane *lane_into(struct link *link, unsigned side)
{
    struct via_emu_port *emu = via_emu_port_of(link->port[side]);
    struct via_emu_lane *lanes = (void *)((unsigned char *)emu->bridge + VIA_EMU_BRIDGE_BYTES);
    return &lanes[(1 - side) * VIA_PORT_QUEUES + QUEUE];
}

static void assert_refused(struct link *link, unsigned side, const char *text)
{
    struct via_emu_status status;
    turn(link, 1);
    via_emu_port_status(link->port[side], &status);
    assert_int_equal(status.peers_refused, 1);
    assert_non_null(strstr(status.error, text));
    turn(link, 300);
    via_emu_port_status(link->port[side], &status);
    assert_true(status.up);
    commit(link, 0, 7);
    assert_int_equal(fence(link, 0, QUEUE), 0);
    assert_int_equal(seen(link, 0), 7);
}

static void posts_that_are_no_writes_end_the_connection(void **state)
{
    struct link link;
    struct via_emu_flight flight = {
        .kind = VIA_EMU_FLIGHT_BODY, .bytes = 64, .off = UINT64_C(1) << 40};
    (void)state;
    open_link(&link, "pex", 0);
    struct via_emu_lane *lane = lane_into(&link, 1);
    memcpy(lane->data, &flight, sizeof(flight));
    atomic_store(&lane->posted, 96);
    atomic_store(&lane->flushed, 96);
    assert_int_equal(fence(&link, 1, QUEUE), -ENOLINK);
    assert_refused(&link, 1, "posted an invalid write");
    close_link(&link);
}

static void a_lane_that_is_kept_ends_the_connection(void **state)
{
    struct link link;
    (void)state;
    open_link(&link, "pex", 0);
    atomic_store(&lane_into(&link, 1)->lock, 1);
    commit(&link, 0, 1);
    take_writes(&link); /* a poll does not wait */
    uint64_t begin_ns = via_emu_now_ns();
    assert_int_equal(fence(&link, 0, QUEUE), -ENOLINK);
    assert_true(via_emu_now_ns() - begin_ns < 5 * VIA_SEC_NS);
    assert_refused(&link, 0, "does not release the lock of posted writes");
    close_link(&link);
}

static void nothing_is_seen_of_a_frame_whose_body_was_lost(void **state)
{
    struct link link;
    unsigned char *bytes = calloc(1, INBOX_BYTES);
    (void)state;
    open_link(&link, "pex", 0);
    atomic_store(&lane_into(&link, 1)->lock, 1);
    link.port[0]->ops->body(link.port[0], QUEUE, 64, bytes, INBOX_BYTES - 64); /* gives up */
    commit(&link, 0, 1);
    flush(&link);
    atomic_store(&lane_into(&link, 1)->lock, 0);
    for (unsigned i = 0; i < 100; i++) {
        take_writes(&link);
    }
    (void)fence(&link, 1, QUEUE);
    assert_int_equal(seen(&link, 0), 0);
    assert_false(link.port[0]->ops->link_is_up(link.port[0]));
    assert_refused(&link, 0, "does not release the lock of posted writes");
    free(bytes);
    close_link(&link);
}

/* Continuously reports to the sender that no write has arrived. */
static void *keep_full(void *arg)
{
    struct via_emu_lane *lane = arg;
    for (unsigned i = 0; i < 20 * 1000 * 1000; i++) {
        atomic_store(&lane->taken, atomic_load(&lane->posted) - VIA_EMU_LANE_DATA_BYTES);
    }
    return NULL;
}

static void a_lane_that_stays_full_blocks_no_thread(void **state)
{
    struct link link;
    pthread_t thread;
    unsigned char *bytes = calloc(1, INBOX_BYTES);
    (void)state;
    open_link(&link, "pex", 0);
    struct via_emu_lane *lane = lane_into(&link, 1);
    assert_int_equal(pthread_create(&thread, NULL, keep_full, lane), 0);
    uint64_t begin_ns = via_emu_now_ns();
    for (unsigned i = 0; i < 20; i++) {
        link.port[0]->ops->body(link.port[0], QUEUE, 0, bytes, INBOX_BYTES);
    }
    assert_true(via_emu_now_ns() - begin_ns < 5 * VIA_SEC_NS);
    pthread_join(thread, NULL);
    free(bytes);
    close_link(&link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_found_on_pex),
        cmocka_unit_test(mistakes_are_found_on_network),
        cmocka_unit_test(mistakes_are_not_found_on_ivshmem),
        cmocka_unit_test(promises_are_kept),
        cmocka_unit_test(a_window_has_1_to_64_mib),
        cmocka_unit_test(both_ends_must_be_of_one_class),
        cmocka_unit_test(a_fence_takes_as_long_as_a_read),
        cmocka_unit_test(posts_that_are_no_writes_end_the_connection),
        cmocka_unit_test(a_lane_that_is_kept_ends_the_connection),
        cmocka_unit_test(nothing_is_seen_of_a_frame_whose_body_was_lost),
        cmocka_unit_test(a_lane_that_stays_full_blocks_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
