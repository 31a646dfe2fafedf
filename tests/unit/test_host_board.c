/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "host/board.h"

static const struct via_board_poster mine = {.uid = 7, .host = 1, .session = 10, .process = 5};

static int post(struct via_board *board, const char *key, const char *value, uint64_t ttl_ns,
                uint64_t now_ns)
{
    return via_board_add(board, &mine, UINT32_MAX, key, strlen(key), value, strlen(value), ttl_ns,
                         now_ns);
}

static int pull(struct via_board *board, const char *key, uint64_t now_ns, char *ret_value)
{
    int bytes = via_board_pull(board, mine.uid, key, strlen(key), ret_value, now_ns);
    if (bytes >= 0) {
        ret_value[bytes] = '\0';
    }
    return bytes;
}

static void a_note_is_taken_once_and_the_last_one_counts(void **state)
{
    (void)state;
    struct via_board board;
    char value[VIA_BOARD_VALUE_BYTES_MAX + 1];
    via_board_init(&board, 10, 10000);
    assert_int_equal(post(&board, "a", "1", 0, 0), 0);
    assert_int_equal(post(&board, "b", "", 0, 0), 0);
    assert_int_equal(post(&board, "a", "two", 0, 0), 0);
    assert_int_equal(board.notes_count, 2);
    assert_int_equal(pull(&board, "a", 0, value), 3);
    assert_string_equal(value, "two");
    assert_int_equal(pull(&board, "a", 0, value), -ENOENT);
    assert_int_equal(pull(&board, "b", 0, value), 0);
    assert_int_equal(board.notes_count, 0);
    assert_int_equal(board.bytes, 0);
    /* Keys are bytes, not strings. */
    assert_int_equal(via_board_add(&board, &mine, UINT32_MAX, "\0x", 2, "v", 1, 0, 0), 0);
    assert_int_equal(via_board_pull(&board, mine.uid, "\0y", 2, value, 0), -ENOENT);
    assert_int_equal(via_board_pull(&board, mine.uid, "\0x", 2, value, 0), 1);
    via_board_fini(&board);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    struct via_board board;
    char big[VIA_BOARD_VALUE_BYTES_MAX + 1] = {0};
    via_board_init(&board, 10, 10000);
    assert_int_equal(via_board_add(&board, &mine, UINT32_MAX, big, 0, big, 0, 0, 0), -EINVAL);
    assert_int_equal(via_board_add(&board, &mine, UINT32_MAX, big, 65, big, 0, 0, 0), -EINVAL);
    assert_int_equal(via_board_add(&board, &mine, UINT32_MAX, big, 64, big, sizeof(big), 0, 0),
                     -EINVAL);
    assert_int_equal(via_board_add(&board, &mine, UINT32_MAX, big, 64, big, sizeof(big) - 1, 0, 0),
                     0);
    via_board_fini(&board);
}

static void notes_go_when_their_time_is_over(void **state)
{
    (void)state;
    struct via_board board;
    char value[VIA_BOARD_VALUE_BYTES_MAX + 1];
    via_board_init(&board, 10, 10000);
    assert_int_equal(via_board_expire(&board, 0), VIA_NEVER_NS);
    assert_int_equal(post(&board, "late", "1", 200, 1000), 0);
    assert_int_equal(post(&board, "soon", "1", 100, 1000), 0);
    assert_int_equal(post(&board, "never", "1", 0, 1000), 0);
    assert_int_equal(post(&board, "ages", "1", UINT64_MAX, 1000), 0);
    assert_int_equal(via_board_expire(&board, 1000), 1100);
    assert_int_equal(pull(&board, "soon", 1100, value), -ENOENT);
    assert_int_equal(via_board_expire(&board, 1100), 1200);
    assert_int_equal(pull(&board, "late", 1199, value), 1);
    assert_int_equal(via_board_expire(&board, UINT64_MAX - 1), VIA_NEVER_NS);
    assert_int_equal(pull(&board, "never", UINT64_MAX - 1, value), 1);
    assert_int_equal(pull(&board, "ages", UINT64_MAX - 1, value), 1);
    via_board_fini(&board);
}

static void a_full_board_reports_it_and_accepts_replacements(void **state)
{
    (void)state;
    struct via_board board;
    char value[VIA_BOARD_VALUE_BYTES_MAX + 1];
    via_board_init(&board, 2, 10000);
    assert_int_equal(post(&board, "a", "1", 0, 0), 0);
    assert_int_equal(post(&board, "b", "1", 50, 0), 0);
    assert_int_equal(post(&board, "c", "1", 0, 0), -ENOSPC);
    assert_int_equal(post(&board, "a", "2", 0, 0), 0);
    assert_int_equal(post(&board, "c", "1", 0, 50), 0); /* b has ended */
    via_board_fini(&board);

    via_board_init(&board, 100, 400);
    memset(value, 'x', 200);
    value[200] = '\0';
    assert_int_equal(post(&board, "a", value, 0, 0), 0);
    assert_int_equal(post(&board, "b", value, 0, 0), -ENOSPC);
    assert_int_equal(post(&board, "a", value, 0, 0), 0);
    assert_int_equal(post(&board, "a", "small", 0, 0), 0);
    assert_int_equal(post(&board, "b", "small", 0, 0), 0);
    via_board_fini(&board);
}

static void a_posters_notes_go_with_it_and_no_others(void **state)
{
    (void)state;
    struct via_board board;
    char value[VIA_BOARD_VALUE_BYTES_MAX + 1];
    struct via_board_poster other = mine;
    const uint32_t sessions[] = {0, 11, 0};
    via_board_init(&board, 10, 10000);
    assert_int_equal(post(&board, "mine", "1", 0, 0), 0);
    other.process = 6;
    assert_int_equal(via_board_add(&board, &other, UINT32_MAX, "other", 5, "1", 1, 0, 0), 0);
    other.host = 2;
    assert_int_equal(via_board_add(&board, &other, UINT32_MAX, "away", 4, "1", 1, 0, 0), 0);
    via_board_withdraw(&board, &mine);
    assert_int_equal(pull(&board, "mine", 0, value), -ENOENT);
    assert_int_equal(board.notes_count, 2);
    /* Host 1 has restarted: notes of its earlier processes have no owner. */
    via_board_withdraw_stale(&board, sessions);
    assert_int_equal(pull(&board, "other", 0, value), -ENOENT);
    assert_int_equal(pull(&board, "away", 0, value), 1);
    via_board_fini(&board);
}

static void a_user_sees_its_own_notes_only(void **state)
{
    (void)state;
    struct via_board board;
    char value[VIA_BOARD_VALUE_BYTES_MAX + 1];
    struct via_board_poster thief = {.uid = 8, .host = 1, .session = 10, .process = 6};
    via_board_init(&board, 10, 10000);
    assert_int_equal(post(&board, "k", "mine", 0, 0), 0);
    assert_int_equal(via_board_pull(&board, thief.uid, "k", 1, value, 0), -ENOENT);
    /* Another user can not put a note in its place either. */
    assert_int_equal(via_board_add(&board, &thief, UINT32_MAX, "k", 1, "x", 1, 0, 0), 0);
    assert_int_equal(board.notes_count, 2);
    assert_int_equal(pull(&board, "k", 0, value), 4);
    assert_string_equal(value, "mine");
    assert_int_equal(pull(&board, "k", 0, value), -ENOENT);
    assert_int_equal(via_board_pull(&board, thief.uid, "k", 1, value, 0), 1);
    via_board_fini(&board);
}

static void a_user_has_its_quota_of_notes(void **state)
{
    (void)state;
    struct via_board board;
    char value[VIA_BOARD_VALUE_BYTES_MAX + 1];
    struct via_board_poster other = {.uid = 8, .host = 2, .session = 10, .process = 6};
    via_board_init(&board, 10, 10000);
    assert_int_equal(via_board_add(&board, &other, 2, "a", 1, "1", 1, 0, 0), 0);
    assert_int_equal(via_board_add(&board, &other, 2, "b", 1, "1", 1, 50, 0), 0);
    assert_int_equal(via_board_notes_of(&board, 8), 2);
    assert_int_equal(via_board_add(&board, &other, 2, "c", 1, "1", 1, 0, 0), -EDQUOT);
    assert_int_equal(via_board_add(&board, &other, 2, "a", 1, "2", 1, 0, 0), 0);
    assert_int_equal(post(&board, "c", "1", 0, 0), 0);
    assert_int_equal(via_board_add(&board, &other, 2, "c", 1, "1", 1, 0, 50), 0); /* b has ended */
    assert_int_equal(via_board_pull(&board, 8, "a", 1, value, 50), 1);
    assert_int_equal(via_board_notes_of(&board, 8), 1);
    via_board_withdraw(&board, &other);
    assert_int_equal(via_board_notes_of(&board, 8), 0);
    assert_int_equal(via_board_notes_of(&board, 7), 1);
    via_board_fini(&board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_is_taken_once_and_the_last_one_counts),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(notes_go_when_their_time_is_over),
        cmocka_unit_test(a_full_board_reports_it_and_accepts_replacements),
        cmocka_unit_test(a_posters_notes_go_with_it_and_no_others),
        cmocka_unit_test(a_user_sees_its_own_notes_only),
        cmocka_unit_test(a_user_has_its_quota_of_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
