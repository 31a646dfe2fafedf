/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A set reports events in the order in which its descriptors became ready. Another process writes
 * to some of them, one after another; meanwhile the server sleeps in the set, polls it, or works.
 * The test counts the rounds with a wrong order.
 */
#include "checks.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ROUNDS 2000u
#define MOST 24u /* connections; too few for any of them to become cold */
#define BUSY_US 30u
/* The kernel's own events are sometimes late: another CPU processes the sent bytes. */
#define WRONG_MAX (ROUNDS / 25)

enum server { SLEEPS, SPINS, IS_BUSY };

struct order {
    unsigned connections;
    unsigned burst; /* connections that the client writes to, one after another */
    unsigned hot;   /* most bursts use only the first `hot` connections */
    uint32_t events;
    int max;
    enum server server;
};

static int fds[MOST]; /* the descriptors of this process's ends */
static int go[2];     /* to the client: the next round may begin */
static int gone[2];   /* ... from the client: the round has begun */

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

/* A round: each connection of a burst gets its number in the order. */
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

/* Enough messages that a library has accelerated the connection. */
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
            sleep_ms(1); /* the server sleeps by then */
        } else {
            pass_us(dice(20));
        }
        write_burst(order);
        if (order->server == IS_BUSY) {
            write_all(gone[1], "g", 1);
        }
    }
    read_all(go[0], &byte, 1); /* so that no end of file is among the last events */
    _exit(0);
}

/* Events of one call must be in order, and after those of earlier calls. True if one was not. */
static bool receive_some(int set, const struct order *order, unsigned *received)
{
    struct epoll_event events[MOST];
    bool wrong = false;
    int n = epoll_wait(set, events, order->max, order->server == SPINS ? 0 : 30000);
    CHECK(n > 0 || (n == 0 && order->server == SPINS));
    for (int i = 0; i < n; i++) {
        unsigned char number;
        CHECK((events[i].events & EPOLLIN) != 0);
        read_all(fds[events[i].data.u32], &number, 1);
        wrong |= number != *received;
        (*received)++;
    }
    return wrong;
}

static unsigned be_server(int set, const struct order *order)
{
    unsigned wrong_rounds = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned received = 0;
        bool wrong = false;
        struct epoll_event event;
        char byte;
        CHECK(epoll_wait(set, &event, 1, 0) == 0);
        write_all(go[1], "g", 1);
        if (order->server == IS_BUSY) {
            read_all(gone[0], &byte, 1);
            pass_us(round % 2 * BUSY_US);
        }
        while (received < order->burst) {
            wrong |= receive_some(set, order, &received);
        }
        wrong_rounds += wrong;
    }
    return wrong_rounds;
}

static void is_in_order(const struct order *order)
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
    unsigned wrong = be_server(set, order);
    write_all(go[1], "g", 1);
    if (wrong >= WRONG_MAX) {
        printf("%u of %u rounds in wrong order\n", wrong, ROUNDS);
    }
    CHECK(wrong < WRONG_MAX);
    wait_for(pid);
}

static void two_wake_a_sleeper_in_order(void)
{
    is_in_order(&(struct order){2, 2, 2, EPOLLIN, MOST, SLEEPS});
}

static void two_reach_a_polling_server_in_order(void)
{
    is_in_order(&(struct order){2, 2, 2, EPOLLIN, MOST, SPINS});
}

static void two_reach_a_busy_server_in_order(void)
{
    is_in_order(&(struct order){2, 2, 2, EPOLLIN, MOST, IS_BUSY});
}

static void many_wake_a_sleeper_in_order(void)
{
    is_in_order(&(struct order){MOST, 4, 6, EPOLLIN, MOST, SLEEPS});
}

static void many_reach_a_polling_server_in_order(void)
{
    is_in_order(&(struct order){MOST, 4, 6, EPOLLIN, MOST, SPINS});
}

static void many_reach_a_busy_server_in_order(void)
{
    is_in_order(&(struct order){MOST, 4, 6, EPOLLIN, MOST, IS_BUSY});
}

static void many_come_one_at_a_time_in_order(void)
{
    is_in_order(&(struct order){MOST, 6, 8, EPOLLIN, 1, IS_BUSY});
}

static void edges_come_in_order(void)
{
    is_in_order(&(struct order){MOST, 6, 8, EPOLLIN | EPOLLET, MOST, IS_BUSY});
}

/* --- connections that are new ---------------------------------------------------------------- */

#define NEW_ONES 300u
#define TRIES 5

/* Writes to a new connection, after some bytes in each direction, and then to the old one. */
static void write_to_new(const struct sockaddr_in *addr, int old, unsigned bytes)
{
    char byte = 'w';
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fresh, (const void *)addr, sizeof(*addr)) == 0);
    for (unsigned i = 0; i < bytes; i++) {
        write_all(fresh, &byte, 1);
        read_all(fresh, &byte, 1);
    }
    write_all(fresh, "1", 1);
    write_all(old, "2", 1);
    read_all(old, &byte, 1);
    read_all(fresh, &byte, 1);
    close(fresh);
}

static void be_client_of_new(const struct sockaddr_in *addr)
{
    int old = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(old, (const void *)addr, sizeof(*addr)) == 0);
    warm_up(old, true);
    for (unsigned i = 0; i < NEW_ONES; i++) {
        write_to_new(addr, old, 1 + i % 5);
    }
    write_all(old, "q", 1);
    _exit(0);
}

/* The next event; each call fetches several. */
static int await(int set)
{
    static struct epoll_event events[MOST];
    static int count;
    static int next;
    if (next == count) {
        next = 0;
        count = epoll_wait(set, events, MOST, 30000);
        CHECK(count > 0);
    }
    return events[next++].data.fd;
}

static void add(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* Returns the byte that the next ready connection has sent, and answers it; 0 for a new connection,
 * or one that has ended. */
static char receive_one(int set, int from)
{
    char byte;
    int fd = await(set);
    if (fd == from) {
        add(set, accept(from, NULL, NULL));
        return 0;
    }
    ssize_t n = read(fd, &byte, 1);
    CHECK(n >= 0);
    if (n == 0) {
        close(fd);
        return 0;
    }
    if (byte != 'q') {
        write_all(fd, &byte, 1);
    }
    return byte;
}

/* The number of new connections that came after the byte that their client has sent later. */
static unsigned count_late(void)
{
    struct sockaddr_in addr;
    int from = listener(&addr);
    int set = epoll_create1(EPOLL_CLOEXEC);
    unsigned late = 0;
    pid_t pid = fork();
    if (pid == 0) {
        be_client_of_new(&addr);
    }
    int old = accept(from, NULL, NULL);
    warm_up(old, false);
    add(set, old);
    add(set, from);
    for (char last = 0, byte; (byte = receive_one(set, from)) != 'q';
         last = byte != 0 ? byte : last) {
        late += byte == '1' && last == '2' ? 1 : 0;
    }
    wait_for(pid);
    close(old);
    close(from);
    close(set);
    return late;
}

/* On a busy machine a thread may be stopped between two checks of its connections, so some come
 * late: one run of several must be in order. */
static void new_connections_come_in_order(void)
{
    unsigned late = NEW_ONES;
    for (int i = 0; i < TRIES && late >= NEW_ONES / 10; i++) {
        late = count_late();
    }
    if (late >= NEW_ONES / 10) {
        printf("%u of %u new connections came late\n", late, NEW_ONES);
    }
    CHECK(late < NEW_ONES / 10);
}

const struct check checks_of_order[] = {CHECK_ENTRY(two_wake_a_sleeper_in_order),
                                        CHECK_ENTRY(two_reach_a_polling_server_in_order),
                                        CHECK_ENTRY(two_reach_a_busy_server_in_order),
                                        CHECK_ENTRY(many_wake_a_sleeper_in_order),
                                        CHECK_ENTRY(many_reach_a_polling_server_in_order),
                                        CHECK_ENTRY(many_reach_a_busy_server_in_order),
                                        CHECK_ENTRY(many_come_one_at_a_time_in_order),
                                        CHECK_ENTRY(edges_come_in_order),
                                        CHECK_ENTRY(new_connections_come_in_order),
                                        {0}};
