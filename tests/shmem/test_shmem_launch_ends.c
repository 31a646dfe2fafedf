/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The PE that oshrun names as the reason for the end of a job, for any order of reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "shmem/launch_remote.h"

#define PES 4
#define EXIT(code) ((code) << 8)

/* launch_control.c asks the other machines for these. */
const char *via_launch_remote_name(const struct via_launch *launch, uint32_t node)
{
    (void)launch;
    return node == 0 ? "node1" : "node2";
}

void via_launch_remote_signal(struct via_launch *launch, int signal_number)
{
    (void)launch;
    (void)signal_number;
}

bool via_launch_remote_has_members(const struct via_launch *launch)
{
    (void)launch;
    return true;
}

void via_launch_remote_trace(struct via_launch *launch)
{
    (void)launch;
}

int via_launch_trace(FILE *out, const struct via_job *job, bool json)
{
    (void)json;
    (void)out;
    (void)job;
    return 0;
}

struct end {
    uint32_t pe;
    int status;
    enum via_job_state state;
};

/* oshrun's message about the ends of PEs until the job ends: one line. */
static void collect_output(const struct end *ends, unsigned count, char text[1024])
{
    static struct via_launch_pe pes[PES];
    struct via_launch launch = {.options.pes_count = PES, .pes = pes, .timeout_ns = VIA_NEVER_NS};
    int pipe_fds[2], stderr_fd = dup(STDERR_FILENO);
    ssize_t bytes;

    launch.remote = (void *)&launch; /* not examined here */
    launch.place.node_of[2] = launch.place.node_of[3] = 1;
    assert_int_equal(pipe(pipe_fds), 0);
    dup2(pipe_fds[1], STDERR_FILENO);
    for (unsigned i = 0; i < count; i++)
        via_launch_pe_ended(&launch, ends[i].pe, 17, ends[i].status, ends[i].state);
    launch.deadline_ns = 0;
    if (!via_launch_is_over(&launch))
        via_launch_check_deadlines(&launch);
    dup2(stderr_fd, STDERR_FILENO);
    close(stderr_fd);
    close(pipe_fds[1]);
    bytes = read(pipe_fds[0], text, 1023);
    close(pipe_fds[0]);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    assert_true(via_launch_is_over(&launch) == (bytes > 0));
}

static void expect(const struct end *ends, unsigned count, const char *expected)
{
    char text[1024];

    collect_output(ends, count, text);
    if (!strstr(text, expected) ||
        (*expected != '\0' && strchr(text, '\n') != text + strlen(text) - 1))
        fail_msg("expected one line with '%s', got '%s'", expected, text);
}

#define CUT_OFF(pe)                  \
    {                                \
        pe, EXIT(1), VIA_JOB_CUT_OFF \
    }

static void test_a_pe_left(void **state)
{
    const struct end left = {0, 0, VIA_JOB_INITIALIZED};
    const char *expected =
        "PE 0 on node1 (pid 17 there) exited with code 0 but without shmem_finalize";

    (void)state;
    expect((struct end[]){left}, 1, expected);
    expect((struct end[]){left, CUT_OFF(2)}, 2, expected);
    expect((struct end[]){CUT_OFF(2), left}, 2, expected);
    expect((struct end[]){CUT_OFF(2), CUT_OFF(3), left}, 3, expected);
}

static void test_a_pe_failed(void **state)
{
    const struct end failed = {1, EXIT(5), VIA_JOB_INITIALIZED}, killed = {1, 11, VIA_JOB_STARTED};

    (void)state;
    expect((struct end[]){failed, CUT_OFF(2)}, 2,
           "PE 1 on node1 (pid 17 there) exited with code 5");
    expect((struct end[]){CUT_OFF(2), failed}, 2,
           "PE 1 on node1 (pid 17 there) exited with code 5");
    expect((struct end[]){CUT_OFF(2), killed}, 2,
           "PE 1 on node1 (pid 17 there) was killed by signal");
}

static void test_cut_off_without_a_reason(void **state)
{
    (void)state;
    expect((struct end[]){CUT_OFF(3)}, 1, "PE 3 on node2 (pid 17 there) exited with code 1");
    expect((struct end[]){CUT_OFF(3), CUT_OFF(2)}, 2, "PE 3 on node2");
}

static void test_no_reason_to_end(void **state)
{
    const struct end done = {1, 0, VIA_JOB_FINALIZED};

    (void)state;
    expect((struct end[]){done}, 1, "");
    expect((struct end[]){CUT_OFF(2), done}, 2, "PE 2 on node2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pe_left),
        cmocka_unit_test(test_a_pe_failed),
        cmocka_unit_test(test_cut_off_without_a_reason),
        cmocka_unit_test(test_no_reason_to_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
