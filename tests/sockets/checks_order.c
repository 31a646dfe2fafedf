/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Whom a set tells of: each that has become ready, once, and none again before the others have had
 * their turn. Another process writes to some of them, one after another; meanwhile the server
 * sleeps in the set, or looks at it again and again, or does something else.
 */
#include "checks.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ROUNDS 2000u
#define MOST 24u /* connections; few enough for none to be left to a ring of its own */
#define BUSY_US 30u

enum server { SLEEPS, SPINS, IS_BUSY };

struct order {
    unsigned connections;
    unsigned burst; /* are written to, one after another */
    unsigned hot;   /* the first so many are, most of the time */
    uint32_t events;
    int max;
    enum server server;
};

static int fds[MOST]; /* of this process's ends */
static int go[2];     /* to the client: the next round may begin */
static int gone[2];   /* ... from it: it has begun */

static uint64_t state = 1;

static unsigned dice(unsigned below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state >> 33) % below;
}

static void pass_us(double us)
{
    for (double end = now_s() + us / 1e6; now_s() < end;) {
    }
}

/* A round: each of a burst gets its number. */
static void write_burst(const struct order *order)
{
    unsigned among = dice(4) != 0 ? order->hot : order->connections;
    uint32_t written = 0;
    unsigned pause = dice(3);
    for (unsigned char n = 0; n < order->burst;) {
        unsigned i = dice(among);
        if ((written & 1u << i) == 0) {
            written |= 1u << i;
            write_all(fds[i], &n, 1);
            n++;
            pass_us(pause == 0 ? 0 : dice(pause * 3));
        }
    }
}

/* So that any library has done what it wants to do. */
static void warm_up(int fd, bool first)
{
    char byte = 'w';
    for (unsigned i = 0; i < 40; i++) {
        if (first) {
            write_all(fd, &byte, 1);
        }
        read_all(fd, &byte, 1);
        if (!first) {
            write_all(fd, &byte, 1);
        }
    }
}

static void be_client(const struct order *order, const struct sockaddr_in *addr)
{
    char byte;
    for (unsigned i = 0; i < order->connections; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fds[i], (const void *)addr, sizeof(*addr)) == 0);
        warm_up(fds[i], true);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        read_all(go[0], &byte, 1);
        if (order->server == SLEEPS && round % 8 == 0) {
            sleep_ms(1); /* the server has gone to sleep by then */
        } else {
            pass_us(dice(20));
        }
        write_burst(order);
        if (order->server == IS_BUSY) {
            write_all(gone[1], "g", 1);
        }
    }
    read_all(go[0], &byte, 1); /* so that no end is among the last events */
    _exit(0);
}

/* Each of a burst is told, and once: its byte has been read by then. */
static void hear_some(int set, const struct order *order, unsigned *heard, uint32_t *numbers)
{
    struct epoll_event events[MOST];
    int n = epoll_wait(set, events, order->max, order->server == SPINS ? 0 : 30000);
    CHECK(n > 0 || (n == 0 && order->server == SPINS));
    for (int i = 0; i < n; i++) {
        unsigned char number;
        CHECK((events[i].events & EPOLLIN) != 0);
        read_all(fds[events[i].data.u32], &number, 1);
        CHECK(number < order->burst && (*numbers & 1u << number) == 0);
        *numbers |= 1u << number;
        (*heard)++;
    }
}

static void be_server(int set, const struct order *order)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned heard = 0;
        uint32_t numbers = 0;
        struct epoll_event event;
        char byte;
        CHECK(epoll_wait(set, &event, 1, 0) == 0);
        write_all(go[1], "g", 1);
        if (order->server == IS_BUSY) {
            read_all(gone[0], &byte, 1);
            pass_us(round % 2 * BUSY_US);
        }
        while (heard < order->burst) {
            hear_some(set, order, &heard, &numbers);
        }
    }
}

static void all_are_told_once(const struct order *order)
{
    struct sockaddr_in addr;
    int from = listener(&addr);
    int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0 && pipe(go) == 0 && pipe(gone) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        be_client(order, &addr);
    }
    for (unsigned i = 0; i < order->connections; i++) {
        struct epoll_event event = {.events = order->events, .data.u32 = i};
        fds[i] = accept(from, NULL, NULL);
        CHECK(fds[i] >= 0);
        warm_up(fds[i], false);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) == 0);
    }
    be_server(set, order);
    write_all(go[1], "g", 1);
    wait_for(pid);
}

static void many_wake_a_sleeper(void)
{
    all_are_told_once(&(struct order){MOST, 4, 6, EPOLLIN, MOST, SLEEPS});
}

static void many_come_to_who_looks(void)
{
    all_are_told_once(&(struct order){MOST, 4, 6, EPOLLIN, MOST, SPINS});
}

static void many_come_one_at_a_time(void)
{
    all_are_told_once(&(struct order){MOST, 6, 8, EPOLLIN, 1, IS_BUSY});
}

static void edges_come_to_who_is_busy(void)
{
    all_are_told_once(&(struct order){MOST, 6, 8, EPOLLIN | EPOLLET, MOST, IS_BUSY});
}

/* Who is ready and not read is told again, but not before all others have been. */
static void each_has_its_turn(void)
{
    struct sockaddr_in addr;
    int from = listener(&addr);
    int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        int ends[MOST];
        char byte;
        for (unsigned i = 0; i < MOST; i++) {
            ends[i] = socket(AF_INET, SOCK_STREAM, 0);
            CHECK(connect(ends[i], (const void *)&addr, sizeof(addr)) == 0);
            warm_up(ends[i], true);
        }
        for (unsigned i = 0; i < MOST; i++) {
            write_all(ends[i], "x", 1);
        }
        CHECK(read(ends[0], &byte, 1) <= 0); /* until the server has ended */
        _exit(0);
    }
    for (unsigned i = 0; i < MOST; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        fds[i] = accept(from, NULL, NULL);
        CHECK(fds[i] >= 0);
        warm_up(fds[i], false);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) == 0);
    }
    for (unsigned i = 0; i < MOST; i++) {
        char byte;
        CHECK(recv(fds[i], &byte, 1, MSG_PEEK) == 1); /* all are there */
    }
    unsigned told[MOST] = {0};
    for (unsigned call = 1; call <= 10 * MOST; call++) {
        struct epoll_event event;
        CHECK(epoll_wait(set, &event, 1, 30000) == 1);
        told[event.data.u32]++;
    }
    for (unsigned i = 0; i < MOST; i++) {
        CHECK(told[i] >= 9 && told[i] <= 11);
    }
    for (unsigned i = 0; i < MOST; i++) {
        close(fds[i]);
    }
    wait_for(pid);
}

const struct check checks_of_order[] = {
    CHECK_ENTRY(many_wake_a_sleeper),     CHECK_ENTRY(many_come_to_who_looks),
    CHECK_ENTRY(many_come_one_at_a_time), CHECK_ENTRY(edges_come_to_who_is_busy),
    CHECK_ENTRY(each_has_its_turn),       {0}};
