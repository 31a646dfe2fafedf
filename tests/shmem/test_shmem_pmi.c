/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* PMI-1 against a simulated launcher: the library's lines, and its handling of unusual answers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shmem/pmi.h"

/* An expected request, and its answer; NULL = close the connection. */
struct turn {
    const char *question;
    const char *answer;
};

static const struct turn hello[] = {
    {"cmd=init pmi_version=1 pmi_subversion=1\n",
     "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"},
    {"cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_17_0\n"},
};

struct launcher {
    struct via_pmi pmi;
    struct via_error err;
    pid_t pid;
};

static bool play(int fd, const struct turn *turn)
{
    char line[2048];
    size_t used = 0;

    while (used == 0 || line[used - 1] != '\n')
        if (used == sizeof(line) || read(fd, &line[used++], 1) != 1)
            return false;
    line[used] = '\0';
    if (strcmp(line, turn->question) != 0) {
        fprintf(stderr, "expected %snot %s", turn->question, line);
        return false;
    }
    if (!turn->answer)
        return true;
    /* In two pieces, because a line may arrive in any pieces. */
    size_t bytes = strlen(turn->answer), half = bytes / 2;
    return write(fd, turn->answer, half) == (ssize_t)half &&
           write(fd, turn->answer + half, bytes - half) == (ssize_t)(bytes - half);
}

/* Another process makes the exchanges, sends nothing more, and exits with 0 if all requests were as
 * expected. */
static void start(struct launcher *launcher, const struct turn *turns, size_t count)
{
    int fds[2];
    char text[16];

    memset(launcher, 0, sizeof(*launcher));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    launcher->pid = fork();
    assert_true(launcher->pid >= 0);
    if (launcher->pid == 0) {
        close(fds[0]);
        for (size_t i = 0; i < count; i++)
            if (!play(fds[1], &turns[i]))
                _exit(1);
        _exit(0);
    }
    close(fds[1]);
    snprintf(text, sizeof(text), "%d", fds[0]);
    setenv("PMI_FD", text, 1);
    setenv("PMI_RANK", "3", 1);
    setenv("PMI_SIZE", "5", 1);
    launcher->pmi.ops = &via_pmi1_ops;
}

static void start_after_hello(struct launcher *launcher, const struct turn *turns, size_t count)
{
    struct turn all[16];

    memcpy(all, hello, sizeof(hello));
    for (size_t i = 0; i < count; i++) {
        all[VIA_ARRAY_COUNT(hello) + i] = turns[i];
    }
    start(launcher, all, VIA_ARRAY_COUNT(hello) + count);
    assert_int_equal(via_pmi1_ops.open(&launcher->pmi, &launcher->err), 0);
}

static void stop(struct launcher *launcher)
{
    int status;

    if (launcher->pmi.fd > 2)
        close(launcher->pmi.fd);
    assert_int_equal(waitpid(launcher->pid, &status, 0), launcher->pid);
    assert_int_equal(status, 0);
}

static void test_a_job(void **state)
{
    static const struct turn turns[] = {
        {"cmd=put kvsname=kvs_17_0 key=viaduct-machine-3 value=here\n",
         "cmd=put_result rc=0 msg=success\n"},
        {"cmd=barrier_in\n", "cmd=barrier_out rc=0\n"},
        {"cmd=get kvsname=kvs_17_0 key=viaduct-machine-0\n",
         "cmd=get_result rc=0 msg=success value=there\n"},
        {"cmd=finalize\n", "cmd=finalize_ack\n"},
    };
    char value[VIA_PMI_VALUE_BYTES];
    struct launcher launcher;

    (void)state;
    start_after_hello(&launcher, turns, VIA_ARRAY_COUNT(turns));
    assert_int_equal(launcher.pmi.rank, 3);
    assert_int_equal(launcher.pmi.size, 5);
    /* A child of this program is no PE. */
    assert_null(getenv("PMI_FD"));
    assert_int_equal(via_pmi1_ops.put(&launcher.pmi, "machine", "here", &launcher.err), 0);
    assert_int_equal(via_pmi1_ops.fence(&launcher.pmi, &launcher.err), 0);
    assert_int_equal(via_pmi1_ops.get(&launcher.pmi, 0, "machine", value, &launcher.err), 0);
    assert_string_equal(value, "there");
    via_pmi1_ops.finalize(&launcher.pmi);
    stop(&launcher);
}

static void refuses(const char *answer, int result, const char *text)
{
    const struct turn turns[] = {
        {"cmd=get kvsname=kvs_17_0 key=viaduct-job-0\n", answer},
    };
    char value[VIA_PMI_VALUE_BYTES] = "untouched";
    struct launcher launcher;

    start_after_hello(&launcher, turns, 1);
    assert_int_equal(via_pmi1_ops.get(&launcher.pmi, 0, "job", value, &launcher.err), result);
    assert_non_null(strstr(via_error_describe(&launcher.err), text));
    assert_string_equal(value, "untouched");
    stop(&launcher);
}

static void test_odd_answers(void **state)
{
    static char long_line[6000], long_value[2000];

    (void)state;
    refuses("cmd=get_result rc=-1 msg=key_not_found value=unknown\n", -EIO, "key_not_found");
    refuses("cmd=barrier_out\n", -EPROTO, "instead of cmd=get_result");
    refuses("\n", -EPROTO, "instead of cmd=get_result");
    refuses("cmd=get_result rc=0\n", -EPROTO, "no value");
    refuses(NULL, -ECONNRESET, "has closed");
    refuses("cmd=get_result rc=0 value=x", -ECONNRESET, "has closed");
    memset(long_line, 'x', sizeof(long_line) - 1);
    refuses(long_line, -EPROTO, "a line of more than");
    snprintf(long_value, sizeof(long_value), "cmd=get_result rc=0 value=%01500d\n", 0);
    refuses(long_value, -EPROTO, "no value");
}

static void test_a_value_that_is_too_long(void **state)
{
    char value[VIA_PMI_VALUE_BYTES + 1];
    struct launcher launcher;

    (void)state;
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    start_after_hello(&launcher, NULL, 0);
    assert_int_equal(via_pmi1_ops.put(&launcher.pmi, "job", value, &launcher.err), -EMSGSIZE);
    stop(&launcher);
}

static void fails_to_open(const char *name, const char *value, const char *text)
{
    struct launcher launcher;

    start(&launcher, NULL, 0);
    int fd = atoi(getenv("PMI_FD"));
    setenv(name, value, 1);
    assert_true(via_pmi1_ops.open(&launcher.pmi, &launcher.err) < 0);
    assert_non_null(strstr(via_error_describe(&launcher.err), text));
    launcher.pmi.fd = fd;
    stop(&launcher);
}

static void test_an_environment_that_is_wrong(void **state)
{
    (void)state;
    fails_to_open("PMI_FD", "x", "PMI_FD=\"x\"");
    fails_to_open("PMI_FD", "999", "PMI_FD=\"999\"");
    fails_to_open("PMI_RANK", "5", "PMI_RANK=\"5\"");
    fails_to_open("PMI_RANK", "-1", "PMI_RANK=\"-1\"");
    fails_to_open("PMI_SIZE", "", "PMI_SIZE=\"\"");
}

static void test_limits_that_are_too_small(void **state)
{
    const struct turn turns[] = {
        hello[0],
        {"cmd=get_maxes\n", "cmd=maxes kvsname_max=16 keylen_max=8 vallen_max=16\n"},
    };
    struct launcher launcher;

    (void)state;
    start(&launcher, turns, VIA_ARRAY_COUNT(turns));
    assert_int_equal(via_pmi1_ops.open(&launcher.pmi, &launcher.err), -EPROTO);
    stop(&launcher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job),
        cmocka_unit_test(test_odd_answers),
        cmocka_unit_test(test_a_value_that_is_too_long),
        cmocka_unit_test(test_an_environment_that_is_wrong),
        cmocka_unit_test(test_limits_that_are_too_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
