/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Limits of a process (descriptors, sizes of files) restrict only the program's own use, not the
 * library's. */
#include "checks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#define LIMIT 256
/* Nearly all descriptors: the rest are the standard ones, those of the test, and a few of the
 * library. */
#define CONNECTIONS 225

static void limit_to(int resource, rlim_t value)
{
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = value;
    CHECK(setrlimit(resource, &limit) == 0);
}

/* Echoes on all connections until each of them has been closed. */
static void echo_on_all(int listen_fd)
{
    struct epoll_event events[16];
    int epfd = set_with(listen_fd, EPOLLIN);
    char data[64];
    for (int accepted = 0, open = 0; accepted < CONNECTIONS || open > 0;) {
        int count = epoll_wait(epfd, events, 16, -1);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listen_fd) {
                fd = accept(listen_fd, NULL, NULL);
                CHECK(fd >= 0 && put_in(epfd, fd, EPOLLIN) == 0);
                accepted++;
                open++;
                continue;
            }
            ssize_t n = read(fd, data, sizeof(data));
            CHECK(n >= 0);
            if (n == 0) {
                close(fd);
                open--;
            } else {
                write_all(fd, data, (size_t)n);
            }
        }
    }
}

static void exchange(int fd, int rounds)
{
    char data[64] = {0};
    for (int i = 0; i < rounds; i++) {
        write_all(fd, data, sizeof(data));
        read_all(fd, data, sizeof(data));
    }
}

/* A pool of connections which are used for a moment, then idle, then used again. */
static void hold_a_pool(const struct sockaddr_in *addr, int rounds)
{
    int fds[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(fds[i] >= 0 && connect(fds[i], (const struct sockaddr *)addr, sizeof(*addr)) == 0);
        exchange(fds[i], rounds);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        exchange(fds[i], 10);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        close(fds[i]);
    }
}

static void as_many_connections_as_descriptors(void)
{
    limit_to(RLIMIT_NOFILE, LIMIT);
    for (int rounds = 1; rounds <= 4; rounds++) {
        struct sockaddr_in addr;
        int listen_fd = listener(&addr);
        pid_t parent = getpid();
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            end_with(parent);
            echo_on_all(listen_fd);
            exit(0);
        }
        close(listen_fd);
        hold_a_pool(&addr, rounds);
        wait_for(pid);
    }
}

#define FEW 24

/* The program can open each number that RLIMIT_NOFILE allows. */
static void a_small_limit_leaves_all_descriptors(void)
{
    limit_to(RLIMIT_NOFILE, FEW);
    struct pair pair = connected();
    talk_both_ways(pair.client, pair.server);
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    for (int fd = 0; fd < FEW; fd++) {
        CHECK(fcntl(fd, F_GETFD) >= 0);
    }
    talk_both_ways(pair.client, pair.server);
    done(pair);
}

#define TABLE_MIN 65536u

/* A copy with a number that RLIMIT_NOFILE did not allow when the program started. */
static void a_copy_has_a_number_beyond_all_limits(void)
{
    struct rlimit limit;
    struct pair pair = connected();
    char byte;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int copy = (int)(limit.rlim_max > TABLE_MIN ? limit.rlim_max : TABLE_MIN) + 10;
    limit = (struct rlimit){.rlim_cur = (rlim_t)copy + 1, .rlim_max = (rlim_t)copy + 1};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        done(pair);
        return; /* only root may raise the limit, and not beyond fs.nr_open */
    }
    talk_both_ways(pair.client, pair.server);
    write_all(pair.client, "x", 1);
    CHECK(dup2(pair.client, copy) == copy);
    write_all(copy, "y", 1);
    CHECK(read(pair.server, &byte, 1) == 1 && byte == 'x');
    CHECK(read(pair.server, &byte, 1) == 1 && byte == 'y');
    write_all(pair.server, "v", 1);
    CHECK(read(copy, &byte, 1) == 1 && byte == 'v');
    close(pair.client);
    write_all(copy, "z", 1);
    CHECK(read(pair.server, &byte, 1) == 1 && byte == 'z');
    close(copy);
    CHECK(read(pair.server, &byte, 1) == 0);
    close(pair.server);
}

static void files_may_have_no_bytes(void)
{
    limit_to(RLIMIT_FSIZE, 0);
    for (int i = 0; i < 3; i++) {
        struct pair pair = connected();
        talk_both_ways(pair.client, pair.server);
        done(pair);
    }
}

static void *read_one(void *of_fd)
{
    char byte;
    CHECK(read(*(int *)of_fd, &byte, 1) == 1);
    return NULL;
}

/* The library needs a descriptor for each waiting thread, but no descriptor is left. */
static void a_wait_without_a_descriptor_ends(void)
{
    struct timespec limit;
    pthread_t thread;
    struct pair pair = connected();
    talk_both_ways(pair.client, pair.server);
    limit_to(RLIMIT_NOFILE, 3);
    CHECK(pthread_create(&thread, NULL, read_one, &pair.server) == 0);
    sleep_ms(50);
    write_all(pair.client, "x", 1);
    CHECK(clock_gettime(CLOCK_REALTIME, &limit) == 0);
    limit.tv_sec += 60;
    CHECK(pthread_timedjoin_np(thread, NULL, &limit) == 0);
    done(pair);
}

static void *write_soon(void *of_fd)
{
    sleep_ms(50);
    write_all(*(int *)of_fd, "x", 1);
    return NULL;
}

static void *drain_soon(void *of_fd)
{
    char data[4096];
    sleep_ms(50);
    while (read(*(int *)of_fd, data, sizeof(data)) > 0) {
    }
    return NULL;
}

/* Runs it beside the call that it ends. */
static pthread_t run_beside(void *(*run)(void *), int *fd)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, fd) == 0);
    return thread;
}

static void wait_in_each_call(struct pair pair, int epfd)
{
    char byte;
    fd_set in;
    struct timeval limit = {.tv_sec = 60};
    pthread_t thread = run_beside(write_soon, &pair.client);
    CHECK(read(pair.server, &byte, 1) == 1 && pthread_join(thread, NULL) == 0);

    thread = run_beside(write_soon, &pair.client);
    CHECK(wait_in(epfd, pair.server, 60000) == EPOLLIN && pthread_join(thread, NULL) == 0);
    CHECK(read(pair.server, &byte, 1) == 1);

    thread = run_beside(write_soon, &pair.client);
    FD_ZERO(&in);
    FD_SET(pair.server, &in);
    CHECK(select(pair.server + 1, &in, NULL, NULL, &limit) == 1 && FD_ISSET(pair.server, &in));
    CHECK(read(pair.server, &byte, 1) == 1 && pthread_join(thread, NULL) == 0);

    fill_up(pair.client);
    thread = run_beside(drain_soon, &pair.server);
    write_all(pair.client, &byte, 1);
    CHECK(shutdown(pair.client, SHUT_WR) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(shutdown(pair.server, SHUT_WR) == 0 && read(pair.client, &byte, 1) == 0);
}

/* With a limit of 0 poll() accepts no entry, but the other calls that wait work as before. */
static void waits_without_descriptors(void)
{
    struct pair piped = connected();
    struct pair fresh = just_connected();
    int piped_set = set_with(piped.server, EPOLLIN);
    int fresh_set = set_with(fresh.server, EPOLLIN);
    talk_both_ways(piped.client, piped.server);
    limit_to(RLIMIT_NOFILE, 0);
    wait_in_each_call(piped, piped_set);
    wait_in_each_call(fresh, fresh_set);
    struct rusage before;
    struct rusage after;
    CHECK(getrusage(RUSAGE_SELF, &before) == 0);
    sleep_ms(400);
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
    timersub(&after.ru_utime, &before.ru_utime, &after.ru_utime);
    timersub(&after.ru_stime, &before.ru_stime, &after.ru_stime);
    timeradd(&after.ru_utime, &after.ru_stime, &after.ru_utime);
    CHECK(after.ru_utime.tv_sec == 0 && after.ru_utime.tv_usec < 200000); /* no thread spins */
}

/* poll() accepts at most RLIMIT_NOFILE entries, and the library uses none of them. */
static void as_many_entries_as_descriptors(void)
{
    struct pollfd pfds[LIMIT];
    struct pair pair = connected();
    limit_to(RLIMIT_NOFILE, LIMIT);
    for (int i = 0; i < LIMIT; i++) {
        pfds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    }
    pfds[LIMIT - 1].fd = pair.server;
    CHECK(poll(pfds, LIMIT, 0) == 0);
    CHECK(poll(pfds, LIMIT, 20) == 0);
    CHECK(ppoll(pfds, LIMIT, &(struct timespec){.tv_nsec = 20000000}, NULL) == 0);
    write_all(pair.client, "x", 1);
    CHECK(poll(pfds, LIMIT, -1) == 1 && pfds[LIMIT - 1].revents == POLLIN);
    done(pair);
}

/* --- locked memory --------------------------------------------------------------------------- */

#define LOCKED_KEPT 10
#define LOCKED_SHORT 30
#define LOCKED_KIB_MAX 2048

/* The mappings that forked processes would share. */
static unsigned long shared_mappings_kib(void)
{
    char line[512];
    unsigned long begin, end, kib = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "/dev/zero") != NULL && sscanf(line, "%lx-%lx", &begin, &end) == 2) {
            kib += (end - begin) / 1024;
        }
    }
    fclose(maps);
    return kib;
}

/* The kernel does not remove pages that are locked, so the library clears them. */
static void locked_memory_is_used_again(void)
{
    struct pair kept[LOCKED_KEPT];
    /* Sanitizers replace mlockall(). */
    if (syscall(SYS_mlockall, MCL_FUTURE | MCL_ONFAULT) != 0) {
        return;
    }
    for (int i = 0; i < LOCKED_KEPT; i++) {
        kept[i] = connected();
        for (int j = 0; j < LOCKED_SHORT; j++) {
            done(connected());
        }
    }
    CHECK(shared_mappings_kib() <= LOCKED_KIB_MAX);
    for (int i = 0; i < LOCKED_KEPT; i++) {
        talk_both_ways(kept[i].client, kept[i].server);
        done(kept[i]);
    }
}

/* A library may need memory for the set. */
static void a_set_without_memory(void)
{
    struct pair pair = connected();
    struct epoll_event event = {.events = EPOLLIN};
    int epfd = epoll_create1(0);
    CHECK(epfd >= 0);
    limit_to(RLIMIT_AS, 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.client, &event) == 0 || errno == ENOMEM);
    write_all(pair.client, "x", 1);
}

const struct check checks_of_limits[] = {
    CHECK_ENTRY(a_small_limit_leaves_all_descriptors),
    CHECK_ENTRY(as_many_connections_as_descriptors),
    CHECK_ENTRY(a_copy_has_a_number_beyond_all_limits),
    CHECK_ENTRY(files_may_have_no_bytes),
    CHECK_ENTRY(a_wait_without_a_descriptor_ends),
    CHECK_ENTRY(as_many_entries_as_descriptors),
    CHECK_ENTRY(waits_without_descriptors),
    CHECK_ENTRY(locked_memory_is_used_again),
    CHECK_ENTRY(a_set_without_memory),
    {0},
};
