/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* New connections, which may change from the kernel to pipes at any of the first calls: the program
 * must not notice the change. */
#include "checks.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* More calls than the change of path takes. */
#define ROUNDS 12

/* Edges beyond the expected ones. epoll(7) allows some of them where bytes change their path; a
 * program that gets such an edge finds nothing new. */
#define SPARE_EDGES_MAX 4

static int spare_edges;

static int set_of(const int *fds, int count, uint32_t events)
{
    int epfd = epoll_create1(0);
    spare_edges = 0;
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = events, .data = {.fd = fds[i]}};
        CHECK(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, fds[i], &event) == 0);
    }
    return epfd;
}

/* One event of fd, and no other event, not even a little later. */
static void only(int epfd, int fd, uint32_t expected)
{
    struct epoll_event events[4];
    CHECK(epoll_wait(epfd, events, 4, 5000) == 1);
    CHECK(events[0].data.fd == fd && events[0].events == expected);
    CHECK(epoll_wait(epfd, events, 4, 0) == 0 && epoll_wait(epfd, events, 4, 2) == 0);
}

static void count_spare_edges(int count)
{
    CHECK(count >= 0);
    spare_edges += count;
    CHECK(spare_edges <= SPARE_EDGES_MAX);
}

/* No edge now, or an allowed extra one. */
static void no_edge(int epfd, int timeout_ms)
{
    struct epoll_event events[4];
    count_spare_edges(epoll_wait(epfd, events, 4, timeout_ms));
}

/* One edge of fd, and a few allowed extra ones. */
static void edge(int epfd, int fd, uint32_t expected)
{
    struct epoll_event events[4];
    bool found = false;
    while (!found) {
        int n = epoll_wait(epfd, events, 4, 5000);
        CHECK(n > 0);
        for (int i = 0; i < n && !found; i++) {
            found = events[i].data.fd == fd && events[i].events == expected;
        }
        count_spare_edges(n - found);
    }
    no_edge(epfd, 0);
    no_edge(epfd, 2);
}

/* One event for each end, in any order. */
static void both(int epfd, struct pair pair, uint32_t expected)
{
    struct epoll_event events[4];
    int sum = 0;
    for (int seen = 0; seen < 2;) {
        int n = epoll_wait(epfd, events, 4, 5000);
        CHECK(n > 0 && seen + n <= 2);
        seen += n;
        for (int i = 0; i < n; i++) {
            CHECK(events[i].events == expected);
            sum += events[i].data.fd;
        }
    }
    CHECK(sum == pair.client + pair.server);
    CHECK(epoll_wait(epfd, events, 4, 20) == 0);
}

static void every_edge_once(bool reads)
{
    struct pair pair = just_connected();
    const int ends[2] = {pair.client, pair.server};
    int epfd = set_of(ends, 2, EPOLLIN | EPOLLOUT | EPOLLET);
    char bytes[2 * ROUNDS];
    both(epfd, pair, EPOLLOUT);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        int from = ends[i % 2];
        int to = ends[1 - i % 2];
        write_all(from, "x", 1);
        edge(epfd, to, EPOLLIN | EPOLLOUT);
        if (reads) {
            read_all(to, bytes, 1);
            no_edge(epfd, 0);
        }
    }
    for (int i = 0; i < 2 && !reads; i++) {
        CHECK(read(ends[i], bytes, sizeof(bytes)) == ROUNDS); /* all bytes, in one call */
    }
    close(epfd);
    done(pair);
}

static void edges_of_a_new_connection(void)
{
    every_edge_once(true);
}

static void edges_with_unread_bytes(void)
{
    every_edge_once(false);
}

/* The descriptor was full before there were pipes, and has room when there may be some. */
static void edge_for_room_of_a_new_connection(void)
{
    struct pair pair = just_connected();
    int epfd = set_of(&pair.client, 1, EPOLLOUT | EPOLLET);
    edge(epfd, pair.client, EPOLLOUT);
    nonblocking(pair.client);
    for (int i = 0; i < 3; i++) {
        size_t total = fill_up(pair.client);
        drain(pair.server, total);
        edge(epfd, pair.client, EPOLLOUT);
    }
    close(epfd);
    done(pair);
}

/* Bytes that arrive, and are read without a wait on the set, cause an edge nevertheless, because
 * there is room for output; also on an end that has never sent any bytes. */
static void edge_for_what_has_been_read(void)
{
    struct pair pair = just_connected();
    int epfd = set_of(&pair.server, 1, EPOLLIN | EPOLLOUT | EPOLLET);
    char byte;
    edge(epfd, pair.server, EPOLLOUT);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        write_all(pair.client, "x", 1);
        read_all(pair.server, &byte, 1);
        edge(epfd, pair.server, EPOLLOUT);
    }
    close(epfd);
    done(pair);
}

static void one_shots_of_a_new_connection(void)
{
    struct pair pair = just_connected();
    char byte;
    for (int before = 0; before < 6; before++) {
        int epfd = set_of(&pair.server, 1, EPOLLIN | EPOLLONESHOT);
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = pair.server}};
        write_all(pair.client, "x", 1);
        only(epfd, pair.server, EPOLLIN);
        for (int i = 0; i < 2 * before; i++) {
            read_all(pair.server, &byte, 1);
            write_all(pair.server, "y", 1);
            read_all(pair.client, &byte, 1);
            write_all(pair.client, "x", 1);
            CHECK(epoll_wait(epfd, &event, 1, 0) == 0);
        }
        event.data.fd = pair.server;
        event.events = EPOLLIN | EPOLLONESHOT;
        CHECK(epoll_ctl(epfd, EPOLL_CTL_MOD, pair.server, &event) == 0);
        only(epfd, pair.server, EPOLLIN);
        read_all(pair.server, &byte, 1);
        close(epfd);
        done(pair);
        pair = just_connected();
    }
    done(pair);
}

/* nginx does this with a connection to an upstream server. */
static void in_a_set_before_it_connects(void)
{
    struct sockaddr_in addr;
    struct epoll_event event;
    char byte;
    int listen_fd = listener(&addr);
    struct pair pair = {.client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)};
    int epfd = set_of(&pair.client, 1, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    while (epoll_wait(epfd, &event, 1, 0) > 0) { /* EPOLLHUP: it was never connected */
    }
    CHECK(connect(pair.client, (struct sockaddr *)&addr, sizeof(addr)) == 0 ||
          errno == EINPROGRESS);
    edge(epfd, pair.client, EPOLLOUT);
    pair.server = accept(listen_fd, NULL, NULL);
    CHECK(pair.server >= 0);
    for (int i = 0; i < ROUNDS; i++) {
        write_all(pair.client, "x", 1);
        read_all(pair.server, &byte, 1);
        no_edge(epfd, 0);
        write_all(pair.server, "y", 1);
        edge(epfd, pair.client, EPOLLIN | EPOLLOUT);
        read_all(pair.client, &byte, 1);
    }
    close(pair.server);
    edge(epfd, pair.client, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.client, &event) == -1 && errno == EEXIST);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, pair.client, NULL) == 0);
    close(pair.client);
    close(epfd);
    close(listen_fd);
}

/* Waits until `bytes` bytes can be read. */
static bool has_unread(int fd, int bytes)
{
    int unread = 0;
    for (double end = now_s() + 10; unread != bytes && now_s() < end; sleep_ms(1)) {
        CHECK(ioctl(fd, FIONREAD, &unread) == 0);
    }
    return unread == bytes;
}

/* The kernel carries some bytes, and pipes may carry others: a reader can not distinguish them. */
static void bytes_on_both_sides_of_the_change(void)
{
    struct pair pair = just_connected();
    char data[64];
    int unread = 0;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        data[0] = (char)('a' + i);
        write_all(pair.client, data, 1);
        CHECK(recv(pair.server, data, 1, MSG_PEEK) == 1 && data[0] == 'a');
        write_all(pair.server, "y", 1);
        read_all(pair.client, data, 1);
    }
    CHECK(has_unread(pair.server, 2 * ROUNDS));
    CHECK(recv(pair.server, data, 64, MSG_PEEK) == 2 * ROUNDS && data[2 * ROUNDS - 1] == 'x');
    memset(data, 0, sizeof(data));
    CHECK(recv(pair.server, data, 2 * ROUNDS, MSG_PEEK | MSG_WAITALL) == 2 * ROUNDS);
    CHECK(memcmp(data, "abcdefghijklmnopqrstuvwx", 2 * ROUNDS) == 0);
    CHECK(recv(pair.server, data, 5, MSG_PEEK) == 5 && memcmp(data, "abcde", 5) == 0);
    CHECK(read(pair.server, data, 64) == 2 * ROUNDS);
    CHECK(memcmp(data, "abcdefghijklmnopqrstuvwx", 2 * ROUNDS) == 0);
    CHECK(ioctl(pair.server, FIONREAD, &unread) == 0 && unread == 0);
    done(pair);
}

/* And back to the kernel: the writer uses stdio from now on. */
static void bytes_on_both_sides_of_the_way_back(void)
{
    struct pair pair = connected();
    char data[16];
    struct epoll_event event;
    int epfd = set_of(&pair.server, 1, EPOLLIN | EPOLLOUT | EPOLLET);
    only(epfd, pair.server, EPOLLOUT);
    write_all(pair.client, "abc", 3);
    only(epfd, pair.server, EPOLLIN | EPOLLOUT);
    FILE *file = fdopen(dup(pair.client), "r+");
    CHECK(file != NULL);
    epoll_wait(epfd, &event, 1, 20); /* an edge for this is harmless */
    setvbuf(file, NULL, _IONBF, 0);
    CHECK(fwrite("def", 3, 1, file) == 1);
    CHECK(epoll_wait(epfd, &event, 1, 5000) == 1 && event.events == (EPOLLIN | EPOLLOUT));
    CHECK(has_unread(pair.server, 6));
    CHECK(recv(pair.server, data, 16, MSG_PEEK) == 6 && memcmp(data, "abcdef", 6) == 0);
    CHECK(recv(pair.server, data, 6, MSG_PEEK | MSG_WAITALL) == 6);
    CHECK(read(pair.server, data, 16) > 0);
    fclose(file);
    close(epfd);
    done(pair);
}

/* shutdown() is an edge whatever it returns, also on a connection that has returned to the kernel,
 * which reports the same events as before. */
static void edges_by_shutdown_after_the_way_back(void)
{
    struct pair pair = connected();
    const int on = 1;
    struct linger now = {.l_onoff = 1};
    int epfd = set_of(&pair.client, 1, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    only(epfd, pair.client, EPOLLOUT);
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
    close(pair.server);
    only(epfd, pair.client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLERR | EPOLLHUP);
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(shutdown(pair.client, SHUT_WR) == -1 && errno == ENOTCONN);
        only(epfd, pair.client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLERR | EPOLLHUP);
    }
    close(pair.client);
    close(epfd);
}

/* Events of connections that the kernel carries are reported as soon as those of others, in the
 * same call or in the next one. */
static void reported_with_others(uint32_t events, int answers)
{
    struct pair other = connected();
    struct epoll_event ready[4];
    char byte;
    for (int before = 0; before < 2 * ROUNDS; before++) {
        struct pair pair = just_connected();
        const int servers[2] = {other.server, pair.server};
        for (int i = 0; i < before; i++) {
            write_all(i < answers ? pair.server : pair.client, "x", 1);
            read_all(i < answers ? pair.client : pair.server, &byte, 1);
        }
        int epfd = set_of(servers, 2, events);
        CHECK(epoll_wait(epfd, ready, 4, 0) == 0);
        for (int i = 0; i < 2; i++) {
            struct pollfd pfd = {.fd = servers[i], .events = POLLIN};
            write_all(i == 0 ? other.client : pair.client, "x", 1);
            CHECK(poll(&pfd, 1, 10000) == 1);
        }
        sleep_ms(1); /* bytes that have only just arrived may be reported by the next call */
        bool other_is_ready = false;
        bool is_ready = false;
        for (int calls = 0; calls < 2; calls++) {
            for (int n = epoll_wait(epfd, ready, 4, 0); n > 0; n--) {
                other_is_ready |= ready[n - 1].data.fd == other.server;
                is_ready |= ready[n - 1].data.fd == pair.server;
            }
        }
        CHECK(other_is_ready && is_ready);
        read_all(other.server, &byte, 1);
        close(epfd);
        done(pair);
    }
    done(other);
}

static void a_new_one_is_reported_with_others(void)
{
    for (int answers = 0; answers < 2 * ROUNDS; answers += 3) {
        reported_with_others(EPOLLIN, answers);
    }
}

static void an_edge_of_a_new_one_is_reported_with_others(void)
{
    for (int answers = 0; answers < 2 * ROUNDS; answers += 3) {
        reported_with_others(EPOLLIN | EPOLLET, answers);
    }
}

const struct check checks_of_changeover[] = {
    CHECK_ENTRY(a_new_one_is_reported_with_others),
    CHECK_ENTRY(an_edge_of_a_new_one_is_reported_with_others),
    CHECK_ENTRY(edges_of_a_new_connection),
    CHECK_ENTRY(edges_with_unread_bytes),
    CHECK_ENTRY(edge_for_room_of_a_new_connection),
    CHECK_ENTRY(edge_for_what_has_been_read),
    CHECK_ENTRY(one_shots_of_a_new_connection),
    CHECK_ENTRY(in_a_set_before_it_connects),
    CHECK_ENTRY(bytes_on_both_sides_of_the_change),
    CHECK_ENTRY(bytes_on_both_sides_of_the_way_back),
    CHECK_ENTRY(edges_by_shutdown_after_the_way_back),
    {0},
};
