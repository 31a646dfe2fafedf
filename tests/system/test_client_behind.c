/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Operations of one attachment that wait for a host that is cut off arrive before puts of
 * attachments that were opened later, whether those puts are sent as frames or, when the link is
 * back, by stores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/client.h"
#include "tests/system/host_lab.h"

#define BYTES 4096u
#define FOLLOWERS 12u
/* Processes that attached earlier: more than the number of flows to a host. */
#define PROCESSES_BEFORE 40u
/* Puts of the first attachment to each word: in total fewer than a host accepts. */
#define EARLIER 4u

struct behind {
    struct host_lab lab;
    struct via_attach *first;
    struct via_attach *owner;
    struct via_segment *segment;
    struct via_remote *remote; /* remote of the first attachment's segment */
    struct via_attach *follower[FOLLOWERS];
    struct via_remote *remotes[FOLLOWERS];
};

static uint64_t word_at(const struct behind *behind, unsigned index)
{
    unsigned char *base = via_segment_base(behind->segment);
    return atomic_load_explicit((_Atomic uint64_t *)(void *)(base + 8 * (size_t)index),
                                memory_order_acquire);
}

static void put(struct via_remote *remote, unsigned index, uint64_t word)
{
    assert_int_equal(via_remote_put(remote, 8 * (uint64_t)index, &word, sizeof(word), 0), 0);
}

static bool all_arrived(void *ctx)
{
    const struct behind *behind = ctx;
    bool all = via_attach_poll(behind->first) >= 0 && via_remote_pending(behind->remote) == 0;
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        all = via_attach_poll(behind->follower[i]) >= 0 &&
              via_remote_pending(behind->remotes[i]) == 0 && all;
    }
    return all;
}

static void begin(struct behind *behind, unsigned owner)
{
    host_lab_init(&behind->lab, 3, false, true);
    host_lab_start_all(&behind->lab);
    for (unsigned i = 0; i < PROCESSES_BEFORE; i++) {
        via_attach_close(host_lab_attach(&behind->lab, 0));
    }
    behind->first = host_lab_attach(&behind->lab, 0);
    behind->owner = host_lab_attach(&behind->lab, owner);
    assert_int_equal(via_segment_new(behind->owner, BYTES, VIADUCT_SEGMENT_WRITE, &behind->segment),
                     0);
    assert_int_equal(via_remote_open(behind->first, owner, via_segment_handle(behind->segment),
                                     BYTES, &behind->remote),
                     0);
}

static void open_followers(struct behind *behind, unsigned owner)
{
    assert_int_equal(setenv("VIADUCT_RUNDIR", behind->lab.rundir, 1), 0);
    assert_int_equal(setenv("VIADUCT_HOST", "0", 1), 0);
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        assert_int_equal(
            via_client_attach_behind(via_client_order_of(behind->first), &behind->follower[i]), 0);
        assert_int_equal(via_remote_open(behind->follower[i], owner,
                                         via_segment_handle(behind->segment), BYTES,
                                         &behind->remotes[i]),
                         0);
    }
}

static void end(struct behind *behind)
{
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        via_attach_close(behind->follower[i]);
    }
    via_segment_free(behind->segment);
    via_attach_close(behind->owner);
    via_attach_close(behind->first);
    host_lab_fini(&behind->lab);
}

/* frames: the later attachments are opened while the link is cut, and put before the link is up
 * again; otherwise they have mapped the segment before the cut, and put as soon as stores are
 * allowed. */
static void puts_stay_in_order(unsigned owner, bool frames)
{
    struct behind behind;
    begin(&behind, owner);
    if (!frames) {
        open_followers(&behind, owner);
    }
    host_lab_cut(&behind.lab, 0, 1, "cut");
    host_lab_wait_hops(&behind.lab, 0, owner, -1);
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        for (unsigned number = 1; number <= EARLIER; number++) {
            put(behind.remote, i, number);
        }
    }
    assert_true(via_client_is_quiet(behind.first));
    assert_int_equal(via_client_hand_over(behind.first, VIA_NEVER_NS), 0);
    if (frames) {
        open_followers(&behind, owner);
    }
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        assert_int_equal(via_client_remote_follow(behind.remotes[i]), 0);
        assert_int_equal(via_remote_pending(behind.remotes[i]), 1); /* so no put is a store */
        if (frames) {
            put(behind.remotes[i], i, EARLIER + 1);
        }
    }
    host_lab_cut(&behind.lab, 0, 1, "mend");
    while (!frames && (via_client_status(behind.first, owner) & VIA_STATUS_DIRECT) == 0) {
    }
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        put(behind.remotes[i], i, EARLIER + 2);
    }
    host_lab_wait(all_arrived, &behind, "what was put has arrived");
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        assert_int_equal(word_at(&behind, i), EARLIER + 2);
    }
    end(&behind);
}

static void frames_to_a_neighbour(void **state)
{
    (void)state;
    puts_stay_in_order(1, true);
}

static void frames_over_a_relay(void **state)
{
    (void)state;
    puts_stay_in_order(2, true);
}

static void stores_to_a_neighbour(void **state)
{
    (void)state;
    puts_stay_in_order(1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_to_a_neighbour),
        cmocka_unit_test(frames_over_a_relay),
        cmocka_unit_test(stores_to_a_neighbour),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
