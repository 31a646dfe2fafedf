/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* poll, select, epoll and signals. */
#include "checks.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

static void poll_sees_data_and_room(void)
{
    struct pair pair = connected();
    struct pollfd pfd = {pair.server, POLLIN | POLLOUT, 0};
    CHECK(poll(&pfd, 1, 0) == 1 && pfd.revents == POLLOUT);
    write_all(pair.client, "x", 1);
    CHECK(poll(&pfd, 1, 30000) == 1);
    pfd.events = POLLIN;
    CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLIN);
    char byte;
    read_all(pair.server, &byte, 1);
    CHECK(poll(&pfd, 1, 0) == 0 && poll(&pfd, 1, 20) == 0);
    size_t total = fill_up(pair.client);
    pfd = (struct pollfd){pair.client, POLLOUT, 0};
    CHECK(poll(&pfd, 1, 20) == 0);
    drain(pair.server, total);
    CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLOUT);
    pfd.fd = -1;
    CHECK(poll(&pfd, 1, 0) == 0 && pfd.revents == 0);
    done(pair);
}

static void poll_sleeps_and_is_woken(void)
{
    struct pair pair = connected();
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 20; i++) {
            sleep_ms(10);
            write_all(i % 2 == 0 ? pair.client : fds[1], "x", 1);
        }
        _exit(0);
    }
    int seen[2] = {0, 0};
    while (seen[0] + seen[1] < 20) {
        struct pollfd pfds[2] = {{pair.server, POLLIN, 0}, {fds[0], POLLIN, 0}};
        CHECK(poll(pfds, 2, 30000) > 0);
        for (int i = 0; i < 2; i++) {
            char byte;
            if ((pfds[i].revents & POLLIN) != 0) {
                CHECK(read(pfds[i].fd, &byte, 1) == 1);
                seen[i]++;
            }
        }
    }
    CHECK(seen[0] == 10 && seen[1] == 10);
    wait_for(pid);
    close(fds[0]);
    close(fds[1]);
    done(pair);
}

static volatile sig_atomic_t let_in;

static void on_let_in(int number)
{
    (void)number;
    let_in++;
}

/* A pending signal ends even the shortest wait, for whatever reason the thread woke before. */
static void a_signal_that_only_the_call_lets_in(void)
{
    struct pair pair = connected();
    struct sigaction action = {.sa_handler = on_let_in};
    struct timespec none = {0, 0};
    struct pollfd pfd = {pair.server, POLLIN, 0};
    sigset_t only, before;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigemptyset(&only);
    sigaddset(&only, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &only, &before) == 0);
    for (int i = 1; i <= 4; i++) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(pair.server, &set);
        CHECK(raise(SIGUSR1) == 0 && let_in == i - 1);
        int rc = i % 2 == 0 ? ppoll(&pfd, 1, &none, &before)
                            : pselect(pair.server + 1, &set, NULL, NULL, &none, &before);
        CHECK(rc == -1 && errno == EINTR && let_in == i);
    }
    done(pair);
}

static void select_sees_the_same(void)
{
    struct pair pair = connected();
    fd_set in, out;
    struct timeval tv = {0, 20000};
    FD_ZERO(&in);
    FD_SET(pair.server, &in);
    CHECK(select(pair.server + 1, &in, NULL, NULL, &tv) == 0 && !FD_ISSET(pair.server, &in));
    write_all(pair.client, "x", 1);
    FD_SET(pair.server, &in);
    FD_ZERO(&out);
    FD_SET(pair.server, &out);
    FD_SET(pair.client, &out);
    tv = (struct timeval){5, 0};
    int max = pair.server > pair.client ? pair.server : pair.client;
    CHECK(select(max + 1, &in, &out, NULL, &tv) == 3);
    CHECK(FD_ISSET(pair.server, &in) && FD_ISSET(pair.client, &out) && tv.tv_sec >= 4);
    done(pair);
}

static int epoll_of(int fd, uint32_t events)
{
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = events, .data = {.u64 = UINT64_C(0x1234567890) + 1}};
    CHECK(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
    return epfd;
}

static uint32_t epoll_once(int epfd, int timeout)
{
    struct epoll_event events[4];
    int n = epoll_wait(epfd, events, 4, timeout);
    CHECK(n == 0 || n == 1);
    CHECK(n == 0 || events[0].data.u64 == UINT64_C(0x1234567890) + 1);
    return n == 0 ? 0 : events[0].events;
}

static void epoll_by_level(void)
{
    struct pair pair = connected();
    char byte;
    int epfd = epoll_of(pair.server, EPOLLIN);
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = UINT64_C(0x1234567890) + 1}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.server, &event) == -1 && errno == EEXIST);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.client, &event) == -1 && errno == ENOENT);
    CHECK(epoll_once(epfd, 0) == 0 && epoll_once(epfd, 20) == 0);
    write_all(pair.client, "xy", 2);
    CHECK(epoll_once(epfd, 1000) == EPOLLIN && epoll_once(epfd, 0) == EPOLLIN);
    read_all(pair.server, &byte, 1);
    CHECK(epoll_once(epfd, 0) == EPOLLIN);
    read_all(pair.server, &byte, 1);
    CHECK(epoll_once(epfd, 0) == 0);
    event.events = EPOLLIN | EPOLLOUT;
    CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
    CHECK(epoll_once(epfd, 1000) == EPOLLOUT);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == 0);
    CHECK(epoll_once(epfd, 0) == 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.server, NULL) == -1 && errno == ENOENT);
    close(epfd);
    done(pair);
}

static void epoll_by_edge(void)
{
    struct pair pair = connected();
    char byte;
    int epfd = epoll_of(pair.server, EPOLLIN | EPOLLET);
    epoll_once(epfd, 0); /* an edge for an earlier event is allowed */
    write_all(pair.client, "a", 1);
    CHECK(epoll_once(epfd, 1000) == EPOLLIN);
    CHECK(epoll_once(epfd, 0) == 0 && epoll_once(epfd, 20) == 0);
    write_all(pair.client, "b", 1);
    CHECK(epoll_once(epfd, 1000) == EPOLLIN);
    read_all(pair.server, &byte, 1);
    CHECK(epoll_once(epfd, 0) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        sleep_ms(50);
        write_all(pair.client, "c", 1);
        _exit(0);
    }
    CHECK(epoll_once(epfd, 5000) == EPOLLIN); /* the thread sleeps, and a byte is unread */
    wait_for(pid);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET,
                                .data = {.u64 = UINT64_C(0x1234567890) + 1}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
    CHECK(epoll_once(epfd, 1000) == EPOLLIN); /* rearming reports an event that is still pending */
    CHECK(epoll_once(epfd, 0) == 0);
    close(epfd);
    done(pair);
}

static void epoll_edge_for_room(void)
{
    struct pair pair = connected();
    int epfd = epoll_of(pair.client, EPOLLOUT | EPOLLET);
    CHECK(epoll_once(epfd, 1000) == EPOLLOUT);
    CHECK(epoll_once(epfd, 0) == 0);
    size_t total = fill_up(pair.client);
    CHECK(epoll_once(epfd, 10) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        sleep_ms(50);
        drain(pair.server, total);
        _exit(0);
    }
    CHECK(epoll_once(epfd, 5000) == EPOLLOUT);
    wait_for(pid);
    close(epfd);
    done(pair);
}

static void epoll_one_shot(void)
{
    struct pair pair = connected();
    char byte;
    int epfd = epoll_of(pair.server, EPOLLIN | EPOLLONESHOT);
    write_all(pair.client, "a", 1);
    CHECK(epoll_once(epfd, 1000) == EPOLLIN);
    CHECK(epoll_once(epfd, 20) == 0);
    write_all(pair.client, "b", 1);
    CHECK(epoll_once(epfd, 20) == 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT,
                                .data = {.u64 = UINT64_C(0x1234567890) + 1}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
    CHECK(epoll_once(epfd, 1000) == EPOLLIN);
    read_all(pair.server, &byte, 1);
    close(pair.client);
    CHECK(epoll_once(epfd, 20) == 0);
    close(epfd);
    close(pair.server);
}

static void epoll_ends(void)
{
    struct pair pair = connected();
    char byte;
    int epfd = epoll_of(pair.server, EPOLLIN | EPOLLRDHUP);
    write_all(pair.client, "z", 1);
    shutdown(pair.client, SHUT_WR);
    CHECK(epoll_once(epfd, 1000) != 0);
    sleep_ms(5);
    CHECK(epoll_once(epfd, 1000) == (EPOLLIN | EPOLLRDHUP));
    read_all(pair.server, &byte, 1);
    CHECK(epoll_once(epfd, 1000) == (EPOLLIN | EPOLLRDHUP));
    CHECK(read(pair.server, &byte, 1) == 0);
    close(pair.server);
    CHECK(epoll_once(epfd, 0) == 0); /* close() removes it from the set */
    close(epfd);
    close(pair.client);
}

static void epoll_sleeps_and_is_woken(void)
{
    enum { PAIRS = 20, ROUNDS = 10 };
    struct pair pairs[PAIRS];
    int epfd = epoll_create1(0);
    int fds[2];
    CHECK(pipe(fds) == 0);
    for (int i = 0; i < PAIRS; i++) {
        pairs[i] = connected();
        struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = (uint32_t)i}};
        CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pairs[i].server, &event) == 0);
    }
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = PAIRS}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fds[0], &event) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < PAIRS; i++) {
                write_all(pairs[i].client, "x", 1);
                if (i % 7 == 0) {
                    sleep_ms(2);
                }
            }
            write_all(fds[1], "x", 1);
        }
        _exit(0);
    }
    int seen[PAIRS + 1] = {0};
    int total = 0;
    while (total < (PAIRS + 1) * ROUNDS) {
        struct epoll_event events[5];
        int n = epoll_wait(epfd, events, 5, 30000);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            char data[ROUNDS];
            unsigned which = events[i].data.u32;
            CHECK(which <= PAIRS);
            ssize_t got = read(which == PAIRS ? fds[0] : pairs[which].server, data, ROUNDS);
            CHECK(got > 0);
            seen[which] += (int)got;
            total += (int)got;
        }
    }
    for (int i = 0; i <= PAIRS; i++) {
        CHECK(seen[i] == ROUNDS);
    }
    wait_for(pid);
    close(epfd);
    for (int i = 0; i < PAIRS; i++) {
        done(pairs[i]);
    }
}

struct sleeper {
    int epfd;
    int events;
};

static void *sleep_in_set(void *of_sleeper)
{
    struct sleeper *sleeper = of_sleeper;
    struct epoll_event event;
    sleeper->events = epoll_wait(sleeper->epfd, &event, 1, 30000) == 1 ? (int)event.events : 0;
    return NULL;
}

/* A thread sleeps in the set while another changes it. */
static void epoll_is_changed_under_a_sleeper(void)
{
    struct pair pair = connected();
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    struct sleeper sleeper = {.epfd = epoll_create1(0)};
    pthread_t thread;
    char byte;
    write_all(pair.client, "x", 1);
    CHECK(pthread_create(&thread, NULL, sleep_in_set, &sleeper) == 0);
    sleep_ms(50);
    CHECK(epoll_ctl(sleeper.epfd, EPOLL_CTL_ADD, pair.server, &event) == 0);
    pthread_join(thread, NULL);
    CHECK(sleeper.events == EPOLLIN);

    CHECK(pthread_create(&thread, NULL, sleep_in_set, &sleeper) == 0);
    sleep_ms(50);
    CHECK(epoll_ctl(sleeper.epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
    pthread_join(thread, NULL);
    CHECK(sleeper.events == EPOLLIN);
    read_all(pair.server, &byte, 1);

    CHECK(epoll_ctl(sleeper.epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
    CHECK(pthread_create(&thread, NULL, sleep_in_set, &sleeper) == 0);
    sleep_ms(50);
    event.events = EPOLLOUT;
    CHECK(epoll_ctl(sleeper.epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
    pthread_join(thread, NULL);
    CHECK(sleeper.events == EPOLLOUT);

    struct pair other = connected();
    event.events = EPOLLIN;
    CHECK(epoll_ctl(sleeper.epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
    CHECK(pthread_create(&thread, NULL, sleep_in_set, &sleeper) == 0);
    sleep_ms(50);
    CHECK(epoll_ctl(sleeper.epfd, EPOLL_CTL_ADD, other.server, &event) == 0);
    sleep_ms(50);
    write_all(other.client, "x", 1);
    pthread_join(thread, NULL);
    CHECK(sleeper.events == EPOLLIN);
    close(sleeper.epfd);
    done(other);
    done(pair);
}

static void an_epoll_set_can_be_polled(void)
{
    struct pair pair = connected();
    int epfd = epoll_of(pair.server, EPOLLIN);
    struct pollfd pfd = {epfd, POLLIN, 0};
    CHECK(poll(&pfd, 1, 20) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        sleep_ms(50);
        write_all(pair.client, "x", 1);
        _exit(0);
    }
    CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLIN);
    CHECK(epoll_once(epfd, 0) == EPOLLIN);
    wait_for(pid);
    close(epfd);
    done(pair);
}

/* --- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

/* A read that continues after a signal. */
static void read_among_signals(struct pair pair)
{
    char byte;
    alarms = 0;
    every_ms(on_alarm, SA_RESTART, 50);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        sleep_ms(150);
        write_all(pair.client, "x", 1);
        _exit(0);
    }
    CHECK(read(pair.server, &byte, 1) == 1 && alarms > 0);
    no_more_signals();
    wait_for(pid);
}

static void signals_interrupt(void)
{
    struct pair pair = connected();
    struct pollfd pfd = {pair.server, POLLIN, 0};
    struct epoll_event event;
    char byte;
    signal(SIGPIPE, SIG_DFL);
    every_ms(on_alarm, 0, 50);
    CHECK(read(pair.server, &byte, 1) == -1 && errno == EINTR && alarms > 0);
    int epfd = epoll_of(pair.server, EPOLLIN);
    every_ms(on_alarm, SA_RESTART, 50);
    CHECK(poll(&pfd, 1, 30000) == -1 && errno == EINTR);
    CHECK(epoll_wait(epfd, &event, 1, 30000) == -1 && errno == EINTR && alarms > 2);
    close(epfd);
    read_among_signals(pair);
    done(pair);
}

/* A handler for crashes, which never interrupts a waiting call, does not make other signals
 * interrupt calls. */
static void handlers_of_crashes_do_not_interrupt(void)
{
    struct pair pair = connected();
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    signal(SIGPIPE, SIG_DFL);
    read_among_signals(pair);
    done(pair);
}

static sigjmp_buf away;

static void jump_away(int number)
{
    (void)number;
    siglongjmp(away, 1);
}

static void a_handler_may_jump_away(void)
{
    struct pair pair = connected();
    char byte;
    for (int i = 0; i < 5; i++) {
        if (sigsetjmp(away, 1) == 0) {
            every_ms(jump_away, 0, 20);
            ssize_t n = read(pair.server, &byte, 1);
            (void)n;
            CHECK(false);
        }
        no_more_signals();
    }
    write_all(pair.client, "x", 1);
    read_all(pair.server, &byte, 1);
    done(pair);
}

/* The ways in which a peer can misuse an eventfd that it holds. */
enum mischief { FILLS = 1, EMPTIES = 2, LETS_BLOCK = 4 };

/* Uses system calls, because the library does not see them. Reads at most a thousand times. */
static void harm(int fd, unsigned mischief)
{
    int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
    uint64_t count;
    CHECK(syscall(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK) == 0);
    for (int i = 0; i < 1000 && (mischief & EMPTIES) != 0; i++) {
        (void)!syscall(SYS_read, fd, &count, sizeof(count));
    }
    for (int bit = 63; bit >= 0 && (mischief & FILLS) != 0; bit--) {
        count = UINT64_C(1) << bit;
        (void)!syscall(SYS_write, fd, &count, sizeof(count));
    }
    if ((mischief & LETS_BLOCK) != 0) {
        CHECK(syscall(SYS_fcntl, fd, F_SETFL, flags & ~O_NONBLOCK) == 0);
    }
}

/* Misuses all eventfds of this process. Returns their number. */
static int harm_event_counters(unsigned mischief)
{
    int found = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[300];
        char target[64] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "[eventfd]") != NULL) {
            harm(atoi(entry->d_name), mischief);
            found++;
        }
    }
    closedir(folder);
    return found;
}

/* A sleeping thread is woken nevertheless, and a thread that wakes it does not wait. */
static void harmed_bells_ring(void)
{
    static const unsigned mischief[] = {FILLS, EMPTIES, FILLS | LETS_BLOCK, EMPTIES | LETS_BLOCK};
    struct pair pair = connected();
    char byte = 'x';
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(20); /* if it waits forever, the check fails by its time limit */
        close(pair.client);
        while (read(pair.server, &byte, 1) == 1) {
            sleep_ms(2); /* so that the other thread sleeps */
            write_all(pair.server, &byte, 1);
        }
        _exit(0);
    }
    close(pair.server);
    for (int i = 0; i < 20; i++) {
        sleep_ms(2);
        CHECK(harm_event_counters(mischief[i % 4]) > 0 || getenv("LD_PRELOAD") == NULL);
        write_all(pair.client, &byte, 1);
        struct pollfd pfd = {pair.client, POLLIN, 0};
        CHECK(poll(&pfd, 1, 30000) == 1);
        read_all(pair.client, &byte, 1);
    }
    close(pair.client);
    wait_for(pid);
}

const struct check checks_of_waiting[] = {
    CHECK_ENTRY(poll_sees_data_and_room),
    CHECK_ENTRY(poll_sleeps_and_is_woken),
    CHECK_ENTRY(harmed_bells_ring),
    CHECK_ENTRY(a_signal_that_only_the_call_lets_in),
    CHECK_ENTRY(select_sees_the_same),
    CHECK_ENTRY(epoll_by_level),
    CHECK_ENTRY(epoll_by_edge),
    CHECK_ENTRY(epoll_edge_for_room),
    CHECK_ENTRY(epoll_one_shot),
    CHECK_ENTRY(epoll_ends),
    CHECK_ENTRY(epoll_sleeps_and_is_woken),
    CHECK_ENTRY(epoll_is_changed_under_a_sleeper),
    CHECK_ENTRY(an_epoll_set_can_be_polled),
    CHECK_ENTRY(signals_interrupt),
    CHECK_ENTRY(handlers_of_crashes_do_not_interrupt),
    CHECK_ENTRY(a_handler_may_jump_away),
    {0},
};
