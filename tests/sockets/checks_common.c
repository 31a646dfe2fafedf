/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Helpers of the checks. */
#include "checks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

int listener(struct sockaddr_in *ret_addr)
{
    socklen_t bytes = sizeof(*ret_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *ret_addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)ret_addr, bytes) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)ret_addr, &bytes) == 0);
    return fd;
}

void write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        CHECK(n > 0);
        at += n;
        bytes -= (size_t)n;
    }
}

void read_all(int fd, void *data, size_t bytes)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        CHECK(n > 0);
        at += n;
        bytes -= (size_t)n;
    }
}

static void warm_up(struct pair pair)
{
    char byte = 'w';
    for (int i = 0; i < 6; i++) {
        write_all(pair.client, &byte, 1);
        read_all(pair.server, &byte, 1);
        write_all(pair.server, &byte, 1);
        read_all(pair.client, &byte, 1);
    }
}

struct pair connected(void)
{
    struct pair pair = just_connected();
    warm_up(pair);
    return pair;
}

struct pair connect_later(int client)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    struct pair pair = {.client = client};
    CHECK(connect(client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    pair.server = accept(listen_fd, NULL, NULL);
    CHECK(pair.server >= 0);
    close(listen_fd);
    return pair;
}

struct pair just_connected(void)
{
    struct sockaddr_in addr;
    struct pair pair;
    int listen_fd = listener(&addr);
    pair.client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(pair.client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    pair.server = accept(listen_fd, NULL, NULL);
    CHECK(pair.server >= 0);
    close(listen_fd);
    int on = 1; /* otherwise small writes wait for acknowledgements, and the checks wait for these
                   writes */
    setsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(pair.server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return pair;
}

void nonblocking(int fd)
{
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

void done(struct pair pair)
{
    close(pair.client);
    close(pair.server);
}

void every_ms(void (*handler)(int), int flags, int ms)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    struct itimerval timer = {.it_interval = {0, ms * 1000}, .it_value = {0, ms * 1000}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

void no_more_signals(void)
{
    struct itimerval timer = {.it_value = {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

double race_s(void)
{
    const char *value = getenv("VIADUCT_CHECKS_RACE_S");
    return value != NULL ? strtod(value, NULL) : 1;
}

void sleep_ms(int ms)
{
    struct timespec ts = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR) {
    }
}

void wait_for(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Writes until a non-blocking write fails. Returns how many bytes were written. */
size_t fill_up(int fd)
{
    static char block[65536];
    size_t total = 0;
    for (size_t bytes = sizeof(block);;) {
        ssize_t n = send(fd, block, bytes, MSG_DONTWAIT);
        if (n < 0) {
            CHECK(errno == EAGAIN || errno == EWOULDBLOCK);
            if (bytes == 1) {
                return total;
            }
            bytes = 1;
        } else {
            total += (size_t)n;
        }
    }
}

size_t drain(int fd, size_t expected)
{
    static char block[65536];
    size_t total = 0;
    while (total < expected) {
        ssize_t n = read(fd, block, sizeof(block));
        CHECK(n > 0);
        total += (size_t)n;
    }
    return total;
}

void talk_both_ways(int one, int other)
{
    char data[16];
    for (int i = 0; i < 20; i++) {
        write_all(one, "question", 8);
        read_all(other, data, 8);
        CHECK(memcmp(data, "question", 8) == 0);
        write_all(other, "answer", 6);
        read_all(one, data, 6);
        CHECK(memcmp(data, "answer", 6) == 0);
    }
}

int set_with(int fd, uint32_t events)
{
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = events, .data = {.fd = fd}};
    CHECK(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
    return epfd;
}

uint32_t wait_in(int epfd, int fd, int timeout)
{
    struct epoll_event events[4];
    int n = epoll_wait(epfd, events, 4, timeout);
    CHECK(n == 0 || (n == 1 && events[0].data.fd == fd));
    return n == 0 ? 0 : events[0].events;
}

int put_in(int epfd, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.fd = fd}};
    return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event);
}

void write_later(int fd)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        sleep_ms(50);
        write_all(fd, "x", 1);
        _exit(0);
    }
}

void end_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(0);
    }
}
