/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Messages between oshrun and its agents, from a hostile peer; and lists of machines. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "shmem/launch_remote.h"

static struct via_launch_link peer;
static int to_link;

/* A link that receives the bytes written to to_link. */
static void open_link(uint32_t frame_bytes_max)
{
    int in[2];

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    to_link = in[1];
    via_launch_link_open(&peer, in[0], open("/dev/null", O_WRONLY | O_CLOEXEC), frame_bytes_max);
}

static void close_link(void)
{
    close(to_link);
    via_launch_link_close(&peer);
}

static void receive(const void *data, size_t bytes)
{
    assert_int_equal(write(to_link, data, bytes), bytes);
    assert_int_equal(via_launch_link_read(&peer), 0);
}

static void receive_text(const char *text)
{
    receive(text, strlen(text));
}

static void test_frames(void **state)
{
    struct via_launch_bytes payload = {0};
    struct via_launch_frame frame;
    struct via_error err = {0};

    (void)state;
    open_link(1024);
    via_launch_put_u32(&payload, 7);
    via_launch_put_text(&payload, "seven");
    via_launch_put_u64(&payload, UINT64_C(1) << 40);
    /* The link parses the messages that it sends itself, a byte at a time. */
    via_launch_link_send(&peer, VIA_LAUNCH_FAILED, &payload);
    via_launch_link_send(&peer, VIA_LAUNCH_DONE, NULL);
    for (size_t i = 0; i + 9 < peer.out.used; i++) {
        receive(peer.out.data + i, 1);
        if (i + 10 < peer.out.used)
            assert_int_equal(via_launch_link_take(&peer, &frame, &err), 0);
    }
    assert_int_equal(via_launch_link_take(&peer, &frame, &err), 1);
    assert_int_equal(frame.type, VIA_LAUNCH_FAILED);
    assert_int_equal(via_launch_take_u32(&frame.parts), 7);
    assert_string_equal(via_launch_take_text(&frame.parts), "seven");
    assert_false(via_launch_parts_is_end(&frame.parts));
    assert_int_equal(via_launch_take_u64(&frame.parts), UINT64_C(1) << 40);
    assert_true(via_launch_parts_is_end(&frame.parts));
    assert_int_equal(via_launch_take_u32(&frame.parts), 0);
    assert_false(via_launch_parts_is_end(&frame.parts));
    via_launch_bytes_fini(&payload);
    close_link();
}

static void test_what_a_shell_prints_before(void **state)
{
    struct via_launch_frame frame;
    struct via_error err = {0};
    char line[1024];

    (void)state;
    open_link(64);
    memset(line, 'x', sizeof(line));
    receive_text("Welcome to node2!\n\n");
    receive(line, sizeof(line));
    assert_int_equal(via_launch_link_take(&peer, &frame, &err), 0);
    receive_text("viaduct-oshrun 3\n"); /* the end of that line */
    assert_int_equal(via_launch_link_take(&peer, &frame, &err), 0);
    assert_false(peer.greeted);
    receive_text("viaduct-oshrun 3\n");
    assert_int_equal(via_launch_link_take(&peer, &frame, &err), 0);
    assert_true(peer.greeted);
    close_link();
    /* Not forever. */
    open_link(64);
    int result = 0;
    for (int i = 0; i < 100 && result == 0; i++) {
        receive(line, sizeof(line));
        result = via_launch_link_take(&peer, &frame, &err);
    }
    assert_int_equal(result, -EPROTO);
    assert_non_null(strstr(via_error_describe(&err), "no oshrun answers there"));
    close_link();
}

static void refuse(const char *greeting, const void *data, size_t bytes, const char *expected)
{
    struct via_launch_frame frame;
    struct via_error err = {0};

    open_link(64);
    receive_text(greeting);
    if (bytes > 0)
        receive(data, bytes);
    assert_int_equal(via_launch_link_take(&peer, &frame, &err), -EPROTO);
    assert_non_null(strstr(via_error_describe(&err), expected));
    close_link();
}

static void test_what_is_refused(void **state)
{
    (void)state;
    refuse("viaduct-oshrun 2\n", NULL, 0, "version 2 ");
    refuse("viaduct-oshrun \n", NULL, 0, "version");
    refuse("viaduct-oshrun 3\n", "\x41\0\0\0\x01\0\0\0", 8, "65 bytes; there may be 64");
    refuse("viaduct-oshrun 3\n", "\xff\xff\xff\xff\x01\0\0\0", 8, "there may be 64");
    refuse("viaduct-oshrun 3\n",
           "\x01\0\0\0\x01\0\0\0"
           "ab",
           10, "without its end");
}

static void test_parts_that_are_not_there(void **state)
{
    static const struct {
        const char *data;
        size_t bytes;
    } bad[] = {
        {"", 0},
        {"\x01\0\0", 3},
        {"\0\0\0\0", 4}, /* a text has at least its ending zero */
        {"\x04\0\0\0"
         "abc",
         7}, /* shorter than its length says */
        {"\x04\0\0\0"
         "abcd",
         8}, /* without the ending zero */
        {"\x04\0\0\0"
         "a\0b\0",
         8}, /* with a zero inside */
        {"\xff\xff\xff\xff"
         "abc\0",
         8}, /* longer than the address space */
    };

    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(bad); i++) {
        const unsigned char *data = (const unsigned char *)bad[i].data;
        struct via_launch_parts parts = {.at = data, .end = data + bad[i].bytes};
        assert_string_equal(via_launch_take_text(&parts), "");
        assert_false(via_launch_parts_is_end(&parts));
    }
}

/* --- the job ---------------------------------------------------------------------------------- */

static void test_a_job_and_each_of_its_beginnings(void **state)
{
    uint32_t node_of[] = {0, 0, 1};
    char *argv[] = {(char *)"./ring", (char *)"-v", NULL};
    char *environ_of[] = {(char *)"A=b", (char *)"HOME=/root", (char *)"SLURM_JOB_ID=4", NULL};
    const struct via_launch_job job = {.node = 1,
                                       .nodes_count = 2,
                                       .pes_count = 3,
                                       .lost_after_s = 10,
                                       .heap_bytes = UINT64_C(1) << 30,
                                       .rundir = "",
                                       .fabric = "",
                                       .folder = "/home",
                                       .argv = argv,
                                       .environ = environ_of,
                                       .node_of = node_of};
    struct via_launch_bytes bytes = {0};
    struct via_launch_job copy;
    struct via_error err = {0};

    (void)state;
    via_launch_job_put(&bytes, &job);
    for (size_t used = 0; used <= bytes.used; used++) {
        /* A separate copy, so that a sanitizer reports reads beyond its end. */
        unsigned char *data = malloc(used + (used == 0));
        memcpy(data, bytes.data, used);
        struct via_launch_parts parts = {.at = data, .end = data + used};
        int result = via_launch_job_parse(&parts, &copy, &err);
        assert_int_equal(result, used == bytes.used ? 0 : -EPROTO);
        if (result == 0) {
            assert_string_equal(copy.argv[1], "-v");
            assert_string_equal(copy.environ[0], "A=b");
            assert_null(copy.environ[1]); /* the other PEs belong to the machine */
            assert_int_equal(copy.node_of[2], 1);
            via_launch_job_fini(&copy);
        }
        free(data);
    }
    /* A node without PEs, and PEs that are not consecutive. */
    for (unsigned i = 0; i < 3; i++) {
        node_of[0] = i == 0 ? 1 : 0;
        node_of[1] = i == 1 ? 1 : 0;
        node_of[2] = i == 2 ? 0 : i == 1 ? 0 : 1;
        bytes.used = 0;
        via_launch_job_put(&bytes, &job);
        struct via_launch_parts parts = {.at = bytes.data, .end = bytes.data + bytes.used};
        assert_int_equal(via_launch_job_parse(&parts, &copy, &err), -EPROTO);
    }
    via_launch_bytes_fini(&bytes);
}

/* --- machines --------------------------------------------------------------------------------- */

static struct via_launch_machines machines;

static void want(unsigned at, const char *name, uint32_t slots)
{
    assert_true(at < machines.count);
    assert_string_equal(machines.names[at].text, name);
    assert_int_equal(machines.names[at].slots, slots);
}

static void test_lists(void **state)
{
    static const char *const bad[] = {
        "", ",", "a,,b", "a,", "a:", "a:0", "a:1025", "-a", "a b,c", "a:2:3"};
    struct via_error err = {0};

    (void)state;
    assert_int_equal(via_launch_machines_parse("a,b:4,user@c.example,a", &machines, &err), 0);
    assert_int_equal(machines.count, 3);
    want(0, "a", 2);
    want(1, "b", 4);
    want(2, "user@c.example", 0);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(bad); i++)
        assert_int_equal(via_launch_machines_parse(bad[i], &machines, &err), -EINVAL);
}

static void test_lists_of_slurm(void **state)
{
    static const char *const bad[] = {
        "n[1-", "n[]", "n[1-2-3]", "n[2-1]", "n[a]", "n[1-9999]", "n[1,]", "n[-1]", "n[1]]x", "",
        "n[99999999999999]", "n[0-]", "n[0-+5]",
        /* One machine, 2^40 times. */
        "[1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1]"
        "[1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1]"
        "[1,1][1,1][1,1][1,1]"};
    static const char *const bad_tasks[] = {"", "2", "2(x2)", "0(x3)", "1(x9", "1,1,1,1", "x"};
    struct via_error err = {0};

    (void)state;
    assert_int_equal(
        via_launch_machines_of_slurm("n[1,09-10],m,r[1-2]c[3-4]", "2(x3),1(x5)", &machines, &err),
        0);
    assert_int_equal(machines.count, 8);
    want(0, "n1", 2);
    want(1, "n09", 2);
    want(2, "n10", 2);
    want(3, "m", 1);
    want(4, "r1c3", 1);
    want(7, "r2c4", 1);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(bad); i++)
        assert_int_equal(via_launch_machines_of_slurm(bad[i], NULL, &machines, &err), -EINVAL);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(bad_tasks); i++)
        assert_int_equal(via_launch_machines_of_slurm("n[1-3]", bad_tasks[i], &machines, &err),
                         -EINVAL);
}

static void test_placement(void **state)
{
    static struct via_launch_place place;
    struct via_error err = {0};

    (void)state;
    assert_int_equal(via_launch_machines_parse("a:3,b:2,c:2", &machines, &err), 0);
    assert_int_equal(via_launch_machines_place(&machines, 4, &place, &err), 0);
    assert_int_equal(place.nodes_count, 2);
    assert_int_equal(place.node_of[2], 0);
    assert_int_equal(place.node_of[3], 1);
    assert_int_equal(via_launch_machines_parse("a:1,b", &machines, &err), 0);
    assert_int_equal(via_launch_machines_place(&machines, 3, &place, &err), -EINVAL);
    assert_int_equal(via_launch_machines_parse("a,b", &machines, &err), 0);
    assert_int_equal(via_launch_machines_place(&machines, 1, &place, &err), -EINVAL);
}

static void test_words_of_an_agent(void **state)
{
    struct via_error err = {0};

    (void)state;
    setenv("OSHRUN_REMOTE", "/opt/oshrun", 1);
    char **words = via_launch_agent_words("srun  -w %h.example -n1", "n4", &err);
    assert_non_null(words);
    static const char *const wanted[] = {"srun", "-w",          "n4.example",
                                         "-n1",  "/opt/oshrun", "--serve"};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(wanted); i++) {
        assert_string_equal(words[i], wanted[i]);
        free(words[i]);
    }
    assert_null(words[VIA_ARRAY_COUNT(wanted)]);
    free(words);
    assert_null(via_launch_agent_words("  ", "n4", &err));
    setenv("OSHRUN_REMOTE", "/opt/$(reboot)", 1);
    assert_null(via_launch_agent_words("ssh", "n4", &err));
    unsetenv("OSHRUN_REMOTE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_what_a_shell_prints_before),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_parts_that_are_not_there),
        cmocka_unit_test(test_a_job_and_each_of_its_beginnings),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_lists_of_slurm),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_words_of_an_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
