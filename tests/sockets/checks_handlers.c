/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Signal handlers that fork, or send, at any point of a call on the same connection. */
#include "checks.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

static struct pair shared_pair;

/* --- threads ---------------------------------------------------------------------------------- */

/* The folder has two links of its own, and one for the folder of each thread. opendir() would
 * allocate memory. */
static int count_threads(void)
{
    struct stat folder;
    CHECK(stat("/proc/self/task", &folder) == 0);
    return (int)folder.st_nlink - 2;
}

static volatile sig_atomic_t threads_before, threads_after, forked;

static void fork_and_send(int number)
{
    (void)number;
    forked = fork();
    if (forked == 0) {
        threads_before = count_threads();
        CHECK(send(shared_pair.client, "h", 1, 0) == 1);
        threads_after = count_threads();
    }
}

static void *wait_forever(void *unused)
{
    for (;;) {
        sleep_ms(1000);
    }
    return unused;
}

/* pthread_create() allocates memory, and the handler may have interrupted malloc(). The child is
 * one of a process with several threads, for which a library may start a thread of its own. */
static void a_handler_starts_no_thread(void)
{
    struct sigaction action = {.sa_handler = fork_and_send};
    pthread_t thread;
    char bytes[2];
    CHECK(pthread_create(&thread, NULL, wait_forever, NULL) == 0);
    shared_pair = connected();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
    if (forked == 0) {
        CHECK(threads_after == threads_before);
        CHECK(send(shared_pair.client, "s", 1, 0) == 1);
        _exit(0);
    }
    wait_for(forked);
    read_all(shared_pair.server, bytes, 2);
    CHECK(memcmp(bytes, "hs", 2) == 0);
    done(shared_pair);
}

/* Another thread may hold the locks of malloc() and of pthread_create() at _Fork(), which does not
 * take and reset them, as fork() does. */
static void a_child_of_a_plain_fork_starts_no_thread(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_forever, NULL) == 0);
    shared_pair = connected();
    pid_t pid = _Fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 3; i++) {
            CHECK(send(shared_pair.client, "c", 1, 0) == 1);
        }
        CHECK(count_threads() == 1);
        _exit(0);
    }
    wait_for(pid);
    done(shared_pair);
}

const struct check checks_of_handlers[] = {
    CHECK_ENTRY(a_handler_starts_no_thread),
    CHECK_ENTRY(a_child_of_a_plain_fork_starts_no_thread),
    {0},
};
