/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Threads that are cancelled in a call: nothing is kept for them. */
#include "checks.h"

#include <poll.h>
#include <pthread.h>
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

const struct check checks_of_cancelling[] = {
    CHECK_ENTRY(threads_are_cancelled),
    CHECK_ENTRY(a_connection_outlives_its_cancelled_threads),
    {0},
};
