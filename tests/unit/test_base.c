/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bits.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/fds.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/types.h"

struct item {
    int value;
    struct via_list link;
};

static int item_value(const struct via_list *link)
{
    return via_list_entry(link, struct item, link)->value;
}

static void min_and_max_evaluate_once_in_the_common_type(void **state)
{
    (void)state;
    int calls = 0;
    assert_int_equal(via_min(++calls, 5), 1);
    assert_int_equal(calls, 1);
    assert_int_equal(via_max(-1, 1), 1);
    assert_true(via_max(UINT64_C(1) << 40, 7) == UINT64_C(1) << 40);
    assert_int_equal(via_min(via_min(3u, 2u), via_max(1u, 4u)), 2);
}

static void alignment_rounds_to_multiples(void **state)
{
    (void)state;
    assert_int_equal(via_align_up(0, 64), 0);
    assert_int_equal(via_align_up(1, 64), 64);
    assert_int_equal(via_align_up(64, 64), 64);
    assert_int_equal(via_align_down(127, 64), 64);
    assert_int_equal(VIA_ALIGN_UP(65, 64), 128);
}

static void powers_of_two(void **state)
{
    (void)state;
    assert_false(via_is_pow2(0));
    assert_true(via_is_pow2(1));
    assert_false(via_is_pow2(3));
    assert_true(via_is_pow2(UINT64_C(1) << 63));
    assert_int_equal(via_log2_u32(1), 0);
    assert_int_equal(via_log2_u32(UINT32_MAX), 31);
    assert_int_equal(via_log2_u64(UINT64_C(1) << 40), 40);
    assert_int_equal(via_round_up_pow2_u32(1), 1);
    assert_int_equal(via_round_up_pow2_u32(64), 64);
    assert_int_equal(via_round_up_pow2_u32(65), 128);
    assert_true(via_round_up_pow2_u32(UINT32_C(1) << 31) == UINT32_C(1) << 31);
}

static void sequence_numbers_compare_across_the_wrap(void **state)
{
    (void)state;
    assert_true(via_seq_is_before_u32(UINT32_MAX, 0));
    assert_false(via_seq_is_before_u32(0, UINT32_MAX));
    assert_false(via_seq_is_before_u32(7, 7));
}

static void hash_of_pieces_is_hash_of_whole(void **state)
{
    (void)state;
    /* Published test vectors of FNV-1a 64. */
    assert_true(via_hash64(VIA_HASH64_INIT, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(via_hash64(VIA_HASH64_INIT, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(via_hash64(via_hash64(VIA_HASH64_INIT, "foo", 3), "bar", 3) ==
                UINT64_C(0x85944171f73967e8));
}

static void list_keeps_order(void **state)
{
    (void)state;
    struct via_list head;
    struct item items[3] = {{.value = 0}, {.value = 1}, {.value = 2}};

    via_list_init(&head);
    assert_true(via_list_is_empty(&head));
    assert_null(via_list_pop_front(&head));

    via_list_push_back(&head, &items[1].link);
    via_list_push_back(&head, &items[2].link);
    via_list_push_front(&head, &items[0].link);
    int expected = 0;
    via_list_foreach(it, &head) {
        assert_int_equal(item_value(it), expected++);
    }
    assert_int_equal(expected, 3);

    assert_ptr_equal(via_list_first(&head), &items[0].link);
    assert_ptr_equal(via_list_pop_front(&head), &items[0].link);
    assert_int_equal(item_value(via_list_pop_front(&head)), 1);
    assert_int_equal(item_value(via_list_pop_front(&head)), 2);
    assert_true(via_list_is_empty(&head));
}

static void list_member_is_removed_once(void **state)
{
    (void)state;
    struct via_list head;
    struct item item = {.value = 1};

    via_list_init(&head);
    via_list_push_back(&head, &item.link);
    assert_true(via_list_is_linked(&item.link));
    via_list_remove(&item.link);
    assert_false(via_list_is_linked(&item.link));
    via_list_remove(&item.link);
    assert_true(via_list_is_empty(&head));
}

static void list_foreach_safe_may_remove(void **state)
{
    (void)state;
    struct via_list head;
    struct item items[4];

    via_list_init(&head);
    for (int i = 0; i < 4; i++) {
        items[i].value = i;
        via_list_push_back(&head, &items[i].link);
    }
    via_list_foreach_safe(it, &head) {
        if (item_value(it) % 2 == 0)
            via_list_remove(it);
    }
    assert_int_equal(item_value(via_list_pop_front(&head)), 1);
    assert_int_equal(item_value(via_list_pop_front(&head)), 3);
    assert_true(via_list_is_empty(&head));
}

static void list_splice_moves_all(void **state)
{
    (void)state;
    struct via_list to, from;
    struct item items[3] = {{.value = 0}, {.value = 1}, {.value = 2}};

    via_list_init(&to);
    via_list_init(&from);
    via_list_splice_back(&to, &from);
    assert_true(via_list_is_empty(&to));

    via_list_push_back(&to, &items[0].link);
    via_list_push_back(&from, &items[1].link);
    via_list_push_back(&from, &items[2].link);
    via_list_splice_back(&to, &from);
    assert_true(via_list_is_empty(&from));
    for (int i = 0; i < 3; i++)
        assert_int_equal(item_value(via_list_pop_front(&to)), i);
    assert_true(via_list_is_empty(&to));
}

static void rng_is_the_published_generator(void **state)
{
    (void)state;
    struct via_rng rng;

    via_rng_init(&rng, 0);
    assert_true(via_rng_next(&rng) == UINT64_C(0x99ec5f36cb75f2b4));
    assert_true(via_rng_next(&rng) == UINT64_C(0xbf6e1f784956452a));
    assert_true(via_rng_next(&rng) == UINT64_C(0x1a5f849d4933e6e0));
}

static void rng_repeats_by_seed(void **state)
{
    (void)state;
    struct via_rng a, b, c;

    via_rng_init(&a, 42);
    via_rng_init(&b, 42);
    via_rng_init(&c, 43);
    uint64_t first = via_rng_next(&a);
    assert_true(first == via_rng_next(&b));
    assert_true(first != via_rng_next(&c));
}

static void rng_below_reaches_every_value_and_no_other(void **state)
{
    (void)state;
    struct via_rng rng;
    unsigned seen_count[5] = {0};

    via_rng_init(&rng, 1);
    assert_int_equal(via_rng_below(&rng, 0), 0);
    assert_int_equal(via_rng_below(&rng, 1), 0);
    for (int i = 0; i < 5000; i++) {
        uint64_t draw = via_rng_below(&rng, 5);
        assert_true(draw < 5);
        seen_count[draw]++;
    }
    for (int i = 0; i < 5; i++)
        assert_in_range(seen_count[i], 850, 1150);
    for (int i = 0; i < 1000; i++)
        assert_in_range(via_rng_between(&rng, 10, 12), 10, 12);
    via_rng_between(&rng, 0, UINT64_MAX);
}

static void rng_chance_is_a_ratio(void **state)
{
    (void)state;
    struct via_rng rng;
    unsigned hits = 0;

    via_rng_init(&rng, 2);
    for (int i = 0; i < 10000; i++)
        hits += via_rng_chance(&rng, 1, 4);
    assert_in_range(hits, 2300, 2700);
    assert_false(via_rng_chance(&rng, 0, 4));
    assert_true(via_rng_chance(&rng, 4, 4));
}

static int bring_up(struct via_error *err)
{
    via_error_set(err, -EPROTO, "version %d, expected %d", 3, 2);
    return via_error_prefix(err, "port %s: bring-up: ", "east");
}

static void error_text_is_a_trail_from_the_outside_in(void **state)
{
    (void)state;
    struct via_error err;

    via_error_clear(&err);
    assert_int_equal(err.code, 0);
    assert_string_equal(via_error_describe(&err), "");
    assert_int_equal(bring_up(&err), -EPROTO);
    assert_string_equal(err.text, "port east: bring-up: version 3, expected 2");

    assert_int_equal(via_error_set(&err, -EIO, "again: %s", err.text), -EIO);
    assert_string_equal(err.text, "again: port east: bring-up: version 3, expected 2");
}

static void error_takes_null(void **state)
{
    (void)state;
    via_error_clear(NULL);
    assert_int_equal(via_error_set(NULL, -EIO, "x"), -EIO);
    assert_int_equal(via_error_prefix(NULL, "x"), 0);
    assert_string_equal(via_error_describe(NULL), "");
}

static void error_text_is_cut_not_overrun(void **state)
{
    (void)state;
    struct via_error err;
    char word[2 * VIA_ERROR_TEXT_BYTES];

    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    via_error_set(&err, -EIO, "%s", word);
    assert_int_equal(strlen(err.text), VIA_ERROR_TEXT_BYTES - 1);

    via_error_prefix(&err, "object: ");
    assert_int_equal(strlen(err.text), VIA_ERROR_TEXT_BYTES - 1);
    assert_memory_equal(err.text, "object: aaa", 11);

    via_error_prefix(&err, "%s", word);
    assert_int_equal(strlen(err.text), VIA_ERROR_TEXT_BYTES - 1);
    assert_memory_equal(err.text, "aaaaaaaa", 8);
}

struct log_capture {
    unsigned count;
    enum via_log_level level;
    char text[64];
};

static void capture(void *ctx, const struct via_log_message *message)
{
    struct log_capture *captured = ctx;

    captured->count++;
    captured->level = message->level;
    strncpy(captured->text, message->text, sizeof(captured->text) - 1);
    assert_non_null(strstr(message->file, "test_base.c"));
    assert_true(message->line > 0);
}

static int log_reset(void **state)
{
    (void)state;
    via_log_set_sink(NULL, NULL);
    via_log_set_level(VIA_LOG_INFO);
    return 0;
}

static void log_writes_nothing_without_a_sink(void **state)
{
    (void)state;
    int evaluated = 0;

    via_log_set_level(VIA_LOG_TRACE);
    via_log(VIA_LOG_ERROR, "%d", ++evaluated);
    assert_int_equal(evaluated, 0);
}

static void log_passes_what_the_level_wants(void **state)
{
    (void)state;
    struct log_capture captured = {0};
    int evaluated = 0;

    via_log_set_sink(capture, &captured);
    via_log(VIA_LOG_DEBUG, "%d", ++evaluated);
    assert_int_equal(captured.count, 0);
    assert_int_equal(evaluated, 0);

    via_log(VIA_LOG_WARN, "host %d: gone", 3);
    assert_int_equal(captured.count, 1);
    assert_int_equal(captured.level, VIA_LOG_WARN);
    assert_string_equal(captured.text, "host 3: gone");

    via_log_set_level(VIA_LOG_DEBUG);
    via_log(VIA_LOG_DEBUG, "%d", ++evaluated);
    assert_int_equal(captured.count, 2);
    assert_int_equal(evaluated, 1);
}

static void log_levels_have_names(void **state)
{
    (void)state;
    for (int level = VIA_LOG_ERROR; level <= VIA_LOG_TRACE; level++)
        assert_int_equal(via_log_level_parse(via_log_level_name((enum via_log_level)level)), level);
    assert_int_equal(via_log_level_parse("loud"), -1);
    assert_string_equal(via_log_level_name((enum via_log_level)99), "?");
}

static void copies_past_caches_are_copies(void **state)
{
    (void)state;
    enum { AROUND = 64, BYTES_MAX = 330 };
    unsigned char from[64 + BYTES_MAX];
    unsigned char to[2 * AROUND + 64 + BYTES_MAX];
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (unsigned char)(i * 7 + 1);
    }
    for (size_t at = 0; at < 64; at += 3) {
        for (size_t bytes = 0; bytes <= BYTES_MAX; bytes++) {
            const unsigned char *src = from + (at * 5 + bytes) % 64;
            unsigned char *dest = to + AROUND + at;
            memset(to, 0, sizeof(to));
            via_copy_past_caches(dest, src, bytes);
            assert_memory_equal(dest, src, bytes);
            for (size_t i = 0; i < AROUND; i++) {
                assert_int_equal(dest[-1 - (ptrdiff_t)i], 0);
                assert_int_equal(dest[bytes + i], 0);
            }
        }
    }
}

/* The descriptors of one message, delivered into room for `room`. */
static unsigned send_fds(unsigned count, unsigned room, int ret_fds[8])
{
    const int sent[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    VIA_FDS_SPACE(8) space = {0}, place = {0};
    struct iovec iov = {.iov_base = (char[]){"x"}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    struct via_fds_place next = {0};
    int ends[2];
    unsigned taken = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    via_fds_add(&message, &space, sent, count);
    assert_int_equal(sendmsg(ends[0], &message, 0), 1);
    message.msg_control = &place;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * room);
    assert_int_equal(recvmsg(ends[1], &message, 0), 1);
    while (via_fds_next(&message, &next, &ret_fds[taken])) {
        taken++;
    }
    assert_false(via_fds_next(&message, &next, &ret_fds[taken]));
    for (unsigned i = 0; i < taken; i++) {
        assert_int_equal(close(ret_fds[i]), 0);
    }
    close(ends[0]);
    close(ends[1]);
    return taken;
}

static void descriptors_come_with_a_message(void **state)
{
    (void)state;
    int fds[9];
    assert_int_equal(send_fds(0, 1, fds), 0);
    assert_int_equal(send_fds(1, 1, fds), 1);
    assert_int_equal(send_fds(7, 8, fds), 7);
    assert_int_equal(send_fds(4, 3, fds), 4); /* one more than an odd number */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_come_with_a_message),
        cmocka_unit_test(min_and_max_evaluate_once_in_the_common_type),
        cmocka_unit_test(alignment_rounds_to_multiples),
        cmocka_unit_test(powers_of_two),
        cmocka_unit_test(sequence_numbers_compare_across_the_wrap),
        cmocka_unit_test(hash_of_pieces_is_hash_of_whole),
        cmocka_unit_test(list_keeps_order),
        cmocka_unit_test(list_member_is_removed_once),
        cmocka_unit_test(list_foreach_safe_may_remove),
        cmocka_unit_test(list_splice_moves_all),
        cmocka_unit_test(rng_is_the_published_generator),
        cmocka_unit_test(rng_repeats_by_seed),
        cmocka_unit_test(rng_below_reaches_every_value_and_no_other),
        cmocka_unit_test(rng_chance_is_a_ratio),
        cmocka_unit_test(error_text_is_a_trail_from_the_outside_in),
        cmocka_unit_test(error_takes_null),
        cmocka_unit_test(error_text_is_cut_not_overrun),
        cmocka_unit_test_setup_teardown(log_writes_nothing_without_a_sink, log_reset, log_reset),
        cmocka_unit_test_setup_teardown(log_passes_what_the_level_wants, log_reset, log_reset),
        cmocka_unit_test(log_levels_have_names),
        cmocka_unit_test(copies_past_caches_are_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
