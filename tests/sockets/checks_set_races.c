/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* An epoll set while threads wait in it, others change its registrations, and processes fork. */
#include "checks.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define PAIRS 8u

static struct pair pairs[PAIRS];
static int epfd;
static atomic_bool racing, over;
static _Atomic unsigned long sent, received;

static unsigned draw(unsigned *seed, unsigned most)
{
    return (unsigned)rand_r(seed) % most;
}

static void register_again(unsigned at, int op, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.u32 = at}};
    CHECK(epoll_ctl(epfd, op, pairs[at].server, &event) == 0 ||
          errno == (op == EPOLL_CTL_ADD ? EEXIST : ENOENT));
}

static void *change(void *of_seed)
{
    static const uint32_t some[] = {EPOLLIN,
                                    EPOLLOUT,
                                    EPOLLIN | EPOLLOUT,
                                    EPOLLIN | EPOLLET,
                                    EPOLLIN | EPOLLONESHOT,
                                    EPOLLRDHUP | EPOLLET};
    static const int ops[] = {EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
    unsigned seed = *(const unsigned *)of_seed;
    while (racing) {
        register_again(draw(&seed, PAIRS), ops[draw(&seed, 3)], some[draw(&seed, 6)]);
    }
    return NULL;
}

static void *serve(void *unused)
{
    struct epoll_event events[4];
    char bytes[64];
    (void)unused;
    while (!over) {
        int count = epoll_wait(epfd, events, 4, 20);
        CHECK(count >= 0 || errno == EINTR);
        for (int i = 0; i < count; i++) {
            CHECK(events[i].data.u32 <= PAIRS && events[i].events != 0);
            if (events[i].data.u32 == PAIRS) {
                continue; /* of the connections that are added and removed */
            }
            ssize_t n = recv(pairs[events[i].data.u32].server, bytes, sizeof(bytes), MSG_DONTWAIT);
            CHECK(n > 0 || (n < 0 && errno == EAGAIN));
            received += n > 0 ? (unsigned long)n : 0;
        }
    }
    return NULL;
}

/* The connection is closed while threads wait in its set: while it is registered, or after it was
 * removed. */
static void *come_and_go(void *of_seed)
{
    unsigned seed = *(const unsigned *)of_seed;
    while (racing) {
        struct pair pair = connected();
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.u32 = PAIRS}};
        for (unsigned turn = 0; turn < 4; turn++) {
            CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.server, &event) == 0);
            write_all(pair.client, "x", 1);
            CHECK(turn == 3 || epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
        }
        if (draw(&seed, 2) == 0) {
            CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
        }
        done(pair);
    }
    return NULL;
}

static void *fork_often(void *unused)
{
    (void)unused;
    while (racing) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            struct epoll_event event;
            _exit(epoll_wait(epfd, &event, 1, 0) >= 0 ? 0 : 1);
        }
        wait_for(pid);
        sleep_ms(3);
    }
    return NULL;
}

/* Sets in sets: the inner set, the outer set, or the connection is closed first. */
static void *nest_and_close(void *of_seed)
{
    unsigned seed = *(const unsigned *)of_seed;
    while (racing) {
        struct epoll_event event;
        struct pair pair = connected();
        int inner = set_with(pair.server, EPOLLIN);
        unsigned first = draw(&seed, 3);
        if (draw(&seed, 2) == 0) {
            int outer = set_with(inner, EPOLLIN);
            write_all(pair.client, "x", 1);
            CHECK(epoll_wait(outer, &event, 1, 5000) == 1 && event.data.fd == inner);
            close(first == 0 ? inner : outer);
            inner = first == 0 ? outer : inner;
        }
        if (first == 2) {
            done(pair);
        }
        close(inner);
        if (first != 2) {
            done(pair);
        }
    }
    return NULL;
}

static int ask_in_child(void *unused)
{
    struct epoll_event event;
    (void)unused;
    return epoll_wait(epfd, &event, 1, 0) >= 0 ? 0 : 1;
}

static void *make_children(void *unused)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    char *argv[] = {strdup("true"), NULL};
    pthread_t nester;
    unsigned seed = 9;
    CHECK(pthread_create(&nester, NULL, nest_and_close, &seed) == 0);
    for (unsigned turn = 0; racing; turn++) {
        pid_t pid = -1;
        if (turn % 3 == 0) {
            pid = clone(ask_in_child, stack + sizeof(stack), SIGCHLD, NULL);
        } else if (turn % 3 == 1) {
            pid = fork();
            if (pid == 0) {
                _exit(ask_in_child(unused));
            }
        } else {
            CHECK(posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0);
        }
        CHECK(pid > 0);
        wait_for(pid);
    }
    free(argv[0]);
    pthread_join(nester, NULL);
    return NULL;
}

static void *write_to_all(void *of_seed)
{
    unsigned seed = *(const unsigned *)of_seed;
    while (racing) {
        if (send(pairs[draw(&seed, PAIRS)].client, "x", 1, MSG_DONTWAIT) == 1) {
            sent++;
        }
    }
    return NULL;
}

static bool all_has_come(void)
{
    double deadline = now_s() + 20;
    while (received != sent && now_s() < deadline) {
        sleep_ms(1);
    }
    return received == sent;
}

static void race(void *(*other)(void *))
{
    void *(*const racers[])(void *) = {change, change, write_to_all, other};
    unsigned seeds[4] = {1, 2, 3, 4};
    pthread_t threads[4], servers[2];
    epfd = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < PAIRS; i++) {
        pairs[i] = connected();
        CHECK(fcntl(pairs[i].client, F_SETFD, FD_CLOEXEC) == 0 &&
              fcntl(pairs[i].server, F_SETFD, FD_CLOEXEC) == 0);
        register_again(i, EPOLL_CTL_ADD, EPOLLIN);
    }
    racing = true;
    for (unsigned i = 0; i < 2; i++) {
        CHECK(pthread_create(&servers[i], NULL, serve, NULL) == 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, racers[i], &seeds[i]) == 0);
    }
    sleep_ms((int)(race_s() * 1000));
    racing = false;
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        register_again(i, EPOLL_CTL_ADD, EPOLLIN);
        register_again(i, EPOLL_CTL_MOD, EPOLLIN);
    }
    CHECK(all_has_come());
    over = true;
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(servers[i], NULL);
    }
}

static void registrations_change_while_threads_wait(void)
{
    race(change);
}

static void connections_close_while_threads_wait(void)
{
    race(come_and_go);
}

static void processes_fork_while_threads_wait(void)
{
    race(fork_often);
}

static void children_of_all_kinds_while_sets_come_and_go(void)
{
    race(make_children);
}

/*
 * A thread has an event from the kernel, and before it can handle the event, another thread takes
 * the connection out of the set and puts a second one in. While clone() with CLONE_VFORK waits for
 * its child, the library holds its locks: so the thread gets the end-of-file event of `first`, and
 * waits for these locks. It has the lowest priority, and one CPU with the thread that changes the
 * set.
 */
enum { FIRST, SECOND };
static struct pair first, second;
static _Atomic pid_t waiter;

static unsigned long sleeps_of(pid_t process, pid_t thread)
{
    char path[64], line[128];
    unsigned long sleeps = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)process, (int)thread);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "voluntary_ctxt_switches: %lu", &sleeps);
    }
    fclose(file);
    return sleeps;
}

/* Runs only if no other thread needs the CPU (SCHED_IDLE), or as usual; the return to usual needs a
 * privilege. */
static void run_waiter(bool as_usual)
{
    const struct sched_param none = {.sched_priority = 0};
    CHECK(sched_setscheduler(waiter, as_usual ? SCHED_OTHER : SCHED_IDLE, &none) == 0 ||
          (as_usual && errno == EPERM));
}

static int end_first(void *unused)
{
    pid_t parent = getppid();
    unsigned long before = sleeps_of(parent, waiter);
    double deadline = now_s() + 5;
    (void)unused;
    run_waiter(false); /* the call reports all events of the end of file at once */
    shutdown(first.client, SHUT_RDWR);
    run_waiter(true);
    while (sleeps_of(parent, waiter) == before && now_s() < deadline) {
        sleep_ms(1);
    }
    run_waiter(false);
    return 0;
}

static void *wait_for_second(void *of_events)
{
    struct epoll_event events[4] = {{.data = {.u32 = FIRST}}};
    waiter = (pid_t)syscall(SYS_gettid);
    while (events[0].data.u32 == FIRST) {
        CHECK(epoll_wait(epfd, events, 4, 10000) == 1);
    }
    *(uint32_t *)of_events = events[0].events;
    return NULL;
}

static void put_second_for_first(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = SECOND}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, first.server, NULL) == 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, second.server, &event) == 0);
}

static void take_out_at_end(void)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u32 = FIRST}};
    struct timeval limit = {.tv_sec = 5};
    uint32_t events = 0;
    pthread_t thread;
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    first = connected();
    second = connected();
    CHECK(setsockopt(second.client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
    waiter = 0;
    epfd = epoll_create1(0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, first.server, &event) == 0);
    CHECK(shutdown(first.server, SHUT_WR) == 0); /* then both directions have ended */
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_second, &events) == 0);
    while (waiter == 0) {
        sleep_ms(1);
    }
    sleep_ms(100);
    pid_t pid = clone(end_first, stack + sizeof(stack), CLONE_VFORK | SIGCHLD, NULL);
    put_second_for_first();
    run_waiter(true);
    CHECK(pid > 0);
    wait_for(pid);
    write_all(second.client, "x", 1);
    pthread_join(thread, NULL);
    CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
    CHECK(events == EPOLLIN);
    char byte;
    read_all(second.server, &byte, 1);
    talk_both_ways(second.server, second.client);
    close(epfd);
    done(first);
    done(second);
}

static void an_end_is_not_that_of_the_next_connection(void)
{
    for (unsigned turn = 0; turn < 5; turn++) {
        take_out_at_end();
    }
}

/*
 * Threads share a set, and each serves one connection at a time, slowly. An event must wake a
 * thread as long as one waits, whatever the other threads do meanwhile.
 */
#define SERVERS PAIRS
#define LONGEST_S 20

static _Atomic unsigned serving;

static void wait_for_servers(unsigned count)
{
    double deadline = now_s() + LONGEST_S;
    while (serving < count) {
        CHECK(now_s() < deadline);
        sleep_ms(1);
    }
}

/* Serves one byte, until all threads serve one. */
static void *serve_one(void *unused)
{
    struct epoll_event event;
    char byte;
    ssize_t n;
    (void)unused;
    do {
        CHECK(epoll_wait(epfd, &event, 1, LONGEST_S * 1000) == 1);
        n = recv(pairs[event.data.u32].server, &byte, 1, MSG_DONTWAIT);
        CHECK(n == 1 || (n < 0 && errno == EAGAIN));
    } while (n != 1);
    serving++;
    wait_for_servers(SERVERS);
    return NULL;
}

static void start_servers(pthread_t *threads)
{
    serving = 0;
    for (unsigned i = 0; i < SERVERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, serve_one, NULL) == 0);
    }
    sleep_ms(50); /* by now they most likely sleep */
}

static void register_pairs(uint32_t events, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pairs[i] = connected();
        register_again(i, EPOLL_CTL_ADD, events);
    }
}

static void end_servers(const pthread_t *threads, unsigned count)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < count; i++) {
        done(pairs[i]);
    }
    close(epfd);
}

/* early: the threads wait before the set has a connection. each: the next byte comes when the
 * previous byte is served. */
static void serve_at_once(uint32_t events, bool early, bool each)
{
    pthread_t threads[SERVERS];
    epfd = epoll_create1(EPOLL_CLOEXEC);
    if (early) {
        start_servers(threads);
    }
    register_pairs(events, SERVERS);
    if (!early) {
        start_servers(threads);
    }
    for (unsigned i = 0; i < SERVERS; i++) {
        write_all(pairs[i].client, "x", 1);
        wait_for_servers(each ? i + 1 : 0);
    }
    end_servers(threads, SERVERS);
}

static void threads_in_one_set_serve_at_once(void)
{
    static const uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT,
                                     EPOLLIN | EPOLLEXCLUSIVE};
    for (unsigned i = 0; i < 4 * 4; i++) {
        serve_at_once(kinds[i % 4], (i & 4) != 0, (i & 8) != 0);
    }
}

static void *bring_pair(void *of_index)
{
    unsigned i = *(const unsigned *)of_index;
    pairs[i] = connected();
    register_again(i, EPOLL_CTL_ADD, EPOLLIN | EPOLLET);
    return NULL;
}

/* Another thread makes a connection while the others sleep, so a library may start to wake them in
 * another way. Returns the longest time until a byte is served. */
static double serve_what_another_thread_brings(void)
{
    pthread_t threads[SERVERS], other;
    unsigned last = 1;
    double longest = 0;
    epfd = epoll_create1(EPOLL_CLOEXEC);
    register_pairs(EPOLLIN, 1);
    start_servers(threads);
    CHECK(pthread_create(&other, NULL, bring_pair, &last) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    sleep_ms(50);
    for (unsigned i = 0; i < SERVERS; i++) {
        double begin = now_s();
        write_all(pairs[1].client, "x", 1);
        wait_for_servers(i + 1);
        double seconds = now_s() - begin;
        longest = seconds > longest ? seconds : longest;
    }
    end_servers(threads, 2);
    return longest;
}

/* On a busy machine a thread may be late. */
static void sleeping_threads_serve_what_another_thread_brings(void)
{
    double best = LONGEST_S;
    for (unsigned turn = 0; turn < 5 && best > 0.3; turn++) {
        double longest = serve_what_another_thread_brings();
        best = longest < best ? longest : best;
    }
    CHECK(best <= 0.3);
}

/* Each thread reads a part of the bytes of one write. */
static void share_one(void)
{
    pthread_t threads[SERVERS];
    epfd = epoll_create1(EPOLL_CLOEXEC);
    register_pairs(EPOLLIN, 1);
    start_servers(threads);
    write_all(pairs[0].client, "xxxxxxxx", SERVERS);
    end_servers(threads, 1);
}

/* Repeated often, because a sleeping thread checks again each second, so a single attempt may pass
 * by chance. */
static void threads_share_one_level_triggered_connection(void)
{
    for (unsigned turn = 0; turn < 20; turn++) {
        share_one();
    }
}

/* Another set gets the number of one that was closed while a thread waits in it. */
static _Atomic bool waits;

static void *wait_in_first(void *unused)
{
    struct epoll_event event;
    waits = true;
    int n = epoll_wait(epfd, &event, 1, 1000);
    CHECK(n == 0 || (n == 1 && event.data.fd == first.server));
    return unused;
}

static void closed_while_a_thread_waits(void)
{
    pthread_t thread;
    struct epoll_event event;
    int fds[2];
    first = connected();
    CHECK(pipe(fds) == 0);
    epfd = set_with(first.server, EPOLLIN);
    CHECK(pthread_create(&thread, NULL, wait_in_first, NULL) == 0);
    while (!waits) {
        sleep_ms(1);
    }
    sleep_ms(50);
    CHECK(close(epfd) == 0 && set_with(fds[0], EPOLLIN | EPOLLET) == epfd);
    write_all(first.client, "x", 1);
    sleep_ms(50);
    write_all(fds[1], "x", 1);
    pthread_join(thread, NULL);
    CHECK(epoll_wait(epfd, &event, 1, 1000) == 1 && event.data.fd == fds[0]);
    close(epfd);
    close(fds[0]);
    close(fds[1]);
    done(first);
}

const struct check checks_of_set_races[] = {
    CHECK_ENTRY(registrations_change_while_threads_wait),
    CHECK_ENTRY(connections_close_while_threads_wait),
    CHECK_ENTRY(processes_fork_while_threads_wait),
    CHECK_ENTRY(children_of_all_kinds_while_sets_come_and_go),
    CHECK_ENTRY(an_end_is_not_that_of_the_next_connection),
    CHECK_ENTRY(threads_in_one_set_serve_at_once),
    CHECK_ENTRY(sleeping_threads_serve_what_another_thread_brings),
    CHECK_ENTRY(threads_share_one_level_triggered_connection),
    CHECK_ENTRY(closed_while_a_thread_waits),
    {NULL, NULL},
};
