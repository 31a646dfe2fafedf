/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Threads that are cancelled in a call, and handlers of signals that interrupt one. */
#include "checks.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct pair pair;

static void *receive(void *unused)
{
    char byte;
    CHECK(read(pair.server, &byte, 1) == 1);
    return unused;
}

static void *send_too_much(void *unused)
{
    static char data[32768];
    for (;;) {
        CHECK(write(pair.server, data, sizeof(data)) > 0);
    }
    return unused;
}

static void *wait_by_poll(void *unused)
{
    struct pollfd pfds[2] = {{.fd = pair.server, .events = POLLIN}};
    pfds[1] = pfds[0];
    CHECK(poll(pfds, 2, -1) == 2);
    return unused;
}

static void *wait_by_set(void *of_set)
{
    struct epoll_event event;
    CHECK(epoll_wait(*(int *)of_set, &event, 1, -1) == 1);
    return NULL;
}

static void *(*const calls[])(void *) = {receive, send_too_much, wait_by_poll, wait_by_set};

/* Lines of this process's memory map with the word. */
static int mappings(const char *word)
{
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, word) != NULL ? 1 : 0;
    }
    fclose(file);
    return count;
}

static void cancel_one(int call)
{
    pthread_t thread;
    void *result;
    int epfd = set_with(pair.server, EPOLLIN);
    CHECK(pthread_create(&thread, NULL, calls[call], &epfd) == 0);
    sleep_ms(20);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    close(epfd);
}

static void threads_are_cancelled(void)
{
    for (int i = 0; i < 20; i++) {
        pair = connected();
        cancel_one(i % 4);
        done(pair);
    }
    CHECK(mappings("viaduct-connection") == 0);
}

/* What came meanwhile is still there, for another thread. */
static void a_connection_outlives_its_cancelled_threads(void)
{
    char byte;
    pair = connected();
    for (int i = 0; i < 12; i++) {
        int call = i % 4 == 1 ? 0 : i % 4;
        cancel_one(call);
        write_all(pair.client, "x", 1);
        CHECK(read(pair.server, &byte, 1) == 1 && byte == 'x');
        talk_both_ways(pair.client, pair.server);
    }
    done(pair);
}

/* --- signals ----------------------------------------------------------------------------------
 */

#define OPEN_MAX_HERE 64

static int open_fds[OPEN_MAX_HERE];
static volatile sig_atomic_t open_count;

/* close() may be called by a handler, whatever it interrupts (signal-safety(7)). */
static void close_one(int number)
{
    (void)number;
    if (open_count > 0) {
        open_count--;
        close(open_fds[open_count]);
    }
}

static void keep_for_handler(int fd)
{
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &alarm, NULL) == 0);
    if (open_count < OPEN_MAX_HERE) {
        open_fds[open_count] = fd;
        open_count++;
    } else {
        close(fd);
    }
    CHECK(sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0);
}

static void a_handler_closes_connections(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    double end = now_s() + 4;
    every_ms(close_one, SA_RESTART, 1);
    while (now_s() < end) {
        int client = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(client >= 0);
        while (connect(client, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
            CHECK(errno == EINTR);
        }
        int server = accept(listen_fd, NULL, NULL);
        CHECK(server >= 0);
        struct linger reset = {.l_onoff = 1};
        setsockopt(server, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(server);
        keep_for_handler(client);
    }
    no_more_signals();
    close(listen_fd);
}

const struct check checks_of_cancelling[] = {
    CHECK_ENTRY(a_handler_closes_connections),
    CHECK_ENTRY(threads_are_cancelled),
    CHECK_ENTRY(a_connection_outlives_its_cancelled_threads),
    {0},
};
