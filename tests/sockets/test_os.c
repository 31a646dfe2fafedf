/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What is remembered of a process is not taken over by its children. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "sockets/os.h"

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
    /* By the system call alone: no handler of fork() runs. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_another_pid),
    };
    via_os_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
