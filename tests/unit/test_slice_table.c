/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The table of slices: which user gets a slice, which loses one, and when a slice may map another
 * piece. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "host/slice_table.h"

#define SLICES 4u
#define USERS 16u

static struct via_slice_table table;
static _Atomic uint64_t words[SLICES];
static _Atomic uint64_t busy[USERS];
static struct via_slice_user users[USERS];
static uint64_t life_last;

static int set_up(void **state)
{
    (void)state;
    memset(words, 0, sizeof(words));
    memset(busy, 0, sizeof(busy));
    life_last = 0;
    for (unsigned i = 0; i < USERS; i++) {
        via_slice_user_init(&users[i], 1000, &busy[i]);
    }
    return via_slice_table_init(&table, SLICES, false, words);
}

static int tear_down(void **state)
{
    (void)state;
    via_slice_table_fini(&table);
    return 0;
}

static void burst(unsigned user)
{
    busy[user] += VIA_SLICE_BUSY_ENTER;
    busy[user] -= VIA_SLICE_BUSY_LEAVE;
}

static int try_open(uint64_t handle, unsigned user, uint64_t now_ns, uint32_t *ret_slice)
{
    struct via_slice_piece piece = {.handle = handle};
    int rc = via_slice_table_take(&table, &piece, users[user].uid, now_ns, ret_slice);
    if (rc == 0) {
        via_slice_table_open(&table, *ret_slice, ++life_last, now_ns);
        via_slice_table_join(&table, *ret_slice, &users[user]);
    }
    return rc;
}

static uint32_t open_for(uint64_t handle, unsigned user, uint64_t now_ns)
{
    uint32_t slice = VIA_SLICE_NONE;
    assert_int_equal(try_open(handle, user, now_ns, &slice), 0);
    return slice;
}

static void a_piece_is_found_from_when_it_is_asked_for(void **state)
{
    (void)state;
    struct via_slice_piece piece = {.handle = 7, .index = 3};
    struct via_slice_piece other = {.handle = 7, .index = 4};
    uint32_t slice;
    assert_int_equal(via_slice_table_find(&table, &piece), VIA_SLICE_NONE);
    assert_int_equal(via_slice_table_take(&table, &piece, 1000, 0, &slice), 0);
    assert_int_equal(via_slice_table_find(&table, &piece), slice);
    assert_int_equal(via_slice_table_find(&table, &other), VIA_SLICE_NONE);
    assert_true(words[slice] == 0);
    via_slice_table_open(&table, slice, 17, 0);
    assert_true(words[slice] == 17);
    assert_int_equal(via_slice_table_find(&table, &piece), slice);
    via_slice_table_revoke(&table, slice, true);
    assert_true(words[slice] == (17 | VIA_SLICE_GONE));
    assert_int_equal(via_slice_table_find(&table, &piece), VIA_SLICE_NONE);
    /* The word belongs to the last user until the slice maps another piece. */
    assert_int_equal(via_slice_table_take(&table, &other, 1000, 0, &slice), 0);
}

static void the_least_recently_used_slice_is_replaced(void **state)
{
    (void)state;
    uint64_t now = VIA_SEC_NS;
    uint32_t slices[SLICES];
    for (unsigned i = 0; i < SLICES; i++) {
        slices[i] = open_for(10 + i, i, now);
    }
    /* Used in the order 2, 0, 3, 1; the table checks in between. */
    static const unsigned order[] = {2, 0, 3, 1};
    uint32_t slice;
    for (unsigned i = 0; i < SLICES; i++) {
        now += VIA_MSEC_NS;
        burst(order[i]);
        assert_int_equal(try_open(99, 5, now, &slice), -EAGAIN); /* too early for all slices */
    }
    now += VIA_SLICE_REST_NS;
    for (unsigned i = 0; i < SLICES; i++) {
        assert_int_equal(open_for(20 + i, 8 + i, now), slices[order[i]]);
        assert_int_equal(users[order[i]].slice, VIA_SLICE_NONE);
    }
    assert_int_equal(table.evicted_count, SLICES);
    assert_int_equal(table.refused_count, SLICES);
}

static void an_unused_slice_is_replaced_first(void **state)
{
    (void)state;
    uint64_t now = VIA_SEC_NS;
    for (unsigned i = 0; i < SLICES; i++) {
        (void)open_for(10 + i, i, now + i);
    }
    uint32_t slice = users[3].slice;
    via_slice_table_leave(&table, &users[3]);
    struct via_slice_piece piece = {.handle = 13};
    /* The slice stays open for the next user. */
    assert_int_equal(via_slice_table_find(&table, &piece), slice);
    assert_int_equal(open_for(20, 4, now + VIA_MSEC_NS), slice);
}

static void a_busy_slice_is_not_used_again(void **state)
{
    (void)state;
    uint64_t now = VIA_SEC_NS;
    uint32_t slices[SLICES];
    for (unsigned i = 0; i < SLICES; i++) {
        slices[i] = open_for(10 + i, i, now);
    }
    busy[1] += VIA_SLICE_BUSY_ENTER;
    via_slice_table_revoke_all(&table);
    assert_int_equal(via_slice_table_settle(&table, now), 1);
    for (unsigned i = 0; i + 1 < SLICES; i++) {
        assert_int_not_equal(open_for(20 + i, 4 + i, now), slices[1]);
    }
    /* The port does not detach, so the slice waits for its user without a limit. */
    now += 100 * VIA_SEC_NS;
    assert_int_equal(via_slice_table_settle(&table, now), 1);
    busy[1] -= VIA_SLICE_BUSY_LEAVE;
    assert_int_equal(via_slice_table_settle(&table, now), 0);
    assert_int_equal(open_for(30, 9, now), slices[1]);
    assert_int_equal(users[1].slice, VIA_SLICE_NONE);
}

static void asked_slices_are_counted_by_user(void **state)
{
    (void)state;
    uint32_t slice;
    for (uint64_t handle = 1; handle <= 3; handle++) {
        struct via_slice_piece piece = {.handle = handle};
        assert_int_equal(via_slice_table_take(&table, &piece, 1000 + handle % 2, 1, &slice), 0);
    }
    assert_int_equal(via_slice_table_requested_count(&table, 1000), 1);
    assert_int_equal(via_slice_table_requested_count(&table, 1001), 2);
    via_slice_table_open(&table, slice, 1, 1);
    assert_int_equal(via_slice_table_requested_count(&table, 1001), 1);
}

static void a_slice_of_two_users_is_not_one_users_own(void **state)
{
    (void)state;
    uint32_t slice = open_for(1, 0, 1);
    assert_true(via_slice_table_is_only_of(&table, slice, 1000));
    via_slice_table_join(&table, slice, &users[1]);
    assert_true(via_slice_table_is_only_of(&table, slice, 1000));
    users[2].uid = 1001;
    via_slice_table_join(&table, slice, &users[2]);
    assert_false(via_slice_table_is_only_of(&table, slice, 1000));
    assert_false(via_slice_table_is_only_of(&table, slice, 1001));
    via_slice_table_leave(&table, &users[0]);
    via_slice_table_leave(&table, &users[1]);
    assert_true(via_slice_table_is_only_of(&table, slice, 1001));
    via_slice_table_leave(&table, &users[2]);
    assert_false(via_slice_table_is_only_of(&table, slice, 1001));
}

static void a_process_that_ends_gives_its_slices_back(void **state)
{
    (void)state;
    uint32_t slice = open_for(10, 0, 1);
    busy[0] += VIA_SLICE_BUSY_ENTER; /* the process is killed in a burst */
    via_slice_table_revoke(&table, slice, false);
    assert_int_equal(via_slice_table_settle(&table, 1), 1);
    via_slice_table_leave(&table, &users[0]);
    assert_int_equal(via_slice_table_settle(&table, 1), 0);
}

static void a_port_that_detaches_does_not_wait_forever(void **state)
{
    (void)state;
    uint64_t now = VIA_SEC_NS;
    table.detaches = true;
    uint32_t slice = open_for(10, 0, now);
    busy[0] = UINT64_MAX;
    via_slice_table_revoke(&table, slice, false);
    assert_int_equal(via_slice_table_settle(&table, now), 1);
    assert_int_equal(via_slice_table_settle(&table, now + VIA_SLICE_GRACE_NS - 1), 1);
    assert_int_equal(via_slice_table_settle(&table, now + VIA_SLICE_GRACE_NS), 0);
    assert_int_equal(users[0].slice, VIA_SLICE_NONE);
}

/* One user claims to be busy permanently; another uid gets its share nevertheless. */
static void no_process_keeps_all_slices(void **state)
{
    (void)state;
    uint64_t now = VIA_SEC_NS;
    uint32_t slice;
    table.detaches = true;
    for (unsigned i = 0; i < SLICES; i++) {
        (void)open_for(10 + i, i, now);
        busy[i] += VIA_SLICE_BUSY_ENTER;
    }
    for (unsigned i = 8; i < USERS; i++) {
        users[i].uid = 2000;
    }
    unsigned got = 0;
    for (unsigned i = 0; i < 200; i++) {
        now += VIA_MSEC_NS;
        for (unsigned user = 0; user < SLICES; user++) {
            busy[user] += UINT64_C(1) << 16;
            if (users[user].slice == VIA_SLICE_NONE) {
                (void)try_open(10 + user, user, now, &slice);
            }
        }
        if (got < SLICES && try_open(30 + got, 8 + got, now, &slice) == 0) {
            busy[8 + got] += VIA_SLICE_BUSY_ENTER;
            got++;
        }
        for (unsigned user = 0; user < got; user++) {
            busy[8 + user] += UINT64_C(1) << 16;
        }
    }
    unsigned kept = 0;
    for (unsigned i = 8; i < USERS; i++) {
        kept += users[i].slice != VIA_SLICE_NONE;
    }
    assert_int_equal(kept, SLICES / 2);
}

/* The number of open slices of uid 1000. */
static uint32_t open_of_others(void)
{
    uint32_t count = 0;
    for (unsigned i = 0; i < SLICES; i++) {
        count += users[i].slice != VIA_SLICE_NONE && words[users[i].slice] != 0;
    }
    return count;
}

/* busy: a revoked slice is not free at once. */
static void requests_get_at_most_a_share(bool are_busy)
{
    uint64_t now = VIA_SEC_NS;
    uint32_t slice;
    for (unsigned i = 0; i < SLICES; i++) {
        (void)open_for(10 + i, i, now);
        busy[i] += are_busy ? VIA_SLICE_BUSY_ENTER : 0;
    }
    for (unsigned i = 0; i < 2 * SLICES; i++) {
        struct via_slice_piece nothing = {.handle = 50 + i};
        int rc = via_slice_table_take(&table, &nothing, 2000, now, &slice);
        assert_true(rc == -EAGAIN || (rc == 0 && !are_busy));
    }
    assert_int_equal(open_of_others(), SLICES / 2);
}

static void requests_for_absent_memory_take_a_share_only(void **state)
{
    (void)state;
    requests_get_at_most_a_share(false);
}

static void requests_while_others_are_busy_take_a_share_only(void **state)
{
    (void)state;
    requests_get_at_most_a_share(true);
}

/* The rule that makes reuse safe, with real threads: no former holder stores to a slice after it
 * became free. */
#define ROUNDS 20000u
static _Atomic uint64_t shown;  /* the life to which the memory behind the slice belongs */
static _Atomic uint64_t now_in; /* the life that the process may use */
static _Atomic unsigned wrong;
static _Atomic unsigned bursts;
static _Atomic bool stop;

static void *store_on(void *ctx)
{
    (void)ctx;
    while (!atomic_load(&stop)) {
        uint64_t life = atomic_load(&now_in);
        atomic_fetch_add_explicit(&busy[0], VIA_SLICE_BUSY_ENTER, memory_order_seq_cst);
        if (life != 0 && atomic_load_explicit(&words[0], memory_order_seq_cst) == life) {
            bursts++;
            if (atomic_load(&shown) != life) {
                wrong++;
            }
        }
        atomic_fetch_sub_explicit(&busy[0], VIA_SLICE_BUSY_LEAVE, memory_order_release);
    }
    return NULL;
}

static void no_store_reaches_the_next_memory_of_a_slice(void **state)
{
    (void)state;
    pthread_t thread;
    uint32_t slice;
    via_slice_table_fini(&table);
    assert_int_equal(via_slice_table_init(&table, 1, false, words), 0);
    assert_int_equal(pthread_create(&thread, NULL, store_on, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct via_slice_piece piece = {.handle = i};
        assert_int_equal(via_slice_table_take(&table, &piece, 1000, i, &slice), 0);
        atomic_store(&shown, ++life_last);
        via_slice_table_open(&table, slice, life_last, i);
        via_slice_table_join(&table, slice, &users[0]);
        atomic_store(&now_in, life_last);
        while (i == ROUNDS - 1 && bursts == 0) {
            sched_yield(); /* on a busy machine the other thread may not have run yet */
        }
        via_slice_table_revoke(&table, slice, false);
        while (via_slice_table_settle(&table, i) != 0) {
        }
        atomic_store(&shown, 0); /* stores would reach other memory now */
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(wrong, 0);
    assert_true(bursts > 0);
}

/* Random calls in any order. */
static void no_order_of_calls_breaks_the_table(void **state)
{
    (void)state;
    struct via_rng rng;
    uint64_t now = VIA_SEC_NS;
    via_rng_init(&rng, 1);
    for (unsigned i = 0; i < 200000; i++) {
        unsigned user = (unsigned)via_rng_below(&rng, USERS);
        uint32_t slice = (uint32_t)via_rng_below(&rng, SLICES);
        now += via_rng_below(&rng, 2 * VIA_MSEC_NS);
        table.detaches = via_rng_chance(&rng, 1, 2);
        switch (via_rng_below(&rng, 6)) {
        case 0:
            via_slice_table_leave(&table, &users[user]);
            break;
        case 1:
            via_slice_table_revoke(&table, slice, via_rng_chance(&rng, 1, 2));
            break;
        case 2:
            busy[user] += via_rng_chance(&rng, 1, 2) ? VIA_SLICE_BUSY_ENTER : UINT64_C(1) << 16;
            break;
        case 3:
            busy[user] &= ~UINT64_C(0xffff);
            break;
        default:
            if (users[user].slice == VIA_SLICE_NONE) {
                users[user].uid = 1000 + user % 3;
                (void)try_open(via_rng_below(&rng, 3) != 0 ? i : i + 1000000, user, now, &slice);
            }
        }
        for (uint32_t at = 0; at < SLICES; at++) {
            bool open = table.entries[at].state == VIA_SLICE_OPEN;
            assert_true(open == (words[at] != 0 && (words[at] & VIA_SLICE_GONE) == 0));
            assert_true(table.entries[at].state != VIA_SLICE_FREE ||
                        via_list_is_empty(&table.entries[at].users));
        }
    }
    assert_true(table.evicted_count > 100);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_piece_is_found_from_when_it_is_asked_for),
        TEST(the_least_recently_used_slice_is_replaced),
        TEST(an_unused_slice_is_replaced_first),
        TEST(a_busy_slice_is_not_used_again),
        TEST(asked_slices_are_counted_by_user),
        TEST(a_slice_of_two_users_is_not_one_users_own),
        TEST(a_process_that_ends_gives_its_slices_back),
        TEST(a_port_that_detaches_does_not_wait_forever),
        TEST(no_process_keeps_all_slices),
        TEST(requests_for_absent_memory_take_a_share_only),
        TEST(requests_while_others_are_busy_take_a_share_only),
        TEST(no_store_reaches_the_next_memory_of_a_slice),
        TEST(no_order_of_calls_breaks_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
