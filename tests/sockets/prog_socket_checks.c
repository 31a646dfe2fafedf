/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Checks the behaviour of a TCP connection on Linux. The checks pass on kernel TCP, so they must
 * also pass on a connection that a library carries by other means.
 *
 *     prog_socket_checks            all checks
 *     prog_socket_checks NAME...    some
 *     prog_socket_checks -NAME...   all but some
 *
 * Both ends are in this process unless a check forks. Each pair first exchanges a few messages in
 * each direction, because a library may accelerate a connection only after some traffic.
 */
#include "checks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

/* A check that takes longer hangs, even on a machine with ten busy threads per core. */
#define HANG_S 60 /* or VIADUCT_CHECKS_HANG_S */

const char *current;

/* Each check runs in a process of its own, with a time limit. */
static bool run_check(const struct check *check)
{
    int status;
    current = check->name;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        check->run();
        exit(0);
    }
    const char *value = getenv("VIADUCT_CHECKS_HANG_S");
    int hang_s = value != NULL ? atoi(value) : HANG_S;
    double deadline = now_s() + hang_s;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_s() > deadline) {
            printf("FAILED %s: still running after %d s\n", check->name, hang_s);
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return false;
        }
        sleep_ms(2);
    }
    if (WIFSIGNALED(status)) {
        printf("FAILED %s: signal %d\n", check->name, WTERMSIG(status));
        return false;
    }
    if (WEXITSTATUS(status) == 0) {
        printf("ok %s\n", check->name);
    }
    return WEXITSTATUS(status) == 0;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    bool wanted = argc < 2 || argv[1][0] == '-';
    for (int i = 1; i < argc; i++) {
        wanted = wanted || strcmp(argv[i], name) == 0;
        if (argv[i][0] == '-' && strcmp(argv[i] + 1, name) == 0) {
            return false;
        }
    }
    return wanted;
}

int main(int argc, char **argv)
{
    static const struct check *const tables[] = {
        checks_of_bytes,     checks_of_ends,         checks_of_waiting,     checks_of_processes,
        checks_of_zcopy,     checks_of_calls,        checks_of_sets,        checks_of_nested_sets,
        checks_of_fortified, checks_of_demotion,     checks_of_rings,       checks_of_identity,
        checks_of_options,   checks_of_changeover,   checks_of_mistakes,    checks_of_stalls,
        checks_of_silence,   checks_of_deaths,       checks_of_many,        checks_of_order,
        checks_of_limits,    checks_of_copies,       checks_of_addresses,   checks_of_cancelling,
        checks_of_signals,   checks_of_set_races,    checks_of_shared_sets, checks_of_namespaces,
        checks_of_forks,     checks_of_handlers,     checks_of_steps_forks, checks_of_steps_calls,
        checks_of_returns,   checks_of_notifications};
    int failed = 0;
    int run = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        for (const struct check *check = tables[i]; check->name != NULL; check++) {
            if (is_wanted(check->name, argc, argv)) {
                run++;
                failed += run_check(check) ? 0 : 1;
            }
        }
    }
    if (run == 0) {
        fprintf(stderr, "prog_socket_checks: no such check\n");
    }
    return run > 0 && failed == 0 ? 0 : 1;
}
