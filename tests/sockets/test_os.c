/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Children do not inherit cached facts about their parent process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "sockets/process/os.h"

static void assert_well(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_child_has_another_pid(void **state)
{
    (void)state;
    assert_non_null(via_os_pid_word);
    assert_int_equal(*via_os_pid_word, getpid());
    assert_int_equal(via_os_pid(), getpid());
    /* A child made by the system call alone: no handler of fork() runs. */
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        _exit(via_os_pid() == getpid() && *via_os_pid_word == 0 ? 0 : 1);
    }
    assert_well(pid);
    pid = fork();
    if (pid == 0) {
        via_os_forked();
        _exit(via_os_pid() == getpid() && *via_os_pid_word == getpid() ? 0 : 1);
    }
    assert_well(pid);
    assert_int_equal(*via_os_pid_word, getpid());
}

static bool write_map(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

#define NOT_TO_BE_HAD 77

/* In a user namespace in which only one user has an id. */
static int with_one_user(void)
{
    char map[32];
    snprintf(map, sizeof(map), "0 %u 1", getuid());
    if (unshare(CLONE_NEWUSER) != 0 || !write_map("/proc/self/uid_map", map)) {
        return NOT_TO_BE_HAD;
    }
    return via_os_uid_is_one(0) && !via_os_uid_is_one(65534) ? 0 : 1;
}

static void users_without_a_number_are_not_one(void **state)
{
    (void)state;
    int status;
    assert_true(via_os_uid_is_one(0) && via_os_uid_is_one(getuid()));
    pid_t pid = fork();
    if (pid == 0) {
        _exit(with_one_user());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_TO_BE_HAD) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_another_pid),
        cmocka_unit_test(users_without_a_number_are_not_one),
    };
    via_os_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
