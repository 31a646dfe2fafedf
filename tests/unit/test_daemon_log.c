/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The thread that writes the daemon's log, if messages come faster than the thread writes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/log_writer.h"

#define MESSAGES 4000
#define FILE_BYTES_MAX (VIA_DAEMON_LOG_BYTES_MIN / 2)

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* Runs in a child: there is one log per process, and it is on standard error. */
static void log_much(const char *path)
{
    char text[200];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) {
        _exit(1);
    }
    via_daemon_log_start(path, VIA_DAEMON_LOG_BYTES_MIN);
    for (int i = 0; i < MESSAGES; i++) {
        struct via_log_message message = {.level = VIA_LOG_INFO, .text = text};
        snprintf(text, sizeof(text), "%-100d", i);
        via_daemon_log(NULL, &message);
    }
    via_daemon_log_end();
    _exit(0);
}

static void no_file_is_larger_than_it_may_be(void **state)
{
    char folder[] = "/tmp/viaduct-log-XXXXXX";
    char path[64];
    char old[64];
    int status;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/log", folder);
    snprintf(old, sizeof(old), "%s/log.old", folder);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        log_much(path);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    off_t now_bytes = size_of(path);
    off_t old_bytes = size_of(old);
    assert_in_range(now_bytes, 1, FILE_BYTES_MAX);
    assert_in_range(old_bytes, 1, FILE_BYTES_MAX);
    /* The log changes to a new file when the next message does not fit into the present one. */
    assert_true(old_bytes + now_bytes > FILE_BYTES_MAX);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(old), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_file_is_larger_than_it_may_be)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
