/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The log of a daemon: the daemon continues to serve after any failure of the log, and the log
 * stays small. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/system/host_raw.h"

static int set_up(void **state)
{
    struct host_lab *lab = calloc(1, sizeof(*lab));
    host_lab_init(lab, 1, false, false);
    *state = lab;
    return 0;
}

/* Attaches. At log level debug each attachment writes two lines. */
static void attach_often(struct host_lab *lab, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        struct host_raw raw;
        int rc;
        /* Ended processes keep their places until the host has released them; on busy cores this
         * takes longer than this loop. */
        while ((rc = host_raw_try_open(&raw, lab, 0)) == -EMFILE) {
            usleep(10000);
        }
        assert_int_equal(rc, 0);
        host_raw_close(&raw);
    }
}

static void a_log_without_a_reader_delays_nothing(void **state)
{
    struct host_lab *lab = *state;
    const char *const extra[] = {"--log-level", "debug", NULL};
    int error_fd;
    int ready_fd;
    char byte;
    host_lab_spawn_raw(lab, 0, extra, &error_fd, &ready_fd);
    assert_int_equal(read(ready_fd, &byte, 1), 1);
    close(ready_fd);
    assert_true(fcntl(error_fd, F_SETPIPE_SZ, 4096) > 0);
    attach_often(lab, 300);
    json_decref(host_lab_status(lab, 0));
    /* The daemon also ends on SIGTERM. */
    assert_int_equal(host_lab_kill(lab, 0, SIGTERM), 0);
    close(error_fd);
}

static off_t size_of(const struct host_lab *lab, const char *name)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", lab->rundir, name);
    return stat(path, &st) == 0 ? st.st_size : -1;
}

static void the_log_file_takes_no_more_than_it_may(void **state)
{
    struct host_lab *lab = *state;
    const char *const extra[] = {"--log-level", "debug", "--log-bytes", "65536", NULL};
    char path[128];
    int ready_fd;
    char byte;
    snprintf(path, sizeof(path), "%s/host-0.log", lab->rundir);
    /* Redirects the log as viaduct-up(1) does. */
    int saved_fd = dup(STDERR_FILENO);
    int log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(log_fd, STDERR_FILENO);
    host_lab_spawn_raw(lab, 0, extra, NULL, &ready_fd);
    dup2(saved_fd, STDERR_FILENO);
    close(saved_fd);
    close(log_fd);
    assert_int_equal(read(ready_fd, &byte, 1), 1);
    close(ready_fd);
    attach_often(lab, 1000);
    assert_int_equal(host_lab_kill(lab, 0, SIGTERM), 0);
    assert_in_range(size_of(lab, "host-0.log"), 1, 32768);
    assert_in_range(size_of(lab, "host-0.log.old"), 16384, 32768);
    /* The last line is in the log. */
    char text[33000] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    assert_non_null(strstr(text, "host 0: ends\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_log_without_a_reader_delays_nothing, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(the_log_file_takes_no_more_than_it_may, set_up,
                                        host_lab_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
